// Structures and constants of the kernel that Debian 12's headers lack or hide, with their source.
#pragma once

#include <cstdint>

namespace belljar::sys {

/// struct clone_args, CLONE_ARGS_SIZE_VER2 (man 2 clone3, Linux 5.7).
struct CloneArgs {
  std::uint64_t flags = 0;
  std::uint64_t pidfd = 0;
  std::uint64_t child_tid = 0;
  std::uint64_t parent_tid = 0;
  std::uint64_t exit_signal = 0;
  std::uint64_t stack = 0;
  std::uint64_t stack_size = 0;
  std::uint64_t tls = 0;
  std::uint64_t set_tid = 0;
  std::uint64_t set_tid_size = 0;
  std::uint64_t cgroup = 0;
};

/// struct open_how (man 2 openat2, Linux 5.6).
struct OpenHow {
  std::uint64_t flags = 0;
  std::uint64_t mode = 0;
  std::uint64_t resolve = 0;
};
inline constexpr std::uint64_t kResolveNoMagicLinks = 0x02;
inline constexpr std::uint64_t kResolveNoSymlinks = 0x04;
inline constexpr std::uint64_t kResolveBeneath = 0x08;
inline constexpr std::uint64_t kResolveInRoot = 0x10;

/// struct mount_attr (man 2 mount_setattr, Linux 5.12).
struct MountAttr {
  std::uint64_t set = 0;
  std::uint64_t clear = 0;
  std::uint64_t propagation = 0;
  std::uint64_t userns_fd = 0;
};
inline constexpr std::uint64_t kMountAttrReadOnly = 0x1;
inline constexpr std::uint64_t kMountAttrNoSuid = 0x2;
inline constexpr std::uint64_t kMountAttrNoDev = 0x4;
inline constexpr std::uint64_t kMountAttrNoExec = 0x8;
inline constexpr std::uint64_t kMountAttrIdmap = 0x00100000;

inline constexpr unsigned kOpenTreeClone = 1;         // OPEN_TREE_CLONE
inline constexpr unsigned kAtRecursive = 0x8000;      // AT_RECURSIVE
inline constexpr unsigned kMoveMountFromEmpty = 0x4;  // MOVE_MOUNT_F_EMPTY_PATH
inline constexpr unsigned kMoveMountToEmpty = 0x40;   // MOVE_MOUNT_T_EMPTY_PATH
inline constexpr unsigned kFsopenCloexec = 1;         // FSOPEN_CLOEXEC
inline constexpr unsigned kFsmountCloexec = 1;        // FSMOUNT_CLOEXEC
inline constexpr unsigned kFsconfigSetString = 1;     // FSCONFIG_SET_STRING
inline constexpr unsigned kFsconfigCreate = 6;        // FSCONFIG_CMD_CREATE

/// The signature that glibc registers its restartable-sequence area with (RSEQ_SIG, x86-64 and
/// arm64 values of sysdeps/unix/sysv/linux/*/bits/rseq.h).
#if defined(__x86_64__)
inline constexpr unsigned kRseqSignature = 0x53053053;
#else
inline constexpr unsigned kRseqSignature = 0xd428bc00;
#endif

}  // namespace belljar::sys
