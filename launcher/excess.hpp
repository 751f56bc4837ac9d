// Excess: for each limit that ends a command, a command that goes beyond it, so that `belljar test`
// can wait for the end instead of believing that there will be one.
#pragma once

#include <span>
#include <string_view>

#include "launcher/record.hpp"
#include "launcher/trial.hpp"
#include "policy/policy.hpp"

namespace belljar::launcher {

struct Excess {
  std::string_view limit;  ///< "limits.memory": the policy path, and what the command is told.
  Cause cause;             ///< How its run must end.
  TrialKind kind;
  bool by_cgroup;  ///< Without one a policy may prefer to go without the limit.
  bool (*is_set)(const policy::Limits&);
  /// Lowers the limit to what can be waited for, and takes away what would end the command before.
  void (*shorten)(policy::Policy&);
  /// Inside: goes beyond it. Comes back where nobody ends it; what it takes of the host until then
  /// is bounded.
  void (*commit)();
};

[[nodiscard]] std::span<const Excess> excesses();

}  // namespace belljar::launcher
