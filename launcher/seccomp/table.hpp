// The built-in sets as written in table.json, by name. table_to_cpp.py makes the definition, which
// the generator of the embedded filters and the run-time compiler share.
#pragma once

#include <span>
#include <string_view>

#include "policy/policy.hpp"

namespace belljar::launcher {

/// What the kernel does with a call; policy::SyscallAction without the policy's spelling of it.
struct SeccompAction {
  policy::SyscallAction::Kind kind = policy::SyscallAction::Kind::kAllow;
  int error = 0;  ///< Only with kErrno.
  bool operator==(const SeccompAction&) const = default;
};

/// Holds when all its tests do.
using TableAlternative = std::span<const policy::ArgumentTest>;

/// `action` is the verdict when any alternative holds, or when there is none.
struct TableClause {
  SeccompAction action;
  std::span<const TableAlternative> when;
};

/// The verdict of a set on one call: that of the first clause that holds, otherwise `verdict`.
struct TableRow {
  std::string_view name;
  SeccompAction verdict;
  std::span<const TableClause> clauses;
  std::string_view reason;  ///< Why it is refused; empty when it is allowed whatever its arguments.
};

struct SyscallSet {
  SeccompAction default_action;  ///< For calls without a row.
  std::span<const TableRow> rows;
};

/// Rows in the order of their names, each name once. `kNone` allows everything.
[[nodiscard]] const SyscallSet& syscall_set(policy::SyscallBase base);

}  // namespace belljar::launcher
