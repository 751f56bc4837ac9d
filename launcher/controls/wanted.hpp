// What a policy wants of a host, as the controls count it, for whoever looks at hosts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "policy/policy.hpp"

namespace belljar::launcher {

/// The cgroup controllers that any limit can need.
[[nodiscard]] std::vector<std::string> every_cgroup_controller();

/// The limits that the policy sets and a controller serves: "limits.memory".
[[nodiscard]] std::vector<std::string> limits_served_by(std::string_view controller,
                                                        const policy::Limits& limits);

/// Something of Landlock's that came with a later kernel.
struct LandlockLack {
  std::string_view right;   ///< As the kernel calls it: "truncate"
  std::string_view kernel;  ///< That has it: "6.2"
  std::string_view without;
};

/// What the policy asks for and an ABI of at least 1 does not have. A policy that only prefers it
/// loses nothing by a scope that its namespaces hold anyway.
[[nodiscard]] std::vector<LandlockLack> landlock_lacks(const policy::Landlock& wanted, int abi,
                                                       bool own_network);

}  // namespace belljar::launcher
