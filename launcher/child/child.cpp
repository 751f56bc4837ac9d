// The child's whole life, in the order in which it happens: primitives, paths, mounts, identity,
// read-back, the payload, init's loop.
//
// Rules of this file (docs/architecture.md): no allocation, no libc wrapper that could touch
// thread-local storage, no exception, no way back into the launcher. Functions return >= 0 or
// -errno. A failure is a Message with the step's index; the launcher owns the plan and puts it into
// words.
#include "launcher/child/child.hpp"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/if.h>
#include <linux/keyctl.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include "launcher/plan_modes.hpp"
#include "launcher/sys/kernel.hpp"
#include "launcher/sys/landlock.hpp"
#include "launcher/sys/raw.hpp"

extern "C" {
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));
}

namespace belljar::launcher {
namespace {

using sys::raw;

constexpr int kPathRoom = 4096;  // PATH_MAX

/// Where a literal plan's root is assembled.
constexpr char kNewRoot[] = "/newroot";

// ------------------------------------------------------------------------------------------------
// Primitives

struct Child {
  Arena& arena;
  Image& image;
  int root = -1;                 ///< O_PATH descriptor of the new root while it is assembled.
  bool root_is_ours = false;     ///< A tmpfs: links found on it are planned ones.
  int host = -1;                 ///< Literal: O_PATH descriptor of the host's root.
  int dev = -1;                  ///< O_PATH descriptor of the /dev that was made last.
  int covered_proc = -1;         ///< Legacy: the host's /proc below the new root, in our namespace.
  bool in_proc = false;          ///< The current directory is the launcher's /proc.
  bool api_proven = false;       ///< The new mount API has worked once in this launch.
  std::uint32_t parents = 0755;  ///< The mode of directories that are made on the way.
  int status = -1;               ///< The payload's own /proc/self/status, opened before the filter.

  [[nodiscard]] const char* text(std::uint32_t offset) const noexcept {
    return reinterpret_cast<const char*>(&image) + offset;
  }
  template <class T>
  [[nodiscard]] const T* array(std::uint32_t offset) const noexcept {
    return reinterpret_cast<const T*>(reinterpret_cast<const char*>(&image) + offset);
  }
};

void set_subject(Child& child, Detail detail, const char* text) noexcept {
  child.arena.report.detail = detail;
  char* out = child.arena.report.subject;
  const std::size_t room = sizeof child.arena.report.subject - 1;
  std::size_t length = 0;
  for (; length < room && text[length] != '\0'; ++length) out[length] = text[length];
  out[length] = '\0';
}

int fail_read_back(Child& child, const char* what) noexcept {
  set_subject(child, Detail::kReadBack, what);
  return -EPROTO;
}

[[noreturn]] void leave(int code) noexcept {
  raw(SYS_exit_group, code);
  raw(SYS_exit, code);
  // A policy's filter may refuse both.
  for (;;) __builtin_trap();
}

/// Low numbers are left to the one close_range that payload and init make when all is set up (all
/// are close-on-exec besides); only a launch with very many mounts needs them back earlier.
void close_fd(int fd) noexcept {
  constexpr int kLeftOpen = 26;
  if (fd >= kLeftOpen) raw(SYS_close, fd);
}

int send(Child& child, const Message& message) noexcept {
  return static_cast<int>(
      raw(SYS_sendto, child.arena.control, &message, sizeof message, MSG_NOSIGNAL, nullptr, 0));
}

/// Hands one or two descriptors (`second` is -1 without) to the launcher beside a message.
int send_with(Child& child, const Message& message, int first, int second) noexcept {
  alignas(cmsghdr) char room[CMSG_SPACE(2 * sizeof(int))] = {};
  iovec part = {const_cast<Message*>(&message), sizeof message};
  msghdr envelope = {};
  envelope.msg_iov = &part;
  envelope.msg_iovlen = 1;
  const std::size_t size = (second < 0 ? 1 : 2) * sizeof(int);
  envelope.msg_control = room;
  envelope.msg_controllen = CMSG_SPACE(size);
  cmsghdr* beside = CMSG_FIRSTHDR(&envelope);
  beside->cmsg_level = SOL_SOCKET;
  beside->cmsg_type = SCM_RIGHTS;
  beside->cmsg_len = CMSG_LEN(size);
  const int descriptors[2] = {first, second};
  std::memcpy(CMSG_DATA(beside), descriptors, size);
  return static_cast<int>(raw(SYS_sendmsg, child.arena.control, &envelope, MSG_NOSIGNAL));
}

/// Until the launcher says `wanted`. Its answer.
int wait_for(Child& child, MessageKind wanted) noexcept {
  // Our copy of the launcher's end would keep its death from being told by the end of file.
  int& launchers_end = child.arena.launchers_control;
  if (launchers_end >= 0) raw(SYS_close, launchers_end);
  launchers_end = -1;
  for (;;) {
    Message message;
    const long got =
        raw(SYS_recvfrom, child.arena.control, &message, sizeof message, 0, nullptr, nullptr);
    if (got == -EINTR) continue;
    if (got <= 0) leave(125);  // The lifeline.
    if (got != sizeof message) continue;
    if (message.kind == MessageKind::kNetworkUp) child.arena.network_up = 1;
    if (message.kind == wanted) return message.status;
  }
}

/// Until the launcher has done what it was asked for. Its answer.
int wait_for_go(Child& child) noexcept { return wait_for(child, MessageKind::kGo); }

[[noreturn]] void report_and_leave(Child& child, int step, int error) noexcept {
  Message& message = child.arena.report;
  message.kind = MessageKind::kFailed;
  message.step = step;
  message.error = -error;
  send(child, message);
  leave(125);
}

/// Appends a decimal number and returns the new end.
char* append_number(char* out, std::uint64_t value) noexcept {
  char digits[20];
  int count = 0;
  do digits[count++] = static_cast<char>('0' + value % 10);
  while ((value /= 10) != 0);
  while (count > 0) *out++ = digits[--count];
  *out = '\0';
  return out;
}

char* append_text(char* out, const char* text) noexcept {
  while (*text != '\0') *out++ = *text++;
  *out = '\0';
  return out;
}

bool equal(const char* a, const char* b) noexcept {
  while (*a != '\0' && *a == *b) ++a, ++b;
  return *a == *b;
}

int write_at(int directory, const char* path, const char* text) noexcept {
  const long fd = raw(SYS_openat, directory, path, O_WRONLY | O_CLOEXEC, 0);
  if (fd < 0) return static_cast<int>(fd);
  const std::size_t length = std::strlen(text);
  const long written = raw(SYS_write, fd, text, length);
  close_fd(static_cast<int>(fd));
  if (written < 0) return static_cast<int>(written);
  return static_cast<std::size_t>(written) == length ? 0 : -EIO;
}

/// Reads at most `room - 1` bytes and ends them with a NUL.
int read_text(int fd, char* out, std::size_t room) noexcept {
  std::size_t length = 0;
  while (length + 1 < room) {
    const long got = raw(SYS_pread64, fd, out + length, room - 1 - length, length);
    if (got < 0) return static_cast<int>(got);
    if (got == 0) break;
    length += static_cast<std::size_t>(got);
    // A status file comes in one piece; asking again would only be told that it has ended.
    if (length + 1 < room && out[length - 1] == '\n') break;
  }
  out[length] = '\0';
  return static_cast<int>(length);
}

// ------------------------------------------------------------------------------------------------
// Paths

bool is_unavailable(int error) noexcept {
  return error == -ENOSYS || error == -EPERM || error == -EINVAL || error == -E2BIG ||
         error == -EOPNOTSUPP || error == -EACCES;
}

/// Which symbolic links a path may lead through.
enum class Links {
  kNone,     ///< A bind's source: the launcher has replaced root's links, no other is trusted.
  kPlanned,  ///< A mount point: links of this launch, and root's where no command can write now.
  kFixed,    ///< What a mask would hide: those that no command can change now, whosever.
  kAll,      ///< Inside the finished root.
};

/// Walks `path` one component at a time without ever leaving `top`, as openat2 would with IN_ROOT
/// and NO_MAGICLINKS. A link that an earlier payload planted must not decide what the next launch
/// mounts, or where (CVE-2026-87766, CVE-2024-42472).
class GuardedWalk {
 public:
  GuardedWalk(Child& child, int top, Links links) noexcept
      : child_(child), top_(top), links_allowed_(links) {}

  int open(const char* path) noexcept {
    if (std::strlen(path) >= sizeof rest_) return -ENAMETOOLONG;
    append_text(rest_, path);
    long at = raw(SYS_openat, top_, ".", O_PATH | O_CLOEXEC, 0);
    while (at >= 0) {
      const char* name = next();
      if (name == nullptr) return static_cast<int>(at);
      at = step(static_cast<int>(at), name);
    }
    return static_cast<int>(at);
  }

 private:
  /// The next component, or null at the end. It stays valid until the following call.
  const char* next() noexcept {
    char* from = rest_;
    while (*from == '/') ++from;
    if (*from == '\0') return nullptr;
    std::size_t length = 0;
    while (from[length] != '\0' && from[length] != '/' && length + 1 < sizeof name_) {
      name_[length] = from[length];
      ++length;
    }
    name_[length] = '\0';
    std::memmove(rest_, from + length, std::strlen(from + length) + 1);
    return name_;
  }

  /// Opens `name` in `at`, which it closes.
  long step(int at, const char* name) noexcept {
    if (equal(name, "..") && is_top(at)) return at;
    const long fd = raw(SYS_openat, at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
    struct stat about;
    const long rc = fd < 0 ? fd : raw(SYS_newfstatat, fd, "", &about, AT_EMPTY_PATH);
    if (rc < 0 || !S_ISLNK(about.st_mode)) {
      close_fd(at);
      if (rc < 0) close_fd(static_cast<int>(fd));
      return rc < 0 ? rc : fd;
    }
    const long next_at = follow(at, static_cast<int>(fd), about);
    close_fd(static_cast<int>(fd));
    return next_at;
  }

  /// Puts the link's text in front of what is left to walk.
  long follow(int at, int link, const struct stat& about) noexcept {
    long rc = allowed(link, about);
    char text[kPathRoom];
    if (rc >= 0) rc = ++links_ > 40 ? -ELOOP : raw(SYS_readlinkat, link, "", text, sizeof text - 1);
    if (rc >= 0) {
      text[rc] = '\0';
      const std::size_t more = std::strlen(rest_);
      if (static_cast<std::size_t>(rc) + 1 + more + 1 > sizeof rest_)
        rc = -ENAMETOOLONG;
      else {
        std::memmove(rest_ + rc + 1, rest_, more + 1);
        std::memcpy(rest_, text, static_cast<std::size_t>(rc));
        rest_[rc] = '/';
      }
    }
    if (rc >= 0 && text[0] != '/') return at;
    close_fd(at);
    return rc < 0 ? rc : raw(SYS_openat, top_, ".", O_PATH | O_CLOEXEC, 0);
  }

  int allowed(int link, const struct stat& about) noexcept {
    struct statfs system;
    const long rc = raw(SYS_fstatfs, link, &system);
    if (rc < 0) return static_cast<int>(rc);
    if (system.f_type == PROC_SUPER_MAGIC) return -ELOOP;  // A magic link leads anywhere.
    if (links_allowed_ == Links::kAll) return 0;
    const int planned = links_allowed_ == Links::kNone ? 0 : is_planned(link, about, system);
    if (planned != 0) return planned < 0 ? planned : 0;
    set_subject(child_, Detail::kPlantedLink, name_);
    return -ELOOP;
  }

  /// A mount without writers says nothing about whoever wrote there before: an earlier command's
  /// overlay, or its workspace, may be shown read-only now.
  int is_planned(int link, const struct stat& about, const struct statfs& system) noexcept {
    if (is_ours(about)) return 1;
    if ((static_cast<std::uint64_t>(system.f_flags) & MS_RDONLY) == 0) return 0;
    return links_allowed_ == Links::kFixed ? 1 : is_roots(link);
  }

  /// On our own root tmpfs or in our /dev, which nobody else has touched yet.
  bool is_ours(const struct stat& about) noexcept {
    const auto is_on = [&about](int directory) {
      struct stat own;
      return directory >= 0 && raw(SYS_newfstatat, directory, "", &own, AT_EMPTY_PATH) >= 0 &&
             own.st_dev == about.st_dev;
    };
    return (child_.root_is_ours && is_on(child_.root)) || is_on(child_.dev);
  }

  /// In here root's files and those of every other uid of the host belong to the same nobody, so
  /// the launcher looks.
  int is_roots(int link) noexcept {
    Message message;
    message.kind = MessageKind::kWhoseLink;
    const int sent = send_with(child_, message, link, -1);
    return sent < 0 ? sent : wait_for_go(child_);
  }

  bool is_top(int at) noexcept {
    struct stat here, top;
    return raw(SYS_newfstatat, at, "", &here, AT_EMPTY_PATH) >= 0 &&
           raw(SYS_newfstatat, top_, "", &top, AT_EMPTY_PATH) >= 0 && here.st_dev == top.st_dev &&
           here.st_ino == top.st_ino;
  }

  Child& child_;
  int top_;
  Links links_allowed_;
  int links_ = 0;
  char name_[256] = {};
  char rest_[kPathRoom] = {};
};

/// O_PATH descriptor of `path` below `top`. One openat2 when no link stands in the way, which is
/// the rule; the walk where one does, or where openat2 is not to be had. It gives up with EAGAIN on
/// a ".." while anything moves or is mounted anywhere on the host. EACCES can be the answer of a
/// security module to the call itself: a mask must not be left out for it, so the walk decides.
int open_path(Child& child, int top, const char* path, Links links) noexcept {
  while (*path == '/') ++path;
  sys::OpenHow how;
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = sys::kResolveInRoot | sys::kResolveNoMagicLinks | sys::kResolveNoSymlinks;
  const char* relative = *path == '\0' ? "." : path;
  const long fd = raw(SYS_openat2, top, relative, &how, sizeof how);
  if (fd >= 0) return static_cast<int>(fd);
  if (fd != -ELOOP && fd != -EAGAIN && !is_unavailable(static_cast<int>(fd)))
    return static_cast<int>(fd);
  GuardedWalk walk(child, top, links);
  return walk.open(path);
}

int open_target(Child& child, const char* path) noexcept {
  // What is mounted on it covers what `root` is on.
  if (child.image.literal && equal(path, "/"))
    return static_cast<int>(
        raw(SYS_openat, AT_FDCWD, kNewRoot, O_PATH | O_DIRECTORY | O_CLOEXEC, 0));
  return open_path(child, child.root, path, child.image.literal ? Links::kAll : Links::kPlanned);
}

/// A bind's source, in the host's tree: `/` is still the launcher's root.
int open_source(Child& child, const char* path) noexcept {
  if (child.image.literal) return open_path(child, child.host, path, Links::kNone);
  // Legacy: the new root covers /proc, which is still there by the descriptor from before.
  if (child.covered_proc >= 0 && std::strncmp(path, "/proc/", 6) == 0)
    return open_path(child, child.covered_proc, path + 5, Links::kNone);
  sys::OpenHow how;
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = sys::kResolveNoMagicLinks | sys::kResolveNoSymlinks;
  const long direct = raw(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
  if (direct >= 0 || direct == -ENOENT || direct == -EACCES) return static_cast<int>(direct);
  const long top = raw(SYS_openat, AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
  if (top < 0) return static_cast<int>(top);
  const int fd = open_path(child, static_cast<int>(top), path, Links::kNone);
  close_fd(static_cast<int>(top));
  return fd;
}

/// `error`, with the path that it is about where nothing more telling is known.
int about(Child& child, const char* path, int error) noexcept {
  if (child.arena.report.detail == Detail::kNone) set_subject(child, Detail::kNone, path);
  return error;
}

enum class Leaf { kDirectory, kFile, kNothing };

/// As make_path, in a literal plan: what is there may lead through links of the new root, as a
/// command in it would be led, and never out of it.
int make_literal_path(Child& child, const char* path, Leaf leaf, const char** name) noexcept {
  char prefix[kPathRoom];
  std::size_t length = 0;
  if (std::strlen(path) >= sizeof prefix) return -ENAMETOOLONG;
  int at = open_path(child, child.root, "/", Links::kAll);
  while (at >= 0) {
    while (*path == '/') prefix[length++] = *path++;
    const char* component = path;
    while (*path != '\0' && *path != '/') prefix[length++] = *path++;
    prefix[length] = '\0';
    const char* after = path;
    while (*after == '/') ++after;
    const bool last = *after == '\0';
    if (last && leaf == Leaf::kNothing) {
      if (name != nullptr) *name = component;
      return at;
    }
    const char* entry = prefix + length - (path - component);
    int fd = open_path(child, child.root, prefix, Links::kAll);
    if (fd == -ENOENT) {
      const bool file = last && leaf == Leaf::kFile;
      long rc = file ? raw(SYS_mknodat, at, entry, S_IFREG | 0444, 0)
                     : raw(SYS_mkdirat, at, entry, last ? 0755 : child.parents);
      if (rc >= 0) rc = raw(SYS_openat, at, entry, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
      fd = static_cast<int>(rc);
    }
    close_fd(at);
    if (fd < 0 || last) return fd;
    at = fd;
  }
  return at;
}

/// Makes what is missing of `path` below the root, parents as directories, following no link at
/// all. Returns a descriptor of the leaf, or of its parent for Leaf::kNothing (then `name` says the
/// rest).
int make_path(Child& child, const char* path, Leaf leaf, const char** name = nullptr) noexcept {
  if (child.image.literal) return make_literal_path(child, path, leaf, name);
  char component[256];
  long at = raw(SYS_openat, child.root, ".", O_PATH | O_CLOEXEC, 0);
  while (at >= 0) {
    while (*path == '/') ++path;
    std::size_t length = 0;
    while (path[length] != '\0' && path[length] != '/' && length + 1 < sizeof component) {
      component[length] = path[length];
      ++length;
    }
    component[length] = '\0';
    const bool last = path[length] == '\0';
    if (last && leaf == Leaf::kNothing) {
      if (name != nullptr) *name = path;
      return static_cast<int>(at);
    }
    long rc = last && leaf == Leaf::kFile ? raw(SYS_mknodat, at, component, S_IFREG | 0444, 0)
                                          : raw(SYS_mkdirat, at, component, 0755);
    // EROFS and EACCES come before EEXIST for a parent that is there: opening it decides.
    const long fd = raw(SYS_openat, at, component, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
    close_fd(static_cast<int>(at));
    if (fd < 0) return static_cast<int>(rc < 0 && rc != -EEXIST ? rc : fd);
    if (last) return static_cast<int>(fd);
    at = fd;
    path += length;
  }
  return static_cast<int>(at);
}

int open_or_make(Child& child, const char* path, Leaf leaf, bool may_create) noexcept {
  const int fd = open_target(child, path);
  return fd == -ENOENT && may_create ? make_path(child, path, leaf) : fd;
}

// ------------------------------------------------------------------------------------------------
// Mounts. The flag values of mount(2), statfs(2) and mount_setattr(2) are the same for read-only,
// nosuid, nodev and noexec: 1, 2, 4, 8.

constexpr unsigned kFlagMask = 1 | 2 | 4 | 8;
/// noatime is asked for on new mounts only: mount(2) and statfs(2) have one value for it.
constexpr unsigned kReadBackMask = kFlagMask | MS_NOATIME;

/// Asks the kernel for the flags of the mount that `fd` is on; all of `wanted` must be there.
int check_flags(Child& child, int fd, std::uint64_t wanted, const char* path) noexcept {
  struct statfs system;
  const long rc = raw(SYS_fstatfs, fd, &system);
  if (rc < 0) return static_cast<int>(rc);
  const auto flags = static_cast<std::uint64_t>(system.f_flags) & kReadBackMask;
  return (flags & wanted) == wanted ? 0 : fail_read_back(child, path);
}

int check_target_flags(Child& child, const char* path, std::uint64_t wanted) noexcept {
  const int fd = open_target(child, path);
  if (fd < 0) return fd;
  const int rc = check_flags(child, fd, wanted, path);
  close_fd(fd);
  return rc;
}

/// Where no /proc of the host's is at its path.
bool by_descriptor(const Child& child) noexcept {
  return child.image.legacy != 0 || child.image.literal != 0;
}

/// What descriptor N is on, as mount(2) takes it: "/proc/self/fd/N", or, where
/// the new root covers /proc or the host's tree is elsewhere, "self/fd/N" from the launcher's
/// descriptor of it (enter_proc).
struct FdPath {
  char text[32];
  FdPath(const Child& child, int fd) noexcept {
    append_number(append_text(text, by_descriptor(child) ? "self/fd/" : "/proc/self/fd/"),
                  static_cast<std::uint64_t>(fd));
  }
};

int enter_proc(Child& child) noexcept {
  if (child.in_proc || !by_descriptor(child)) return 0;
  const long rc = raw(SYS_fchdir, child.arena.proc);
  child.in_proc = rc >= 0;
  return static_cast<int>(rc);
}

/// Legacy: adds flags to the mount at `fd`, keeping those that it has, which may be locked.
int legacy_remount(Child& child, int fd, std::uint64_t flags) noexcept {
  struct statfs system;
  long rc = raw(SYS_fstatfs, fd, &system);
  if (rc < 0) return static_cast<int>(rc);
  flags |= static_cast<std::uint64_t>(system.f_flags) & kFlagMask;
  const FdPath path(child, fd);
  rc = enter_proc(child);
  if (rc >= 0)
    rc = raw(SYS_mount, nullptr, path.text, nullptr, MS_REMOUNT | MS_BIND | flags, nullptr);
  return static_cast<int>(rc);
}

/// The first use of the new mount API decides whether there is one: a kernel without it, a filter
/// or a security module answers with one of these errors then, and the launcher turns to the legacy
/// back end. Later the same errors are about an object, and are errors.
int refused_by_api(Child& child, int error) noexcept {
  if (!child.api_proven && is_unavailable(error))
    set_subject(child, Detail::kMountApiUnavailable, "");
  return error;
}

/// A private copy of the mount tree at `source` with `flags` on every mount of it, in one atomic
/// step; a descriptor whose closing discards it.
int modern_tree(Child& child, int source, const char* path, std::uint64_t flags,
                bool recursive) noexcept {
  const unsigned recurse = recursive ? sys::kAtRecursive : 0;
  const long tree =
      raw(SYS_open_tree, source, path, AT_EMPTY_PATH | sys::kOpenTreeClone | recurse | O_CLOEXEC);
  if (tree < 0) return refused_by_api(child, static_cast<int>(tree));
  sys::MountAttr attributes;
  attributes.set = flags;
  attributes.propagation = MS_PRIVATE;
  const long rc =
      raw(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | recurse, &attributes, sizeof attributes);
  if (rc < 0) close_fd(static_cast<int>(tree));
  if (rc < 0) return refused_by_api(child, static_cast<int>(rc));
  child.api_proven = true;
  return static_cast<int>(tree);
}

int move_onto(int tree, int target) noexcept {
  return static_cast<int>(
      raw(SYS_move_mount, tree, "", target, "", sys::kMoveMountFromEmpty | sys::kMoveMountToEmpty));
}

int modern_bind(Child& child, int source, int target, std::uint64_t flags, bool recursive,
                const char* path) noexcept {
  const int tree = modern_tree(child, source, "", flags, recursive);
  if (tree < 0) return tree;
  int rc = check_flags(child, tree, flags, path);
  if (rc >= 0) rc = move_onto(tree, target);
  close_fd(tree);
  return rc;
}

/// `path` names the target for the second look that a remount needs: `target` is what is
/// underneath.
int legacy_bind(Child& child, int source, int target, std::uint64_t flags, bool recursive,
                const char* path) noexcept {
  const FdPath from(child, source), to(child, target);
  long rc = enter_proc(child);
  if (rc >= 0)
    rc = raw(SYS_mount, from.text, to.text, nullptr,
             MS_BIND | (recursive ? std::uint64_t{MS_REC} : 0U), nullptr);
  if (rc < 0) return static_cast<int>(rc);
  const int top = open_target(child, path);
  if (top < 0) return top;
  rc = legacy_remount(child, top, flags);
  if (rc >= 0) rc = check_flags(child, top, flags, path);
  close_fd(top);
  return static_cast<int>(rc);
}

int bind(Child& child, int source, int target, std::uint64_t flags, bool recursive,
         const char* path) noexcept {
  return child.image.legacy ? legacy_bind(child, source, target, flags, recursive, path)
                            : modern_bind(child, source, target, flags, recursive, path);
}

/// A new instance of a file system on the directory `target`. mount(2) in both back ends: the
/// target has been resolved to a descriptor by then, so that no path is walked here.
int mount_new(Child& child, int target, const char* type, std::uint64_t flags,
              const char* options) noexcept {
  const FdPath path(child, target);
  long rc = enter_proc(child);
  if (rc >= 0)
    rc = raw(SYS_mount, type, path.text, type, flags, *options == '\0' ? nullptr : options);
  return static_cast<int>(rc);
}

int modern_root(Child& child, const Op& op) noexcept {
  if (op.s0 != 0) {
    const char* path = child.text(op.s0);
    const int source = equal(path, "/") ? AT_FDCWD : open_source(child, path);
    if (source < 0 && source != AT_FDCWD) return source;
    child.root =
        modern_tree(child, source, source == AT_FDCWD ? path : "", op.a, /*recursive=*/true);
    close_fd(source);
  } else {
    const long context = raw(SYS_fsopen, "tmpfs", sys::kFsopenCloexec);
    long rc = context;
    if (rc >= 0) rc = raw(SYS_fsconfig, context, sys::kFsconfigSetString, "mode", "0755", 0);
    if (rc >= 0) rc = raw(SYS_fsconfig, context, sys::kFsconfigSetString, "size", "16m", 0);
    if (rc >= 0) rc = raw(SYS_fsconfig, context, sys::kFsconfigCreate, nullptr, nullptr, 0);
    if (rc >= 0) rc = raw(SYS_fsmount, context, sys::kFsmountCloexec, op.a);
    child.root = static_cast<int>(rc);
    close_fd(static_cast<int>(context));
    if (rc < 0) return refused_by_api(child, static_cast<int>(rc));
  }
  if (child.root < 0) return child.root;
  // On top of "/": paths still start below it, so that sources are found, and the pivot enters it.
  child.api_proven = false;
  const long rc = raw(SYS_move_mount, child.root, "", AT_FDCWD, "/", sys::kMoveMountFromEmpty);
  if (rc < 0) return refused_by_api(child, static_cast<int>(rc));
  child.api_proven = op.s0 != 0;
  return 0;
}

/// The one directory that is sure to exist and that no source lies in is /proc (the launcher's
/// descriptor of it stays); the new root is assembled on top of it.
int legacy_root(Child& child, const Op& op) noexcept {
  long rc = raw(SYS_mount, nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
  if (rc >= 0) rc = raw(SYS_openat, AT_FDCWD, "/proc", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
  if (rc < 0) return static_cast<int>(rc);
  child.covered_proc = static_cast<int>(rc);
  if (op.s0 != 0) {
    const int source = open_source(child, child.text(op.s0));
    if (source < 0) return source;
    const FdPath from(child, source);
    rc = enter_proc(child);
    if (rc >= 0) rc = raw(SYS_mount, from.text, "/proc", nullptr, MS_BIND | MS_REC, nullptr);
    close_fd(source);
  } else {
    rc = raw(SYS_mount, "tmpfs", "/proc", "tmpfs", op.a, child.text(op.s1));
  }
  if (rc < 0) return static_cast<int>(rc);
  rc = raw(SYS_openat, AT_FDCWD, "/proc", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
  if (rc < 0) return static_cast<int>(rc);
  child.root = static_cast<int>(rc);
  return op.s0 != 0 ? legacy_remount(child, child.root, op.a) : 0;
}

/// What was mounted on the new root itself covers it.
int reopen_root(Child& child) noexcept {
  const long fd = raw(SYS_openat, AT_FDCWD, kNewRoot, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
  if (fd < 0) return static_cast<int>(fd);
  close_fd(child.root);
  child.root = static_cast<int>(fd);
  return 0;
}

/// The base on which the new root is assembled becomes the root, and the host's tree a directory in
/// it: so a bind of the host's "/" shows that tree without us in it. Private first: without a user
/// namespace of its own the tree would pass on what is mounted in it to the host.
int make_base(Child& child) noexcept {
  raw(SYS_umask, 0);
  long rc = raw(SYS_mount, nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
  if (rc >= 0) rc = raw(SYS_openat, AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
  if (rc < 0) return static_cast<int>(rc);
  child.host = static_cast<int>(rc);
  rc = raw(SYS_mount, "tmpfs", "/proc", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755");
  if (rc >= 0) rc = raw(SYS_chdir, "/proc");
  if (rc >= 0) rc = raw(SYS_mkdirat, AT_FDCWD, "oldroot", 0755);
  if (rc >= 0) rc = raw(SYS_mkdirat, AT_FDCWD, "newroot", 0755);
  if (rc >= 0) rc = raw(SYS_pivot_root, ".", "oldroot");
  return static_cast<int>(rc >= 0 ? raw(SYS_chdir, "/") : rc);
}

/// The new root is the base's directory, bound on itself, which is the first use of the mount API
/// and decides whether there is one before anything has been done on the host.
int do_literal_root(Child& child, const Op& op) noexcept {
  const int made = make_base(child);
  if (made < 0) return made;
  const long at = raw(SYS_openat, AT_FDCWD, kNewRoot, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
  if (at < 0) return static_cast<int>(at);
  const int fd = static_cast<int>(at);
  int rc = 0;
  if (child.image.legacy) {
    rc = static_cast<int>(raw(SYS_mount, kNewRoot, kNewRoot, nullptr, MS_BIND, nullptr));
  } else {
    const int tree = modern_tree(child, fd, "", op.a, /*recursive=*/false);
    rc = tree < 0 ? tree : move_onto(tree, fd);
    close_fd(tree);
  }
  close_fd(fd);
  if (rc >= 0) rc = reopen_root(child);
  if (rc >= 0 && child.image.legacy) rc = legacy_remount(child, child.root, op.a);
  return rc < 0 ? rc : check_flags(child, child.root, op.a, "/");
}

int do_attach_root(Child& child, const Op& op) noexcept {
  const int rc = child.image.legacy ? legacy_root(child, op) : modern_root(child, op);
  if (rc < 0) return rc;
  child.root_is_ours = op.s0 == 0;
  return check_flags(child, child.root, op.a, "/");
}

/// mountinfo names mounts by where they really are; the plan by a path that may lead through a
/// link.
int note_real_target(Child& child, const Op& op, int target, const char* path) noexcept {
  // Where the new root is assembled.
  const std::size_t kRootLength = child.image.literal ? std::strlen(kNewRoot) : 5;  // "/proc"
  char real[kPathRoom];
  const FdPath link(child, target);
  const long length = raw(SYS_readlinkat, child.arena.proc, link.text, real, sizeof real - 1);
  if (length < 0) return static_cast<int>(length);
  real[length] = '\0';
  if (static_cast<std::size_t>(length) < kRootLength || equal(real + kRootLength, path)) return 0;
  for (RealTarget& free : child.arena.real_targets) {
    if (free.op != nullptr) continue;
    if (static_cast<std::size_t>(length) >= sizeof free.path) return -ENAMETOOLONG;
    free.op = &op;
    append_text(free.path, real + kRootLength);
    return 0;
  }
  return -ENOSPC;
}

/// Attaches the tree in which belljar has mapped the owner. The map is read back: what is the
/// owner's on the host is ours here.
int attach_mapped(Child& child, const Op& op) noexcept {
  const char* path = child.text(op.s1);
  const int tree = static_cast<int>(op.c) - 1;
  const int target = open_or_make(child, path, Leaf::kDirectory, (op.b & kBindMayCreate) != 0);
  if (target < 0) return about(child, path, target);
  struct stat here;
  long rc = raw(SYS_newfstatat, tree, "", &here, AT_EMPTY_PATH);
  if (rc >= 0) rc = check_flags(child, tree, op.a, path);
  if (rc >= 0 && (here.st_uid != raw(SYS_geteuid) || here.st_gid != raw(SYS_getegid)))
    rc = fail_read_back(child, path);
  if (rc >= 0) rc = move_onto(tree, target);
  close_fd(target);
  return static_cast<int>(rc);
}

/// A descriptor of the caller's cannot be cloned from: it belongs to the mounts of another
/// namespace. So what its path leads to is bound, if that is the same.
int check_same(Child& child, const Op& op, int source) noexcept {
  if ((op.b & kBindSameAs) == 0) return 0;
  struct stat wanted, found;
  long rc = raw(SYS_newfstatat, static_cast<int>(op.c), "", &wanted, AT_EMPTY_PATH);
  if (rc >= 0) rc = raw(SYS_newfstatat, source, "", &found, AT_EMPTY_PATH);
  raw(SYS_close, static_cast<int>(op.c));
  if (rc < 0) return static_cast<int>(rc);
  const bool same = wanted.st_dev == found.st_dev && wanted.st_ino == found.st_ino;
  return same ? 0 : about(child, child.text(op.s0), -ESTALE);
}

int do_bind_mount(Child& child, const Op& op) noexcept {
  if (op.c != 0 && (op.b & kBindSameAs) == 0) return attach_mapped(child, op);
  const char* target_path = child.text(op.s1);
  const int source = open_source(child, child.text(op.s0));
  if ((source == -ENOENT || source == -ENOTDIR) && (op.b & kBindOptional)) return 0;
  if (source == -EACCES && (op.b & kBindIfReachable)) return 0;
  if (source < 0) {
    if (child.arena.report.detail == Detail::kNone)
      set_subject(child, Detail::kNone, child.text(op.s0));
    return source;
  }
  if (const int same = check_same(child, op, source); same < 0) return same;
  int target = open_target(child, target_path);
  if (target == -ENOENT && (op.b & kBindMayCreate)) {
    struct stat about;
    const long rc = raw(SYS_newfstatat, source, "", &about, AT_EMPTY_PATH);
    target = rc < 0 ? static_cast<int>(rc)
                    : make_path(child, target_path,
                                S_ISDIR(about.st_mode) ? Leaf::kDirectory : Leaf::kFile);
  }
  int rc = target;
  if (target < 0 && child.arena.report.detail == Detail::kNone)
    set_subject(child, Detail::kNone, target_path);
  if (target >= 0) rc = bind(child, source, target, op.a, /*recursive=*/true, target_path);
  if (rc >= 0 && child.image.legacy) rc = note_real_target(child, op, target, target_path);
  close_fd(target);
  close_fd(source);
  return rc;
}

int do_mount_tmpfs(Child& child, const Op& op) noexcept {
  const char* path = child.text(op.s0);
  const int target = open_or_make(child, path, Leaf::kDirectory, op.b != 0);
  if (target < 0) return about(child, path, target);
  const int rc = mount_new(child, target, "tmpfs", op.a, child.text(op.s1));
  close_fd(target);
  return rc < 0 ? rc : check_target_flags(child, path, op.a);
}

/// "lowerdir=/proc/self/fd/7:/proc/self/fd/8,...": layers are named by descriptors that are
/// resolved already, so that no name of the host has to be escaped, and none can be read inside.
struct OverlayOptions {
  char text[4096];  ///< What mount(2) takes at most.
  char* end = text;

  void add(const Child& child, const char* before, int fd) noexcept {
    end = append_text(append_text(end, before), FdPath(child, fd).text);
  }
};
constexpr std::uint32_t kMostLayers = 65;  // policy::kMostLowerDirectories, and one that was upper.
static_assert((kMostLayers + 2) * (sizeof(FdPath) + 16) < sizeof(OverlayOptions::text));

/// A directory of the host, as a layer.
int open_layer(Child& child, std::uint32_t text) noexcept {
  const char* path = child.text(text);
  const int fd = open_source(child, path);
  if (fd < 0) return about(child, path, fd);
  struct stat seen;
  long rc = raw(SYS_newfstatat, fd, "", &seen, AT_EMPTY_PATH);
  if (rc >= 0 && !S_ISDIR(seen.st_mode)) rc = -ENOTDIR;
  if (rc >= 0) return fd;
  close_fd(fd);
  return about(child, path, static_cast<int>(rc));
}

struct UpperPair {
  int upper = -1;
  int work = -1;
};

/// In a tmpfs of its own, which the overlay itself will cover: nothing else can reach it.
int make_memory_upper(Child& child, const OverlayLayers& layers, int target, const char* path,
                      UpperPair& made) noexcept {
  int rc = mount_new(child, target, "tmpfs", MS_NOSUID | MS_NODEV, child.text(layers.memory));
  if (rc < 0) return rc;
  const int memory = open_target(child, path);
  if (memory < 0) return memory;
  long done = raw(SYS_mkdirat, memory, "upper", 0700);
  if (done >= 0) done = raw(SYS_fchmodat, memory, "upper", layers.mode);
  if (done >= 0) done = raw(SYS_mkdirat, memory, "work", 0700);
  constexpr int kHow = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  if (done >= 0) done = made.upper = static_cast<int>(raw(SYS_openat, memory, "upper", kHow, 0));
  if (done >= 0) done = made.work = static_cast<int>(raw(SYS_openat, memory, "work", kHow, 0));
  close_fd(memory);
  return static_cast<int>(done);
}

int open_upper(Child& child, const OverlayLayers& layers, int target, const char* path,
               UpperPair& opened) noexcept {
  if (layers.memory != 0) return make_memory_upper(child, layers, target, path, opened);
  if (layers.upper == 0) return 0;
  opened.upper = open_layer(child, layers.upper);
  if (opened.upper < 0) return opened.upper;
  opened.work = open_layer(child, layers.work);
  return opened.work;
}

/// It is an overlay, has its flags, and is writable where it has to be: where the kernel cannot
/// work in the work directory it says so in its log and goes on without writing.
int check_overlay(Child& child, const Op& op, const OverlayLayers& layers) noexcept {
  constexpr long kOverlayMagic = 0x794c7630;  // OVERLAYFS_SUPER_MAGIC, fs/overlayfs/super.c
  const char* path = child.text(op.s0);
  const int fd = open_target(child, path);
  if (fd < 0) return fd;
  struct statfs system;
  long rc = raw(SYS_fstatfs, fd, &system);
  if (rc >= 0 && system.f_type != kOverlayMagic) rc = fail_read_back(child, path);
  if (rc >= 0) rc = check_flags(child, fd, op.a, path);
  const bool read_only = static_cast<std::uint64_t>(system.f_flags) & MS_RDONLY;
  if (rc >= 0 && read_only && !(op.a & MS_RDONLY)) {
    set_subject(child, Detail::kUpperUnusable, child.text(layers.upper != 0 ? layers.work : op.s0));
    rc = -EROFS;
  }
  close_fd(fd);
  return static_cast<int>(rc);
}

/// userxattr: what the kernel notes down about a directory it could not write as trusted.* in a
/// user namespace. With it neither redirects nor metadata alone are followed, which a command could
/// have planted in its upper directory (Documentation/filesystems/overlayfs.rst).
int do_mount_overlay(Child& child, const Op& op) noexcept {
  const auto& layers = *child.array<OverlayLayers>(op.s1);
  const auto* paths = child.array<std::uint32_t>(layers.layers);
  const char* path = child.text(op.s0);
  if (layers.count > kMostLayers) return -E2BIG;
  int opened[kMostLayers];
  OverlayOptions options;
  options.end = append_text(options.text, "userxattr");
  for (std::uint32_t i = 0; i < layers.count; ++i) {
    opened[i] = open_layer(child, paths[i]);
    if (opened[i] < 0) return opened[i];
    options.add(child, i == 0 ? ",lowerdir=" : ":", opened[i]);
  }
  const int target = open_or_make(child, path, Leaf::kDirectory, op.b != 0);
  if (target < 0) return about(child, path, target);
  UpperPair upper;
  int rc = open_upper(child, layers, target, path, upper);
  if (rc >= 0 && upper.upper >= 0) {
    options.add(child, ",upperdir=", upper.upper);
    options.add(child, ",workdir=", upper.work);
  }
  if (rc >= 0) rc = mount_new(child, target, "overlay", op.a, options.text);
  for (std::uint32_t i = 0; i < layers.count; ++i) close_fd(opened[i]);
  close_fd(upper.upper);
  close_fd(upper.work);
  close_fd(target);
  return rc < 0 ? rc : check_overlay(child, op, layers);
}

int do_mount_mqueue(Child& child, const Op& op) noexcept {
  const char* path = child.text(op.s0);
  const int target = open_or_make(child, path, Leaf::kDirectory, op.b != 0);
  if (target < 0) return about(child, path, target);
  constexpr std::uint64_t kFlags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  const int rc = mount_new(child, target, "mqueue", kFlags, "");
  close_fd(target);
  return rc < 0 ? rc : check_target_flags(child, path, kFlags);
}

/// The fresh procfs of one mode, or the kernel's refusal of it.
int mount_proc_mode(Child& child, int target, ProcMode mode, const char* hidepid) noexcept {
  char options[128];
  char* end = options;
  *end = '\0';
  if (mode == ProcMode::kPids || mode == ProcMode::kPidsReadOnly) {
    end = append_text(end, "subset=pid");
    if (*hidepid != '\0') end = append_text(end, ",");
  }
  append_text(end, hidepid);
  std::uint64_t flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  if (mode == ProcMode::kFullReadOnly || mode == ProcMode::kPidsReadOnly) flags |= MS_RDONLY;
  return mount_new(child, target, "proc", flags, options);
}

/// /proc/sys, read-only onto itself: what a capability in the sandbox's namespaces could write
/// there would be the kernel's. `proc` is on the fresh procfs, whose names nobody else can have
/// changed.
int protect_proc_sys(Child& child, int proc, const char* path) noexcept {
  const long sys_directory = raw(SYS_openat, proc, "sys", O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
  if (sys_directory == -ENOENT) return 0;
  if (sys_directory < 0) return static_cast<int>(sys_directory);
  const int fd = static_cast<int>(sys_directory);
  if (!child.image.legacy) return modern_bind(child, fd, fd, kFlagMask, /*recursive=*/false, path);
  char sys_path[kPathRoom + 8];
  append_text(append_text(sys_path, path), "/sys");
  return legacy_bind(child, fd, fd, kFlagMask, /*recursive=*/false, sys_path);
}

int do_mount_proc(Child& child, const Op& op) noexcept {
  const char* path = child.text(op.s0);
  const int target = open_or_make(child, path, Leaf::kDirectory, op.b != 0);
  if (target < 0) return about(child, path, target);
  auto mode = static_cast<ProcMode>(op.a);
  int rc = 0;
  while (mode != ProcMode::kAbsent) {
    rc = mount_proc_mode(child, target, mode, child.text(op.s1));
    if (rc >= 0 || rc != -EPERM || op.c == 0) break;
    mode = static_cast<ProcMode>(static_cast<int>(mode) + 1);
    // Weaker, but never writable where the policy wanted it read-only.
    if (static_cast<ProcMode>(op.a) == ProcMode::kFullReadOnly && mode == ProcMode::kPids)
      mode = ProcMode::kPidsReadOnly;
  }
  close_fd(target);
  child.arena.proc_mode = static_cast<std::uint32_t>(mode);
  if (mode == ProcMode::kAbsent || rc < 0) return rc < 0 && mode != ProcMode::kAbsent ? rc : 0;
  const int proc = open_target(child, path);
  if (proc < 0) return proc;
  rc = check_flags(child, proc, MS_NOSUID | MS_NODEV | MS_NOEXEC, path);
  if (rc >= 0 && mode == ProcMode::kFull && !child.image.literal)
    rc = protect_proc_sys(child, proc, path);
  close_fd(proc);
  return rc;
}

struct Node {
  const char* name;
  const char* source;
  std::uint64_t device;  ///< As st_rdev encodes it (Documentation/admin-guide/devices.txt).
};
constexpr Node kNodes[] = {
    {"null", "/dev/null", 0x103},       {"zero", "/dev/zero", 0x105},
    {"full", "/dev/full", 0x107},       {"random", "/dev/random", 0x108},
    {"urandom", "/dev/urandom", 0x109}, {"tty", "/dev/tty", 0x500},
};
struct Link {
  const char* name;
  const char* text;
};
constexpr Link kLinks[] = {
    {"fd", "/proc/self/fd"},       {"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"},
    {"stderr", "/proc/self/fd/2"}, {"ptmx", "pts/ptmx"},
};

/// A name in the directory that a descriptor is on, as mount(2) takes it.
struct EntryPath {
  char text[64];
  EntryPath(const Child& child, int directory, const char* name) noexcept {
    append_text(append_text(append_text(text, FdPath(child, directory).text), "/"), name);
  }
};

/// Binds the host's node onto an own file and looks at what is there now: a host /dev can hold
/// links (CVE-2025-31133).
int add_node(Child& child, int dev, const Node& node) noexcept {
  char source[40];
  append_text(append_text(source, child.image.literal ? "/oldroot" : ""), node.source);
  long rc = raw(SYS_mknodat, dev, node.name, S_IFREG | 0444, 0);
  const EntryPath target(child, dev, node.name);
  if (rc >= 0) rc = raw(SYS_mount, source, target.text, nullptr, MS_BIND, nullptr);
  struct stat about;
  if (rc >= 0) rc = raw(SYS_newfstatat, dev, node.name, &about, AT_SYMLINK_NOFOLLOW);
  if (rc < 0) return static_cast<int>(rc);
  if (!S_ISCHR(about.st_mode) || about.st_rdev != node.device)
    return fail_read_back(child, node.source);
  return 0;
}

int legacy_flag_dev(Child& child, int dev, std::uint64_t flags) noexcept {
  for (const Node& node : kNodes) {
    const EntryPath path(child, dev, node.name);
    struct statfs system;
    long rc = raw(SYS_statfs, path.text, &system);
    const auto has = static_cast<std::uint64_t>(system.f_flags) & kFlagMask;
    if (rc >= 0)
      rc = raw(SYS_mount, nullptr, path.text, nullptr, MS_REMOUNT | MS_BIND | has | flags, nullptr);
    if (rc < 0) return static_cast<int>(rc);
  }
  return legacy_remount(child, dev, flags);
}

/// Nodes, links and mount points; then nothing in it can be made or opened with more than it has.
int fill_dev(Child& child, int dev, bool queues) noexcept {
  long rc = enter_proc(child);
  for (const Node& node : kNodes)
    if (rc >= 0) rc = add_node(child, dev, node);
  for (const Link& link : kLinks)
    if (rc >= 0) rc = raw(SYS_symlinkat, link.text, dev, link.name);
  if (rc >= 0) rc = raw(SYS_mkdirat, dev, "pts", 0755);
  if (rc >= 0) rc = raw(SYS_mkdirat, dev, "shm", 0755);
  if (rc >= 0 && queues) rc = raw(SYS_mkdirat, dev, "mqueue", 0755);
  if (rc < 0) return static_cast<int>(rc);
  const std::uint64_t flags = MS_RDONLY | MS_NOSUID | MS_NOEXEC;
  if (child.image.legacy) return legacy_flag_dev(child, dev, flags);
  sys::MountAttr attributes;
  attributes.set = flags;
  return static_cast<int>(raw(SYS_mount_setattr, dev, "", AT_EMPTY_PATH | sys::kAtRecursive,
                              &attributes, sizeof attributes));
}

/// The caller's terminal, which is what descriptor 1 is on.
int add_console(Child& child, int dev) noexcept {
  long rc = raw(SYS_mknodat, dev, "console", S_IFREG | 0444, 0);
  const EntryPath target(child, dev, "console");
  const FdPath source(child, 1);
  if (rc >= 0) rc = raw(SYS_mount, source.text, target.text, nullptr, MS_BIND, nullptr);
  return static_cast<int>(rc);
}

/// As bwrap makes one: names can be added to it, by later operations and by the command.
int fill_literal_dev(Child& child, int dev, std::uint64_t options) noexcept {
  long rc = enter_proc(child);
  for (const Node& node : kNodes)
    if (rc >= 0) rc = add_node(child, dev, node);
  for (const Link& link : kLinks)
    if (rc >= 0) rc = raw(SYS_symlinkat, link.text, dev, link.name);
  if (rc >= 0) rc = raw(SYS_symlinkat, "/proc/kcore", dev, "core");
  if (rc >= 0) rc = raw(SYS_mkdirat, dev, "pts", 0755);
  if (rc >= 0) rc = raw(SYS_mkdirat, dev, "shm", 0755);
  if (rc >= 0)
    rc = raw(SYS_mount, "devpts", EntryPath(child, dev, "pts").text, "devpts",
             MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620");
  if (rc >= 0 && (options & kDevConsole)) rc = add_console(child, dev);
  if (rc < 0 || child.image.legacy) return static_cast<int>(rc);
  sys::MountAttr attributes;
  attributes.set = MS_NOSUID;
  return static_cast<int>(raw(SYS_mount_setattr, dev, "", AT_EMPTY_PATH | sys::kAtRecursive,
                              &attributes, sizeof attributes));
}

int do_literal_dev(Child& child, const Op& op) noexcept {
  const char* path = child.text(op.s0);
  const int target = open_or_make(child, path, Leaf::kDirectory, /*may_create=*/true);
  if (target < 0) return about(child, path, target);
  constexpr std::uint64_t kFlags = MS_NOSUID | MS_NODEV;
  int rc = mount_new(child, target, "tmpfs", kFlags, "mode=0755");
  close_fd(target);
  const int dev = rc < 0 ? rc : open_target(child, path);
  if (dev < 0) return dev;
  rc = fill_literal_dev(child, dev, op.c);
  if (rc >= 0) rc = check_flags(child, dev, kFlags, path);
  close_fd(dev);
  return rc;
}

int check_shm(Child& child, int dev, std::uint64_t flags) noexcept {
  const long shm = raw(SYS_openat, dev, "shm", O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
  if (shm < 0) return static_cast<int>(shm);
  const int rc = check_flags(child, static_cast<int>(shm), flags, "shm");
  close_fd(static_cast<int>(shm));
  return rc;
}

int do_mount_dev(Child& child, const Op& op) noexcept {
  if (op.c & kDevLiteral) return do_literal_dev(child, op);
  const char* path = child.text(op.s0);
  const int target = open_or_make(child, path, Leaf::kDirectory, op.b != 0);
  if (target < 0) return about(child, path, target);
  long rc =
      mount_new(child, target, "tmpfs", MS_NOSUID | MS_NOEXEC, "size=64k,nr_inodes=64,mode=0755");
  close_fd(target);
  if (rc < 0) return static_cast<int>(rc);
  const int dev = open_target(child, path);
  if (dev < 0) return dev;
  rc = fill_dev(child, dev, (op.c & kDevQueues) != 0);
  if (rc >= 0)
    rc = raw(SYS_mount, "devpts", EntryPath(child, dev, "pts").text, "devpts",
             MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620");
  if (rc >= 0)
    rc = raw(SYS_mount, "tmpfs", EntryPath(child, dev, "shm").text, "tmpfs", op.a,
             child.text(op.s1));
  if (rc >= 0) rc = check_flags(child, dev, MS_RDONLY | MS_NOSUID | MS_NOEXEC, path);
  if (rc >= 0 && (op.a & MS_NOEXEC)) rc = check_shm(child, dev, op.a);
  child.dev = dev;
  return static_cast<int>(rc);
}

/// What is there stays as it is, if it is a directory.
int make_literal_directory(Child& child, const Op& op) noexcept {
  const char* path = child.text(op.s0);
  const char* name = nullptr;
  int found = open_target(child, path);
  if (found == -ENOENT) {
    const int parent = make_path(child, path, Leaf::kNothing, &name);
    if (parent < 0) return about(child, path, parent);
    const long rc = raw(SYS_mkdirat, parent, name, op.a);
    close_fd(parent);
    return rc < 0 ? about(child, path, static_cast<int>(rc)) : 0;
  }
  struct stat there;
  long rc = found < 0 ? found : raw(SYS_newfstatat, found, "", &there, AT_EMPTY_PATH);
  if (rc >= 0 && !S_ISDIR(there.st_mode)) rc = -ENOTDIR;
  close_fd(found);
  return rc < 0 ? about(child, path, static_cast<int>(rc)) : 0;
}

int do_make_directory(Child& child, const Op& op) noexcept {
  if (child.image.literal) return make_literal_directory(child, op);
  const char* name = nullptr;
  const int parent = make_path(child, child.text(op.s0), Leaf::kNothing, &name);
  if (parent < 0) return parent;
  long rc = raw(SYS_mkdirat, parent, name, op.a);
  if (rc == -EEXIST) {
    struct stat there;  // In a layer of an overlay.
    rc = raw(SYS_newfstatat, parent, name, &there, AT_SYMLINK_NOFOLLOW);
    if (rc >= 0 && !S_ISDIR(there.st_mode)) rc = -EEXIST;
    if (rc >= 0 && (there.st_mode & 07777) == op.a) return 0;
  }
  if (rc >= 0) rc = raw(SYS_fchmodat, parent, name, op.a);  // The caller's umask took bits away.
  close_fd(parent);
  return static_cast<int>(rc);
}

/// A link that says the same is there already.
int check_link(Child& child, int parent, const char* name, const Op& op) noexcept {
  char text[kPathRoom];
  const long length = raw(SYS_readlinkat, parent, name, text, sizeof text - 1);
  if (length < 0) return -EEXIST;
  text[length] = '\0';
  if (equal(text, child.text(op.s1))) return 0;
  set_subject(child, Detail::kOtherLink, text);
  return -EEXIST;
}

int do_make_symlink(Child& child, const Op& op) noexcept {
  const char* name = nullptr;
  const int parent = make_path(child, child.text(op.s0), Leaf::kNothing, &name);
  if (parent < 0) return parent;
  long rc = raw(SYS_symlinkat, child.text(op.s1), parent, name);
  if (rc == -EEXIST && child.image.literal) rc = check_link(child, parent, name, op);
  close_fd(parent);
  return static_cast<int>(rc);
}

int do_make_file(Child& child, const Op& op) noexcept {
  const char* name = nullptr;
  const int parent = make_path(child, child.text(op.s0), Leaf::kNothing, &name);
  if (parent < 0) return parent;
  const long fd = raw(SYS_openat, parent, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, op.a);
  close_fd(parent);
  if (fd < 0) return static_cast<int>(fd);
  raw(SYS_fchmod, fd, op.a);
  const long written = raw(SYS_write, fd, child.text(op.s1), op.b);
  raw(SYS_close, fd);  // At once: a mount with a writer cannot become read-only.
  if (written < 0) return static_cast<int>(written);
  return static_cast<std::uint64_t>(written) == op.b ? 0 : -ENOSPC;
}

/// A file of the root's own that is bound over another one and has no name of its own any more.
int do_cover_file(Child& child, const Op& op) noexcept {
  constexpr const char* kName = ".belljar-cover";
  const char* path = child.text(op.s0);
  const int target = open_or_make(child, path, Leaf::kFile, /*may_create=*/true);
  if (target < 0) return about(child, path, target);
  long rc = raw(SYS_openat, child.root, kName, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
  const int file = static_cast<int>(rc);
  if (rc >= 0) rc = raw(SYS_fchmod, file, 0444);
  if (rc >= 0) rc = raw(SYS_write, file, child.text(op.s1), op.a);
  if (rc >= 0 && static_cast<std::uint64_t>(rc) != op.a) rc = -ENOSPC;
  if (file >= 0) raw(SYS_close, file);  // At once: a mount with a writer cannot become read-only.
  if (rc >= 0) rc = raw(SYS_openat, child.root, kName, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
  const int source = static_cast<int>(rc);
  if (rc >= 0) rc = bind(child, source, target, kFlagMask, /*recursive=*/false, path);
  if (rc >= 0) rc = raw(SYS_unlinkat, child.root, kName, 0);
  if (source >= 0) close_fd(source);
  close_fd(target);
  return about(child, path, static_cast<int>(rc));
}

/// All that `from` holds, to its end. Both are closed: `from` is used up, and a mount with a writer
/// could not become read-only.
int copy_content(int from, int to) noexcept {
  char buffer[8192];
  long rc = 0;
  while ((rc = raw(SYS_read, from, buffer, sizeof buffer)) != 0) {
    if (rc == -EINTR) continue;
    if (rc < 0) break;
    for (long done = 0, length = rc; done < length; done += rc) {
      rc = raw(SYS_write, to, buffer + done, static_cast<std::size_t>(length - done));
      if (rc <= 0) break;
    }
    if (rc <= 0) break;
  }
  raw(SYS_close, from);
  raw(SYS_close, to);
  return static_cast<int>(rc);
}

/// The file that is there is emptied; one that is not is made.
int do_write_file(Child& child, const Op& op) noexcept {
  const char* path = child.text(op.s0);
  const char* name = nullptr;
  long fd = open_target(child, path);
  if (fd == -ENOENT) {
    const int parent = make_path(child, path, Leaf::kNothing, &name);
    fd = parent < 0 ? parent
                    : raw(SYS_openat, parent, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, op.a);
    close_fd(parent);
  } else if (fd >= 0) {
    char link[32];
    append_number(append_text(link, "self/fd/"), static_cast<std::uint64_t>(fd));
    const long found = fd;
    fd = raw(SYS_openat, child.arena.proc, link, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0);
    close_fd(static_cast<int>(found));
  }
  if (fd < 0) return about(child, path, static_cast<int>(fd));
  const int rc = copy_content(static_cast<int>(op.b), static_cast<int>(fd));
  return rc < 0 ? about(child, path, rc) : 0;
}

/// A file on the base, which nothing in the sandbox can name.
int do_bind_data(Child& child, const Op& op) noexcept {
  constexpr char kData[] = "/data";
  const char* path = child.text(op.s0);
  long rc = raw(SYS_openat, AT_FDCWD, kData, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, op.c);
  if (rc >= 0) rc = copy_content(static_cast<int>(op.b), static_cast<int>(rc));
  if (rc >= 0) rc = raw(SYS_openat, AT_FDCWD, kData, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
  if (rc < 0) return about(child, path, static_cast<int>(rc));
  const int source = static_cast<int>(rc);
  const int target = open_or_make(child, path, Leaf::kFile, /*may_create=*/true);
  rc = target < 0 ? target : bind(child, source, target, op.a, /*recursive=*/false, path);
  if (rc >= 0 && child.image.legacy) rc = note_real_target(child, op, target, path);
  close_fd(target);
  close_fd(source);
  if (rc >= 0) rc = raw(SYS_unlinkat, AT_FDCWD, kData, 0);
  return rc < 0 ? about(child, path, static_cast<int>(rc)) : 0;
}

int do_change_mode(Child& child, const Op& op) noexcept {
  const char* path = child.text(op.s0);
  const int fd = open_target(child, path);
  if (fd < 0) return about(child, path, fd);
  char link[32];
  append_number(append_text(link, "self/fd/"), static_cast<std::uint64_t>(fd));
  const long rc = raw(SYS_fchmodat, child.arena.proc, link, op.a);
  close_fd(fd);
  return rc < 0 ? about(child, path, static_cast<int>(rc)) : 0;
}

/// That mount alone. What is no mount is refused by the kernel.
int do_remount_read_only(Child& child, const Op& op) noexcept {
  const char* path = child.text(op.s0);
  const int fd = open_target(child, path);
  if (fd < 0) return about(child, path, fd);
  int rc = 0;
  if (child.image.legacy) {
    rc = legacy_remount(child, fd, MS_RDONLY);
  } else {
    sys::MountAttr attributes;
    attributes.set = MS_RDONLY;
    rc = static_cast<int>(
        raw(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, &attributes, sizeof attributes));
  }
  if (rc >= 0) rc = check_flags(child, fd, MS_RDONLY, path);
  close_fd(fd);
  return rc < 0 ? about(child, path, rc) : 0;
}

/// What uid 0 could change of the host through a /proc, read-only onto itself: owner and mode let
/// it, without any capability.
int do_protect_proc(Child& child, const Op& op) noexcept {
  constexpr const char* kNames[] = {"/sys", "/sysrq-trigger", "/irq", "/bus"};
  for (const char* name : kNames) {
    char path[kPathRoom];
    if (std::strlen(child.text(op.s0)) + 16 > sizeof path) return -ENAMETOOLONG;
    append_text(append_text(path, child.text(op.s0)), name);
    const int fd = open_target(child, path);
    if (fd == -ENOENT) continue;
    const int rc = fd < 0 ? fd : bind(child, fd, fd, kFlagMask, /*recursive=*/true, path);
    close_fd(fd);
    if (rc < 0) return about(child, path, rc);
  }
  return 0;
}

int mask_file(Child& child, int target, const char* path) noexcept {
  const long null = raw(SYS_openat, AT_FDCWD, "/dev/null", O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
  if (null < 0) return static_cast<int>(null);
  // nodev: even opening it is refused.
  const int rc = bind(child, static_cast<int>(null), target, kFlagMask, /*recursive=*/false, path);
  close_fd(static_cast<int>(null));
  return rc;
}

/// A mask's target. A link that a command may have written decides nothing; where it leads to
/// nothing in the sandbox, and cannot be changed now, there is nothing to hide.
int open_masked(Child& child, const char* path) noexcept {
  const int target = open_target(child, path);
  if (target != -ELOOP || child.arena.report.detail != Detail::kPlantedLink) return target;
  const int hidden = open_path(child, child.root, path, Links::kFixed);
  if (hidden >= 0) close_fd(hidden);
  if (hidden != -ENOENT && hidden != -ENOTDIR && hidden != -EACCES) return -ELOOP;
  set_subject(child, Detail::kNone, "");
  return hidden;
}

int do_mask_path(Child& child, const Op& op) noexcept {
  const char* path = child.text(op.s0);
  const int target = open_masked(child, path);
  // Nothing there, or out of the uid's reach anyway (uid 0 has no such excuse, and gets no EACCES).
  if (target == -ENOENT || target == -ENOTDIR || target == -EACCES) return 0;
  if (target < 0) return target;
  struct stat about;
  long rc = raw(SYS_newfstatat, target, "", &about, AT_EMPTY_PATH);
  if (rc >= 0 && S_ISDIR(about.st_mode)) {
    rc = mount_new(child, target, "tmpfs", kFlagMask, "size=4k,nr_inodes=1,mode=0555");
    if (rc >= 0) rc = check_target_flags(child, path, kFlagMask);
  } else if (rc >= 0) {
    rc = mask_file(child, target, path);
  }
  close_fd(target);
  return static_cast<int>(rc);
}

int do_seal_root(Child& child) noexcept {
  const std::uint64_t flags = MS_RDONLY | MS_NOSUID | MS_NODEV;
  if (child.image.legacy) {
    const int rc = legacy_remount(child, child.root, flags);
    return rc < 0 ? rc : check_flags(child, child.root, flags, "/");
  }
  sys::MountAttr attributes;
  attributes.set = flags;
  const long rc =
      raw(SYS_mount_setattr, child.root, "", AT_EMPTY_PATH, &attributes, sizeof attributes);
  return rc < 0 ? static_cast<int>(rc) : check_flags(child, child.root, flags, "/");
}

int do_pivot_root(Child& child) noexcept {
  child.in_proc = false;
  long rc = raw(SYS_fchdir, child.root);
  if (rc >= 0) rc = raw(SYS_pivot_root, ".", ".");
  // The old root now lies on top of the new one, at the directory that we are in (man 2
  // pivot_root).
  if (rc >= 0) rc = raw(SYS_umount2, ".", MNT_DETACH);
  return static_cast<int>(rc);
}

// ------------------------------------------------------------------------------------------------
// Legacy: mount flags below a recursive bind

/// The flags that the plan wants for a mount at `path` (inside the new root): those of the bind
/// with the longest target above it. Null when that is no bind, whose mounts are made with their
/// flags.
const Op* bind_above(Child& child, const char* path) noexcept {
  const Op* ops = child.array<Op>(child.image.ops);
  const Op* best = nullptr;
  std::size_t best_length = 0;
  for (std::uint32_t i = 0; i < child.image.payload_op; ++i) {
    const Op& op = ops[i];
    const bool is_root = op.code == OpCode::kAttachRoot;
    const bool has_target = op.code == OpCode::kMountTmpfs || op.code == OpCode::kMountProc ||
                            op.code == OpCode::kMountDev || op.code == OpCode::kMaskPath ||
                            op.code == OpCode::kMountOverlay || op.code == OpCode::kMountMqueue ||
                            op.code == OpCode::kBindData;
    if (!is_root && !has_target && op.code != OpCode::kBindMount) continue;
    const char* target = is_root ? "/" : child.text(has_target ? op.s0 : op.s1);
    for (const RealTarget& real : child.arena.real_targets) {
      if (real.op == nullptr) break;
      if (real.op == &op) target = real.path;
    }
    const std::size_t length = std::strlen(target);
    if (length < best_length) continue;
    const bool covers = length == 1 || (std::strncmp(path, target, length) == 0 &&
                                        (path[length] == '\0' || path[length] == '/'));
    if (covers) best = &op, best_length = length;
  }
  const bool flagged =
      best != nullptr && (best->code == OpCode::kBindMount || best->code == OpCode::kBindData ||
                          (best->code == OpCode::kAttachRoot && best->s0 != 0));
  return flagged ? best : nullptr;
}

/// One line of mountinfo (man 5 proc): "ID PARENT MAJ:MIN ROOT POINT OPTIONS ...".
struct MountLine {
  std::uint64_t id = 0;
  char point[kPathRoom] = {};
  std::uint64_t flags = 0;

  static bool is_octal(char c) noexcept { return c >= '0' && c <= '7'; }

  /// Undoes the octal escapes of blank, tab, newline and backslash.
  static const char* unescape(const char* from, char* out, std::size_t room) noexcept {
    std::size_t length = 0;
    while (*from != ' ' && *from != '\0' && length + 1 < room) {
      if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && is_octal(from[2]) &&
          is_octal(from[3])) {
        out[length++] =
            static_cast<char>((from[1] - '0') * 64 + (from[2] - '0') * 8 + from[3] - '0');
        from += 4;
      } else {
        out[length++] = *from++;
      }
    }
    out[length] = '\0';
    return from;
  }

  bool parse(const char* line) noexcept {
    for (id = 0; *line >= '0' && *line <= '9'; ++line)
      id = id * 10 + static_cast<std::uint64_t>(*line - '0');
    for (int skipped = 0; skipped < 4; ++skipped) {
      while (*line != ' ' && *line != '\0') ++line;
      if (*line++ != ' ') return false;
    }
    line = unescape(line, point, sizeof point);
    if (*line++ != ' ') return false;
    flags = parse_flags(line);
    return true;
  }

  static std::uint64_t parse_flags(const char* line) noexcept {
    std::uint64_t found = 0;
    while (*line != ' ' && *line != '\0') {
      char word[16];
      std::size_t length = 0;
      while (*line != ',' && *line != ' ' && *line != '\0') {
        if (length + 1 < sizeof word) word[length++] = *line;
        ++line;
      }
      word[length] = '\0';
      if (equal(word, "ro")) found |= MS_RDONLY;
      if (equal(word, "nosuid")) found |= MS_NOSUID;
      if (equal(word, "nodev")) found |= MS_NODEV;
      if (equal(word, "noexec")) found |= MS_NOEXEC;
      if (*line == ',') ++line;
    }
    return found;
  }
};

/// Remounts the mount of `line` when it lacks flags. 1 when something changed.
int settle_line(Child& child, const MountLine& line) noexcept {
  // Where the new root is assembled.
  const char* root = child.image.literal ? kNewRoot : "/proc";
  if (std::strncmp(line.point, root, std::strlen(root)) != 0) return 0;
  const char* path = line.point + std::strlen(root);
  if (*path != '\0' && *path != '/') return 0;
  if (*path == '\0') path = "/";
  const Op* op = bind_above(child, path);
  if (op == nullptr || (line.flags & op->a) == op->a) return 0;
  const int fd = open_path(child, child.root, path, Links::kAll);
  // Out of the uid's reach, or covered by another mount: nobody in the sandbox gets there either.
  if (fd == -EACCES || fd == -ENOENT || fd == -ENOTDIR) return 0;
  if (fd < 0) return fd;
  struct statx about;
  int rc = static_cast<int>(raw(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &about));
  if (rc >= 0 && (about.stx_mask & STATX_MNT_ID) && about.stx_mnt_id != line.id) {
    close_fd(fd);
    return 0;
  }
  if (rc >= 0) rc = legacy_remount(child, fd, op->a);
  if (rc >= 0) rc = check_flags(child, fd, op->a, path);
  close_fd(fd);
  return rc < 0 ? rc : 1;
}

/// One pass over mountinfo. The number of mounts that changed.
int settle_pass(Child& child) noexcept {
  const long fd = raw(SYS_openat, child.arena.proc, "self/mountinfo", O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0) return static_cast<int>(fd);
  char buffer[16384];
  std::size_t held = 0;
  int changed = 0, rc = 0;
  while (rc >= 0) {
    const long got = raw(SYS_read, fd, buffer + held, sizeof buffer - 1 - held);
    if (got < 0) rc = static_cast<int>(got);
    if (got <= 0) break;
    held += static_cast<std::size_t>(got);
    buffer[held] = '\0';
    char* line = buffer;
    while (char* end = std::strchr(line, '\n')) {
      *end = '\0';
      MountLine parsed;
      if (parsed.parse(line) && rc >= 0) rc = settle_line(child, parsed);
      if (rc > 0) ++changed;
      line = end + 1;
    }
    held -= static_cast<std::size_t>(line - buffer);
    if (held + 1 >= sizeof buffer) rc = -ENAMETOOLONG;
    std::memmove(buffer, line, held);
  }
  close_fd(static_cast<int>(fd));
  return rc < 0 ? rc : changed;
}

int do_settle_mount_flags(Child& child) noexcept {
  if (!child.image.legacy) return 0;  // mount_setattr was recursive.
  for (int pass = 0; pass < 20; ++pass) {
    const int changed = settle_pass(child);
    if (changed <= 0) return changed;
  }
  return fail_read_back(child, "mount flags that do not settle");
}

// ------------------------------------------------------------------------------------------------
// Identity, namespaces, privileges

/// A privileged launcher writes the maps: for its child to do so it would have to be dumpable, and
/// any process of the session's uid on the host, which owns the new namespace, could look into it
/// then.
int do_map_ids(Child& child, const Op& op) noexcept {
  if (child.image.waits_for_maps) return wait_for_go(child);
  int rc = write_at(child.arena.proc, "self/setgroups", "deny");
  if (rc >= 0) rc = write_at(child.arena.proc, "self/uid_map", child.text(op.s0));
  if (rc >= 0) rc = write_at(child.arena.proc, "self/gid_map", child.text(op.s1));
  return rc;
}

int do_take_ids(const Op& op) noexcept {
  long rc = raw(SYS_setresgid, op.b, op.b, op.b);
  if (rc >= 0) rc = raw(SYS_setresuid, op.a, op.a, op.a);
  return static_cast<int>(rc);
}

constexpr std::uint64_t kNewTime = 0x80;  // CLONE_NEWTIME

struct Clocks {
  std::int64_t monotonic = 0;  ///< Nanoseconds.
  std::int64_t boottime = 0;
  std::uint64_t inode = 0;

  int read(const Child& child) noexcept {
    constexpr std::int64_t kSecond = 1'000'000'000;
    timespec now[2];
    struct stat about;
    long rc = raw(SYS_clock_gettime, CLOCK_MONOTONIC, &now[0]);
    if (rc >= 0) rc = raw(SYS_clock_gettime, CLOCK_BOOTTIME, &now[1]);
    if (rc >= 0) rc = raw(SYS_newfstatat, child.arena.proc, "self/ns/time", &about, 0);
    if (rc < 0) return static_cast<int>(rc);
    monotonic = now[0].tv_sec * kSecond + now[0].tv_nsec;
    boottime = now[1].tv_sec * kSecond + now[1].tv_nsec;
    inode = about.st_ino;
    return 0;
  }
};

/// The offsets can be written until the first process is in the namespace. The launcher does it
/// where init is not dumpable and so not the owner of its own files in /proc.
int write_time_offsets(Child& child, const Op& op) noexcept {
  if (op.s0 == 0) return 0;
  if (!child.image.privileged)
    return write_at(child.arena.proc, "self/timens_offsets", child.text(op.s0));
  Message message;
  message.kind = MessageKind::kNeedTime;
  const int sent = send(child, message);
  return sent < 0 ? sent : wait_for_go(child);
}

/// Whether a clock has moved by `offset` and no more than the little time that has gone by.
bool has_moved(std::int64_t before, std::int64_t after, std::uint64_t offset) noexcept {
  constexpr std::int64_t kPatience = 60'000'000'000;
  const std::int64_t passed = after - before - static_cast<std::int64_t>(offset);
  return passed >= 0 && passed <= kPatience;
}

/// clone3 would enter the new namespace at once, with the offsets at zero for good. So init makes
/// one for its children and joins it: a payload that shares its memory could not be born into
/// another one.
int do_enter_time(Child& child, const Op& op) noexcept {
  Clocks before, after;
  long rc = before.read(child);
  if (rc >= 0) rc = raw(SYS_unshare, kNewTime);
  if (rc >= 0) rc = write_time_offsets(child, op);
  if (rc >= 0)
    rc = raw(SYS_openat, child.arena.proc, "self/ns/time_for_children", O_RDONLY | O_CLOEXEC, 0);
  if (rc < 0) return static_cast<int>(rc);
  const int fd = static_cast<int>(rc);
  rc = raw(SYS_setns, fd, kNewTime);
  close_fd(fd);
  if (rc >= 0) rc = after.read(child);
  if (rc < 0) return static_cast<int>(rc);
  if (before.inode == after.inode) return fail_read_back(child, "self/ns/time");
  if (!has_moved(before.monotonic, after.monotonic, op.a))
    return fail_read_back(child, "CLOCK_MONOTONIC");
  if (!has_moved(before.boottime, after.boottime, op.b))
    return fail_read_back(child, "CLOCK_BOOTTIME");
  return 0;
}

/// After the last change of ids, which would clear the death signal again. Nothing can trace or
/// read init from here on.
int do_guard_init(const Op& op) noexcept {
  long rc = op.a & kGuardDumpable ? 0 : raw(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
  if (rc >= 0) rc = raw(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (rc >= 0 && (op.a & kGuardInSession) == 0) rc = raw(SYS_setsid);
  return static_cast<int>(rc);
}

int do_await_launcher(Child& child) noexcept {
  Message message;
  message.kind = MessageKind::kWaits;
  const int sent = send(child, message);
  return sent < 0 ? sent : wait_for_go(child);
}

/// The limit of the namespace that we are in counts those that are made in it: ours is the one that
/// it allows, and nobody in ours can raise it.
int do_nest_user(Child& child, const Op& op) noexcept {
  int rc = write_at(child.arena.proc, "sys/user/max_user_namespaces", "1");
  if (rc < 0) return about(child, "/proc/sys/user/max_user_namespaces", rc);
  const long dumpable = raw(SYS_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0);
  rc = static_cast<int>(raw(SYS_unshare, CLONE_NEWUSER));
  // Its maps are files of whoever is not dumpable, and then root's.
  if (rc >= 0) rc = static_cast<int>(raw(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0));
  if (rc >= 0) rc = do_map_ids(child, op);
  if (rc >= 0) rc = static_cast<int>(raw(SYS_prctl, PR_SET_DUMPABLE, dumpable, 0, 0, 0));
  return rc;
}

int do_check_no_user(Child& child) noexcept {
  const long pid = raw(SYS_clone, CLONE_NEWUSER | SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (pid == 0) leave(0);
  if (pid < 0) return 0;
  while (raw(SYS_wait4, pid, nullptr, 0, nullptr) == -EINTR) {
  }
  return fail_read_back(child, "user namespaces can be made");
}

/// A read lock on all of it, for as long as init is there.
int do_lock_file(Child& child, const Op& op) noexcept {
  const char* path = child.text(op.s0);
  Arena& arena = child.arena;
  constexpr int kMost = sizeof arena.locks / sizeof arena.locks[0];
  if (arena.lock_count >= kMost) return about(child, path, -EMFILE);
  const long fd = raw(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOCTTY, 0);
  if (fd < 0) return about(child, path, static_cast<int>(fd));
  arena.locks[arena.lock_count++] = static_cast<int>(fd);
  struct flock lock = {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  const long rc = raw(SYS_fcntl, fd, F_SETLK, &lock);
  return rc < 0 ? about(child, path, static_cast<int>(rc)) : 0;
}

int do_join_keyring() noexcept {
  const long rc = raw(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr, 0, 0, 0);
  // A filter that refuses keyctl to us refuses it to everything that we start.
  return rc == -ENOSYS || rc == -EPERM ? 0 : static_cast<int>(rc < 0 ? rc : 0);
}

int do_raise_loopback() noexcept {
  const long fd = raw(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return static_cast<int>(fd);
  struct ifreq request;
  std::memset(&request, 0, sizeof request);
  append_text(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP;  // The kernel adds 127.0.0.1/8 and ::1 by itself.
  return static_cast<int>(raw(SYS_ioctl, fd, 0x8914 /* SIOCSIFFLAGS */, &request));
}

/// By descriptors, because nobody can open them in /proc: init is not dumpable.
int do_hand_over_namespaces(Child& child) noexcept {
  const long user = raw(SYS_openat, child.arena.proc, "self/ns/user", O_RDONLY | O_CLOEXEC, 0);
  if (user < 0) return static_cast<int>(user);
  const long net = raw(SYS_openat, child.arena.proc, "self/ns/net", O_RDONLY | O_CLOEXEC, 0);
  if (net < 0) return static_cast<int>(net);
  Message message;
  message.kind = MessageKind::kHandedOver;
  const int sent = send_with(child, message, static_cast<int>(user), static_cast<int>(net));
  raw(SYS_close, user);
  raw(SYS_close, net);
  return sent;
}

int do_await_network(Child& child) noexcept {
  return child.arena.network_up != 0 ? 0 : wait_for(child, MessageKind::kNetworkUp);
}

int do_forbid_user_namespaces(Child& child, const Op& op) noexcept {
  const int rc = write_at(child.arena.proc, "sys/user/max_user_namespaces", "0");
  // Where the host's /proc/sys is read-only, the filter is the wall.
  return rc < 0 && op.a != 0 ? 0 : rc;
}

/// In the sandbox's own devpts, so that ttyname(3) finds it there. It becomes init's controlling
/// terminal and not the payload's: the payload's group has a parent in the session then, and can be
/// stopped by a key (man 2 setpgid, orphaned process groups).
int do_open_terminal(Child& child, const Op& op) noexcept {
  const long master =
      raw(SYS_openat, AT_FDCWD, "/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK, 0);
  if (master < 0) return about(child, "/dev/pts/ptmx", static_cast<int>(master));
  const int unlocked = 0;
  long rc = raw(SYS_ioctl, master, TIOCSPTLCK, &unlocked);
  const long slave = raw(SYS_ioctl, master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (rc >= 0) rc = slave;
  if (rc >= 0 && op.s0 != 0) rc = raw(SYS_ioctl, slave, TCSETS, child.text(op.s0));
  if (rc >= 0) rc = raw(SYS_ioctl, slave, TIOCSWINSZ, child.text(op.s1));
  // A further command makes it the controlling terminal of a session of its own.
  if (rc >= 0 && op.a == 0) rc = raw(SYS_ioctl, slave, TIOCSCTTY, 0);
  Message message;
  message.kind = MessageKind::kTerminal;
  message.process = child.arena.process;
  if (rc >= 0) rc = send_with(child, message, static_cast<int>(master), static_cast<int>(slave));
  child.arena.terminal = static_cast<int>(slave);
  return static_cast<int>(rc);
}

bool is_joined(Child& child, std::uint64_t flag) noexcept {
  const Join* joins = child.array<Join>(child.image.joins);
  for (std::uint32_t i = 0; i < child.image.join_count; ++i)
    if (joins[i].flag == flag) return true;
  return false;
}

/// A pid namespace below one that is joined.
bool nests_pids(Child& child) noexcept {
  return is_joined(child, CLONE_NEWPID) && (child.image.namespace_flags & CLONE_NEWPID) != 0;
}

/// Each namespace that was to be joined is the one that we are in, or that ours is below.
int check_joined(Child& child) noexcept {
  struct Kind {
    const char* path;
    std::uint64_t flag;
  };
  constexpr Kind kKinds[] = {{"self/ns/user", CLONE_NEWUSER}, {"self/ns/net", CLONE_NEWNET},
                             {"self/ns/ipc", CLONE_NEWIPC},   {"self/ns/uts", CLONE_NEWUTS},
                             {"self/ns/time", kNewTime},      {"self/ns/cgroup", CLONE_NEWCGROUP},
                             {"self/ns/pid", CLONE_NEWPID}};
  const Join* joins = child.array<Join>(child.image.joins);
  for (std::uint32_t i = 0; i < child.image.join_count; ++i) {
    const char* path = nullptr;
    for (const Kind& kind : kKinds)
      if (kind.flag == joins[i].flag) path = kind.path;
    struct stat about;
    const long rc =
        path == nullptr ? -ENOSYS : raw(SYS_newfstatat, child.arena.proc, path, &about, 0);
    if (rc < 0) return static_cast<int>(rc);
    const bool is_below = joins[i].flag == CLONE_NEWPID && nests_pids(child);
    if ((about.st_ino != joins[i].inode) != is_below) return fail_read_back(child, path);
  }
  return 0;
}

int do_check_namespaces(Child& child, const Op& op) noexcept {
  struct Kind {
    const char* path;
    std::uint64_t flag;
  };
  constexpr Kind kKinds[kNamespaceKinds] = {{"self/ns/ipc", CLONE_NEWIPC},
                                            {"self/ns/uts", CLONE_NEWUTS},
                                            {"self/ns/cgroup", CLONE_NEWCGROUP}};
  for (int i = 0; i < kNamespaceKinds; ++i) {
    if (is_joined(child, kKinds[i].flag)) continue;
    struct stat about;
    const long rc = raw(SYS_newfstatat, child.arena.proc, kKinds[i].path, &about, 0);
    if (rc < 0) return static_cast<int>(rc);
    const bool is_new = about.st_ino != child.image.namespace_inodes[i];
    if (is_new != ((op.a & kKinds[i].flag) != 0)) return fail_read_back(child, kKinds[i].path);
  }
  return check_joined(child);
}

// ------------------------------------------------------------------------------------------------
// Landlock

int add_path_rule(int ruleset, int fd, std::uint64_t access) noexcept {
  struct stat about;
  long rc = raw(SYS_newfstatat, fd, "", &about, AT_EMPTY_PATH);
  if (rc < 0) return static_cast<int>(rc);
  if (!S_ISDIR(about.st_mode)) access &= sys::kLandlockOfAFile;
  if (access == 0) return 0;
  const sys::LandlockPathBeneath rule = {access, fd};
  rc = raw(sys::kLandlockAddRule, ruleset, sys::kLandlockRulePathBeneath, &rule, 0);
  // A pipe or a socket (EBADFD): file systems of the kernel's own are not covered at all.
  return rc == -EBADFD ? 0 : static_cast<int>(rc);
}

int add_path_rules(Child& child, const LandlockSet& set, int ruleset) noexcept {
  const long root = raw(SYS_openat, AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
  if (root < 0) return static_cast<int>(root);
  const auto* rules = child.array<LandlockRule>(set.paths);
  for (std::uint32_t i = 0; i < set.path_count; ++i) {
    const char* path = child.text(rules[i].what);
    const int fd = open_path(child, static_cast<int>(root), path, Links::kAll);
    // An optional mount that is not there, or that nobody in the sandbox can reach either.
    if (fd == -ENOENT || fd == -ENOTDIR || fd == -EACCES) continue;
    const int rc = fd < 0 ? fd : add_path_rule(ruleset, fd, rules[i].access & set.files);
    close_fd(fd);
    if (rc < 0) return about(child, path, rc);
  }
  return 0;
}

/// /dev/stdout leads to what descriptor 1 is on, which may be a file that no mount shows: it can be
/// opened again with the rights that the descriptor has. A directory gets none.
int add_descriptor_rules(Child& child, const LandlockSet& set, int ruleset) noexcept {
  const auto* descriptors = child.array<std::int32_t>(set.descriptors);
  for (std::uint32_t i = 0; i < set.descriptor_count; ++i) {
    struct stat about;
    long rc = raw(SYS_newfstatat, descriptors[i], "", &about, AT_EMPTY_PATH);
    if (rc == -EBADF || (rc >= 0 && S_ISDIR(about.st_mode))) continue;
    if (rc >= 0) rc = raw(SYS_fcntl, descriptors[i], F_GETFL);
    if (rc < 0) return static_cast<int>(rc);
    std::uint64_t access = sys::kLandlockIoctlDev;
    if ((rc & O_ACCMODE) != O_WRONLY) access |= sys::kLandlockReadFile;
    if ((rc & O_ACCMODE) != O_RDONLY) access |= sys::kLandlockWriteFile | sys::kLandlockTruncate;
    rc = add_path_rule(ruleset, descriptors[i], access & set.files);
    if (rc < 0) return static_cast<int>(rc);
  }
  return 0;
}

/// What init and payload still read of the host's /proc, by belljar's descriptor: nothing in the
/// sandbox can reach that instance, so the rule opens nothing to a command.
int add_proc_rule(Child& child, const LandlockSet& set, int ruleset) noexcept {
  std::uint64_t access = sys::kLandlockReadFile;
  // Where close_range is not to be had, descriptors are listed there.
  if (raw(SYS_close_range, ~0U, ~0U, 0) < 0) access |= sys::kLandlockReadDir;
  return add_path_rule(ruleset, child.arena.proc, access & set.files);
}

int add_port_rules(Child& child, const LandlockSet& set, int ruleset) noexcept {
  const auto* rules = child.array<LandlockRule>(set.ports);
  for (std::uint32_t i = 0; i < set.port_count; ++i) {
    const sys::LandlockNetPort rule = {rules[i].access, rules[i].what};
    const long rc = raw(sys::kLandlockAddRule, ruleset, sys::kLandlockRuleNetPort, &rule, 0);
    if (rc < 0) return static_cast<int>(rc);
  }
  return 0;
}

/// A socket from before the domain, at an abstract address that the kernel chooses.
int make_witness(sockaddr_un& address, socklen_t& length) noexcept {
  const long fd = raw(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  address.sun_family = AF_UNIX;
  long rc = fd;
  if (rc >= 0) rc = raw(SYS_bind, fd, &address, sizeof address.sun_family);
  if (rc >= 0) rc = raw(SYS_getsockname, fd, &address, &length);
  return static_cast<int>(rc < 0 ? rc : fd);
}

/// Whether a call of the domain is refused with `wanted`.
int expect_refusal(Child& child, long rc, int wanted, const char* what) noexcept {
  return rc == -wanted ? 0 : fail_read_back(child, what);
}

int check_tcp(Child& child, const LandlockSet& set) noexcept {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = __builtin_bswap32(INADDR_LOOPBACK);
  constexpr std::uint64_t kRights[] = {sys::kLandlockBindTcp, sys::kLandlockConnectTcp};
  int rc = 0;
  for (const std::uint64_t right : kRights) {
    if ((set.checked_tcp & right) == 0 || rc < 0) continue;
    const long fd = raw(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd == -EAFNOSUPPORT) return 0;  // A kernel without TCP.
    if (fd < 0) return static_cast<int>(fd);
    const bool bind = right == sys::kLandlockBindTcp;
    const long got = raw(bind ? SYS_bind : SYS_connect, fd, &address, sizeof address);
    rc = expect_refusal(child, got, EACCES, bind ? "landlock: TCP bind" : "landlock: TCP connect");
    close_fd(static_cast<int>(fd));
  }
  return rc;
}

/// The kernel has no word for the domain of a process, so one call of each kind is made that must
/// fail now, and that would change nothing if it did not: under rules for files no mount can be
/// changed, port 0 stands for no port, and the witness is outside.
int check_domain(Child& child, const LandlockSet& set, const sockaddr_un& witness,
                 socklen_t length) noexcept {
  int rc = 0;
  if (set.files != 0)
    rc = expect_refusal(child, raw(SYS_mount, nullptr, "/", nullptr, MS_PRIVATE, nullptr), EPERM,
                        "landlock: files");
  if (rc >= 0) rc = check_tcp(child, set);
  if (rc < 0 || (set.scopes & sys::kLandlockScopeAbstractUnix) == 0) return rc;
  const long fd = raw(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return static_cast<int>(fd);
  rc = expect_refusal(child, raw(SYS_connect, fd, &witness, length), EPERM,
                      "landlock: abstract unix sockets");
  close_fd(static_cast<int>(fd));
  return rc;
}

/// While init still has CAP_SYS_ADMIN in its namespace, which stands in for no_new_privs.
int do_take_landlock(Child& child, const Op& op) noexcept {
  const auto& set = *child.array<LandlockSet>(op.s0);
  sockaddr_un address = {};
  socklen_t length = sizeof address;
  int witness = -1;
  if (set.scopes & sys::kLandlockScopeAbstractUnix) {
    witness = make_witness(address, length);
    if (witness < 0) return witness;
  }
  const sys::LandlockRulesetAttr handled = {set.files, set.tcp, set.scopes};
  const long made = raw(sys::kLandlockCreateRuleset, &handled, sizeof handled, 0);
  if (made < 0) return static_cast<int>(made);
  const int ruleset = static_cast<int>(made);
  long rc = 0;
  if (set.files != 0) {
    rc = add_path_rules(child, set, ruleset);
    if (rc >= 0) rc = add_descriptor_rules(child, set, ruleset);
    if (rc >= 0) rc = add_proc_rule(child, set, ruleset);
  }
  if (rc >= 0) rc = add_port_rules(child, set, ruleset);
  if (rc >= 0) rc = raw(sys::kLandlockRestrictSelf, ruleset, set.restrict_flags);
  close_fd(ruleset);
  if (rc >= 0) rc = check_domain(child, set, address, length);
  close_fd(witness);
  return static_cast<int>(rc);
}

int set_capabilities(std::uint64_t effective, std::uint64_t permitted,
                     std::uint64_t inheritable) noexcept {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  const auto low = [](std::uint64_t bits) { return static_cast<std::uint32_t>(bits); };
  const auto high = [](std::uint64_t bits) { return static_cast<std::uint32_t>(bits >> 32); };
  __user_cap_data_struct data[2] = {{low(effective), low(permitted), low(inheritable)},
                                    {high(effective), high(permitted), high(inheritable)}};
  return static_cast<int>(raw(SYS_capset, &header, data));
}

/// The bounding set first (it takes SETPCAP), then the ambient set for what stays, then the lock.
int do_drop_capabilities(const Op& op) noexcept {
  long rc = 0;
  std::uint64_t known = 0;
  for (int capability = 0; capability < 64; ++capability) {
    const std::uint64_t bit = std::uint64_t{1} << capability;
    if (op.a & bit) {
      known |= bit;
      continue;
    }
    rc = raw(SYS_prctl, PR_CAPBSET_DROP, capability, 0, 0, 0);
    if (rc == -EINVAL) break;  // Beyond the last that this kernel knows.
    if (rc < 0) return static_cast<int>(rc);
    known |= bit;
  }
  if (op.a != 0) {
    rc = set_capabilities(known, known, op.a);
    for (int capability = 0; capability < 64 && rc >= 0; ++capability)
      if (op.a >> capability & 1)
        rc = raw(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0);
    if (rc < 0) return static_cast<int>(rc);
  }
  rc = raw(SYS_prctl, PR_SET_SECUREBITS,
           SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
               SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
               SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED,
           0, 0, 0);
  return static_cast<int>(rc < 0 ? rc : set_capabilities(0, op.a, op.a));
}

// ------------------------------------------------------------------------------------------------
// Read-back from /proc/self/status

class Status {
 public:
  int read(int fd) noexcept { return read_text(fd, text_, sizeof text_); }

  /// The text behind "Key:" and its blanks, or null.
  [[nodiscard]] const char* find(const char* key) const noexcept {
    const std::size_t length = std::strlen(key);
    for (const char* line = text_; *line != '\0';) {
      if (std::strncmp(line, key, length) == 0 && line[length] == ':') {
        line += length + 1;
        while (*line == '\t' || *line == ' ') ++line;
        return line;
      }
      const char* end = std::strchr(line, '\n');
      if (end == nullptr) break;
      line = end + 1;
    }
    return nullptr;
  }

  /// Up to `room` numbers of a line; their count, or -1 without the line.
  int numbers(const char* key, unsigned base, std::uint64_t* out, int room) const noexcept {
    const char* at = find(key);
    if (at == nullptr) return -1;
    int count = 0;
    while (count < room) {
      while (*at == '\t' || *at == ' ') ++at;
      if (digit(*at) >= base) break;
      std::uint64_t value = 0;
      while (digit(*at) < base) value = value * base + digit(*at++);
      out[count++] = value;
    }
    return count;
  }

  [[nodiscard]] bool all_equal(const char* key, std::uint64_t wanted) const noexcept {
    std::uint64_t values[4];
    if (numbers(key, 10, values, 4) != 4) return false;
    for (std::uint64_t value : values)
      if (value != wanted) return false;
    return true;
  }

  [[nodiscard]] bool one_equals(const char* key, unsigned base,
                                std::uint64_t wanted) const noexcept {
    std::uint64_t value = 0;
    return numbers(key, base, &value, 1) == 1 && value == wanted;
  }

 private:
  static unsigned digit(char c) noexcept {
    if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
    if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
    return 99;
  }

  char text_[8192] = {};
};

/// All five capability sets; `effective` is what the effective one must be.
const char* wrong_capabilities(const Status& status, std::uint64_t keep) noexcept {
  if (!status.one_equals("CapInh", 16, keep)) return "CapInh";
  if (!status.one_equals("CapPrm", 16, keep)) return "CapPrm";
  if (!status.one_equals("CapEff", 16, 0)) return "CapEff";
  if (!status.one_equals("CapBnd", 16, keep)) return "CapBnd";
  if (!status.one_equals("CapAmb", 16, keep)) return "CapAmb";
  return nullptr;
}

bool wrong_id(const Status& status, const char* key, std::uint64_t wanted) noexcept {
  return wanted != kAnyId && !status.all_equal(key, wanted);
}

/// The same where they are in force before exec already.
const char* wrong_in_force(const Status& status, std::uint64_t wanted, bool ambient) noexcept {
  if (!status.one_equals("CapPrm", 16, wanted)) return "CapPrm";
  if (!status.one_equals("CapEff", 16, wanted)) return "CapEff";
  if (!status.one_equals("CapAmb", 16, ambient ? wanted : 0)) return "CapAmb";
  return nullptr;
}

/// What the payload has inherited is what init has: a second process in the namespace, by its
/// clone.
int do_check_init(Child& child, const Op& op) noexcept {
  const long fd = raw(SYS_openat, child.arena.proc, "self/status", O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0) return static_cast<int>(fd);
  child.status = static_cast<int>(fd);
  Status status;
  const int rc = status.read(child.status);
  if (rc < 0) return rc;
  std::uint64_t pids[8];
  const int levels = status.numbers("NSpid", 10, pids, 8);
  const bool first = op.s0 == 0;
  if (child.image.literal == 0 &&
      (levels < 2 || (first ? pids[levels - 1] != 2 : pids[levels - 1] < 2)))
    return fail_read_back(child, "NSpid");
  if (wrong_id(status, "Uid", op.a)) return fail_read_back(child, "Uid");
  if (wrong_id(status, "Gid", op.b)) return fail_read_back(child, "Gid");
  const char* wrong = child.image.literal ? nullptr : wrong_capabilities(status, op.c);
  if (wrong != nullptr) return fail_read_back(child, wrong);
  std::uint64_t filters = 0;
  if (status.numbers("Seccomp_filters", 10, &filters, 1) == 1)
    child.arena.base_filters = static_cast<std::uint32_t>(filters);
  if (status.numbers("SigIgn", 16, &child.arena.ignored_signals, 1) != 1)
    return fail_read_back(child, "SigIgn");
  return 0;
}

bool groups_match(const Status& status, const Expectation& expected) noexcept {
  if (expected.group_count < 0) return true;
  std::uint64_t groups[512];
  const int count = status.numbers("Groups", 10, groups, 512);
  // Groups that the map does not know are shown as the overflow id; their number still counts.
  return count == expected.group_count;
}

int do_check_payload(Child& child, const Op& op) noexcept {
  const auto& expected = *child.array<Expectation>(op.s0);
  Status status;
  const int rc = status.read(child.status);
  if (rc < 0) return rc;
  if (wrong_id(status, "Uid", expected.uid)) return fail_read_back(child, "Uid");
  if (wrong_id(status, "Gid", expected.gid)) return fail_read_back(child, "Gid");
  if (!groups_match(status, expected)) return fail_read_back(child, "Groups");
  if (!status.one_equals("Umask", 8, expected.umask)) return fail_read_back(child, "Umask");
  const char* wrong =
      op.a == kCapabilitiesAsTheyAre ? nullptr
      : op.a == kCapabilitiesAtExec
          ? wrong_capabilities(status, expected.capabilities)
          : wrong_in_force(status, expected.capabilities, op.a == kCapabilitiesInForce);
  if (wrong != nullptr) return fail_read_back(child, wrong);
  if (!status.one_equals("NoNewPrivs", 10, 1)) return fail_read_back(child, "NoNewPrivs");
  const std::uint32_t filters = child.arena.base_filters + expected.filters;
  if (!status.one_equals("Seccomp", 10, filters != 0 ? SECCOMP_MODE_FILTER : 0))
    return fail_read_back(child, "Seccomp");
  // Linux 5.9; without the line the mode is what can be known.
  if (status.find("Seccomp_filters") != nullptr &&
      !status.one_equals("Seccomp_filters", 10, filters))
    return fail_read_back(child, "Seccomp_filters");
  return 0;
}

// ------------------------------------------------------------------------------------------------
// Forgetting

int unmap(std::uintptr_t from, std::uintptr_t to) noexcept {
  if (from >= to) return 0;
  return static_cast<int>(raw(SYS_munmap, from, to - from));
}

/// Keeps the program's image and the arena, and nothing else: the launcher's heap, its stack with
/// environment and arguments, libc's thread-local block, the vdso.
int do_forget_launcher(Child& child) noexcept {
#if defined(BELLJAR_SANITIZED)
  // A sanitizer's shadow cannot be unmapped. Such builds are for tests only, and say so.
  (void)child;
  return 0;
#else
  const RseqArea rseq = child.arena.rseq;
  if (rseq.address != 0) {
    const long rc =
        raw(SYS_rseq, rseq.address, rseq.size, 1 /* RSEQ_FLAG_UNREGISTER */, sys::kRseqSignature);
    if (rc < 0) return static_cast<int>(rc);
  }
  constexpr std::uintptr_t kPage = 4096;
  const auto image_from = reinterpret_cast<std::uintptr_t>(__ehdr_start) & ~(kPage - 1);
  const auto image_to = (reinterpret_cast<std::uintptr_t>(_end) + kPage - 1) & ~(kPage - 1);
  const auto arena_from = reinterpret_cast<std::uintptr_t>(&child.arena);
  const auto arena_to = arena_from + child.arena.size;
  // The end of user addresses with 47 bits (x86-64) or 48 (arm64); a hole there is no error.
#if defined(__x86_64__)
  constexpr std::uintptr_t kEnd = 0x7ffffffff000;
#else
  constexpr std::uintptr_t kEnd = 0x1000000000000;
#endif
  const bool image_first = image_from < arena_from;
  int rc = unmap(kPage, image_first ? image_from : arena_from);
  if (rc >= 0) rc = image_first ? unmap(image_to, arena_from) : unmap(arena_to, image_from);
  if (rc >= 0) rc = unmap(image_first ? arena_to : image_to, kEnd);
  return rc;
#endif
}

// ------------------------------------------------------------------------------------------------
// The payload

struct KernelSigaction {
  void (*handler)(int);
  unsigned long flags;
  void (*restorer)();
  std::uint64_t mask;
};

/// With SIGTTOU blocked, which would stop a group that is not in the foreground yet.
int take_terminal(Child& child, std::uint64_t descriptors) noexcept {
  const int slave = child.arena.terminal;
  const int group = static_cast<int>(raw(SYS_getpid));
  int found = 0;
  const std::uint64_t stop = std::uint64_t{1} << (SIGTTOU - 1);
  long rc = raw(SYS_rt_sigprocmask, SIG_BLOCK, &stop, nullptr, sizeof stop);
  if (rc >= 0) rc = raw(SYS_ioctl, slave, TIOCSPGRP, &group);
  if (rc >= 0) rc = raw(SYS_ioctl, slave, TIOCGPGRP, &found);
  if (rc >= 0 && found != group) return fail_read_back(child, "foreground process group");
  for (int fd = 0; fd < 3 && rc >= 0; ++fd)
    if (descriptors >> fd & 1) rc = raw(SYS_dup3, slave, fd, 0);
  return static_cast<int>(rc);
}

/// What came beside the request for this command. The numbers that it came as are above 2: init has
/// those open.
int do_take_streams(Child& child) noexcept {
  for (int fd = 0; fd < 3; ++fd)
    if (const long rc = raw(SYS_dup3, child.arena.streams[fd], fd, 0); rc < 0)
      return static_cast<int>(rc);
  return 0;
}

int do_new_process_group(Child& child, const Op& op) noexcept {
  long rc = op.b != 0 ? raw(SYS_setsid) : raw(SYS_setpgid, 0, 0);
  if (rc >= 0 && op.b != 0 && child.arena.terminal >= 0)
    rc = raw(SYS_ioctl, child.arena.terminal, TIOCSCTTY, 0);
  if (rc >= 0 && child.arena.terminal >= 0) rc = take_terminal(child, op.a);
  // What a caller in Python ignores would be ignored for good.
  const KernelSigaction standard = {};
  constexpr int kIgnoredByPython[] = {SIGPIPE, SIGXFSZ};
  for (int number : kIgnoredByPython)
    if (rc >= 0 && (child.arena.ignored_signals >> (number - 1) & 1))
      rc = raw(SYS_rt_sigaction, number, &standard, nullptr, sizeof standard.mask);
  const std::uint64_t none = 0;
  if (rc >= 0) rc = raw(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, sizeof none);
  return static_cast<int>(rc);
}

int do_set_limit(Child& child, const Op& op) noexcept {
  const rlimit64 wanted = {op.b, op.b};
  rlimit64 found = {};
  long rc = raw(SYS_prlimit64, 0, op.a, &wanted, nullptr);
  if (rc >= 0) rc = raw(SYS_prlimit64, 0, op.a, nullptr, &found);
  if (rc < 0) return static_cast<int>(rc);
  return found.rlim_cur == op.b && found.rlim_max == op.b ? 0 : fail_read_back(child, "rlimit");
}

int do_null_descriptor(const Op& op) noexcept {
  // Opened inside: the sandbox's own node, or none at all.
  const long fd = raw(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC | O_NOCTTY, 0);
  if (fd < 0) return static_cast<int>(fd);
  return static_cast<int>(raw(SYS_dup3, fd, op.a, 0));
}

int do_change_directory(Child& child, const Op& op) noexcept {
  const char* path = child.text(op.s0);
  if (equal(path, "/")) return 0;  // Where the pivot left us.
  const long top = raw(SYS_openat, AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
  if (top < 0) return static_cast<int>(top);
  const int fd = open_path(child, static_cast<int>(top), path, Links::kAll);
  if (fd < 0) {
    set_subject(child, Detail::kNone, path);
    return fd;
  }
  long rc = raw(SYS_fchdir, fd);
  // A directory outside the root would be "(unreachable)/..." (CVE-2024-21626).
  char here[kPathRoom];
  if (rc >= 0) rc = raw(SYS_getcwd, here, sizeof here);
  if (rc >= 0 && here[0] != '/') return fail_read_back(child, "working directory");
  return static_cast<int>(rc);
}

/// Where the command starts, and PWD, which names it.
int do_enter_directory(Child& child, const Op& op) noexcept {
  const auto* candidates = child.array<std::uint32_t>(op.s0);
  long rc = -ENOENT;
  for (std::uint64_t i = 0; i < op.a && rc < 0; ++i) {
    const char* path = child.text(candidates[i]);
    const int fd = open_path(child, AT_FDCWD, path, Links::kAll);
    rc = fd < 0 ? fd : raw(SYS_fchdir, fd);
    close_fd(fd);
    if (rc < 0 && op.b != 0) return about(child, path, static_cast<int>(rc));
  }
  char here[kPathRoom];
  if (rc >= 0) rc = raw(SYS_getcwd, here, sizeof here);
  if (rc < 0) return static_cast<int>(rc);
  if (here[0] != '/') return fail_read_back(child, "working directory");
  const auto* environment = child.array<std::uint32_t>(child.image.envp);
  for (std::uint32_t i = 0; i < child.image.envc; ++i)
    if (char* entry = const_cast<char*>(child.text(environment[i]));
        std::strncmp(entry, "PWD=", 4) == 0)
      append_text(entry + 4, here);
  return 0;
}

/// Until somebody writes to it, or nobody can any more. It is used up.
int do_block(const Op& op) noexcept {
  char byte;
  long rc = 0;
  do rc = raw(SYS_read, op.a, &byte, 1);
  while (rc == -EINTR);
  raw(SYS_close, op.a);
  return static_cast<int>(rc);
}

/// The death signal may come too late by then: the other end of the socket tells whether it has.
int do_die_with_launcher(Child& child) noexcept {
  const long rc = raw(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (rc < 0 || !child.image.direct) return static_cast<int>(rc);
  if (int& launchers_end = child.arena.launchers_control; launchers_end >= 0) {
    raw(SYS_close, launchers_end);
    launchers_end = -1;
  }
  char byte;
  if (raw(SYS_recvfrom, child.arena.control, &byte, 1, MSG_PEEK | MSG_DONTWAIT, nullptr, nullptr) ==
      0)
    leave(125);
  return 0;
}

/// In force at once; those that are ambient are kept across exec, whatever the uid.
int do_set_capabilities(const Op& op) noexcept {
  for (int capability = 0; capability < 64; ++capability) {
    if (op.a >> capability & 1) continue;
    const long rc = raw(SYS_prctl, PR_CAPBSET_DROP, capability, 0, 0, 0);
    if (rc == -EINVAL) break;  // Beyond the last that this kernel knows.
    // Where nothing is held, nothing can be dropped, and no_new_privs keeps it so.
    if (rc < 0 && rc != -EPERM) return static_cast<int>(rc);
  }
  long rc = set_capabilities(op.a, op.a, op.b != 0 ? op.a : 0);
  if (rc >= 0) rc = raw(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  if (op.b == 0) return static_cast<int>(rc);
  for (int capability = 0; capability < 64 && rc >= 0; ++capability)
    if (op.a >> capability & 1)
      rc = raw(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0);
  return static_cast<int>(rc);
}

int do_install_filter(Child& child, const Op& op) noexcept {
  sock_fprog program;
  program.len = static_cast<unsigned short>(op.a);
  program.filter = const_cast<sock_filter*>(child.array<sock_filter>(op.s0));
  // A filter before this one may know no other call.
  if (op.b == 2)
    return static_cast<int>(raw(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
  if (op.b == 0) return static_cast<int>(raw(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
  // A call that belljar has been told of is not begun anew for every signal (Linux 5.19): a program
  // that is sent many, as Go's runtime is, would never get on.
  unsigned flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
  long fd = raw(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
  flags = SECCOMP_FILTER_FLAG_NEW_LISTENER;
  if (fd == -EINVAL) fd = raw(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
  if (fd < 0) return static_cast<int>(fd);
  // Only the launcher may hold it: this copy is closed before exec, and init has none.
  Message message;
  message.kind = MessageKind::kListener;
  const int rc = send_with(child, message, static_cast<int>(fd), -1);
  raw(SYS_close, fd);
  return rc;
}

struct DirectoryEntry {  // linux_dirent64 (man 2 getdents)
  std::uint64_t inode;
  std::int64_t offset;
  std::uint16_t length;
  std::uint8_t type;
  char name[1];
};

/// The number that a name of /proc/self/fd is; -1 for "." and "..".
int number_of(const char* name) noexcept {
  int number = *name >= '0' && *name <= '9' ? 0 : -1;
  for (; *name >= '0' && *name <= '9'; ++name) number = number * 10 + (*name - '0');
  return number;
}

/// Without close_range (Linux 5.8, or a filter): what /proc lists, until a look finds nothing more.
int close_listed(Child& child, unsigned first, unsigned last) noexcept {
  for (bool again = true; again;) {
    again = false;
    const long list =
        raw(SYS_openat, child.arena.proc, "self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (list < 0) return static_cast<int>(list);
    alignas(8) char buffer[4096];
    long got = 0;
    while ((got = raw(SYS_getdents64, list, buffer, sizeof buffer)) > 0) {
      for (long at = 0; at < got;) {
        const auto* entry = reinterpret_cast<const DirectoryEntry*>(buffer + at);
        at += entry->length;
        const int fd = number_of(entry->name);
        if (fd < 0 || fd == list || fd == child.arena.proc) continue;
        if (static_cast<unsigned>(fd) < first || static_cast<unsigned>(fd) > last) continue;
        raw(SYS_close, fd);
        again = true;
      }
    }
    raw(SYS_close, list);
    if (got < 0) return static_cast<int>(got);
  }
  return 0;
}

/// In a literal plan all but one: exec closes it, and tells by that, or its failure goes over it.
int close_between(Child& child, unsigned first, unsigned last) noexcept {
  if (first > last) return 0;
  const auto told = static_cast<unsigned>(child.arena.gate);
  if (child.arena.gate >= 0 && first <= told && told <= last) {
    const int rc = close_between(child, first, told - 1);
    return rc < 0 ? rc : close_between(child, told + 1, last);
  }
  const long rc = raw(SYS_close_range, first, last, 0);
  return rc == -ENOSYS || rc == -EPERM ? close_listed(child, first, last) : static_cast<int>(rc);
}

/// Everything from 3 on but `keep` (ascending).
int close_all_but(Child& child, const std::int32_t* keep, std::uint64_t count) noexcept {
  unsigned first = 3;
  for (std::uint64_t i = 0; i < count; ++i) {
    const int rc = close_between(child, first, static_cast<unsigned>(keep[i]) - 1);
    if (rc < 0) return rc;
    first = static_cast<unsigned>(keep[i]) + 1;
  }
  return close_between(child, first, ~0U);
}

int do_close_descriptors(Child& child, const Op& op) noexcept {
  const auto* keep = child.array<std::int32_t>(op.s0);
  for (std::uint64_t i = 0; i < op.a; ++i) {
    const long rc = raw(SYS_fcntl, keep[i], F_SETFD, 0);
    if (rc < 0) return static_cast<int>(rc);
  }
  return close_all_but(child, keep, op.a);
}

// What stands behind a failed exec, looked up in the sandbox itself.

/// Whether a script's interpreter or a program's loader (a path at `text`) is not there.
bool is_missing(const char* text) noexcept {
  const long rc = raw(SYS_faccessat, AT_FDCWD, text, F_OK);
  return rc == -ENOENT || rc == -ENOTDIR;
}

void explain_script(Child& child, char* head) noexcept {
  char* name = head + 2;
  while (*name == ' ' || *name == '\t') ++name;
  char* end = name;
  while (*end != '\0' && *end != ' ' && *end != '\t' && *end != '\n') ++end;
  *end = '\0';
  if (is_missing(name)) set_subject(child, Detail::kInterpreterMissing, name);
}

struct ElfHead {
  unsigned char identification[16];
  std::uint16_t type, machine;
  std::uint32_t version;
  std::uint64_t entry, program_headers, section_headers;
  std::uint32_t flags;
  std::uint16_t size, program_header_size, program_header_count;
};
struct ElfProgramHeader {
  std::uint32_t type, flags;
  std::uint64_t offset, virtual_address, physical_address, file_size, memory_size, alignment;
};

void explain_elf(Child& child, int fd, const char* head) noexcept {
  ElfHead elf;
  std::memcpy(&elf, head, sizeof elf);
  for (unsigned i = 0; i < elf.program_header_count && i < 64; ++i) {
    ElfProgramHeader header;
    if (raw(SYS_pread64, fd, &header, sizeof header, elf.program_headers + i * sizeof header) !=
        sizeof header)
      return;
    if (header.type != 3 /* PT_INTERP */) continue;
    char loader[256] = {};
    const std::size_t length =
        header.file_size < sizeof loader ? header.file_size : sizeof loader - 1;
    if (raw(SYS_pread64, fd, loader, length, header.offset) > 0 && is_missing(loader))
      set_subject(child, Detail::kLoaderMissing, loader);
    return;
  }
}

void explain_exec(Child& child, const char* path) noexcept {
  const long fd = raw(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
  struct stat about;
  struct statfs system;
  if (raw(SYS_newfstatat, AT_FDCWD, path, &about, 0) >= 0) {
    if (S_ISDIR(about.st_mode))
      set_subject(child, Detail::kIsDirectory, path);
    else if ((about.st_mode & 0111) == 0)
      set_subject(child, Detail::kNotExecutable, path);
    else if (raw(SYS_statfs, path, &system) >= 0 && (system.f_flags & MS_NOEXEC))
      set_subject(child, Detail::kNoexecMount, path);
  }
  if (fd < 0) return;
  char head[256] = {};
  if (child.arena.report.detail == Detail::kNone &&
      raw(SYS_pread64, fd, head, sizeof head - 1, 0) > 4) {
    if (head[0] == '#' && head[1] == '!')
      explain_script(child, head);
    else if (std::memcmp(head, "\177ELF\2", 5) == 0)
      explain_elf(child, static_cast<int>(fd), head);
  }
  close_fd(static_cast<int>(fd));
}

/// Fills the pointer arrays that execve takes; they lie in the image, beside their strings.
char** fill_pointers(Child& child) noexcept {
  auto** pointers =
      reinterpret_cast<char**>(reinterpret_cast<char*>(&child.image) + child.image.pointers);
  const auto* argv = child.array<std::uint32_t>(child.image.argv);
  const auto* envp = child.array<std::uint32_t>(child.image.envp);
  char** out = pointers;
  for (std::uint32_t i = 0; i < child.image.argc; ++i)
    *out++ = const_cast<char*>(child.text(argv[i]));
  *out++ = nullptr;
  for (std::uint32_t i = 0; i < child.image.envc; ++i)
    *out++ = const_cast<char*>(child.text(envp[i]));
  *out = nullptr;
  return pointers;
}

/// A text without a #! line, which execvp takes for a script.
long exec_by_shell(Child& child, const char* path) noexcept {
  auto** argv =
      reinterpret_cast<char**>(reinterpret_cast<char*>(&child.image) + child.image.pointers);
  char** envp = argv + child.image.argc + 1;
  char** words = envp + child.image.envc + 1;
  static constexpr char kShell[] = "/bin/sh";
  words[0] = const_cast<char*>(kShell);
  words[1] = const_cast<char*>(path);
  // With the null behind the last.
  for (std::uint32_t i = 1; i <= child.image.argc; ++i) words[1 + i] = argv[i];
  const long rc = raw(SYS_execve, kShell, words, envp);
  return rc == -ENOENT ? -ENOEXEC : rc;
}

int do_exec(Child& child, const Op& op) noexcept {
  char** argv = fill_pointers(child);
  char** envp = argv + child.image.argc + 1;
  const auto* candidates = child.array<std::uint32_t>(op.s0);
  // As execvp does: what cannot be started does not end the search, but is what to tell about.
  const char* found = nullptr;
  long found_error = 0;
  for (std::uint64_t i = 0; i < op.a; ++i) {
    const char* path = child.text(candidates[i]);
    long rc = raw(SYS_execve, path, argv, envp);
    if (rc == -ENOEXEC && child.image.literal) rc = exec_by_shell(child, path);
    const bool goes_on = rc == -ENOENT || rc == -ENOTDIR || rc == -EACCES;
    if (found == nullptr && (!goes_on || rc == -EACCES || !is_missing(path))) {
      found = path;
      found_error = rc;
    }
    if (!goes_on) break;
  }
  if (found == nullptr) {
    set_subject(child, Detail::kNotFound, "");
    return -ENOENT;
  }
  explain_exec(child, found);
  if (child.arena.report.detail == Detail::kNone) {
    const Detail detail = found_error == -ENOEXEC ? Detail::kNoFormat : Detail::kNone;
    set_subject(child, detail, found);
  }
  return static_cast<int>(found_error);
}

// ------------------------------------------------------------------------------------------------
// Carrying out

/// No default on purpose: an operation without a handler does not compile. Not inlined: what the
/// operations leave on the stack has to lie below init's own frames, where it is wiped.
// NOLINTNEXTLINE(readability-function-size): a table, one line or two an operation.
[[gnu::noinline]] int carry_out_one(Child& child, const Op& op) noexcept {
  switch (op.code) {
    case OpCode::kMapIds:
      return child.image.helped ? 0 : do_map_ids(child, op);
    case OpCode::kTakeIds:
      return do_take_ids(op);
    case OpCode::kEnterTime:
      return do_enter_time(child, op);
    case OpCode::kGuardInit:
      return do_guard_init(op);
    case OpCode::kJoinKeyring:
      return do_join_keyring();
    case OpCode::kRaiseLoopback:
      return do_raise_loopback();
    case OpCode::kHandOverNamespaces:
      return do_hand_over_namespaces(child);
    case OpCode::kAwaitNetwork:
      return do_await_network(child);
    case OpCode::kSetHostname:
      return static_cast<int>(raw(SYS_sethostname, child.text(op.s0), op.a));
    case OpCode::kAttachRoot:
      return do_attach_root(child, op);
    case OpCode::kBindMount:
      return do_bind_mount(child, op);
    case OpCode::kMountTmpfs:
      return do_mount_tmpfs(child, op);
    case OpCode::kMountOverlay:
      return do_mount_overlay(child, op);
    case OpCode::kMountMqueue:
      return do_mount_mqueue(child, op);
    case OpCode::kMountProc:
      return do_mount_proc(child, op);
    case OpCode::kMountDev:
      return do_mount_dev(child, op);
    case OpCode::kMakeDirectory:
      return do_make_directory(child, op);
    case OpCode::kMakeSymlink:
      return do_make_symlink(child, op);
    case OpCode::kMakeFile:
      return do_make_file(child, op);
    case OpCode::kMaskPath:
      return do_mask_path(child, op);
    case OpCode::kCoverFile:
      return do_cover_file(child, op);
    case OpCode::kSettleMountFlags:
      return do_settle_mount_flags(child);
    case OpCode::kSealRoot:
      return do_seal_root(child);
    case OpCode::kForbidUserNamespaces:
      return do_forbid_user_namespaces(child, op);
    case OpCode::kPivotRoot:
      return do_pivot_root(child);
    case OpCode::kAwaitLauncher:
      return do_await_launcher(child);
    case OpCode::kLiteralRoot:
      return do_literal_root(child, op);
    case OpCode::kRemountReadOnly:
      return do_remount_read_only(child, op);
    case OpCode::kWriteFile:
      return do_write_file(child, op);
    case OpCode::kBindData:
      return do_bind_data(child, op);
    case OpCode::kChangeMode:
      return do_change_mode(child, op);
    case OpCode::kProtectProc:
      return do_protect_proc(child, op);
    case OpCode::kNestUser:
      return do_nest_user(child, op);
    case OpCode::kJoinUser:
      return static_cast<int>(raw(SYS_setns, op.a, CLONE_NEWUSER));
    case OpCode::kCheckNoUser:
      return do_check_no_user(child);
    case OpCode::kLockFile:
      return do_lock_file(child, op);
    case OpCode::kNewSession:
      return static_cast<int>(raw(SYS_setsid));
    case OpCode::kSetSignalMask:
      return static_cast<int>(raw(SYS_rt_sigprocmask, SIG_SETMASK, &op.a, nullptr, sizeof op.a));
    case OpCode::kSetCapabilities:
      return do_set_capabilities(op);
    case OpCode::kDieWithLauncher:
      return do_die_with_launcher(child);
    case OpCode::kBlock:
      return do_block(op);
    case OpCode::kEnterDirectory:
      return do_enter_directory(child, op);
    case OpCode::kOpenTerminal:
      return do_open_terminal(child, op);
    case OpCode::kTakeLandlock:
      return do_take_landlock(child, op);
    case OpCode::kCheckNamespaces:
      return do_check_namespaces(child, op);
    case OpCode::kDropCapabilities:
      return do_drop_capabilities(op);
    case OpCode::kTakeStreams:
      return do_take_streams(child);
    case OpCode::kCheckInit:
      return do_check_init(child, op);
    case OpCode::kForgetLauncher:
      return do_forget_launcher(child);
    case OpCode::kNewProcessGroup:
      return do_new_process_group(child, op);
    case OpCode::kSetUmask:
      return raw(SYS_umask, op.a) < 0 ? -EINVAL : 0;
    case OpCode::kSetLimit:
      return do_set_limit(child, op);
    case OpCode::kNullDescriptor:
      return do_null_descriptor(op);
    case OpCode::kChangeDirectory:
      return do_change_directory(child, op);
    case OpCode::kSetNoNewPrivileges:
      return static_cast<int>(raw(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    case OpCode::kInstallFilter:
      return do_install_filter(child, op);
    case OpCode::kCheckPayload:
      return do_check_payload(child, op);
    case OpCode::kCloseDescriptors:
      return do_close_descriptors(child, op);
    case OpCode::kExec:
      return do_exec(child, op);
    case OpCode::kStandBy:
      leave(0);
  }
  return -ENOSYS;
}

bool is_literal(OpCode code) noexcept {
  return (code >= OpCode::kAwaitLauncher && code <= OpCode::kNewSession) ||
         (code >= OpCode::kSetSignalMask && code <= OpCode::kEnterDirectory);
}

int carry_out(Child& child, const Op& op) noexcept {
  // validate() has refused such a plan; nothing of it may be done for a policy.
  if (!child.image.literal) return is_literal(op.code) ? -ENOSYS : carry_out_one(child, op);
  child.parents = op.parents & 07777U;
  const int rc = carry_out_one(child, op);
  return rc >= 0 && (op.parents & kCoversRoot) ? reopen_root(child) : rc;
}

/// Until init holds no capability any more. The end of file tells that it has ended.
void await_gate(Child& child) noexcept {
  raw(SYS_close, child.arena.inits_gate);
  char byte;
  long rc = 0;
  do rc = raw(SYS_read, child.arena.gate, &byte, 1);
  while (rc == -EINTR);
  if (rc != 1) leave(125);
}

/// Runs on its own stack in init's memory; init sleeps until it execs or exits.
[[noreturn]] void run_payload(void* argument) noexcept {
  Arena& arena = *static_cast<Arena*>(argument);
  Child child{arena, arena.image()};
  if (arena.gate >= 0) await_gate(child);
  const Op* ops = child.array<Op>(child.image.ops);
  for (std::uint32_t i = child.image.payload_op; i < child.image.op_count; ++i) {
    const int rc = carry_out(child, ops[i]);
    if (rc >= 0) continue;
    arena.report.step = ops[i].step;
    arena.report.error = -rc;
    break;
  }
  leave(125);
}

long clone_payload(Child& child, unsigned long flags) noexcept {
  return sys::clone_on_stack(
      CLONE_VM | SIGCHLD | flags, child.arena.payload_stack + kPayloadStack,
      [](void* arena) noexcept { run_payload(arena); }, &child.arena);
}

/// A literal plan's command may keep capabilities, which only its parent can hand down, and which
/// that must not hold while the command runs. So the payload waits until they are gone; then init
/// waits for the end of file, which exec or its end brings, as vfork would have.
long clone_behind_gate(Child& child) noexcept {
  int ends[2] = {-1, -1};
  long rc = raw(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
  if (rc < 0) return rc;
  child.arena.inits_gate = ends[0];
  child.arena.gate = ends[1];
  const long pid = clone_payload(child, 0);
  raw(SYS_close, ends[1]);
  rc = pid < 0 ? pid : set_capabilities(0, 0, 0);
  char byte = 0;
  // Nobody is there to hear it when the payload has been killed, ignoring.
  if (rc >= 0) raw(SYS_sendto, ends[0], &byte, 1, MSG_NOSIGNAL, nullptr, 0);
  while (rc >= 0 && raw(SYS_read, ends[0], &byte, 1) == -EINTR) {
  }
  raw(SYS_close, ends[0]);
  child.arena.inits_gate = child.arena.gate = -1;
  return rc < 0 ? rc : pid;
}

/// Its number inside, or a negative errno; `report` then says more.
int start_payload(Child& child) noexcept {
  child.arena.report.step = -1;
  const long pid =
      child.image.literal ? clone_behind_gate(child) : clone_payload(child, CLONE_VFORK);
  const Message& report = child.arena.report;
  return pid >= 0 && report.step >= 0 ? -report.error : static_cast<int>(pid);
}

Message message_about(int status, const struct rusage& usage) noexcept {
  Message message;
  message.kind = WIFSTOPPED(status)     ? MessageKind::kStopped
                 : WIFCONTINUED(status) ? MessageKind::kContinued
                                        : MessageKind::kEnded;
  message.status = WIFSTOPPED(status) ? WSTOPSIG(status) : status;
  message.user_us = usage.ru_utime.tv_sec * 1'000'000 + usage.ru_utime.tv_usec;
  message.system_us = usage.ru_stime.tv_sec * 1'000'000 + usage.ru_stime.tv_usec;
  message.max_rss_kib = usage.ru_maxrss;
  return message;
}

constexpr int kMostBeside = 5;

/// As recvmsg; the descriptors that came along, never more than there is room for.
long receive_with(int socket, Message& message, int* beside, int& count) noexcept {
  alignas(cmsghdr) char room[CMSG_SPACE(kMostBeside * sizeof(int))] = {};
  iovec part = {&message, sizeof message};
  msghdr envelope = {};
  envelope.msg_iov = &part;
  envelope.msg_iovlen = 1;
  envelope.msg_control = room;
  envelope.msg_controllen = sizeof room;
  count = 0;
  const long got = raw(SYS_recvmsg, socket, &envelope, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const cmsghdr* found = got < 0 ? nullptr : CMSG_FIRSTHDR(&envelope);
  if (found == nullptr || found->cmsg_type != SCM_RIGHTS) return got;
  count = static_cast<int>((found->cmsg_len - CMSG_LEN(0)) / sizeof(int));
  std::memcpy(beside, CMSG_DATA(found), static_cast<std::size_t>(count) * sizeof(int));
  return got;
}

// ------------------------------------------------------------------------------------------------
// A further command's keeper

/// Everything about the command is in this copy of init alone, and is gone once it has started.
class CommandKeeper {
 public:
  CommandKeeper(Arena& arena, const int* beside, int count) noexcept : arena_(arena) {
    arena_.proc = beside[1];
    arena_.terminal = -1;
    for (int i = 0; i < 3; ++i) arena_.streams[i] = count == 5 ? beside[2 + i] : -1;
  }

  [[noreturn]] void run(int image_fd) noexcept {
    if (raw(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0) fail(-1, EPERM);
    Message here;
    here.kind = MessageKind::kHelper;
    say(here);
    map_image(image_fd);
    Child child{arena_, arena_.image()};
    const Op* ops = child.array<Op>(child.image.ops);
    for (std::uint32_t i = 0; i < child.image.payload_op; ++i)
      if (const int rc = carry_out(child, ops[i]); rc < 0) fail(ops[i].step, -rc);
    payload_ = start_payload(child);
    if (payload_ < 0) fail(arena_.report.step, -payload_);
    forget();
    Message message;
    message.kind = MessageKind::kExecuted;
    message.pid = payload_;
    say(message);
    reap();
  }

 private:
  /// Where the arena looks for its image; behind it or before it, as the kernel puts it.
  void map_image(int fd) noexcept {
    struct stat about = {};
    long rc = raw(SYS_fstat, fd, &about);
    size_ = rc < 0 ? 0 : static_cast<std::uint64_t>(about.st_size);
    if (rc >= 0 && size_ < sizeof(Image)) rc = -EINVAL;
    if (rc >= 0) rc = raw(SYS_mmap, 0, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (rc < 0 && rc > -4096) fail(-1, static_cast<int>(-rc));
    at_ = static_cast<std::uintptr_t>(rc);
    arena_.image_offset = at_ - reinterpret_cast<std::uintptr_t>(&arena_);
  }

  void say(Message& message) noexcept {
    message.process = arena_.process;
    Child child{arena_, arena_.image()};
    send(child, message);
  }

  [[noreturn]] void fail(int step, int error) noexcept {
    Message message = arena_.report;
    message.kind = MessageKind::kFailed;
    message.step = step;
    message.error = error;
    say(message);
    leave(0);
  }

  void forget() noexcept {
    Child child{arena_, arena_.image()};
    const std::int32_t keep = arena_.control;
    const int rc = unmap(at_, at_ + size_);
    // 0, 1 and 2 are what init has, as in the sandbox's first command.
    if (rc < 0 || close_all_but(child, &keep, 1) < 0) leave(125);
    raw(SYS_madvise, arena_.payload_stack, kPayloadStack, MADV_DONTNEED);
  }

  /// Until nothing of the command is left. Its own end is told at once.
  [[noreturn]] void reap() noexcept {
    for (;;) {
      int status = 0;
      struct rusage usage;
      const long pid = raw(SYS_wait4, -1, &status, WUNTRACED | WCONTINUED, &usage);
      if (pid == -EINTR) continue;
      if (pid < 0) leave(0);
      if (pid != payload_) continue;
      Message message = message_about(status, usage);
      if (message.kind == MessageKind::kEnded) payload_ = -1;
      say(message);
    }
  }

  Arena& arena_;
  int payload_ = -1;
  std::uintptr_t at_ = 0;
  std::uint64_t size_ = 0;
};

[[noreturn]] void run_keeper(Arena& arena, std::uint32_t process, const int* beside,
                             int count) noexcept {
  arena.process = process;
  arena.report = {};
  CommandKeeper(arena, beside, count).run(beside[0]);
}

// ------------------------------------------------------------------------------------------------
// Init's life

class Init {
 public:
  explicit Init(Child& child) noexcept : child_(child) {}

  [[noreturn]] void run() noexcept {
    stands_by_ = child_.image.stands_by != 0;
    if (const int rc = start_payload(child_); rc < 0) {
      const Message& report = child_.arena.report;
      report_and_leave(child_, report.step, rc);
    } else {
      payload_ = rc;
    }
    // SIGCHLD is blocked since before the clone, so one that has come meanwhile is still pending.
    const std::uint64_t child_signal = std::uint64_t{1} << (SIGCHLD - 1);
    const long signals = raw(SYS_signalfd4, -1, &child_signal, sizeof child_signal, O_CLOEXEC);
    if (signals < 0) report_and_leave(child_, -1, static_cast<int>(signals));
    lingers_ = child_.image.lingers != 0;
    drop_descriptors(static_cast<int>(signals));
    drop_image();
    wipe_stacks();
    Message started;
    started.kind = MessageKind::kStarted;
    started.proc_mode = child_.arena.proc_mode;
    send(child_, started);
    serve(static_cast<int>(signals));
  }

 private:
  /// What the payload needed of ours is not needed any more; what the policy keeps is the
  /// payload's.
  void drop_descriptors(int signals) noexcept {
    constexpr int kMost = 3 + sizeof child_.arena.locks / sizeof child_.arena.locks[0];
    std::int32_t keep[kMost] = {};
    int count = 0;
    const auto add = [&keep, &count](std::int32_t fd) {
      int at = count++;
      for (; at > 0 && keep[at - 1] > fd; --at) keep[at] = keep[at - 1];
      keep[at] = fd;
    };
    add(child_.arena.control);
    add(signals);
    // Below that it is a standard stream, which stays anyway.
    if (child_.image.held > 2) add(child_.image.held);
    for (int i = 0; i < child_.arena.lock_count; ++i) add(child_.arena.locks[i]);
    if (close_all_but(child_, keep, static_cast<std::uint64_t>(count)) < 0) leave(125);
  }

  /// The image holds the payload's environment and arguments.
  void drop_image() noexcept {
    const auto from = reinterpret_cast<std::uintptr_t>(&child_.arena) + child_.arena.image_offset;
    if (unmap(from, reinterpret_cast<std::uintptr_t>(&child_.arena) + child_.arena.size) < 0)
      leave(125);
  }

  /// Paths of the plan and lines of the host's mountinfo were on them.
  [[gnu::noinline]] void wipe_stacks() noexcept {
    constexpr std::uintptr_t kPage = 4096;
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    const auto from = reinterpret_cast<std::uintptr_t>(child_.arena.init_stack);
    const auto to = (here & ~(kPage - 1)) - kPage;
    raw(SYS_madvise, from, to - from, MADV_DONTNEED);
    raw(SYS_madvise, child_.arena.payload_stack, kPayloadStack, MADV_DONTNEED);
    // The rest by hand, up to what this very function may be using.
    for (auto at = to; at + 256 < here; ++at) *reinterpret_cast<volatile char*>(at) = 0;
  }

  [[noreturn]] void serve(int signals) noexcept {
    for (;;) {
      pollfd ready[2] = {{child_.arena.control, POLLIN, 0}, {signals, POLLIN, 0}};
      const long rc = raw(SYS_ppoll, ready, 2, nullptr, nullptr, 0);
      if (rc == -EINTR) continue;
      if (rc < 0) leave(125);
      if (ready[1].revents != 0) {
        char drained[128];  // One struct signalfd_siginfo.
        raw(SYS_read, signals, drained, sizeof drained);
        reap();
      }
      if (ready[0].revents != 0) obey();
    }
  }

  /// What the command has started goes on, as under bwrap, and belljar does not wait for it.
  [[noreturn]] void linger() noexcept {
    raw(SYS_close, child_.arena.control);
    for (;;) {
      const long pid = raw(SYS_wait4, -1, nullptr, 0, nullptr);
      if (pid < 0 && pid != -EINTR) leave(0);
    }
  }

  void reap() noexcept {
    for (;;) {
      int status = 0;
      struct rusage usage;
      const long pid = raw(SYS_wait4, -1, &status, WNOHANG | WUNTRACED | WCONTINUED, &usage);
      if (pid == 0 || pid == -ECHILD) return;
      if (pid == -EINTR) continue;
      // Without wait the end of the command could never be told: end now, and everything with it.
      if (pid < 0) leave(125);
      if (pid != payload_) {
        look_after_keeper(static_cast<int>(pid), status);
        continue;
      }
      if (stands_by_) {
        payload_ = -1;
        continue;
      }
      const Message message = message_about(status, usage);
      // Before belljar hears of it, and ends.
      if (message.kind == MessageKind::kEnded && lingers_)
        raw(SYS_prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0);
      send(child_, message);
      // The rest of the sandbox ends with its pid 1.
      if (message.kind == MessageKind::kEnded && !lingers_) leave(0);
      if (message.kind == MessageKind::kEnded) linger();
    }
  }

  void obey() noexcept {
    Message message;
    int beside[kMostBeside];
    int count = 0;
    const long got = receive_with(child_.arena.control, message, beside, count);
    if (got == -EAGAIN || got == -EINTR) return;
    // The lifeline: without belljar there is no sandbox.
    if (got <= 0) leave(125);
    if (got == sizeof message) obey(message, beside, count);
    for (int i = 0; i < count; ++i) raw(SYS_close, beside[i]);
  }

  void obey(const Message& message, const int* beside, int count) noexcept {
    if (message.kind == MessageKind::kExec) return keep_command(message, beside, count);
    if (message.kind == MessageKind::kConnect) return connect_to(message);
    if (message.kind != MessageKind::kSignal) return;
    const int target = message.pid > 0 ? message.pid : payload_;
    // -1 would be everything in the sandbox.
    if (target <= 1) return;
    if (message.error != 0 || raw(SYS_kill, -target, message.status) == -ESRCH)
      raw(SYS_kill, target, message.status);
  }

  void answer_failed(const Message& request, int error) noexcept {
    Message answer;
    answer.kind = MessageKind::kFailed;
    answer.process = request.process;
    answer.error = error;
    send(child_, answer);
  }

  /// A copy of init for each command: its parent and its orphans', so that all of a command's
  /// processes can be found, and the only one that ever holds its environment.
  void keep_command(const Message& request, const int* beside, int count) noexcept {
    Keeper* place = nullptr;
    for (Keeper& keeper : child_.arena.keepers)
      if (keeper.pid == 0 && place == nullptr) place = &keeper;
    if (place == nullptr || (count != 2 && count != 5))
      return answer_failed(request, place == nullptr ? EAGAIN : EINVAL);
    const long pid = raw(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) run_keeper(child_.arena, request.process, beside, count);
    if (pid < 0) return answer_failed(request, static_cast<int>(-pid));
    place->pid = static_cast<std::int32_t>(pid);
    place->process = request.process;
  }

  /// Its command could stop it, and nobody would be told of anything.
  void look_after_keeper(int pid, int status) noexcept {
    for (Keeper& keeper : child_.arena.keepers) {
      if (keeper.pid != pid || WIFCONTINUED(status)) continue;
      if (WIFSTOPPED(status)) {
        raw(SYS_kill, pid, SIGCONT);
        return;
      }
      Message message;
      message.kind = MessageKind::kKeeperEnded;
      message.process = keeper.process;
      message.status = status;
      keeper = {};
      send(child_, message);
      return;
    }
  }

  /// Whoever gets the socket waits for the connection.
  void connect_to(const Message& request) noexcept {
    union {
      sockaddr any;
      sockaddr_in inet;
      sockaddr_un unix_path;
    } address = {};
    socklen_t size = sizeof address.inet;
    address.inet.sin_family = AF_INET;
    address.inet.sin_port = __builtin_bswap16(static_cast<std::uint16_t>(request.status));
    address.inet.sin_addr.s_addr = __builtin_bswap32(INADDR_LOOPBACK);
    if (request.status == 0) {
      address.unix_path = {};
      address.unix_path.sun_family = AF_UNIX;
      size = sizeof address.unix_path;
      for (std::size_t i = 0; i + 1 < sizeof address.unix_path.sun_path && request.subject[i]; ++i)
        address.unix_path.sun_path[i] = request.subject[i];
    }
    const long fd =
        raw(SYS_socket, address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return answer_failed(request, static_cast<int>(-fd));
    const long rc = raw(SYS_connect, fd, &address, size);
    if (rc < 0 && rc != -EINPROGRESS) {
      answer_failed(request, static_cast<int>(-rc));
    } else {
      Message answer;
      answer.kind = MessageKind::kConnected;
      answer.process = request.process;
      send_with(child_, answer, static_cast<int>(fd), -1);
    }
    raw(SYS_close, fd);
  }

  Child& child_;
  int payload_ = -1;
  bool stands_by_ = false;
  bool lingers_ = false;
};

[[noreturn]] void run_init(void* argument) noexcept {
  Arena& arena = *static_cast<Arena*>(argument);
  Child child{arena, arena.image()};
  const Op* ops = child.array<Op>(child.image.ops);
  for (std::uint32_t i = 0; i < child.image.payload_op; ++i) {
    const int rc = carry_out(child, ops[i]);
    if (rc < 0) report_and_leave(child, ops[i].step, rc);
  }
  if (child.image.direct) arena.gate = arena.control;
  for (std::uint32_t i = child.image.payload_op; child.image.direct && i < child.image.op_count;
       ++i)
    if (const int rc = carry_out(child, ops[i]); rc < 0) report_and_leave(child, ops[i].step, rc);
  Init(child).run();
}

/// The operation that maps ids is init's first; the helper carries it out for its child.
const Op* find_map(Child& child) noexcept {
  const Op* ops = child.array<Op>(child.image.ops);
  for (std::uint32_t i = 0; i < child.image.payload_op; ++i)
    if (ops[i].code == OpCode::kMapIds) return &ops[i];
  return nullptr;
}

/// The session's ids for good, unlike those of the modern back end's launcher. Where a user
/// namespace is still to be joined, which is not always the session's own, the launcher's
/// capabilities stay until that replaces them; otherwise nothing of its privileges is left.
int take_session_ids(Child& child, bool keep_capabilities) noexcept {
  const std::uint32_t uid = child.image.uid_outside, gid = child.image.gid_outside;
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  long rc = 0;
  if (keep_capabilities) rc = raw(SYS_prctl, PR_SET_KEEPCAPS, 1, 0, 0, 0);
  if (rc >= 0) rc = raw(SYS_setresgid, gid, gid, gid);
  if (rc >= 0) rc = raw(SYS_setresuid, uid, uid, uid);
  if (rc < 0 || !keep_capabilities) return static_cast<int>(rc);
  rc = raw(SYS_capget, &header, data);
  for (auto& half : data) half.effective = half.permitted;
  return static_cast<int>(rc < 0 ? rc : raw(SYS_capset, &header, data));
}

/// Joins what is not joined yet, but for the user namespace. Where that comes later, a refusal may
/// turn out well with the capabilities that it brings. 0, or the negative errno; `step` says which.
int join_others(Child& child, bool (&joined)[kMostJoins], bool user_comes, int& step) noexcept {
  const Join* joins = child.array<Join>(child.image.joins);
  for (std::uint32_t i = 0; i < child.image.join_count && i < kMostJoins; ++i) {
    if (joined[i] || joins[i].flag == CLONE_NEWUSER) continue;
    const long rc = raw(SYS_setns, joins[i].fd, joins[i].flag);
    joined[i] = rc >= 0;
    step = joins[i].step;
    if (rc < 0 && !(rc == -EPERM && user_comes)) return static_cast<int>(rc);
  }
  return 0;
}

/// Whether one of the maps of our user namespace has `id` inside. Of an id that it lacks the kernel
/// says 65534, which another one may have.
int is_mapped(Child& child, const char* map, std::uint32_t id) noexcept {
  char text[16384];  // 340 lines of 33 signs.
  const long fd = raw(SYS_openat, child.arena.proc, map, O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0) return static_cast<int>(fd);
  std::size_t length = 0;
  long got = 1;
  while (got > 0 && length + 1 < sizeof text) {
    got = raw(SYS_read, fd, text + length, sizeof text - 1 - length);
    if (got > 0) length += static_cast<std::size_t>(got);
  }
  close_fd(static_cast<int>(fd));
  text[length] = '\0';
  std::uint64_t numbers[3] = {};
  for (const char* at = text; got >= 0 && *at != '\0';) {
    for (std::uint64_t& number : numbers) {
      while (*at == ' ') ++at;
      for (number = 0; *at >= '0' && *at <= '9'; ++at)
        number = number * 10 + static_cast<std::uint64_t>(*at - '0');
    }
    if (id >= numbers[0] && id - numbers[0] < numbers[2]) return 1;
    if (*at++ != '\n') break;
  }
  return static_cast<int>(got < 0 ? got : 0);
}

int check_mapped(Child& child, const char* map, const char* kind, std::uint32_t outside,
                 std::uint32_t inside) noexcept {
  const int mapped = is_mapped(child, map, inside);
  if (mapped != 0) return mapped;
  char text[32];
  append_number(append_text(text, kind), outside);
  set_subject(child, Detail::kUnmappedIds, text);
  return -EOVERFLOW;
}

/// The user namespace has to know the session's ids by the numbers that the plan reckons with.
int check_foreign_ids(Child& child) noexcept {
  std::uint32_t uid = 0, gid = 0, unused1 = 0, unused2 = 0;
  if (child.image.literal) return 0;
  long rc = raw(SYS_getresuid, &uid, &unused1, &unused2);
  if (rc >= 0) rc = raw(SYS_getresgid, &gid, &unused1, &unused2);
  if (rc >= 0) rc = check_mapped(child, "self/uid_map", "uid ", child.image.uid_outside, uid);
  if (rc >= 0) rc = check_mapped(child, "self/gid_map", "gid ", child.image.gid_outside, gid);
  if (rc < 0) return static_cast<int>(rc);
  if (uid == child.image.uid_inside && gid == child.image.gid_inside) return 0;
  char text[64];
  append_number(append_text(append_number(append_text(text, "uid "), uid), ", gid "), gid);
  set_subject(child, Detail::kForeignIds, text);
  return -EINVAL;
}

/// Everything that is joined is, and the session's ids are taken, or it does not return.
void enter_namespaces(Child& child) noexcept {
  const Join* joins = child.array<Join>(child.image.joins);
  const Join* user = nullptr;
  for (std::uint32_t i = 0; i < child.image.join_count; ++i)
    if (joins[i].flag == CLONE_NEWUSER) user = &joins[i];
  bool joined[kMostJoins] = {};
  int step = static_cast<int>(child.image.namespaces_step);
  int rc = join_others(child, joined, user != nullptr, step);
  if (rc < 0) report_and_leave(child, step, rc);
  rc = child.image.privileged ? take_session_ids(child, user != nullptr) : 0;
  if (rc < 0) report_and_leave(child, static_cast<int>(child.image.namespaces_step), rc);
  if (user == nullptr) return;
  rc = static_cast<int>(raw(SYS_setns, user->fd, CLONE_NEWUSER));
  if (rc >= 0) rc = check_foreign_ids(child);
  if (rc < 0) report_and_leave(child, user->step, rc);
  rc = join_others(child, joined, false, step);
  if (rc < 0) report_and_leave(child, step, rc);
}

/// Init names itself: the launcher sees its number by the message's sender. It must not go on
/// before its parent, the helper, has ended, whose end its death signal would take for belljar's.
[[noreturn]] void run_nested_init(void* argument) noexcept {
  Arena& arena = *static_cast<Arena*>(argument);
  Child child{arena, arena.image()};
  Message message;
  message.kind = MessageKind::kHelper;
  if (send(child, message) < 0) leave(125);
  wait_for_go(child);
  run_init(argument);
}

/// Only a process that is in the namespace itself can make one below it, so one more stands between
/// the helper and init, which becomes the helper's child, and when that ends, belljar's.
[[noreturn]] void start_nested(Child& child, int step) noexcept {
  const long between = raw(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (between < 0) report_and_leave(child, step, static_cast<int>(between));
  if (between == 0) {
    long rc = raw(SYS_unshare, CLONE_NEWPID);
    if (rc >= 0)
      rc = sys::clone_on_stack(
          CLONE_PARENT | SIGCHLD, child.arena.init_stack + kInitStack,
          [](void* self) noexcept { run_nested_init(self); }, &child.arena);
    if (rc < 0) report_and_leave(child, step, static_cast<int>(rc));
    leave(0);
  }
  while (raw(SYS_wait4, between, nullptr, 0, nullptr) == -EINTR) {
  }
  leave(0);
}

}  // namespace

void run_child(Arena& arena) noexcept {
  sys::call_on_stack(
      arena.init_stack + kInitStack, [](void* self) noexcept { run_init(self); }, &arena);
}

void run_helper(Arena& arena) noexcept {
  Child child{arena, arena.image()};
  const auto step = static_cast<int>(child.image.namespaces_step);
  enter_namespaces(child);
  raw(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  const std::uint64_t later = nests_pids(child) ? CLONE_NEWPID : 0;
  long rc = raw(SYS_unshare, child.image.namespace_flags & ~later);
  if (rc < 0) report_and_leave(child, step, static_cast<int>(rc));
  if (child.image.waits_for_maps) {
    Message message;
    message.kind = MessageKind::kNeedMaps;
    // Unheard, nobody would ever answer; the end of file tells it instead.
    if (send(child, message) < 0) leave(125);
  }
  const Op* map = find_map(child);
  const bool is_mapped_here = !is_joined(child, CLONE_NEWUSER);
  if (is_mapped_here && (map != nullptr || !child.image.literal)) {
    rc = map == nullptr ? -ENOSYS : do_map_ids(child, *map);
    if (rc < 0) report_and_leave(child, map == nullptr ? step : map->step, static_cast<int>(rc));
  }
  if (nests_pids(child)) start_nested(child, step);
  const long init = sys::clone_on_stack(
      CLONE_PARENT | SIGCHLD, arena.init_stack + kInitStack,
      [](void* self) noexcept { run_init(self); }, &arena);
  if (init < 0) report_and_leave(child, step, static_cast<int>(init));
  Message message;
  message.kind = MessageKind::kHelper;
  message.pid = static_cast<int>(init);
  if (send(child, message) < 0) raw(SYS_kill, init, SIGKILL);
  leave(0);
}

}  // namespace belljar::launcher
