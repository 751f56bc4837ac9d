// The filters of the built-in sets, in the user-space interpreter.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "launcher/seccomp/compile.hpp"
#include "tests/unit/seccomp/expected_lists.hpp"
#include "tests/unit/seccomp/support.hpp"

namespace belljar::test {

namespace {

constexpr SyscallBase kAgent = SyscallBase::kAgent1;
constexpr SyscallBase kStrict = SyscallBase::kStrict1;

using Values = std::initializer_list<std::uint64_t>;

bool same(const sock_filter& a, const sock_filter& b) {
  return a.code == b.code && a.jt == b.jt && a.jf == b.jf && a.k == b.k;
}

template <std::size_t size>
void add(std::map<int, std::string>& verdicts, const std::string_view (&names)[size],
         const std::string& verdict) {
  for (const std::string_view name : names) {
    const auto number = launcher::resolve_syscall(name);
    if (number) verdicts.insert_or_assign(*number, verdict);
  }
}

// From the lists of the test, not from the table: "" where arguments decide.
std::map<int, std::string> expected_verdicts(SyscallBase base) {
  std::map<int, std::string> verdicts;
  add(verdicts, kAgentAllowed, "allow");
  add(verdicts, kAgentByArgument, "");
  add(verdicts, kAgentEnosys, "ENOSYS");
  add(verdicts, kAgentEperm, "EPERM");
  if (base == kStrict) {
    add(verdicts, kStrictEperm, "EPERM");
    add(verdicts, kStrictByArgument, "");
  }
  return verdicts;
}

}  // namespace

TEST_CASE("each number from 0 to 600 gets exactly the verdict of the table") {
  for (const SyscallBase base : kBases) {
    const launcher::SeccompFilter filter = filter_of(base);
    const auto expected = expected_verdicts(base);
    for (int number = 0; number <= 600; ++number) {
      const launcher::TableEntry entry = launcher::seccomp_verdict(base, number);
      const auto found = expected.find(number);
      const std::string verdict = found == expected.end() ? "ENOSYS" : found->second;
      INFO(launcher::seccomp_set_name(base), " ", number, " ", entry.name);
      CHECK(entry.clauses.empty() == !verdict.empty());
      if (verdict.empty()) continue;
      CHECK(launcher::action_text(entry.verdict) == verdict);
      const std::uint64_t ones = ~std::uint64_t{0};
      CHECK(run(filter.instructions(), number) == verdict);
      CHECK(run(filter.instructions(), number, {ones, ones, ones, ones, ones, ones}) == verdict);
    }
  }
}

TEST_CASE("numbers that no kernel has are unknown calls") {
  for (const SyscallBase base : kBases) {
    CHECK(run(base, 601) == "ENOSYS");
    CHECK(run(base, 0x3FFFFFFF) == "ENOSYS");
    CHECK(run(base, 0x40000000) == "ENOSYS");
    CHECK(run(base, 0x7FFFFFFF) == "ENOSYS");
    CHECK(run(base, -1) == "ENOSYS");
    CHECK(run(base, static_cast<int>(0x80000000)) == "ENOSYS");
  }
}

TEST_CASE("calls of another architecture kill, whatever their number") {
  for (const SyscallBase base : kBases) {
    const launcher::SeccompFilter filter = filter_of(base);
    for (const std::uint32_t architecture :
         {std::uint32_t{AUDIT_ARCH_I386}, std::uint32_t{AUDIT_ARCH_ARM}, kNative ^ 1U, 0U}) {
      for (int number = 0; number <= 600; ++number)
        CHECK(run(filter.instructions(), make_data(architecture, number)) == "kill");
      CHECK(run(filter.instructions(), make_data(architecture, 0x40000000)) == "kill");
    }
  }
}

#ifdef __x86_64__
TEST_CASE("the x32 form of every call is unknown") {
  for (const SyscallBase base : kBases)
    for (int number = 0; number <= 600; ++number) CHECK(run(base, 0x40000000 | number) == "ENOSYS");
}
#endif

TEST_CASE("the embedded filters are what the compiler makes now") {
  for (const SyscallBase base : kBases) {
    const auto fresh = launcher::compile_filter(launcher::base_verdicts(base)).value().instructions;
    const launcher::SeccompFilter filter = filter_of(base);
    const auto embedded = filter.instructions();
    CHECK(std::equal(fresh.begin(), fresh.end(), embedded.begin(), embedded.end(), same));
  }
}

TEST_CASE("the built-in filters are arrays, not copies") {
  CHECK(filter_of(kAgent).instructions().data() == filter_of(kAgent).instructions().data());
}

TEST_CASE("the filters pass validation and are far from the kernel's limit") {
  for (const SyscallBase base : kBases) {
    const launcher::SeccompFilter filter = filter_of(base);
    CHECK(launcher::validate_filter(filter.instructions()).has_value());
    CHECK(filter.instructions().size() < 300);
  }
}

TEST_CASE("no call without argument rules needs more than 16 instructions") {
  for (const SyscallBase base : kBases) {
    const launcher::SeccompFilter filter = filter_of(base);
    for (const launcher::TableEntry& entry : launcher::seccomp_table(base)) {
      if (!entry.clauses.empty()) continue;
      const auto evaluation = evaluate(filter.instructions(), make_data(kNative, entry.number));
      CHECK_MESSAGE(evaluation.value().steps <= 16, entry.name);
    }
  }
}

TEST_CASE("clone makes threads and processes but no namespaces") {
  const std::uint64_t thread = 0x3D0F00;  // What glibc's pthread_create passes.
  for (const SyscallBase base : kBases) {
    CHECK(run(base, SYS_clone, {17}) == "allow");
    CHECK(run(base, SYS_clone, {thread}) == "allow");
    CHECK(run(base, SYS_clone, {kGarbage | thread}) == "allow");
    CHECK(run(base, SYS_clone, {0x80}) == "allow");  // NEWTIME's bit belongs to the signal.
    for (const std::uint64_t space : Values{0x00020000, 0x02000000, 0x04000000, 0x08000000,
                                            0x10000000, 0x20000000, 0x40000000}) {
      CHECK(run(base, SYS_clone, {space}) == "EPERM");
      CHECK(run(base, SYS_clone, {space | 17}) == "EPERM");
      CHECK(run(base, SYS_clone, {kGarbage | space | thread}) == "EPERM");
    }
    CHECK(run(base, SYS_clone3, {1, 88}) == "ENOSYS");
  }
}

TEST_CASE("agent@1 has sockets of four families and of netlink one protocol") {
  for (std::uint64_t family = 0; family <= 64; ++family) {
    const bool allowed = family == AF_UNIX || family == AF_INET || family == AF_INET6;
    const std::string verdict = allowed ? "allow" : "EAFNOSUPPORT";
    if (family == AF_NETLINK) continue;
    for (const std::uint64_t type : Values{1, 2, 3, 5, 0x80801}) {
      CHECK(run(kAgent, SYS_socket, {family, type, 0}) == verdict);
      CHECK(run(kAgent, SYS_socket, {kGarbage | family, kGarbage | type, 0}) == verdict);
    }
  }
  CHECK(run(kAgent, SYS_socket, {AF_NETLINK, SOCK_RAW, 0}) == "allow");
  CHECK(run(kAgent, SYS_socket, {AF_NETLINK, SOCK_RAW, kGarbage}) == "allow");
  for (std::uint64_t protocol = 1; protocol <= 32; ++protocol) {
    CHECK(run(kAgent, SYS_socket, {AF_NETLINK, SOCK_RAW, protocol}) == "EAFNOSUPPORT");
    CHECK(run(kAgent, SYS_socket, {kGarbage | AF_NETLINK, 3, kGarbage | protocol}) ==
          "EAFNOSUPPORT");
  }
}

TEST_CASE("strict@1 has local sockets only") {
  for (std::uint64_t family = 0; family <= 64; ++family) {
    const std::string verdict = family == AF_UNIX ? "allow" : "EAFNOSUPPORT";
    CHECK(run(kStrict, SYS_socket, {family, 1, 0}) == verdict);
    CHECK(run(kStrict, SYS_socket, {kGarbage | family, 1, 0}) == verdict);
  }
}

TEST_CASE("pairs of sockets are local in both sets") {
  for (const SyscallBase base : kBases)
    for (std::uint64_t family = 0; family <= 64; ++family)
      CHECK(run(base, SYS_socketpair, {kGarbage | family, 1, 0}) ==
            (family == AF_UNIX ? "allow" : "EAFNOSUPPORT"));
}

TEST_CASE("setsockopt refuses upper-layer protocols and loaded programs, each with its error") {
  for (const SyscallBase base : kBases) {
    for (const std::uint64_t upper : Values{std::uint64_t{0}, kGarbage}) {
      CHECK(run(base, SYS_setsockopt, {3, upper | 6, upper | 31}) == "ENOPROTOOPT");
      CHECK(run(base, SYS_setsockopt, {3, upper | 1, upper | 50}) == "EPERM");
      CHECK(run(base, SYS_setsockopt, {3, upper | 1, upper | 31}) == "allow");
      CHECK(run(base, SYS_setsockopt, {3, upper | 6, upper | 50}) == "allow");
      CHECK(run(base, SYS_setsockopt, {3, upper | 6, upper | 1}) == "allow");
      CHECK(run(base, SYS_setsockopt, {31, upper | 1, upper | 2}) == "allow");
    }
  }
}

TEST_CASE("ioctl refuses the four requests that reach the terminal's owner") {
  for (const SyscallBase base : kBases) {
    for (const std::uint64_t request : Values{0x5412, 0x541C, 0x5423, 0x541D}) {
      CHECK(run(base, SYS_ioctl, {0, request}) == "EPERM");
      CHECK(run(base, SYS_ioctl, {0, 0x1'00000000 + request}) == "EPERM");
      CHECK(run(base, SYS_ioctl, {0, kGarbage | request, ~std::uint64_t{0}}) == "EPERM");
      CHECK(run(base, SYS_ioctl, {request, request + 0x10000}) == "allow");
    }
    for (const std::uint64_t request :
         Values{0x5401, 0x5411, 0x5413, 0x541B, 0x541E, 0x5422, 0x5424})
      CHECK(run(base, SYS_ioctl, {0, kGarbage | request}) == "allow");
  }
}

TEST_CASE("personality stays native") {
  for (const SyscallBase base : kBases) {
    for (const std::uint64_t value : Values{0x0U, 0x20000U, 0xFFFFFFFFU}) {
      CHECK(run(base, SYS_personality, {value}) == "allow");
      CHECK(run(base, SYS_personality, {kGarbage | value}) == "allow");
    }
    CHECK(run(base, SYS_personality, {~std::uint64_t{0}}) == "allow");
    for (const std::uint64_t value : Values{0x1U, 0x8U, 0x40000U, 0x60000U, 0x100000U, 0xFFFFFFFEU})
      CHECK(run(base, SYS_personality, {value}) == "EPERM");
  }
}

TEST_CASE("mknod makes pipes and files but no devices") {
  const auto both = [](SyscallBase base, std::uint64_t mode) {
    const std::string verdict = run(base, SYS_mknodat, {3, 0, mode});
#ifdef SYS_mknod
    CHECK(run(base, SYS_mknod, {0, mode}) == verdict);
#endif
    return verdict;
  };
  for (const SyscallBase base : kBases) {
    for (const std::uint64_t upper : Values{std::uint64_t{0}, kGarbage}) {
      for (const std::uint64_t type : Values{0, S_IFREG, S_IFIFO, S_IFSOCK}) {
        CHECK(both(base, upper | type | 0666) == "allow");
        CHECK(both(base, upper | type | S_ISVTX | 0666) == "allow");
        CHECK(both(base, upper | type | S_ISUID) == "EPERM");
        CHECK(both(base, upper | type | S_ISGID) == "EPERM");
      }
      CHECK(both(base, upper | S_IFCHR | 0666) == "EPERM");
      CHECK(both(base, upper | S_IFBLK) == "EPERM");
    }
  }
}

TEST_CASE("no form of chmod sets user or group id bits") {
  const auto all = [](SyscallBase base, std::uint64_t mode) {
    const std::string verdict = run(base, SYS_fchmod, {3, mode});
#ifdef SYS_chmod
    CHECK(run(base, SYS_chmod, {~std::uint64_t{0}, mode}) == verdict);
#endif
    CHECK(run(base, SYS_fchmodat, {3, 06777, mode}) == verdict);
    CHECK(run(base, 452, {3, 06777, mode, 0}) == verdict);
    return verdict;
  };
  for (const SyscallBase base : kBases) {
    for (const std::uint64_t upper : Values{std::uint64_t{0}, kGarbage}) {
      for (const std::uint64_t mode : Values{0, 0777, 01777, 0100644})
        CHECK(all(base, upper | mode) == "allow");
      for (const std::uint64_t mode : Values{02000, 04000, 06000, 06755, 02777, 0104755})
        CHECK(all(base, upper | mode) == "EPERM");
    }
  }
}

TEST_CASE("fcntl refuses leases and notification, and in strict@1 locks") {
  for (const std::uint64_t upper : Values{std::uint64_t{0}, kGarbage}) {
    for (const SyscallBase base : kBases) {
      for (const std::uint64_t command : Values{1024, 1026})
        CHECK(run(base, SYS_fcntl, {3, upper | command}) == "EPERM");
      for (const std::uint64_t command : Values{0, 1, 2, 3, 4, 5, 8, 9, 36, 1025, 1030, 1033})
        CHECK(run(base, SYS_fcntl, {3, upper | command}) == "allow");
    }
    for (const std::uint64_t command : Values{6, 7, 37, 38}) {
      CHECK(run(kAgent, SYS_fcntl, {3, upper | command}) == "allow");
      CHECK(run(kStrict, SYS_fcntl, {3, upper | command}) == "EPERM");
    }
  }
}

TEST_CASE("in strict@1 memory files cannot be executed") {
  CHECK(run(kAgent, SYS_memfd_create, {0, 0}) == "allow");
  for (const std::uint64_t flags : Values{0x0, 0x1, 0x2, 0x3, 0x4, 0x10, 0x13})
    CHECK(run(kStrict, SYS_memfd_create, {0, kGarbage | flags}) == "EPERM");
  for (const std::uint64_t flags : Values{0x8, 0x9, 0xB, 0xF})
    CHECK(run(kStrict, SYS_memfd_create, {0, kGarbage | flags}) == "allow");
}

TEST_CASE("in strict@1 a filter cannot have a listener") {
  CHECK(run(kAgent, SYS_seccomp, {1, 8}) == "EPERM");
  CHECK(run(kStrict, SYS_seccomp, {1, 8}) == "EPERM");
  CHECK(run(kStrict, SYS_seccomp, {kGarbage | 1, kGarbage | 0x19}) == "EPERM");
  CHECK(run(kStrict, SYS_seccomp, {1, 0}) == "allow");
  CHECK(run(kStrict, SYS_seccomp, {1, 0x10}) == "allow");
  CHECK(run(kStrict, SYS_seccomp, {2, 8}) == "allow");
}

}  // namespace belljar::test
