// The floor of the launch benchmark: the least that a launcher must do for the view that
// launch.json describes. It is a yardstick and no sandbox: no system-call filter, no read-back, no
// resource limits, no record, no fallback, and inherited descriptors stay open.
//
//   minimal_launcher PROGRAM [ARG...]
//
// New user, mount, pid, network, ipc, uts and cgroup namespaces; the host read-only; a new /tmp,
// /proc and /dev; no capabilities; no_new_privs; a reaper as pid 1. Needs Linux 5.12
// (mount_setattr), and works for root and for a plain user: either maps its own ids and no others.
//
// The launcher waits and its child does everything else, in the order in which main() calls it.

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef AT_RECURSIVE  // Declared by <linux/fcntl.h>, which cannot be included beside <fcntl.h>.
#define AT_RECURSIVE 0x8000
#endif

enum { kLauncherFailed = 125, kCannotExecute = 126, kSignalBase = 128 };

#define CHECK(call) check((long)(call), #call)

static long check(long result, const char* call) {
  if (result < 0) {
    fprintf(stderr, "minimal_launcher: %s: %s\n", call, strerror(errno));
    _exit(kLauncherFailed);
  }
  return result;
}

static int exit_code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalBase + WTERMSIG(status);
}

static void write_file(const char* path, const char* text) {
  int fd = (int)CHECK(open(path, O_WRONLY | O_CLOEXEC));
  CHECK(write(fd, text, strlen(text)));
  close(fd);
}

// --- Namespaces and ids -------------------------------------------------------------------------

// Returns the child's pid in the launcher, and 0 in the child, which is pid 1 of its namespace.
static pid_t clone_into_namespaces(void) {
  struct clone_args args = {
      .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
               CLONE_NEWUTS | CLONE_NEWCGROUP,
      .exit_signal = SIGCHLD,
  };
  return (pid_t)CHECK(syscall(SYS_clone3, &args, sizeof args));
}

// A process may map its own id in a namespace that it has just made without any privilege outside,
// so the child needs no help from the launcher. `setgroups` must be denied before the gid map.
static void map_own_ids(uid_t uid, gid_t gid) {
  char map[64];
  snprintf(map, sizeof map, "%u %u 1\n", uid, uid);
  write_file("/proc/self/uid_map", map);
  write_file("/proc/self/setgroups", "deny");
  snprintf(map, sizeof map, "%u %u 1\n", gid, gid);
  write_file("/proc/self/gid_map", map);
}

// The kernel gives a loopback interface its addresses when it comes up.
static void raise_loopback(void) {
  struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
  int fd = (int)CHECK(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  CHECK(ioctl(fd, SIOCSIFFLAGS, &request));
  close(fd);
}

// --- The root -----------------------------------------------------------------------------------

static int clone_tree(const char* path, unsigned int flags) {
  return (int)CHECK(open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | flags));
}

// A new file system of `type`, not attached anywhere. `options` is a null-terminated list of keys
// and values in turn, or null.
static int new_filesystem(const char* type, const char* const* options, unsigned int attributes) {
  int context = (int)CHECK(fsopen(type, FSOPEN_CLOEXEC));
  for (; options != NULL && options[0] != NULL; options += 2) {
    CHECK(fsconfig(context, FSCONFIG_SET_STRING, options[0], options[1], 0));
  }
  CHECK(fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0));
  int mount = (int)CHECK(fsmount(context, FSMOUNT_CLOEXEC, attributes));
  close(context);
  return mount;
}

static void attach(int mount, int directory, const char* name) {
  CHECK(move_mount(mount, "", directory, name, MOVE_MOUNT_F_EMPTY_PATH));
}

static void add_filesystem(int root, const char* name, const char* type, const char* const* options,
                           unsigned int attributes) {
  int mount = new_filesystem(type, options, attributes);
  attach(mount, root, name);
  close(mount);
}

static const char* const kDevOptions[] = {"mode", "0755", NULL};
static const char* const kPtsOptions[] = {"ptmxmode", "0666", "mode", "0620", NULL};

static void add_device(int dev, const char* name) {
  char source[32];
  snprintf(source, sizeof source, "/dev/%s", name);
  CHECK(mknodat(dev, name, S_IFREG | 0444, 0));
  int node = clone_tree(source, 0);
  attach(node, dev, name);
  close(node);
}

static void add_dev(int root) {
  static const char* const kDevices[] = {"null", "zero", "full", "random", "urandom", "tty"};
  static const struct {
    const char *name, *target;
  } kLinks[] = {{"stdin", "/proc/self/fd/0"},  {"stdout", "/proc/self/fd/1"},
                {"stderr", "/proc/self/fd/2"}, {"fd", "/proc/self/fd"},
                {"core", "/proc/kcore"},       {"ptmx", "pts/ptmx"}};

  int dev = new_filesystem("tmpfs", kDevOptions, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
  attach(dev, root, "dev");
  for (size_t i = 0; i < sizeof kDevices / sizeof kDevices[0]; ++i) add_device(dev, kDevices[i]);
  for (size_t i = 0; i < sizeof kLinks / sizeof kLinks[0]; ++i) {
    CHECK(symlinkat(kLinks[i].target, dev, kLinks[i].name));
  }
  CHECK(mkdirat(dev, "shm", 01777));
  CHECK(mkdirat(dev, "pts", 0755));
  add_filesystem(dev, "pts", "devpts", kPtsOptions, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
  close(dev);
}

// Private and nosuid for the child's whole copy of the host's mounts: what is cloned from it
// afterwards, the device nodes too, inherits both, and no later mount of the host reaches it.
static void make_mounts_private(void) {
  struct mount_attr attributes = {.attr_set = MOUNT_ATTR_NOSUID, .propagation = MS_PRIVATE};
  CHECK(mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &attributes, sizeof attributes));
}

static int clone_host_read_only(void) {
  struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV};
  int root = clone_tree("/", AT_RECURSIVE);
  CHECK(mount_setattr(root, "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes, sizeof attributes));
  return root;
}

// pivot_root(".", ".") puts the old root on top of the new one, where one umount2 removes it.
static void enter_root(int root) {
  CHECK(fchdir(root));
  CHECK(syscall(SYS_pivot_root, ".", "."));
  CHECK(umount2(".", MNT_DETACH));
  CHECK(chdir("/"));
  close(root);
}

static void build_root(void) {
  mode_t caller_umask = umask(0);
  make_mounts_private();
  int root = clone_host_read_only();
  attach(root, AT_FDCWD, "/");
  add_filesystem(root, "tmp", "tmpfs", NULL, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
  add_filesystem(root, "proc", "proc", NULL,
                 MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
  add_dev(root);
  enter_root(root);
  umask(caller_umask);
}

// --- The program --------------------------------------------------------------------------------

// With no_new_privs an exec cannot add to the permitted set, not even for uid 0, so that the
// bounding set need not be emptied one capability at a time.
static void drop_capabilities(void) {
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
  CHECK(syscall(SYS_capset, &header, none));
}

// Pid 1 stays until its namespace is empty, and ends as the program did.
static int run_and_reap(char** argv) {
  pid_t program = (pid_t)CHECK(vfork());
  if (program == 0) {
    execvp(argv[0], argv);
    _exit(kCannotExecute);
  }
  int code = kLauncherFailed;
  int status = 0;
  pid_t ended;
  while ((ended = wait(&status)) > 0 || errno == EINTR) {
    if (ended == program) code = exit_code_of(status);
  }
  return code;
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: minimal_launcher PROGRAM [ARG...]\n");
    return kLauncherFailed;
  }
  uid_t uid = getuid();
  gid_t gid = getgid();
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));

  pid_t child = clone_into_namespaces();
  if (child > 0) {
    int status = 0;
    CHECK(waitpid(child, &status, 0));
    return exit_code_of(status);
  }
  map_own_ids(uid, gid);
  raise_loopback();
  build_root();
  drop_capabilities();
  _exit(run_and_reap(argv + 1));
}
