// The steps of a launch one by one, so that the first that is refused does not hide the next.
#include <fcntl.h>
#include <grp.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "launcher/facts.hpp"
#include "launcher/network/firewall.hpp"
#include "launcher/sys/kernel.hpp"
#include "launcher/sys/raw.hpp"

namespace belljar::launcher {
namespace {

constexpr int kNotTried = -1;

/// Shared with the process that tries.
struct Shared {
  int clone3 = kNotTried, unshare_user = kNotTried, map_ids = kNotTried, unshare_rest = kNotTried;
  int make_private = kNotTried, mount_tree = kNotTried, mount_tmpfs = kNotTried;
  int proc_full = kNotTried, proc_read_only = kNotTried, proc_processes = kNotTried;
  int sethostname = kNotTried, pivot_root = kNotTried, seccomp = kNotTried, tun = kNotTried;
  int nftables = kNotTried;
};

int error_of(long result) { return result < 0 ? errno : 0; }

/// Another process of the same memory's copy does `work`.
template <class Work>
void in_child(Work work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(0);
  }
  if (child > 0) waitpid(child, nullptr, 0);
}

bool take_ids(const SessionIds& ids, const Host& caller) {
  if (!caller.privileged() || ids.uid == caller.uid) return true;
  const bool taken = setgroups(0, nullptr) == 0 && setresgid(ids.gid, ids.gid, ids.gid) == 0 &&
                     setresuid(ids.uid, ids.uid, ids.uid) == 0;
  // The files of a process that is not dumpable are root's, its id maps too.
  return taken && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0;
}

int try_clone3() {
  sys::CloneArgs arguments;
  arguments.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID;
  arguments.exit_signal = SIGCHLD;
  const long pid = sys::raw(SYS_clone3, &arguments, sizeof arguments);
  if (pid == 0) _exit(0);
  if (pid > 0) waitpid(static_cast<pid_t>(pid), nullptr, 0);
  return pid < 0 ? static_cast<int>(-pid) : 0;
}

int write_text(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  const int error = error_of(write(fd, text.data(), text.size()));
  close(fd);
  return error;
}

int map_own_ids(const SessionIds& ids) {
  const auto line = [](unsigned id) {
    return std::to_string(id) + " " + std::to_string(id) + " 1";
  };
  int error = write_text("/proc/self/setgroups", "deny");
  if (error == 0) error = write_text("/proc/self/uid_map", line(ids.uid));
  if (error == 0) error = write_text("/proc/self/gid_map", line(ids.gid));
  return error;
}

int mount_proc(const std::string& at, unsigned long flags, const char* options) {
  const int error = error_of(
      mount("proc", at.c_str(), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC | flags, options));
  if (error == 0) umount2(at.c_str(), MNT_DETACH);
  return error;
}

/// With an own tmpfs at `at`.
void try_mounts(Shared& shared, const std::string& at) {
  const std::string proc = at + "/proc", root = at + "/root", old = root + "/old";
  mkdir(proc.c_str(), 0755);
  mkdir(root.c_str(), 0755);
  in_child([&] {
    shared.proc_full = mount_proc(proc, 0, nullptr);
    shared.proc_read_only = mount_proc(proc, MS_RDONLY, nullptr);
    shared.proc_processes = mount_proc(proc, 0, "subset=pid");
  });
  if (mount("root", root.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, nullptr) != 0) return;
  mkdir(old.c_str(), 0755);
  shared.pivot_root = static_cast<int>(-sys::raw(SYS_pivot_root, root.c_str(), old.c_str()));
}

/// As the guard of a private network sets them.
int try_rules() {
  Result<network::Firewall> firewall = network::Firewall::open();
  if (!firewall) return firewall.error().sys_errno;
  Status set = firewall->close();
  if (set) set = firewall->set({{{0, 0}, {}, false, "a try"}});
  // What was read back and is not what was set has no errno.
  return set ? 0 : set.error().sys_errno != 0 ? set.error().sys_errno : EBADMSG;
}

void try_in_order(Shared& shared, const SessionIds& ids) {
  // EFAULT: the filter would have been read. Nothing is installed.
  shared.seccomp = error_of(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, nullptr, 0, 0));
  const int tun = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
  shared.tun = tun < 0 ? errno : 0;
  shared.clone3 = try_clone3();
  shared.unshare_user = error_of(unshare(CLONE_NEWUSER));
  if (shared.unshare_user != 0) return;
  shared.map_ids = map_own_ids(ids);
  if (shared.map_ids != 0) return;
  shared.unshare_rest = error_of(unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                                         CLONE_NEWUTS | CLONE_NEWCGROUP));
  if (shared.unshare_rest != 0) return;
  shared.nftables = try_rules();
  shared.sethostname = error_of(sethostname("belljar", 7));
  shared.make_private = error_of(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr));
  if (shared.make_private != 0) return;
  const long tree = sys::raw(SYS_open_tree, AT_FDCWD, "/", sys::kOpenTreeClone | sys::kAtRecursive);
  shared.mount_tree = tree < 0 ? static_cast<int>(-tree) : 0;
  for (const char* at : {"/tmp", "/run", "/proc"}) {
    shared.mount_tmpfs = error_of(mount("try", at, "tmpfs", MS_NOSUID | MS_NODEV, nullptr));
    if (shared.mount_tmpfs == 0) return try_mounts(shared, at);
  }
}

Tried tried(int error) { return error == kNotTried ? std::nullopt : Tried(error); }

}  // namespace

Tries try_steps(const SessionIds& ids, const Host& caller) {
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {};
  auto& shared = *new (memory) Shared;
  in_child([&] {
    if (take_ids(ids, caller)) try_in_order(shared, ids);
  });
  Tries tries;
  tries.clone3 = tried(shared.clone3);
  tries.unshare_user = tried(shared.unshare_user);
  tries.map_ids = tried(shared.map_ids);
  tries.unshare_rest = tried(shared.unshare_rest);
  tries.make_private = tried(shared.make_private);
  tries.mount_tree = tried(shared.mount_tree);
  tries.mount_tmpfs = tried(shared.mount_tmpfs);
  tries.proc_full = tried(shared.proc_full);
  tries.proc_read_only = tried(shared.proc_read_only);
  tries.proc_processes = tried(shared.proc_processes);
  tries.sethostname = tried(shared.sethostname);
  tries.pivot_root = tried(shared.pivot_root);
  tries.seccomp = tried(shared.seccomp);
  tries.tun = tried(shared.tun);
  tries.nftables = tried(shared.nftables);
  munmap(memory, sizeof(Shared));
  return tries;
}

}  // namespace belljar::launcher
