// The built-in sets stand in an order, which `final` and ceilings rely on.
#include <doctest/doctest.h>

#include <array>
#include <map>
#include <set>
#include <string>

#include "launcher/seccomp/table.hpp"

using namespace belljar::launcher;
using belljar::policy::ArgumentTest;
using belljar::policy::Compare;
using belljar::policy::SyscallAction;
using belljar::policy::SyscallBase;

namespace {

using Arguments = std::array<std::uint64_t, 6>;

bool holds(const ArgumentTest& test, const Arguments& arguments) {
  const std::uint64_t value = arguments[test.argument];
  switch (test.compare) {
    case Compare::kEqual:
      return (test.mask ? value & *test.mask : value) == test.value;
    case Compare::kNotEqual:
      return value != test.value;
    case Compare::kLess:
      return value < test.value;
    case Compare::kLessOrEqual:
      return value <= test.value;
    case Compare::kGreater:
      return value > test.value;
    case Compare::kGreaterOrEqual:
      return value >= test.value;
  }
  return false;
}

bool allows(const SyscallSet& set, std::string_view name, const Arguments& arguments) {
  SeccompAction action = set.default_action;
  for (const TableRow& row : set.rows) {
    if (row.name != name) continue;
    action = row.verdict;
    for (const TableClause& clause : row.clauses) {
      bool any = clause.when.empty();
      for (const TableAlternative& alternative : clause.when) {
        bool all = true;
        for (const ArgumentTest& test : alternative) all &= holds(test, arguments);
        any |= all;
      }
      if (!any) continue;
      action = clause.action;
      break;
    }
  }
  return action.kind == SyscallAction::Kind::kAllow;
}

/// The values that a row's tests can tell apart, by argument.
void collect_values(const TableRow& row, std::map<unsigned, std::set<std::uint64_t>>& out) {
  for (const TableClause& clause : row.clauses) {
    for (const TableAlternative& alternative : clause.when) {
      for (const ArgumentTest& test : alternative) {
        out[test.argument].insert({test.value - 1, test.value, test.value + 1});
        if (test.mask)
          out[test.argument].insert({*test.mask, ~*test.mask, test.value | ~*test.mask});
      }
    }
  }
}

std::vector<Arguments> tries_for(std::string_view name, const SyscallSet& a, const SyscallSet& b) {
  std::map<unsigned, std::set<std::uint64_t>> values;
  for (const SyscallSet* set : {&a, &b}) {
    for (const TableRow& row : set->rows) {
      if (row.name == name) collect_values(row, values);
    }
  }
  std::vector<Arguments> tries{{}};
  for (const auto& [argument, choices] : values) {
    std::vector<Arguments> more;
    for (const Arguments& each : tries) {
      for (const std::uint64_t value : choices) {
        more.push_back(each);
        more.back()[argument] = value;
      }
    }
    tries.insert(tries.end(), more.begin(), more.end());
  }
  return tries;
}

}  // namespace

TEST_CASE("strict@1 allows no call that agent@1 refuses") {
  const SyscallSet& agent = syscall_set(SyscallBase::kAgent1);
  const SyscallSet& strict = syscall_set(SyscallBase::kStrict1);
  int tried = 0;
  int narrower = 0;
  for (const SyscallSet* set : {&agent, &strict}) {
    for (const TableRow& row : set->rows) {
      CAPTURE(row.name);
      for (const Arguments& arguments : tries_for(row.name, agent, strict)) {
        const bool strict_allows = allows(strict, row.name, arguments);
        const bool agent_allows = allows(agent, row.name, arguments);
        CHECK((agent_allows || !strict_allows));
        narrower += agent_allows && !strict_allows ? 1 : 0;
        ++tried;
      }
    }
  }
  CHECK(strict.default_action.kind != SyscallAction::Kind::kAllow);
  CHECK(agent.default_action.kind == strict.default_action.kind);
  CHECK(tried > 600);
  CHECK(narrower > 0);
}
