// The table of calls itself.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/unit/seccomp/expected_lists.hpp"
#include "tests/unit/seccomp/support.hpp"

namespace belljar::test {

namespace {

using launcher::seccomp_table;
using launcher::TableEntry;

// "allow", "EPERM", "ENOSYS" or "by argument", per name.
using Lists = std::map<std::string, std::string>;

Lists table_lists(SyscallBase base) {
  Lists lists;
  for (const launcher::TableRow& row : launcher::syscall_set(base).rows) {
    const bool unconditional = row.clauses.empty();
    const bool added =
        lists.emplace(row.name, unconditional ? launcher::action_text(row.verdict) : "by argument")
            .second;
    CHECK_MESSAGE(added, row.name);
  }
  return lists;
}

template <std::size_t size>
void expect(Lists& lists, const std::string_view (&names)[size], const std::string& verdict) {
  for (const std::string_view name : names) lists.insert_or_assign(std::string(name), verdict);
}

Lists expected_agent() {
  Lists lists;
  expect(lists, kAgentAllowed, "allow");
  expect(lists, kAgentByArgument, "by argument");
  expect(lists, kAgentEnosys, "ENOSYS");
  expect(lists, kAgentEperm, "EPERM");
  return lists;
}

void check_equal(const Lists& actual, const Lists& expected) {
  for (const auto& row : expected) {
    const auto found = actual.find(row.first);
    CHECK_MESSAGE(found != actual.end(), row.first, " is missing");
    if (found != actual.end()) CHECK_MESSAGE(found->second == row.second, row.first);
  }
  CHECK(actual.size() == expected.size());
}

}  // namespace

TEST_CASE("agent@1 holds the calls that it was designed with, each once") {
  const Lists expected = expected_agent();
  CHECK(expected.size() == std::size(kAgentAllowed) + std::size(kAgentByArgument) +
                               std::size(kAgentEnosys) + std::size(kAgentEperm));
  check_equal(table_lists(SyscallBase::kAgent1), expected);
}

TEST_CASE("strict@1 differs from agent@1 in the hardened calls only") {
  Lists expected = expected_agent();
  expect(expected, kStrictEperm, "EPERM");
  expect(expected, kStrictByArgument, "by argument");
  check_equal(table_lists(SyscallBase::kStrict1), expected);
}

TEST_CASE("no number has two entries and entries are in the order of their numbers") {
  for (const SyscallBase base : kBases) {
    const auto entries = seccomp_table(base);
    REQUIRE(entries.size() > 300);
    CHECK(std::is_sorted(entries.begin(), entries.end(),
                         [](const auto& a, const auto& b) { return a.number <= b.number; }));
  }
}

TEST_CASE("every call that is refused or decided by argument says why") {
  for (const SyscallBase base : kBases) {
    for (const TableEntry& entry : seccomp_table(base)) {
      const bool plain = entry.clauses.empty() && entry.verdict.kind == Kind::kAllow;
      CHECK_MESSAGE(entry.reason.empty() == plain, entry.name);
    }
  }
}

#ifdef __x86_64__
TEST_CASE("all calls of the table exist on x86-64") {
  for (const SyscallBase base : kBases)
    CHECK(seccomp_table(base).size() == launcher::syscall_set(base).rows.size());
}

TEST_CASE("every number that has a name has a row") {
  for (int number = 0; number <= 600; ++number) {
    const std::string name = launcher::syscall_name(number);
    if (!name.empty())
      CHECK_MESSAGE(launcher::seccomp_verdict(SyscallBase::kAgent1, number).name == name, name);
  }
}
#endif

TEST_CASE("a number without a row gets the default of its set") {
  const TableEntry unlisted = launcher::seccomp_verdict(SyscallBase::kAgent1, 599);
  CHECK(unlisted.name.empty());
  CHECK(launcher::action_text(unlisted.verdict) == "ENOSYS");
  CHECK(launcher::seccomp_verdict(SyscallBase::kNone, SYS_mount).verdict.kind == Kind::kAllow);
  CHECK(launcher::seccomp_verdict(SyscallBase::kAgent1, SYS_mount).verdict.error == EPERM);
}

TEST_CASE("the table's digest is a SHA-256 of it") {
  const std::string_view digest = launcher::seccomp_table_digest();
  CHECK(digest.substr(0, 7) == "sha256:");
  CHECK(digest.size() == 7 + 64);
}

TEST_CASE("sets have the names that policies use") {
  CHECK(launcher::seccomp_set_name(SyscallBase::kNone) == "none");
  CHECK(launcher::seccomp_set_name(SyscallBase::kAgent1) == "agent@1");
  CHECK(launcher::seccomp_set_name(SyscallBase::kStrict1) == "strict@1");
}

}  // namespace belljar::test
