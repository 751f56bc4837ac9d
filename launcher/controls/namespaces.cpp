#include <fcntl.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>

#include "launcher/controls/facts.hpp"
#include "launcher/controls/promises.hpp"
#include "launcher/record.hpp"
#include "launcher/sys/raw.hpp"

namespace belljar::launcher {
namespace {

using policy::Namespace;
using policy::NamespaceMode;
using namespace std::chrono_literals;

/// In a child, so that a door that stands open changes nothing for the prober.
int in_child(int (*attempt)()) {
  const pid_t child = fork();
  if (child < 0) return errno;
  if (child == 0) _exit(attempt() == 0 ? 0 : errno);
  int status = 0;
  if (waitpid(child, &status, 0) < 0) return errno;
  return WIFEXITED(status) ? WEXITSTATUS(status) : EFAULT;
}

constexpr Probe kProbes[] = {
    {"unshare-user", "create a user namespace",
     [] { return in_child([] { return unshare(CLONE_NEWUSER); }); },
     [](const Made& made) -> const char* {
       return made.policy.namespaces.nested_user ? nullptr : "namespaces.nested_user";
     }},
    {"unshare-mount", "create a mount namespace",
     [] { return in_child([] { return unshare(CLONE_NEWNS); }); },
     [](const Made& made) -> const char* {
       return refused_without(made.policy, "CAP_SYS_ADMIN", "unshare");
     }},
    {"unshare-net", "create a network namespace",
     [] { return in_child([] { return unshare(CLONE_NEWNET); }); },
     [](const Made& made) -> const char* {
       return refused_without(made.policy, "CAP_SYS_ADMIN", "unshare");
     }},
    {"join-init-mount", "join the mount namespace of the sandbox's init",
     [] {
       return in_child([] {
         const int fd = open("/proc/1/ns/mnt", O_RDONLY | O_CLOEXEC);
         return fd < 0 ? -1 : setns(fd, CLONE_NEWNS);
       });
     },
     [](const Made&) -> const char* { return "namespaces.mount"; }},
};

/// Those that are new; a joined one is read back by its inode as it is entered.
std::vector<Fact::Expected> expected_namespaces(const Made& made) {
  struct Kind {
    const char* member;
    const char* kind;
    const Namespace& space;
  };
  const policy::Namespaces& spaces = made.policy.namespaces;
  const Kind kinds[] = {{"user", "user", spaces.user}, {"mount", "mnt", spaces.mount},
                        {"pid", "pid", spaces.pid},    {"ipc", "ipc", spaces.ipc},
                        {"uts", "uts", spaces.uts},    {"cgroup", "cgroup", spaces.cgroup},
                        {"time", "time", spaces.time}};
  std::vector<Fact::Expected> expected;
  for (const Kind& kind : kinds) {
    if (kind.space != NamespaceMode::kNew) continue;
    for (Fact::Expected& one :
         other_namespace_than_ours(made, kind.kind, std::string("namespaces.") + kind.member))
      expected.push_back(std::move(one));
  }
  return expected;
}

/// A keyring that was belljar's when the sandbox was made.
Seen look_at_keyring(const std::string& ours) {
  const long serial = sys::raw(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0);
  if (serial < 0) return holds(errno_name(static_cast<int>(-serial)));
  return std::to_string(serial) == ours ? differs("it is belljar's, " + ours) : holds();
}

constexpr Fact kFacts[] = {
    {"own-namespace", "a namespace is not the sandbox's own", is_another_namespace,
     expected_namespaces},
    {"own-session", "the sandbox's init is not tied to belljar as it must be",
     [](const std::string&) {
       const pid_t leader = getsid(0);
       if (leader < 0) return unseen("getsid: " + errno_name(errno));
       return leader == 1 ? holds() : differs("the command is in the session of its caller");
     },
     [](const Made&) {
       return std::vector<Fact::Expected>{{"1", "namespaces.pid"}};
     }},
    {"own-keyring", "the session keyring is not the sandbox's own", look_at_keyring,
     [](const Made& made) {
       std::vector<Fact::Expected> expected;
       if (made.lures.keyring)
         // Where the filter kills who asks, it keeps the command from it too.
         expected.push_back({std::to_string(*made.lures.keyring), "namespaces.user",
                             /*may_be_unseen=*/true});
       return expected;
     }},
};

Status refuse_shared(const std::string& member, const Namespace& space) {
  if (space != NamespaceMode::kShared) return {};
  return fail(
      {ErrorKind::kRefused, 0, "a sandbox without an own " + member + " namespace does not hold",
       "namespaces." + member, "set it to \"new\"; only ipc, uts and cgroup can be \"shared\""});
}

Status refuse_joined(const std::string& member, const Namespace& space, const char* why) {
  if (space != NamespaceMode::kJoin) return {};
  return fail({ErrorKind::kRefused, 0, "a " + member + " namespace cannot be joined: " + why,
               "namespaces." + member, "set it to \"new\""});
}

void join(PlanBuilder& builder, const char* kind, std::uint64_t flag, const std::string& path,
          const std::string& because) {
  builder.add(Phase::kBefore, JoinNamespace{kind, flag, path}, because);
}

constexpr std::uint64_t kNewTime = 0x80;  // CLONE_NEWTIME

/// What a user namespace owns, everybody in it who has its capabilities can reach. It is there for
/// others too, so nothing is changed in it.
Status plan_joined_user(PlanBuilder& builder, bool filtered) {
  const policy::Policy& policy = builder.policy;
  const auto refuse = [](const char* what, const char* where, const char* remedy) {
    return fail({ErrorKind::kRefused, 0, what, where, remedy});
  };
  if (policy.identity.ids)
    return refuse("the ids of a user namespace that is joined are what it maps already",
                  "identity.ids", "remove it, or set namespaces.user to \"new\"");
  if (!policy.capabilities.empty())
    return refuse("capabilities would hold for everything of the user namespace that is joined",
                  "capabilities", "remove them, or set namespaces.user to \"new\"");
  if (!filtered && !policy.namespaces.nested_user)
    return refuse(
        "the kernel's limit of user namespaces would bind all that is in the one that is "
        "joined, and the system call filter allows them",
        "namespaces.nested_user",
        "use syscalls.base agent@1 or strict@1 without rules for clone, clone3 and "
        "unshare, or set it to true");
  return {};
}

Status plan_joins(PlanBuilder& builder) {
  const policy::Namespaces& spaces = builder.policy.namespaces;
  BELLJAR_CHECK(refuse_joined("mount", spaces.mount,
                              "the sandbox's file tree would be mounted for all that is in it"));
  BELLJAR_CHECK(refuse_joined("pid", spaces.pid,
                              "a sandbox ends with the first process of its own, and in another "
                              "one what the command starts would go on"));
  struct Kind {
    const char* member;
    const char* kind;
    std::uint64_t flag;
    const Namespace& space;
  };
  const Kind kinds[] = {{"user", "user", CLONE_NEWUSER, spaces.user},
                        {"ipc", "ipc", CLONE_NEWIPC, spaces.ipc},
                        {"uts", "uts", CLONE_NEWUTS, spaces.uts},
                        {"cgroup", "cgroup", CLONE_NEWCGROUP, spaces.cgroup},
                        {"time", "time", kNewTime, spaces.time}};
  for (const Kind& kind : kinds)
    if (kind.space == NamespaceMode::kJoin)
      join(builder, kind.kind, kind.flag, kind.space.path,
           std::string("namespaces.") + kind.member);
  const auto& network = builder.policy.network.mode;
  if (network == policy::NetworkMode::kJoin)
    join(builder, "net", CLONE_NEWNET, network.path, "network.mode");
  return {};
}

/// Both sets refuse CLONE_NEWUSER, unless the policy has verdicts of its own on the calls.
bool filter_forbids_them(const policy::Syscalls& syscalls) {
  if (syscalls.base == policy::SyscallBase::kNone) return false;
  if (syscalls.mode == policy::SyscallMode::kLog) return false;
  for (const char* call : {"clone", "clone3", "unshare"})
    if (syscalls.rules.contains(call)) return false;
  return true;
}

Status plan(PlanBuilder& builder) {
  const policy::Namespaces& spaces = builder.policy.namespaces;
  BELLJAR_CHECK(refuse_shared("user", spaces.user));
  BELLJAR_CHECK(refuse_shared("mount", spaces.mount));
  BELLJAR_CHECK(refuse_shared("pid", spaces.pid));
  BELLJAR_CHECK(plan_joins(builder));
  const bool filtered = filter_forbids_them(builder.policy.syscalls);
  const bool joins_user = spaces.user == NamespaceMode::kJoin;
  if (joins_user) BELLJAR_CHECK(plan_joined_user(builder, filtered));
  builder.add(Phase::kBefore,
              CreateNamespaces{namespace_flags(builder.policy, builder.host),
                               builder.host.privileged(), builder.ids.uid, builder.ids.gid},
              "namespaces");
  // Before init ceases to be dumpable, and so the owner of its files in /proc.
  if (spaces.time == NamespaceMode::kNew)
    builder.add(Phase::kGuard,
                EnterTimeNamespace{spaces.time_offsets.monotonic.value_or(0ms),
                                   spaces.time_offsets.boottime.value_or(0ms)},
                "namespaces.time");
  builder.add(Phase::kGuard, GuardInit{});
  builder.add(Phase::kGuard, JoinKeyring{});
  if (spaces.nested_user && filtered)
    return fail({ErrorKind::kRefused, 0,
                 "the system call filter refuses the user namespaces that this allows",
                 "namespaces.nested_user",
                 "add \"clone\", \"clone3\" and \"unshare\" to syscalls.rules with \"allow\", or "
                 "remove it"});
  if (!spaces.nested_user && !joins_user)
    builder.add(Phase::kMasks, ForbidUserNamespaces{filtered}, "namespaces.nested_user");
  builder.add(Phase::kForget, ForgetLauncher{});
  return {};
}

Status read_back(PlanBuilder& builder) {
  builder.add(Phase::kGuard, CheckNamespaces{namespace_flags(builder.policy, builder.host)},
              "namespaces");
  return {};
}

std::vector<Requirement> require(const policy::Policy& policy, const Host&) {
  std::vector<Requirement> needed = {{"user namespaces for the session's uid", "namespaces.user"},
                                     {"a mounted /proc, for the id maps", "namespaces.user"}};
  if (policy.namespaces.time == NamespaceMode::kNew)
    needed.push_back({"time namespaces (Linux 5.6, CONFIG_TIME_NS)", "namespaces.time"});
  return needed;
}

std::string time_remedy(int error) {
  if (error == EINVAL)
    return "this kernel has no time namespaces (Linux 5.6, CONFIG_TIME_NS); make namespaces.time "
           "\"shared\"";
  if (error == ERANGE)
    return "the clock would be below zero: this host has not been up for as long as the offset "
           "goes back";
  return {};
}

std::string join_remedy(const JoinNamespace& joined, int error) {
  if (error == EINVAL && joined.flag == CLONE_NEWUSER)
    return "it is the one that belljar is in already, where nothing would be joined: name another "
           "one, or set namespaces.user to \"new\"";
  if (error != EPERM) return {};
  if (joined.flag == CLONE_NEWUSER)
    return "run belljar as the uid that it belongs to, outside of it, or as root; in a container, "
           "allow setns in its seccomp profile";
  return "that takes CAP_SYS_ADMIN in the user namespace that it belongs to: join that one too "
         "(namespaces.user), or run belljar as root; in a container, allow setns in its seccomp "
         "profile";
}

std::string remedy(const FailedStep& failed, const policy::Policy&, const Host&) {
  if (std::holds_alternative<EnterTimeNamespace>(failed.step->action))
    return time_remedy(failed.sys_errno);
  if (const auto* joined = std::get_if<JoinNamespace>(&failed.step->action))
    return join_remedy(*joined, failed.sys_errno);
  if (!std::holds_alternative<CreateNamespaces>(failed.step->action)) return {};
  switch (failed.sys_errno) {
    case ENOSPC:
      return "this host allows no (more) user namespaces: as root, "
             "sysctl -w user.max_user_namespaces=15000";
    case EPERM:
      return "user namespaces are switched off for this caller. In a container: allow unshare, "
             "mount, "
             "umount2 and pivot_root in its seccomp profile. On Debian: as root, "
             "sysctl -w kernel.unprivileged_userns_clone=1";
    case ENOSYS:
      return "this kernel, or the seccomp profile of the container, has neither clone3 nor unshare";
    case EUSERS:
      return "user namespaces are nested too deep here (the kernel allows 32)";
    default:
      return {};
  }
}

}  // namespace

std::uint64_t namespace_flags(const policy::Policy& policy, const Host& host) {
  std::uint64_t flags = CLONE_NEWNS | CLONE_NEWPID;
  const policy::Namespaces& spaces = policy.namespaces;
  if (spaces.user == NamespaceMode::kNew) flags |= CLONE_NEWUSER;
  if (spaces.ipc == NamespaceMode::kNew) flags |= CLONE_NEWIPC;
  if (spaces.uts == NamespaceMode::kNew) flags |= CLONE_NEWUTS;
  if (spaces.cgroup == NamespaceMode::kNew) flags |= CLONE_NEWCGROUP;
  if (policy.network.mode != policy::NetworkMode::kJoin && !shares_network(policy, host))
    flags |= CLONE_NEWNET;
  return flags;
}

const Control kNamespaces = {
    "namespaces", "the sandbox has its own of each kind", require, plan, read_back, kProbes, remedy,
    kFacts};

}  // namespace belljar::launcher
