#include "api/belljard/privileges.hpp"

#include <cap-ng.h>
#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "policy/quote.hpp"
#include "policy/units.hpp"

namespace belljar::api {
namespace {

/// Of a pool that is larger, each uid is looked up only where the name service lists its users.
constexpr std::uint64_t kMostLookups = 5000;

std::string pool_text(const policy::Settings& settings) {
  return std::to_string(settings.uid_base) + '-' +
         std::to_string(settings.uid_base + settings.max_sessions - 1);
}

bool in_pool(const policy::Settings& settings, std::uint64_t uid) {
  return uid >= settings.uid_base && uid < settings.uid_base + settings.max_sessions;
}

Result<DaemonUser> named_user(const std::string& name) {
  errno = 0;
  if (const passwd* entry = getpwnam(name.c_str())) return DaemonUser{entry->pw_uid, entry->pw_gid};
  const auto number = policy::parse_decimal(name);
  if (number && *number < UINT32_MAX)
    return DaemonUser{static_cast<uid_t>(*number), static_cast<gid_t>(*number)};
  return fail({ErrorKind::kInvalid, errno, "there is no user " + policy::in_quotes(name), "user",
               "create it, or name another with --user"});
}

Status overlap(const policy::Settings& settings, const std::string& whom, std::uint64_t id) {
  return fail({ErrorKind::kRefused, 0,
               "the pool of uids " + pool_text(settings) + " overlaps " + whom + " (" +
                   std::to_string(id) + ")",
               "uid_base", "choose ids that nobody has, with --uid-base and --max-sessions"});
}

/// The calls that nothing in the daemon makes, and that make a foothold into more.
constexpr std::array kDenied = {"execve",
                                "execveat",
                                "ptrace",
                                "process_vm_readv",
                                "process_vm_writev",
                                "process_madvise",
                                "kcmp",
                                "pidfd_getfd",
                                "mount",
                                "umount2",
                                "umount",
                                "pivot_root",
                                "chroot",
                                "move_mount",
                                "open_tree",
                                "fsopen",
                                "fsconfig",
                                "fsmount",
                                "fspick",
                                "mount_setattr",
                                "unshare",
                                "setns",
                                "setuid",
                                "setgid",
                                "setreuid",
                                "setregid",
                                "setresuid",
                                "setresgid",
                                "setgroups",
                                "setfsuid",
                                "setfsgid",
                                "capset",
                                "bpf",
                                "perf_event_open",
                                "userfaultfd",
                                "io_uring_setup",
                                "io_uring_enter",
                                "io_uring_register",
                                "keyctl",
                                "add_key",
                                "request_key",
                                "init_module",
                                "finit_module",
                                "delete_module",
                                "kexec_load",
                                "kexec_file_load",
                                "reboot",
                                "swapon",
                                "swapoff",
                                "acct",
                                "quotactl",
                                "quotactl_fd",
                                "syslog",
                                "sethostname",
                                "setdomainname",
                                "settimeofday",
                                "clock_settime",
                                "clock_adjtime",
                                "adjtimex",
                                "iopl",
                                "ioperm",
                                "modify_ldt",
                                "mknod",
                                "mknodat",
                                "name_to_handle_at",
                                "open_by_handle_at",
                                "fanotify_init",
                                "lookup_dcookie",
                                "personality",
                                "vhangup",
                                "nfsservctl",
                                "fork",
                                "vfork"};

struct FreeFilter {
  void operator()(void* filter) const { seccomp_release(filter); }
};

}  // namespace

bool is_privileged() {
  capng_clear(CAPNG_SELECT_BOTH);
  if (capng_get_caps_process() != 0) return geteuid() == 0;
  return geteuid() == 0 || capng_have_capability(CAPNG_PERMITTED, CAP_SETUID) != 0;
}

Result<DaemonUser> daemon_user(const policy::Settings& settings) {
  DaemonUser user{static_cast<uid_t>(settings.uid_base - 1),
                  static_cast<gid_t>(settings.uid_base - 1)};
  if (!settings.user.empty()) user = BELLJAR_TRY(named_user(settings.user));
  if (user.uid == 0 || user.gid == 0)
    return fail({ErrorKind::kRefused, 0, "the daemon must not go on as root", "user",
                 settings.user.empty() ? "choose a --uid-base above 1, or a --user"
                                       : "name another with --user"});
  if (in_pool(settings, user.uid) || in_pool(settings, user.gid) ||
      user.uid == settings.self_test_uid())
    return fail({ErrorKind::kRefused, 0,
                 "the daemon's uid " + std::to_string(user.uid) + " is one of the pool's, " +
                     pool_text(settings),
                 "user", "name another with --user"});
  return user;
}

Status check_pool(const policy::Settings& settings) {
  setpwent();
  std::optional<std::pair<std::string, uid_t>> found;
  while (const passwd* entry = getpwent())
    if (!found && in_pool(settings, entry->pw_uid))
      found.emplace(entry->pw_name, entry->pw_uid);
    else if (!found && in_pool(settings, entry->pw_gid))
      found.emplace(std::string(entry->pw_name) + "'s group", entry->pw_gid);
  endpwent();
  if (found) return overlap(settings, "user " + found->first, found->second);
  setgrent();
  while (const group* entry = getgrent())
    if (!found && in_pool(settings, entry->gr_gid)) found.emplace(entry->gr_name, entry->gr_gid);
  endgrent();
  if (found) return overlap(settings, "group " + found->first, found->second);
  for (std::uint64_t i = 0; i < std::min(settings.max_sessions, kMostLookups); ++i) {
    const auto id = static_cast<uid_t>(settings.uid_base + i);
    if (const passwd* entry = getpwuid(id))
      return overlap(settings, std::string("user ") + entry->pw_name, id);
    if (const group* entry = getgrgid(id))
      return overlap(settings, std::string("group ") + entry->gr_name, id);
  }
  return {};
}

Status become(const DaemonUser& user) {
  const std::string whom =
      "become uid " + std::to_string(user.uid) + ", gid " + std::to_string(user.gid);
  if (setgroups(0, nullptr) != 0) return sys_failure(errno, whom + ": leave the groups");
  if (setresgid(user.gid, user.gid, user.gid) != 0) return sys_failure(errno, whom);
  if (setresuid(user.uid, user.uid, user.uid) != 0) return sys_failure(errno, whom);
  std::array<uid_t, 3> uids{};
  std::array<gid_t, 3> gids{};
  if (getresuid(&uids[0], &uids[1], &uids[2]) != 0 || getresgid(&gids[0], &gids[1], &gids[2]) != 0)
    return sys_failure(errno, whom + ": look");
  for (std::size_t i = 0; i < 3; ++i)
    if (uids[i] != user.uid || gids[i] != user.gid) return sys_failure(EPERM, whom + ": look");
  if (getgroups(0, nullptr) != 0) return sys_failure(EPERM, whom + ": some groups are left");
  return {};
}

Status drop_capabilities() {
  capng_clear(CAPNG_SELECT_BOTH);
  if (capng_apply(CAPNG_SELECT_CAPS) != 0) return sys_failure(errno, "drop all capabilities");
  if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 && errno != EINVAL)
    return sys_failure(errno, "drop ambient capabilities");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return sys_failure(errno, "set no_new_privs");
  // What no process has, none can be asked for: other users' processes cannot trace it either.
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return sys_failure(errno, "clear dumpable");
  if (capng_get_caps_process() != 0 || capng_have_capabilities(CAPNG_SELECT_CAPS) != CAPNG_NONE)
    return sys_failure(EPERM, "drop all capabilities: some are left");
  return {};
}

Status install_filter() {
  const std::unique_ptr<void, FreeFilter> filter(seccomp_init(SCMP_ACT_ALLOW));
  if (!filter) return sys_failure(ENOMEM, "make the daemon's filter");
  const std::uint32_t refuse = SCMP_ACT_ERRNO(EPERM);
  int failed = 0;
  for (const char* name : kDenied) {
    const int number = seccomp_syscall_resolve_name(name);
    if (number == __NR_SCMP_ERROR || number < 0) continue;  // Not one of this architecture.
    failed |= seccomp_rule_add(filter.get(), refuse, number, 0);
  }
  // Threads may be made, processes and namespaces not. clone3 hides its flags from a filter.
  const auto thread = static_cast<scmp_datum_t>(CLONE_THREAD);
  const scmp_arg_cmp no_thread{0, SCMP_CMP_MASKED_EQ, thread, 0};
  failed |= seccomp_rule_add_array(filter.get(), refuse, SCMP_SYS(clone), 1, &no_thread);
  failed |= seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
  if (failed != 0) return sys_failure(EINVAL, "make the daemon's filter");
  if (const int error = seccomp_load(filter.get()); error != 0)
    return sys_failure(-error, "load the daemon's filter");
  if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != 2)
    return sys_failure(EPERM, "load the daemon's filter: it is not in force");
  return {};
}

}  // namespace belljar::api
