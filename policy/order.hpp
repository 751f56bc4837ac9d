// Which of two policies allows more: the order of each field, for `final` and for ceilings.
//
// Orders are partial, and err on one side: where it is not certain that a policy is within another,
// it is not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "policy/load.hpp"
#include "policy/policy.hpp"

namespace belljar::policy {

/// One value that is not within what the other policy has there.
struct Excess {
  std::string path;
  std::string_view rule;  ///< "a limit may only fall"
};

/// Where `inner` allows something that `outer` does not, by path.
[[nodiscard]] std::vector<Excess> excesses(const Policy& inner, const Policy& outer);

/// What is wrong with `keys` as the path of a value that a policy can have; empty when nothing is.
[[nodiscard]] std::string unknown_path(const std::vector<std::string>& keys);

/// `"shared" is wider than "none" of base.json:3:25; it may only move towards "none"`
[[nodiscard]] std::string excess_text(const Excess& excess, const Policy& inner,
                                      const Policy& outer);

/// Whether one of two paths leads to the other, or both are the same.
[[nodiscard]] bool paths_meet(std::string_view a, std::string_view b);

/// Errors for all that `policy` allows beyond `ceiling`, which is a whole policy; none when it is
/// within it. What the ceiling does not limit, is not limited by it.
[[nodiscard]] Diagnostics check_ceiling(const Policy& policy, const Policy& ceiling);

}  // namespace belljar::policy
