// Who listens: the kernel's own table, without a connection that a server would see.
#pragma once

#include <cstdint>
#include <string_view>

namespace belljar::supervisor {

/// Whether a socket of `uid` listens on TCP `port` in the network that process `pid` is in. False
/// where the table cannot be read: nobody is dialled on a guess.
[[nodiscard]] bool uid_listens(int pid, std::uint32_t uid, std::uint16_t port);

/// The same of the text of one /proc/PID/net/tcp or tcp6 (man 5 proc).
[[nodiscard]] bool table_has_listener(std::string_view table, std::uint32_t uid,
                                      std::uint16_t port);

}  // namespace belljar::supervisor
