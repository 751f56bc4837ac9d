// Other processes, as /proc/PID/status tells of them (man 5 proc).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace belljar::sys {

struct ProcessStatus {
  std::string name;  ///< As it calls itself: any bytes, with newlines and backslashes escaped.
  char state = 0;    ///< "R", "S", "T", "Z"…
  pid_t parent = 0;
  std::uint64_t threads = 0;
  std::vector<std::uint64_t> uids;  ///< Real, effective, saved, file system.
  std::vector<pid_t> numbers;       ///< In each of its pid namespaces, the innermost last.
  /// A bit for each signal, 1 the lowest, that is handled, ignored or blocked.
  std::uint64_t expected_signals = 0;

  /// Nothing of it runs any more. A zombie with threads does: its first one has ended.
  [[nodiscard]] bool has_ended() const { return (state == 'Z' && threads <= 1) || state == 'X'; }
};

/// Nothing when there is no such process, or none that can be looked at.
[[nodiscard]] std::optional<ProcessStatus> status_of(pid_t pid);

/// Every process that /proc shows, in no order.
[[nodiscard]] std::vector<pid_t> all_processes();

}  // namespace belljar::sys
