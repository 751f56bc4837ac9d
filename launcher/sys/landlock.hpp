// Landlock as the kernel has it (man 7 landlock; include/uapi/linux/landlock.h), by version of its
// ABI. Debian 12's header ends with the second.
#pragma once

#include <cstdint>

namespace belljar::sys {

inline constexpr long kLandlockCreateRuleset = 444;
inline constexpr long kLandlockAddRule = 445;
inline constexpr long kLandlockRestrictSelf = 446;

/// struct landlock_ruleset_attr. An older kernel takes the whole of it as long as what it does not
/// know is zero.
struct LandlockRulesetAttr {
  std::uint64_t files = 0;
  std::uint64_t tcp = 0;     ///< ABI 4
  std::uint64_t scopes = 0;  ///< ABI 6
};

/// struct landlock_path_beneath_attr, which is packed.
struct [[gnu::packed]] LandlockPathBeneath {
  std::uint64_t access = 0;
  std::int32_t parent = -1;
};

/// struct landlock_net_port_attr.
struct LandlockNetPort {
  std::uint64_t access = 0;
  std::uint64_t port = 0;
};

inline constexpr int kLandlockRulePathBeneath = 1;
inline constexpr int kLandlockRuleNetPort = 2;

// Rights on files: LANDLOCK_ACCESS_FS_*.
inline constexpr std::uint64_t kLandlockExecute = 1U << 0;
inline constexpr std::uint64_t kLandlockWriteFile = 1U << 1;
inline constexpr std::uint64_t kLandlockReadFile = 1U << 2;
inline constexpr std::uint64_t kLandlockReadDir = 1U << 3;
inline constexpr std::uint64_t kLandlockRemoveDir = 1U << 4;
inline constexpr std::uint64_t kLandlockRemoveFile = 1U << 5;
inline constexpr std::uint64_t kLandlockMakeChar = 1U << 6;
inline constexpr std::uint64_t kLandlockMakeDir = 1U << 7;
inline constexpr std::uint64_t kLandlockMakeReg = 1U << 8;
inline constexpr std::uint64_t kLandlockMakeSock = 1U << 9;
inline constexpr std::uint64_t kLandlockMakeFifo = 1U << 10;
inline constexpr std::uint64_t kLandlockMakeBlock = 1U << 11;
inline constexpr std::uint64_t kLandlockMakeSym = 1U << 12;
inline constexpr std::uint64_t kLandlockRefer = 1U << 13;     ///< ABI 2
inline constexpr std::uint64_t kLandlockTruncate = 1U << 14;  ///< ABI 3
inline constexpr std::uint64_t kLandlockIoctlDev = 1U << 15;  ///< ABI 5

/// What a rule on anything but a directory may hold; the kernel refuses the rest with EINVAL.
inline constexpr std::uint64_t kLandlockOfAFile = kLandlockExecute | kLandlockWriteFile |
                                                  kLandlockReadFile | kLandlockTruncate |
                                                  kLandlockIoctlDev;

// LANDLOCK_ACCESS_NET_*, ABI 4.
inline constexpr std::uint64_t kLandlockBindTcp = 1U << 0;
inline constexpr std::uint64_t kLandlockConnectTcp = 1U << 1;

// LANDLOCK_SCOPE_*, ABI 6.
inline constexpr std::uint64_t kLandlockScopeAbstractUnix = 1U << 0;
inline constexpr std::uint64_t kLandlockScopeSignal = 1U << 1;

/// LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF, ABI 7: what init itself is refused is not audited.
inline constexpr std::uint32_t kLandlockNoLogOfOwn = 1U << 0;

/// The version of the ABI, from 1 up. Without Landlock -errno: ENOSYS (not in the kernel, or kept
/// from this process by a filter), EOPNOTSUPP (not among the active security modules).
[[nodiscard]] int landlock_abi() noexcept;

}  // namespace belljar::sys
