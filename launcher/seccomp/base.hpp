// The built-in sets with the numbers of this architecture.
#pragma once

#include <span>
#include <string_view>

#include "launcher/seccomp/compile.hpp"
#include "launcher/seccomp/table.hpp"

namespace belljar::launcher {

/// A row of the table whose call exists on this architecture.
struct TableEntry {
  std::string_view name;  ///< Empty for a number without a row (see seccomp_verdict).
  int number = -1;
  SeccompAction verdict;                 ///< When none of `clauses` holds.
  std::span<const TableClause> clauses;  ///< Not empty: the verdict depends on the arguments.
  std::string_view reason;               ///< Empty when the call is allowed whatever its arguments.
};

/// In the order of the numbers. Empty for `kNone`.
[[nodiscard]] std::span<const TableEntry> seccomp_table(policy::SyscallBase base);

/// The entry of a number, or one without a name that holds the default of the set.
[[nodiscard]] TableEntry seccomp_verdict(policy::SyscallBase base, int number);

/// The set in the form that `compile_filter` takes.
[[nodiscard]] Verdicts base_verdicts(policy::SyscallBase base);

}  // namespace belljar::launcher
