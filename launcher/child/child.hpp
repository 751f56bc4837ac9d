// The child of a launch: from the clone to the payload's exec, and init's life after it.
//
// Everything behind this header lives in child.cpp, allocates nothing, makes system calls without
// libc, and never returns into the launcher's code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "launcher/child/image.hpp"

namespace belljar::launcher {

inline constexpr std::size_t kInitStack = 96 << 10;
inline constexpr std::size_t kPayloadStack = 48 << 10;

/// Where glibc's restartable-sequence area is, to be unregistered before its memory goes.
struct RseqArea {
  std::uint64_t address = 0;  ///< 0: none is registered.
  std::uint32_t size = 0;
};

/// Legacy back end: where the mount point of a bind really is, when a link led there.
struct RealTarget {
  const Op* op;
  char path[1024];
};

/// Who keeps a further command: its parent, and the one to whom its orphans fall.
struct Keeper {
  std::int32_t pid = 0;  ///< Inside; 0: the place is free.
  std::uint32_t process = 0;
};
inline constexpr int kMostKeepers = 256;

/// One private mapping that is all that init keeps besides its text: state, two stacks, the image.
/// Made by the launcher; `image` lies at `image_offset`.
struct Arena {
  std::uint64_t size = 0;          ///< Of the whole mapping.
  std::uint64_t image_offset = 0;  ///< Page-aligned, so that init can drop the image.
  int control = -1;                ///< The child's end of the control socket; also the lifeline.
  int launchers_control = -1;      ///< The launcher's end, as the clone has copied it.
  int proc = -1;                   ///< O_PATH descriptor of the launcher's /proc.
  int locks[16];                   ///< Descriptors whose locks init holds; as many as lock_count.
  int lock_count = 0;
  /// Literal: what exec alone closes. It is where the command waits until init holds nothing, or,
  /// in init's place, `control`.
  int gate = -1;
  int inits_gate = -1;        ///< The other end.
  int terminal = -1;          ///< The sandbox's own, opened by init.
  std::uint32_t process = 0;  ///< Which command this copy of the arena starts.
  RseqArea rseq;
  Message report;                  ///< Written by the payload while it shares init's memory.
  std::uint32_t network_up = 0;    ///< kNetworkUp has come, while something else was waited for.
  std::uint32_t base_filters = 0;  ///< Seccomp filters that init was born with.
  std::uint32_t proc_mode = 0;
  std::uint64_t ignored_signals = 0;  ///< What the caller ignores, bit N-1 for signal N.
  RealTarget real_targets[48];        ///< Zero as mapped, and never touched where no link is met.
  Keeper keepers[kMostKeepers];       ///< Likewise, where no further command is asked for.
  int streams[3];                     ///< What a further command has as 0, 1 and 2.
  alignas(4096) std::byte init_stack[kInitStack];
  alignas(4096) std::byte payload_stack[kPayloadStack];

  [[nodiscard]] Image& image() noexcept {
    return *reinterpret_cast<Image*>(reinterpret_cast<std::byte*>(this) + image_offset);
  }
};

/// Modern back end: the caller is the new process, already in its namespaces. Does not return.
[[noreturn]] void run_child(Arena& arena) noexcept;

/// The caller is a forked helper of the launcher: in the legacy back end, and in either where
/// namespaces are joined. It joins them, takes the session's ids, unshares, writes the maps, starts
/// init as a child of the launcher, says so and exits.
[[noreturn]] void run_helper(Arena& arena) noexcept;

}  // namespace belljar::launcher
