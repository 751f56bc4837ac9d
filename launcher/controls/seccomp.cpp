#include "launcher/seccomp/seccomp.hpp"

#include <linux/seccomp.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/controls/facts.hpp"
#include "launcher/controls/promises.hpp"
#include "launcher/seccomp/evaluate.hpp"
#include "launcher/seccomp/watch.hpp"
#include "launcher/sys/raw.hpp"

namespace belljar::launcher {
namespace {

int call(long number, long a = 0, long b = 0, long c = 0) {
  const long rc = sys::raw(number, a, b, c);
  return rc >= 0 ? 0 : static_cast<int>(-rc);
}

/// The same for calls whose result is a descriptor, which must not stay open.
int call_for_descriptor(long number, long a, long b) {
  const long fd = sys::raw(number, a, b);
  if (fd < 0) return static_cast<int>(-fd);
  close(static_cast<int>(fd));
  return 0;
}

constexpr Probe kProbes[] = {
    {"clone3", "call clone3 (the probe passes no arguments)", [] { return call(SYS_clone3); },
     [](const Made& made) -> const char* { return refused_call(made.policy, "clone3"); }},
    {"io-uring", "set up an io_uring", [] { return call_for_descriptor(SYS_io_uring_setup, 1, 0); },
     [](const Made& made) -> const char* { return refused_call(made.policy, "io_uring_setup"); }},
    {"keyctl", "read the session keyring's number",
     [] { return call(SYS_keyctl, /*KEYCTL_GET_KEYRING_ID*/ 0, -3, 0); },
     [](const Made& made) -> const char* { return refused_call(made.policy, "keyctl"); }},
    {"userfaultfd", "open a userfaultfd", [] { return call_for_descriptor(SYS_userfaultfd, 1, 0); },
     [](const Made& made) -> const char* { return refused_call(made.policy, "userfaultfd"); }},
    {"vsock", "open a vsock socket",
     [] {
       const int fd = socket(AF_VSOCK, SOCK_STREAM, 0);
       if (fd < 0) return errno;
       close(fd);
       return 0;
     },
     [](const Made& made) -> const char* { return refused_call(made.policy, "socket"); }},
    {"inject-input", "push a character into a terminal (TIOCSTI, on the probe's own one)",
     [] {
       int master = -1, slave = -1;
       if (openpty(&master, &slave, nullptr, nullptr, nullptr) != 0) return errno;
       char letter = 'x';
       const int result = ioctl(slave, TIOCSTI, &letter) == 0 ? 0 : errno;
       close(master);
       close(slave);
       return result;
     },
     [](const Made& made) -> const char* { return refused_call(made.policy, "ioctl"); }},
    {"trace-self", "become traced", [] { return call(SYS_ptrace, PTRACE_TRACEME); },
     [](const Made& made) -> const char* { return refused_call(made.policy, "ptrace"); }},
};

constexpr Fact kFacts[] = {
    {"filter", "there is no system call filter",
     [](const std::string&) {
       const int mode = prctl(PR_GET_SECCOMP, 0, 0, 0, 0);
       // What refuses the question is one.
       return mode == 0 ? differs("the kernel knows of none") : holds();
     },
     [](const Made& made) {
       std::vector<Fact::Expected> expected;
       if (has_filter(made.policy)) expected.push_back({"2", "syscalls"});
       return expected;
     }},
};

std::string describe_set(const policy::Syscalls& syscalls) {
  using policy::SyscallBase;
  std::string text = "none";
  if (syscalls.base == SyscallBase::kAgent1) text = "agent@1";
  if (syscalls.base == SyscallBase::kStrict1) text = "strict@1";
  const std::size_t own = syscalls.rules.size() + (syscalls.default_action ? 1 : 0);
  if (own != 0)
    text += " and " + std::to_string(own) + " rule" + (own == 1 ? "" : "s") + " of the policy";
  if (syscalls.mode == policy::SyscallMode::kLog) text += ", which only logs what it would refuse,";
  return text;
}

/// Landlock looks at connect and bind of plain TCP only. What makes a connection without them, or
/// with a socket that carries TCP under another name, gets the error after which programs go on
/// with plain TCP.
std::vector<Refinement> refinements_for(const policy::Landlock& landlock) {
  using policy::Compare;
  constexpr std::uint64_t kFastOpen = 0x20000000;                     // MSG_FASTOPEN
  constexpr std::uint64_t kMptcp = 262, kSmc = 256, kSmcFamily = 43;  // IPPROTO_*, AF_SMC
  std::vector<Refinement> needed;
  if (!landlock.bind_tcp && !landlock.connect_tcp) return needed;
  const SeccompAction no_protocol{policy::SyscallAction::Kind::kErrno, EPROTONOSUPPORT};
  needed.push_back({"socket",
                    no_protocol,
                    {{{0, Compare::kEqual, {}, kSmcFamily}},
                     {{2, Compare::kEqual, {}, kMptcp}},
                     {{2, Compare::kEqual, {}, kSmc}}}});
  if (!landlock.connect_tcp) return needed;
  const SeccompAction no_fast_open{policy::SyscallAction::Kind::kErrno, EOPNOTSUPP};
  constexpr std::pair<std::string_view, unsigned> kFlags[] = {
      {"sendto", 3}, {"sendmsg", 2}, {"sendmmsg", 3}};
  for (const auto& [call, argument] : kFlags)
    needed.push_back({call, no_fast_open, {{{argument, Compare::kEqual, kFastOpen, kFastOpen}}}});
  return needed;
}

/// The listener leaves the payload by a sendmsg that this very filter judges: were it refused,
/// nobody could answer for it.
bool lets_listener_out(const SeccompFilter& filter) {
  seccomp_data data{};
  data.nr = SYS_sendmsg;
  data.arch = kNativeArchitecture;
  data.args[2] = MSG_NOSIGNAL;
  const std::optional<Evaluation> verdict = evaluate(filter.instructions(), data);
  return verdict && (verdict->value == SECCOMP_RET_ALLOW || verdict->value == SECCOMP_RET_LOG);
}

Status plan_watching(PlanBuilder& builder, std::string set, std::optional<SeccompFilter> judged) {
  if (judged && !lets_listener_out(*judged))
    return fail({ErrorKind::kRefused, 0,
                 "--explain-denials needs sendmsg to hand out what it listens on, and the policy "
                 "refuses it",
                 "syscalls", "allow sendmsg for this run: --set syscalls.rules.sendmsg=allow"});
  SeccompFilter watching = BELLJAR_TRY(
      watching_filter(judged ? judged->instructions() : std::span<const sock_filter>()));
  builder.add(Phase::kFilter,
              InstallFilter{std::move(set), std::move(watching), false, true, std::move(judged)},
              "syscalls");
  return {};
}

Status plan(PlanBuilder& builder) {
  const std::vector<Refinement> refinements = refinements_for(builder.policy.landlock);
  std::optional<SeccompFilter> filter =
      BELLJAR_TRY(seccomp_program(builder.policy.syscalls, refinements));
  std::string absent;
  for (const std::string& name : absent_calls(builder.policy.syscalls))
    absent += (absent.empty() ? "" : ", ") + name;
  if (!absent.empty())
    builder.notes.push_back(
        "rules for system calls that only other architectures have do nothing here: " + absent);
  if (builder.policy.syscalls.mode == policy::SyscallMode::kLog) {
    const std::string what = "no system call is refused: syscalls.mode is \"log\"";
    builder.degrade(what);
    builder.notes.push_back(what + ", which is for making a policy and confines nothing");
  }
  std::string set = describe_set(builder.policy.syscalls);
  if (!refinements.empty()) set += " and what Landlock's TCP rules need";
  if (builder.command.explain_denials)
    return plan_watching(builder, std::move(set), std::move(filter));
  if (filter)
    builder.add(Phase::kFilter, InstallFilter{std::move(set), std::move(*filter), false, false, {}},
                "syscalls");
  return {};
}

std::vector<Requirement> require(const policy::Policy& policy, const Host&) {
  if (!has_filter(policy)) return {};
  return {{"seccomp filters (CONFIG_SECCOMP_FILTER)", "syscalls"}};
}

std::string remedy(const FailedStep& failed, const policy::Policy&, const Host&) {
  const auto* install = std::get_if<InstallFilter>(&failed.step->action);
  if (failed.sys_errno == EBUSY && install != nullptr && install->listens)
    return "somebody outside listens to this process's filter already (a container's supervisor, "
           "or "
           "another --explain-denials), and the kernel allows one: run without --explain-denials";
  if (failed.sys_errno == EINVAL || failed.sys_errno == ENOSYS)
    return "this kernel has no seccomp filters, or its container forbids seccomp(2)";
  return {};
}

}  // namespace

bool has_filter(const policy::Policy& policy) {
  const policy::Syscalls& syscalls = policy.syscalls;
  return syscalls.base != policy::SyscallBase::kNone || syscalls.default_action ||
         !syscalls.rules.empty() || !refinements_for(policy.landlock).empty();
}

const Control kSeccomp = {"seccomp",
                          "the payload makes only the system calls of its set (read back "
                          "with the identity)",
                          require,
                          plan,
                          nullptr,
                          kProbes,
                          remedy,
                          kFacts};

}  // namespace belljar::launcher
