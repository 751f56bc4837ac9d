// Policies with rules of their own, and the checks of finished programs.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include "launcher/seccomp/compile.hpp"
#include "tests/unit/seccomp/support.hpp"

namespace belljar::test {

namespace {

using launcher::seccomp_program;
using policy::Compare;
using policy::Syscalls;

const policy::SyscallAction kAllowAction{};
const policy::SyscallAction kKillAction{Kind::kKill, 0, {}};

Syscalls agent_with(const std::string& name, policy::SyscallRule rule) {
  Syscalls syscalls;
  syscalls.base = SyscallBase::kAgent1;
  syscalls.rules[name] = std::move(rule);
  return syscalls;
}

// Every number but `changed` gives what the set alone gives.
void check_rest_unchanged(const launcher::SeccompFilter& filter, SyscallBase base, int changed) {
  const launcher::SeccompFilter original = filter_of(base);
  for (int number = 0; number <= 600; ++number)
    if (number != changed)
      CHECK_MESSAGE(run(filter.instructions(), number) == run(original.instructions(), number),
                    number);
}

std::string verdict(std::vector<sock_filter> program) {
  const auto status = launcher::validate_filter(program);
  return status ? "valid" : status.error().what;
}

}  // namespace

TEST_CASE("no base, no rules and no default is no filter") {
  Syscalls syscalls;
  syscalls.base = SyscallBase::kNone;
  CHECK_FALSE(seccomp_program(syscalls).value().has_value());
}

TEST_CASE("without a word about it the base is agent@1: an open one has to be written out") {
  CHECK(run(seccomp_program({}).value()->instructions(), SYS_mount) == "EPERM");
}

TEST_CASE("a rule allows what the base refuses and changes nothing else") {
  const auto filter = filter_of(agent_with("ptrace", {kAllowAction, {}, {}}));
  CHECK(run(filter.instructions(), SYS_ptrace) == "allow");
  check_rest_unchanged(filter, SyscallBase::kAgent1, SYS_ptrace);
}

TEST_CASE("a rule gives a refused call another error") {
  const auto filter = filter_of(agent_with("mount", {refuse(EACCES), {}, {}}));
  CHECK(run(filter.instructions(), SYS_mount) == "EACCES");
  check_rest_unchanged(filter, SyscallBase::kAgent1, SYS_mount);
}

TEST_CASE("a rule replaces the argument rules of the base as a whole") {
  const auto filter =
      filter_of(agent_with("ioctl", {refuse(ENOTTY), {{{1, Compare::kEqual, {}, 7}}}, {}}));
  CHECK(run(filter.instructions(), SYS_ioctl, {0, 7}) == "ENOTTY");
  CHECK(run(filter.instructions(), SYS_ioctl, {0, 0x5412}) == "allow");
}

TEST_CASE("alternatives may test the same argument, and all tests of one must hold") {
  const auto filter = filter_of(agent_with(
      "socket", {kAllowAction,
                 {{{0, Compare::kEqual, {}, AF_UNIX}},
                  {{0, Compare::kEqual, {}, AF_INET}, {1, Compare::kEqual, 0xF, SOCK_STREAM}}},
                 kKillAction}));
  CHECK(run(filter.instructions(), SYS_socket, {AF_UNIX, SOCK_DGRAM}) == "allow");
  CHECK(run(filter.instructions(), SYS_socket, {AF_INET, SOCK_STREAM | SOCK_CLOEXEC}) == "allow");
  CHECK(run(filter.instructions(), SYS_socket, {AF_INET, SOCK_DGRAM}) == "kill");
  CHECK(run(filter.instructions(), SYS_socket, {AF_INET6, SOCK_STREAM}) == "kill");
}

TEST_CASE("the rules of libseccomp's endless loop compile") {
  const auto filter =
      filter_of(agent_with("read", {refuse(EIO),
                                    {{{1, Compare::kGreater, {}, 2}, {0, Compare::kLess, {}, 1}},
                                     {{1, Compare::kNotEqual, {}, 0}, {0, Compare::kLess, {}, 1}}},
                                    kAllowAction}));
  CHECK(run(filter.instructions(), SYS_read, {0, 1}) == "EIO");
  CHECK(run(filter.instructions(), SYS_read, {0, 0}) == "allow");
  CHECK(run(filter.instructions(), SYS_read, {1, 3}) == "allow");
}

TEST_CASE("a default of its own decides unlisted calls but not the base's refusals") {
  Syscalls syscalls;
  syscalls.base = SyscallBase::kAgent1;
  syscalls.default_action = kKillAction;
  const auto filter = filter_of(syscalls);
  CHECK(run(filter.instructions(), 599) == "kill");
  CHECK(run(filter.instructions(), SYS_io_uring_setup) == "ENOSYS");
  CHECK(run(filter.instructions(), SYS_mount) == "EPERM");
  CHECK(run(filter.instructions(), SYS_read) == "allow");
}

TEST_CASE("without a base everything else is allowed, but not through foreign numbers") {
  Syscalls syscalls;
  syscalls.base = SyscallBase::kNone;
  syscalls.rules["mount"] = {refuse(EPERM), {}, {}};
  const auto filter = filter_of(syscalls);
  CHECK(run(filter.instructions(), SYS_mount) == "EPERM");
  CHECK(run(filter.instructions(), SYS_umount2) == "allow");
  CHECK(run(filter.instructions(), 599) == "allow");
  CHECK(run(filter.instructions(), make_data(kNative ^ 1U, SYS_read)) == "kill");
#ifdef __x86_64__
  CHECK(run(filter.instructions(), 0x40000000 | SYS_mount) == "ENOSYS");
#endif
}

TEST_CASE("every default stands alone") {
  Syscalls syscalls;
  syscalls.base = SyscallBase::kNone;
  syscalls.default_action = kAllowAction;
  CHECK(run(filter_of(syscalls).instructions(), SYS_mount) == "allow");
  syscalls.default_action = refuse(EPERM);
  CHECK(run(filter_of(syscalls).instructions(), SYS_read) == "EPERM");
  syscalls.default_action = kKillAction;
  CHECK(run(filter_of(syscalls).instructions(), SYS_read) == "kill");
}

TEST_CASE("a rule on a call that libseccomp has no name for holds") {
  const auto filter = filter_of(
      agent_with("statmount", {kAllowAction, {{{1, Compare::kEqual, {}, 1}}}, refuse(EPERM)}));
  CHECK(run(filter.instructions(), 457, {0, 1}) == "allow");
  CHECK(run(filter.instructions(), 457, {0, 2}) == "EPERM");
}

TEST_CASE("errors name the rule that caused them") {
  const auto unknown = seccomp_program(agent_with("mounnt", {kAllowAction, {}, {}}));
  REQUIRE_FALSE(unknown.has_value());
  CHECK(unknown.error().kind == ErrorKind::kInvalid);
  CHECK(unknown.error().where == "syscalls.rules.mounnt");
  CHECK(unknown.error().what.find("\"mount\"") != std::string::npos);

  const auto bad =
      seccomp_program(agent_with("read", {refuse(1), {{{9, Compare::kEqual, {}, 1}}}, {}}));
  REQUIRE_FALSE(bad.has_value());
  CHECK(bad.error().where == "syscalls.rules.read");
}

TEST_CASE("in log mode every number is allowed, and logged where it would be refused") {
  for (const SyscallBase base : kBases) {
    Syscalls logging;
    logging.base = base;
    logging.mode = policy::SyscallMode::kLog;
    logging.rules["getpriority"] = {refuse(EXDEV), {{{0, Compare::kEqual, {}, 1}}}, kAllowAction};
    const auto filter = filter_of(logging);
    for (int number = 0; number <= 600; ++number) {
      const std::string verdict = run(filter.instructions(), number);
      CHECK_MESSAGE((verdict == "allow" || verdict == "log"), number);
    }
    CHECK(run(filter.instructions(), SYS_mount) == "log");
    CHECK(run(filter.instructions(), SYS_read) == "allow");
    CHECK(run(filter.instructions(), SYS_getpriority, {1}) == "log");
    CHECK(run(filter.instructions(), SYS_getpriority, {0}) == "allow");
    CHECK(run(filter.instructions(), make_data(0x40000003, 1, {})) == "kill");
  }
  Syscalls nothing;
  nothing.base = SyscallBase::kNone;
  nothing.mode = policy::SyscallMode::kLog;
  CHECK_FALSE(seccomp_program(nothing).value().has_value());
}

TEST_CASE("a refinement comes before the rules and the base, and changes nothing else") {
  const launcher::SeccompAction refused{Kind::kErrno, EPROTONOSUPPORT};
  const std::vector<launcher::Refinement> needed = {
      {"socket", refused, {{{2, Compare::kEqual, {}, 262}}}}};
  for (const SyscallBase base : {SyscallBase::kNone, SyscallBase::kAgent1, SyscallBase::kStrict1}) {
    Syscalls syscalls;
    syscalls.base = base;
    const auto filter = seccomp_program(syscalls, needed).value().value();
    CHECK(run(filter.instructions(), SYS_socket, {AF_INET, 1, 262}) == "EPROTONOSUPPORT");
    CHECK(run(filter.instructions(), SYS_socket, {AF_UNIX, 1, 0}) == "allow");
    if (base != SyscallBase::kNone) check_rest_unchanged(filter, base, SYS_socket);
  }
  Syscalls allowed = agent_with("socket", {kAllowAction, {}, {}});
  const auto filter = seccomp_program(allowed, needed).value().value();
  CHECK(run(filter.instructions(), SYS_socket, {AF_INET, 1, 262}) == "EPROTONOSUPPORT");
  CHECK(run(filter.instructions(), SYS_socket, {AF_VSOCK, 1, 0}) == "allow");
}

TEST_CASE("a default of log allows what no rule names") {
  Syscalls syscalls;
  syscalls.base = SyscallBase::kAgent1;
  syscalls.default_action = {policy::SyscallAction::Kind::kLog, 0, {}};
  const auto filter = filter_of(syscalls);
  CHECK(run(filter.instructions(), 600) == "log");
  CHECK(run(filter.instructions(), SYS_mount) == "EPERM");
}

#ifdef __x86_64__
TEST_CASE("names that only other architectures have are told, others are not") {
  Syscalls syscalls = agent_with("socketcall", {kAllowAction, {}, {}});
  syscalls.rules["mount"] = {kAllowAction, {}, {}};
  CHECK(launcher::absent_calls(syscalls) == std::vector<std::string>{"socketcall"});
}

TEST_CASE("a rule on a call of other architectures does nothing") {
  const auto filter = filter_of(agent_with("socketcall", {kAllowAction, {}, {}}));
  check_rest_unchanged(filter, SyscallBase::kAgent1, -1);
}
#endif

TEST_CASE("more alternatives than a filter can hold are refused") {
  policy::SyscallRule rule{refuse(EPERM), {}, {}};
  for (std::uint64_t value = 0; value < 2000; ++value)
    rule.when.push_back({{0, Compare::kEqual, {}, value}});
  const auto filter = seccomp_program(agent_with("read", rule));
  REQUIRE_FALSE(filter.has_value());
  CHECK(filter.error().what.find("1 to 4096 are possible") != std::string::npos);
  CHECK(filter.error().where == "syscalls");
}

TEST_CASE("a long segment is reached although jumps of conditions are short") {
  policy::SyscallRule rule{refuse(EPERM), {}, {}};
  for (std::uint64_t value = 0; value < 1000; ++value)
    rule.when.push_back({{0, Compare::kEqual, {}, value}});
  Syscalls syscalls = agent_with("write", rule);
  syscalls.rules["read"] = {refuse(EIO), {{{0, Compare::kEqual, {}, 3}}}, {}};
  const auto filter = filter_of(syscalls);
  CHECK(run(filter.instructions(), SYS_write, {999}) == "EPERM");
  CHECK(run(filter.instructions(), SYS_write, {1000}) == "allow");
  CHECK(run(filter.instructions(), SYS_read, {3}) == "EIO");
  CHECK(run(filter.instructions(), SYS_ioctl, {0, 0x5412}) == "EPERM");
}

TEST_CASE("programs that the kernel or the sandbox could not trust are refused") {
  const sock_filter load{BPF_LD | BPF_W | BPF_ABS, 0, 0, 0};
  const sock_filter allow{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
  CHECK(verdict({load, allow}) == "valid");
  CHECK(verdict({}) == "filter of 0 instructions: 1 to 4096 are possible");
  CHECK(verdict(std::vector<sock_filter>(4097, allow)) ==
        "filter of 4097 instructions: 1 to 4096 are possible");
  CHECK(verdict({load}) == "filter instruction 0: last instruction does not return");
  CHECK(verdict({{BPF_LD | BPF_W | BPF_ABS, 0, 0, 2}, allow}) ==
        "filter instruction 0: load outside");
  CHECK(verdict({{BPF_LD | BPF_W | BPF_ABS, 0, 0, 64}, allow}) ==
        "filter instruction 0: load outside");
  CHECK(verdict({{BPF_JMP | BPF_JA, 0, 0, 1}, allow}) == "filter instruction 0: jump outside");
  CHECK(verdict({{BPF_JMP | BPF_JA, 0, 0, 0xFFFFFFFF}, allow}) ==
        "filter instruction 0: jump outside");
  CHECK(verdict({{BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0}, allow}) ==
        "filter instruction 0: jump outside");
  CHECK(verdict({{BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 0}, allow}) ==
        "filter instruction 0: jump outside");
  CHECK(verdict({{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_TRACE | 3}}) ==
        "filter instruction 0: unknown verdict");
  CHECK(verdict({{BPF_RET | BPF_A, 0, 0, 0}, allow}) ==
        "filter instruction 0: unknown instruction");
}

TEST_CASE("a filter survives copies and moves") {
  launcher::SeccompFilter first = filter_of(agent_with("ptrace", {kAllowAction, {}, {}}));
  launcher::SeccompFilter second = first;
  const launcher::SeccompFilter third = std::move(first);
  CHECK(run(second.instructions(), SYS_ptrace) == "allow");
  CHECK(run(third.instructions(), SYS_ptrace) == "allow");
}

}  // namespace belljar::test
