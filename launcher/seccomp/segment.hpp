// The part of a filter that decides one call by its arguments.
#pragma once

#include <vector>

#include "launcher/seccomp/program.hpp"
#include "launcher/seccomp/table.hpp"
#include "policy/base/result.hpp"

namespace belljar::launcher {

/// Clauses of a policy or of the table, in a form of its own. The first that holds decides.
struct CallVerdict {
  struct Clause {
    SeccompAction action;
    std::vector<std::vector<policy::ArgumentTest>> when;  ///< Empty: always.
  };
  std::vector<Clause> clauses;
  SeccompAction otherwise;
};

/// The kernel's return value for an action.
[[nodiscard]] std::uint32_t return_value(SeccompAction action);

/// Instructions that return the verdict; they read the arguments themselves and every path returns.
///
/// A test reads the low 32 bits of its argument when mask and value fit in them: the kernel takes
/// no more from an int. Of `<`, `<=`, `>`, `>=` a filter cannot know whether the kernel compares an
/// int or a size_t, so where the upper half makes a difference the stricter verdict wins.
///
/// kInvalid: an argument past the sixth, two tests of one argument in one alternative, a mask with
/// another comparison than kEqual, a value with bits outside its mask, an error outside 1..4095.
[[nodiscard]] Result<std::vector<sock_filter>> make_segment(const CallVerdict& verdict);

}  // namespace belljar::launcher
