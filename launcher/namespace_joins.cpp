#include "launcher/namespace_joins.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>

#include "launcher/sys/proc.hpp"
#include "launcher/sys/resolve.hpp"
#include "launcher/sys/session_credentials.hpp"

namespace belljar::launcher {
namespace {

using sys::UniqueFd;

Error refused(const JoinNamespace& action, int error, std::string what) {
  return {ErrorKind::kRefused,
          error,
          std::move(what),
          {},
          "name a namespace of the kind " + action.kind + ": /proc/PID/ns/" + action.kind +
              ", or a file that one is mounted on"};
}

/// Without opening a pipe or a device that may be there instead.
Result<UniqueFd> open_namespace(const JoinNamespace& action) {
  const UniqueFd there = BELLJAR_TRY(sys::open_trusted(action.path));
  struct statfs system {};
  if (fstatfs(there.get(), &system) != 0) return sys_failure(errno, "look at " + action.path);
  if (system.f_type != NSFS_MAGIC)
    return fail(refused(action, EINVAL, action.path + " is no namespace"));
  const std::string again = "self/fd/" + std::to_string(there.get());
  UniqueFd fd(openat(sys::proc_directory(), again.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return sys_failure(errno, "open the namespace " + action.path);
  const int type = ioctl(fd.get(), NS_GET_NSTYPE);
  if (type < 0) return sys_failure(errno, "ask for the type of the namespace " + action.path);
  if (static_cast<std::uint64_t>(type) != action.flag)
    return fail(refused(action, EINVAL,
                        action.path + " is a namespace, and not one of the kind " + action.kind));
  return fd;
}

std::string remedy(int error) {
  if (error == ELOOP) return "name what the link points to; for /proc/self, the process";
  if (error == EACCES)
    return "its process belongs to another uid, or has capabilities that belljar has not: run "
           "belljar as that uid, or as root with CAP_SYS_PTRACE, or have the namespace mounted on "
           "a file (touch FILE; mount --bind /proc/PID/ns/KIND FILE)";
  return "name one that is there: /proc/PID/ns/KIND while PID runs, /run/netns/NAME after ip netns "
         "add NAME";
}

/// Without CAP_SYS_PTRACE, root is nobody to a process of another uid (man 2 ptrace).
Result<UniqueFd> open_as_either(const JoinNamespace& action, const Plan& plan, const Host& host) {
  Result<UniqueFd> fd = open_namespace(action);
  if (fd || fd.error().sys_errno != EACCES || !host.privileged()) return fd;
  sys::SessionCredentials session(host.uid, host.gid, host.capabilities);
  BELLJAR_CHECK(session.assume(plan.uid, plan.gid));
  Result<UniqueFd> again = open_namespace(action);
  BELLJAR_CHECK(session.leave());
  return again;
}

}  // namespace

Status NamespaceJoins::open(const Plan& plan, const Host& host) {
  list_.clear();
  fds_.clear();
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const auto* action = std::get_if<JoinNamespace>(&plan.steps[i].action);
    if (action == nullptr) continue;
    Result<UniqueFd> fd = open_as_either(*action, plan, host);
    Status kept = fd ? keep(std::move(*fd), *action, static_cast<int>(i)) : fail(fd.error());
    if (kept) continue;
    Error error = kept.error();
    error.where = plan.steps[i].because;
    if (error.remedy.empty()) {
      error.what = "cannot join " + action->path + ": " + error.what;
      error.remedy = remedy(error.sys_errno);
    }
    return fail(std::move(error));
  }
  return {};
}

Status NamespaceJoins::keep(UniqueFd fd, const JoinNamespace& action, int step) {
  fds_.push_back(std::move(fd));
  struct stat about {};
  if (fstat(fds_.back().get(), &about) != 0)
    return sys_failure(errno, "look at the namespace " + action.path);
  Join join;
  join.flag = action.flag;
  join.inode = about.st_ino;
  join.fd = fds_.back().get();
  join.step = step;
  list_.push_back(join);
  return {};
}

std::string NamespaceJoins::owner_text(int step) const {
  for (const Join& join : list_) {
    if (join.step != step) continue;
    const bool is_user = join.flag == CLONE_NEWUSER;
    const UniqueFd owner(is_user ? fcntl(join.fd, F_DUPFD_CLOEXEC, 3)
                                 : ioctl(join.fd, NS_GET_USERNS));
    struct stat about {};
    uid_t uid = 0;
    if (!owner.valid() || fstat(owner.get(), &about) != 0 ||
        ioctl(owner.get(), NS_GET_OWNER_UID, &uid) != 0)
      return "it belongs to a user namespace that this one does not contain";
    const std::string id = std::to_string(uid);
    if (is_user) return "it belongs to uid " + id;
    return "it belongs to the user namespace " + std::to_string(about.st_ino) + ", which is uid " +
           id + "'s";
  }
  return {};
}

}  // namespace belljar::launcher
