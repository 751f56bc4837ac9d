#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <memory>
#include <sstream>

#include "launcher/controls/facts.hpp"
#include "launcher/controls/paths.hpp"
#include "launcher/controls/promises.hpp"
#include "launcher/record.hpp"

namespace belljar::launcher {
namespace {

int try_open(const char* path, int flags) {
  const int fd = open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) return errno;
  close(fd);
  return 0;
}

bool has_own_dev(const policy::Policy& policy) {
  const auto dev = policy.filesystem.mounts.find("/dev");
  return dev != policy.filesystem.mounts.end() && dev->second.type == policy::MountType::kDev;
}

/// An own /dev has six devices of no consequence; another one is the host's.
const char* refused_device(const Made& made, const std::string& path) {
  return has_own_dev(made.policy) ? "filesystem.mounts" : refused_path(made, "read:" + path);
}

constexpr Probe kProbes[] = {
    {"write-core-pattern", "open core_pattern for writing (nothing is written)",
     [] { return try_open("/proc/sys/kernel/core_pattern", O_WRONLY); },
     [](const Made&) -> const char* { return "filesystem.mounts"; }},
    {"sysrq", "open sysrq-trigger for writing (nothing is written)",
     [] { return try_open("/proc/sysrq-trigger", O_WRONLY); },
     [](const Made& made) -> const char* { return made.ids.uid == 0 ? nullptr : "identity.uid"; }},
    {"init-environment", "read the environment of the sandbox's init",
     [] {
       const int fd = open("/proc/1/environ", O_RDONLY | O_CLOEXEC);
       if (fd < 0) return errno;
       char byte = 0;
       const ssize_t got = read(fd, &byte, 1);
       close(fd);
       return got > 0 ? 0 : ENODATA;
     },
     [](const Made&) -> const char* { return "namespaces.pid"; }},
    {"init-memory", "open the memory of the sandbox's init",
     [] { return try_open("/proc/1/mem", O_RDWR); },
     [](const Made&) -> const char* { return "namespaces.pid"; }},
    {"make-device", "make a device node in /dev",
     [] {
       const int made = mknod("/dev/belljar-probe", S_IFCHR | 0600, makedev(1, 3));
       if (made != 0) return errno;
       unlink("/dev/belljar-probe");
       return 0;
     },
     [](const Made&) -> const char* { return "filesystem.mounts"; }},
    {"open-disk", "open the host's first disk", [] { return try_open("/dev/vda", O_RDONLY); },
     [](const Made& made) -> const char* { return refused_device(made, "/dev/vda"); }},
    {"open-kmsg", "open the kernel's log", [] { return try_open("/dev/kmsg", O_RDONLY); },
     [](const Made& made) -> const char* { return refused_device(made, "/dev/kmsg"); }},
};

std::vector<Fact::Expected> expected_procs(const Made& made) {
  std::vector<Fact::Expected> expected;
  for (const auto& [target, mount] : made.policy.filesystem.mounts)
    if (mount.type == policy::MountType::kProc)
      expected.push_back({target, policy::member_path("filesystem.mounts", target),
                          mount.enforce == policy::Enforce::kPrefer});
  return expected;
}

/// NSpid has a number for each process namespace from that of the mount down to the reader's
/// (fs/proc/array.c), so that one number says that both are the same.
Seen look_at_proc(const std::string& target) {
  std::ifstream status(join(target, "self/status"));
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("NSpid:")) continue;
    std::istringstream numbers(line.substr(line.find(':') + 1));
    long first = 0, second = 0;
    numbers >> first;
    if (numbers >> second) return differs(target + " shows the processes of the host");
    return holds();
  }
  return unseen(join(target, "self/status") + " says nothing of NSpid");
}

/// "/dev//fuse/net/": the target, and what the policy mounts in it.
std::vector<Fact::Expected> expected_devs(const Made& made) {
  std::vector<Fact::Expected> expected;
  for (const auto& [target, mount] : made.policy.filesystem.mounts) {
    if (mount.type != policy::MountType::kDev) continue;
    std::string value = target + "//";
    for (const auto& [below, other] : made.policy.filesystem.mounts)
      if (below != target && is_within(below, target)) {
        const std::string rest = below.substr(target.size() + 1);
        value += rest.substr(0, rest.find('/')) + "/";
      }
    expected.push_back({value, policy::member_path("filesystem.mounts", target)});
  }
  return expected;
}

Seen look_at_dev(const std::string& value) {
  static constexpr std::array<std::string_view, 13> kOurs = {
      ".",   "..", "null",  "zero",   "full",   "random", "urandom",
      "tty", "fd", "stdin", "stdout", "stderr", "ptmx"};
  struct Close {
    void operator()(DIR* list) const { closedir(list); }
  };
  const std::size_t end = value.find("//");
  const std::string target = value.substr(0, end), also = value.substr(end + 1);
  struct statvfs about {};
  const std::unique_ptr<DIR, Close> list(opendir(target.c_str()));
  if (!list || statvfs(target.c_str(), &about) != 0)
    return unseen(target + ": " + errno_name(errno));
  if ((about.f_flag & ST_RDONLY) == 0) return differs(target + " is not read-only");
  while (const dirent* entry = readdir(list.get())) {
    const std::string name = entry->d_name;
    const bool known = std::find(kOurs.begin(), kOurs.end(), name) != kOurs.end() ||
                       name == "pts" || name == "shm";
    if (!known && also.find("/" + name + "/") == std::string::npos)
      return differs(join(target, name) + " is not of the sandbox");
  }
  return holds();
}

constexpr Fact kFacts[] = {
    {"own-proc", "the /proc is not the sandbox's own", look_at_proc, expected_procs},
    {"own-dev", "the /dev is not the sandbox's own", look_at_dev, expected_devs},
};

// Both are mounts like the others and planned with them, in order of their paths (filesystem.cpp).
Status plan(PlanBuilder&) { return {}; }

std::vector<Requirement> require(const policy::Policy& policy, const Host&) {
  for (const auto& [target, mount] : policy.filesystem.mounts)
    if (mount.type == policy::MountType::kProc && mount.enforce == policy::Enforce::kRequire)
      return {{"a /proc without masks, so that the kernel allows a fresh one",
               policy::member_path("filesystem.mounts", target)}};
  return {};
}

std::string remedy(const FailedStep& failed, const policy::Policy&, const Host&) {
  if (std::holds_alternative<MountProc>(failed.step->action) && failed.sys_errno == EPERM)
    return "the kernel allows a fresh /proc only where one without masks is visible; in a "
           "container "
           "mount the hidden helper of docs/hosts.md, or accept a weaker /proc with "
           "\"enforce\": \"prefer\" on this mount";
  if (std::holds_alternative<MountDev>(failed.step->action) && failed.sys_errno == ENOENT)
    return "the host's /dev lacks one of null, zero, full, random, urandom, tty";
  return {};
}

}  // namespace

const Control kProcAndDev = {"proc_and_dev", "processes and devices of the sandbox alone",
                             require,        plan,
                             nullptr,        kProbes,
                             remedy,         kFacts};

}  // namespace belljar::launcher
