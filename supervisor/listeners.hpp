// Who listens: the kernel's own table, without a connection that a server would see.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "supervisor/clock.hpp"

namespace belljar::supervisor {

/// Whether a socket of `uid` listens on TCP `port` in the network that process `pid` is in. False
/// where the table cannot be read: nobody is dialled on a guess.
[[nodiscard]] bool uid_listens(int pid, std::uint32_t uid, std::uint16_t port);

struct Listener {
  std::uint32_t uid = 0;
  std::uint16_t port = 0;
  friend bool operator==(const Listener&, const Listener&) = default;
};
/// The listeners in the text of one /proc/PID/net/tcp or tcp6 (man 5 proc).
[[nodiscard]] std::vector<Listener> listeners_in(std::string_view table);

/// The tables of those networks that were looked at last. On a busy host a table takes the kernel
/// milliseconds to write, and hundreds may wait for listeners of one network.
class ListenerTables {
 public:
  /// As uid_listens, but of a table that may be kFresh old, or, where reading one takes long, up to
  /// kOldest, so that a twentieth of the time is spent on it.
  [[nodiscard]] bool listens(int pid, std::uint32_t uid, std::uint16_t port, TimePoint now);

 private:
  static constexpr std::chrono::milliseconds kFresh{20}, kOldest{250};
  struct Table {
    TimePoint until;
    std::vector<Listener> listeners;
  };
  std::map<std::pair<std::uint64_t, std::uint64_t>, Table> tables_;  ///< By device and inode.
};

}  // namespace belljar::supervisor
