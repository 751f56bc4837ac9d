#include "launcher/seccomp/base.hpp"

#include <algorithm>
#include <vector>

#include "launcher/seccomp/names.hpp"

namespace belljar::launcher {

namespace {

std::vector<TableEntry> resolve_rows(policy::SyscallBase base) {
  std::vector<TableEntry> entries;
  for (const TableRow& row : syscall_set(base).rows) {
    const Result<int> number = resolve_syscall(row.name);
    if (number) entries.push_back({row.name, *number, row.verdict, row.clauses, row.reason});
  }
  std::sort(entries.begin(), entries.end(),
            [](const TableEntry& a, const TableEntry& b) { return a.number < b.number; });
  return entries;
}

CallVerdict copy_verdict(const TableEntry& entry) {
  CallVerdict verdict;
  verdict.otherwise = entry.verdict;
  for (const TableClause& clause : entry.clauses) {
    CallVerdict::Clause& copy = verdict.clauses.emplace_back();
    copy.action = clause.action;
    for (const TableAlternative& tests : clause.when)
      copy.when.emplace_back(tests.begin(), tests.end());
  }
  return verdict;
}

}  // namespace

std::span<const TableEntry> seccomp_table(policy::SyscallBase base) {
  switch (base) {
    case policy::SyscallBase::kNone:
      return {};
    case policy::SyscallBase::kAgent1: {
      static const std::vector<TableEntry> agent = resolve_rows(base);
      return agent;
    }
    case policy::SyscallBase::kStrict1: {
      static const std::vector<TableEntry> strict = resolve_rows(base);
      return strict;
    }
  }
  return {};
}

TableEntry seccomp_verdict(policy::SyscallBase base, int number) {
  for (const TableEntry& entry : seccomp_table(base))
    if (entry.number == number) return entry;
  return {{}, number, syscall_set(base).default_action, {}, "not in the set"};
}

Verdicts base_verdicts(policy::SyscallBase base) {
  Verdicts verdicts;
  verdicts.default_action = syscall_set(base).default_action;
  for (const TableEntry& entry : seccomp_table(base))
    verdicts.calls.emplace(entry.number, copy_verdict(entry));
  return verdicts;
}

}  // namespace belljar::launcher
