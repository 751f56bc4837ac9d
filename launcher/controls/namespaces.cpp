#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/controls/control.hpp"

namespace belljar::launcher {
namespace {

using policy::NamespaceMode;

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
     [] { return in_child([] { return unshare(CLONE_NEWUSER); }); }},
    {"unshare-mount", "create a mount namespace",
     [] { return in_child([] { return unshare(CLONE_NEWNS); }); }},
    {"unshare-net", "create a network namespace",
     [] { return in_child([] { return unshare(CLONE_NEWNET); }); }},
    {"join-init-mount", "join the mount namespace of the sandbox's init",
     [] {
       return in_child([] {
         const int fd = open("/proc/1/ns/mnt", O_RDONLY | O_CLOEXEC);
         return fd < 0 ? -1 : setns(fd, CLONE_NEWNS);
       });
     }},
};

Status refuse_shared(std::string_view member, NamespaceMode mode) {
  if (mode == NamespaceMode::kNew) return {};
  return fail({ErrorKind::kRefused, 0,
               "a sandbox without an own " + std::string(member) + " namespace does not hold",
               "namespaces." + std::string(member),
               "set it to \"new\"; only ipc, uts and cgroup can be \"shared\""});
}

/// Both sets refuse CLONE_NEWUSER, unless the policy has verdicts of its own on the calls.
bool filter_forbids_them(const policy::Syscalls& syscalls) {
  if (syscalls.base == policy::SyscallBase::kNone) return false;
  for (const char* call : {"clone", "clone3", "unshare"})
    if (syscalls.rules.contains(call)) return false;
  return true;
}

Status plan(PlanBuilder& builder) {
  const policy::Namespaces& spaces = builder.policy.namespaces;
  BELLJAR_CHECK(refuse_shared("user", spaces.user));
  BELLJAR_CHECK(refuse_shared("mount", spaces.mount));
  BELLJAR_CHECK(refuse_shared("pid", spaces.pid));
  builder.add(Phase::kBefore,
              CreateNamespaces{namespace_flags(builder.policy), builder.host.privileged(),
                               builder.ids.uid, builder.ids.gid},
              "namespaces");
  builder.add(Phase::kGuard, GuardInit{});
  builder.add(Phase::kGuard, JoinKeyring{});
  if (spaces.nested_user && filter_forbids_them(builder.policy.syscalls))
    return fail({ErrorKind::kRefused, 0,
                 "the system call filter refuses the user namespaces that this allows",
                 "namespaces.nested_user",
                 "add \"clone\", \"clone3\" and \"unshare\" to syscalls.rules with \"allow\", or "
                 "remove it"});
  if (!spaces.nested_user)
    builder.add(Phase::kMasks, ForbidUserNamespaces{filter_forbids_them(builder.policy.syscalls)},
                "namespaces.nested_user");
  builder.add(Phase::kForget, ForgetLauncher{});
  return {};
}

Status read_back(PlanBuilder& builder) {
  builder.add(Phase::kGuard, CheckNamespaces{namespace_flags(builder.policy)}, "namespaces");
  return {};
}

std::vector<Requirement> require(const policy::Policy&, const Host&) {
  return {{"user namespaces for the session's uid", "namespaces.user"},
          {"a mounted /proc, for the id maps", "namespaces.user"}};
}

std::string remedy(const FailedStep& failed, const policy::Policy&, const Host&) {
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

std::uint64_t namespace_flags(const policy::Policy& policy) {
  std::uint64_t flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID;
  const policy::Namespaces& spaces = policy.namespaces;
  if (spaces.ipc == NamespaceMode::kNew) flags |= CLONE_NEWIPC;
  if (spaces.uts == NamespaceMode::kNew) flags |= CLONE_NEWUTS;
  if (spaces.cgroup == NamespaceMode::kNew) flags |= CLONE_NEWCGROUP;
  if (!shares_network(policy)) flags |= CLONE_NEWNET;
  return flags;
}

const Control kNamespaces = {
    "namespaces", "the sandbox has its own of each kind", require, plan, read_back, kProbes,
    remedy};

}  // namespace belljar::launcher
