// One command without a sandbox, and the process that keeps it.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>

#include "launcher/plan.hpp"
#include "launcher/service/fault.hpp"
#include "launcher/service/pool.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::service {

/// What a keeper tells.
struct KeepersWord {
  enum class Kind : std::uint32_t { kStarted, kFailed, kEnded };
  Kind kind = Kind::kStarted;
  pid_t pid = 0;
  int error = 0;   ///< kFailed: the errno.
  int status = 0;  ///< kEnded: as waitpid has it.
  std::int64_t user_us = 0, system_us = 0, max_rss_kib = 0;
};

/// What a keeper is told: a signal for the command, or for its process group.
struct KeepersOrder {
  int number = 0;
  bool group = false;
};

/// The keeper is the parent of the command and the reaper of what descends from it, so that no
/// signal can reach a number that has passed on. It ends when nothing of the command is left.
struct BareCommand {
  pid_t keeper = 0;
  sys::UniqueFd socket;  ///< SOCK_SEQPACKET, non-blocking; of KeepersWord and KeepersOrder.
};

/// Starts the command of `plan`, of which only ids, umask, limits, directory, environment and
/// program are carried out.
[[nodiscard]] Outcome<BareCommand> start_bare(const launcher::Plan& plan, const Pool& pool,
                                              uid_t uid, const std::array<int, 3>& streams);

}  // namespace belljar::service
