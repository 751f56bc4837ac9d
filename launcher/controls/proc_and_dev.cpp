#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/controls/control.hpp"
#include "launcher/controls/promises.hpp"

namespace belljar::launcher {
namespace {

int try_open(const char* path, int flags) {
  const int fd = open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) return errno;
  close(fd);
  return 0;
}

/// An own /dev has six devices of no consequence; another one is the host's.
const char* refused_device(const Made& made, const std::string& path) {
  return has_step<MountDev>(made.plan) ? "filesystem.mounts" : refused_path(made, "read:" + path);
}

constexpr Probe kProbes[] = {
    {"write-core-pattern", "open core_pattern for writing (nothing is written)",
     [] { return try_open("/proc/sys/kernel/core_pattern", O_WRONLY); },
     [](const Made&) -> const char* { return "filesystem.mounts"; }},
    {"sysrq", "open sysrq-trigger for writing (nothing is written)",
     [] { return try_open("/proc/sysrq-trigger", O_WRONLY); },
     [](const Made& made) -> const char* { return made.plan.uid == 0 ? nullptr : "identity.uid"; }},
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

const Control kProcAndDev = {
    "proc_and_dev", "processes and devices of the sandbox alone", require, plan, nullptr, kProbes,
    remedy};

}  // namespace belljar::launcher
