// A request whose body is read, and whose answer is written, piece by piece: for what is too large
// or lasts too long to be a value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "api/http/message.hpp"
#include "policy/base/unique_fd.hpp"
#include "supervisor/asio.hpp"

namespace belljar::api {

/// One request on its connection. Every wait of it is bounded by the server's options. One may read
/// while another writes, but for the first `read`, which may have to ask for the body.
class Exchange {
 public:
  Exchange() = default;
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  [[nodiscard]] virtual Request& request() = 0;

  /// The next bytes of the body; empty at its end. Nothing: it is broken, too large or too slow, or
  /// its sender has gone. That has been answered then, and whoever reads only has to clean up.
  [[nodiscard]] virtual supervisor::Awaitable<std::optional<std::string>> read() = 0;

  /// Gives up the rest of the body: whoever waits in `read`, and all who come, get nothing. Not
  /// while anything is being written.
  virtual void stop_reading() = 0;

  /// Sends a whole answer. Nothing can follow it.
  [[nodiscard]] virtual supervisor::Awaitable<void> answer(Response response) = 0;

  /// Sends the head of an answer: `head` without its body, and as many bytes as `length` says, or,
  /// where nobody knows how many, as many as come before `finish`. False: the peer has gone.
  [[nodiscard]] virtual supervisor::Awaitable<bool> begin(Response head,
                                                          std::optional<std::uint64_t> length) = 0;
  /// More of the answer. Waits for the peer, and gives him up where he takes nothing for long.
  [[nodiscard]] virtual supervisor::Awaitable<bool> write(std::string bytes) = 0;
  /// All has been said. Whoever returns without saying so, after `begin`, has been cut short: the
  /// connection is dropped, and the peer can tell.
  [[nodiscard]] virtual supervisor::Awaitable<void> finish() = 0;
  /// Whether the peer has hung up; looks, and does not wait.
  [[nodiscard]] virtual bool gone() const = 0;

  /// The connection itself, and what has been read of it beyond the head: for what is not HTTP from
  /// here on. Takes no body; nothing else here may be called afterwards.
  struct Raw {
    UniqueFd socket;
    std::string received;
  };
  [[nodiscard]] virtual Raw take(int status) = 0;
};

}  // namespace belljar::api
