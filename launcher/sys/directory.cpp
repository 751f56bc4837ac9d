#include "launcher/sys/directory.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "launcher/sys/kernel.hpp"
#include "launcher/sys/proc.hpp"
#include "launcher/sys/raw.hpp"
#include "launcher/sys/resolve.hpp"

namespace belljar::sys {
namespace {

Result<UniqueFd> open_place(const std::string& path) {
  const long fd = open_without_links(path);
  if (fd < 0) return sys_failure(static_cast<int>(-fd), "open the directory " + path);
  return UniqueFd(static_cast<int>(fd));
}

Status write_map(pid_t pid, const char* file, IdPair pair) {
  const std::string path = std::to_string(pid) + "/" + file;
  const std::string line = std::to_string(pair.on_disk) + " " + std::to_string(pair.seen) + " 1";
  const UniqueFd map(openat(proc_directory(), path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!map.valid() || write(map.get(), line.data(), line.size()) < 0)
    return sys_failure(errno, "write " + line + " to /proc/" + path);
  return {};
}

/// A process in a user namespace of its own, which waits for its end.
pid_t start_holder() {
  const pid_t launcher = getpid();
  const long pid = raw(SYS_clone, CLONE_NEWUSER | SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (pid != 0) return static_cast<pid_t>(pid);
  raw(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  // Dead before it was asked for, it would send no signal any more.
  if (raw(SYS_getppid) != launcher) raw(SYS_exit_group, 0);
  for (;;) raw(SYS_ppoll, nullptr, 0, nullptr, nullptr, 0);
}

/// What is mapped in a user namespace is what an idmapped mount shows; nobody is ever in it.
Result<UniqueFd> mapping(IdPair user, IdPair group) {
  const pid_t holder = start_holder();
  if (holder < 0) return sys_failure(-holder, "make a user namespace for the map of an owner");
  Status mapped = write_map(holder, "uid_map", user);
  if (mapped) mapped = write_map(holder, "gid_map", group);
  const std::string path = std::to_string(holder) + "/ns/user";
  UniqueFd space(openat(proc_directory(), path.c_str(), O_RDONLY | O_CLOEXEC));
  if (mapped && !space.valid()) mapped = sys_failure(errno, "open /proc/" + path);
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
  if (!mapped) return fail(mapped.error());
  return space;
}

Result<UniqueFd> open_directory(const std::string& path) {
  const UniqueFd place = BELLJAR_TRY(open_place(path));
  UniqueFd directory(openat(place.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return sys_failure(errno, "open the directory " + path);
  return directory;
}

Result<UniqueFd> lock(UniqueFd directory, const std::string& path, int how) {
  if (flock(directory.get(), how | LOCK_NB) == 0) return directory;
  if (errno != EWOULDBLOCK) return sys_failure(errno, "lock the directory " + path);
  return sys_failure(EBUSY, "another sandbox is using " + path);
}

}  // namespace

Result<UniqueFd> hold_directory(const std::string& path) {
  return lock(BELLJAR_TRY(open_directory(path)), path, LOCK_EX);
}

Result<UniqueFd> share_layer(const std::string& path) {
  Result<UniqueFd> directory = open_directory(path);
  if (!directory) {
    const int error = directory.error().sys_errno;
    const bool others_say =
        error == ENOENT || error == ENOTDIR || error == EACCES || error == ELOOP;
    return others_say ? UniqueFd() : std::move(directory);
  }
  struct stat about {};
  if (fstat(directory->get(), &about) != 0) return sys_failure(errno, "look at " + path);
  if (about.st_uid == 0 && (about.st_mode & (S_IWGRP | S_IWOTH)) == 0) return UniqueFd();
  return lock(std::move(*directory), path, LOCK_SH);
}

Result<UniqueFd> mapped_tree(const std::string& path, std::uint64_t flags, IdPair user,
                             IdPair group) {
  const UniqueFd directory = BELLJAR_TRY(open_place(path));
  const UniqueFd space = BELLJAR_TRY(mapping(user, group));
  const long made = raw(SYS_open_tree, directory.get(), "",
                        AT_EMPTY_PATH | kOpenTreeClone | kAtRecursive | O_CLOEXEC);
  if (made < 0) return sys_failure(static_cast<int>(-made), "copy the mount at " + path);
  UniqueFd tree(static_cast<int>(made));
  MountAttr attributes;
  attributes.set = flags | kMountAttrIdmap;
  attributes.propagation = MS_PRIVATE;
  attributes.userns_fd = static_cast<std::uint64_t>(space.get());
  const long rc = raw(SYS_mount_setattr, tree.get(), "", AT_EMPTY_PATH | kAtRecursive, &attributes,
                      sizeof attributes);
  if (rc < 0) return sys_failure(static_cast<int>(-rc), "map the owner of " + path);
  return tree;
}

}  // namespace belljar::sys
