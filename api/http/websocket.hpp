// A WebSocket, either end, over a descriptor that is connected. No compression is offered or taken.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "api/http/message.hpp"
#include "policy/base/unique_fd.hpp"
#include "supervisor/asio.hpp"

namespace belljar::api {

struct WebSocketOptions {
  std::size_t most_message = std::size_t{1} << 20;  ///< Larger: 1009, and the end.
  std::chrono::milliseconds handshake{10000};       ///< And the closing one.
  std::chrono::milliseconds ping{20000};            ///< Silence before a ping, and after it.
  std::string protocol;                             ///< What `accept` says is spoken.
};

class WebSocket {
 public:
  struct Message {
    bool binary = false;
    std::string data;
  };

  /// The server's end: answers the upgrade that `request` asks for. Null when the peer has gone.
  [[nodiscard]] static supervisor::Awaitable<std::unique_ptr<WebSocket>> accept(
      UniqueFd socket, const Request& request, WebSocketOptions options);
  /// The client's end: upgrades at `target`. Null when the peer does not speak WebSocket.
  [[nodiscard]] static supervisor::Awaitable<std::unique_ptr<WebSocket>> connect(
      UniqueFd socket, std::string host, WebSocketOptions options, std::string target = "/");
  ~WebSocket();
  WebSocket(const WebSocket&) = delete;
  WebSocket& operator=(const WebSocket&) = delete;

  /// The next message; nothing once the connection is over. One reader at a time.
  [[nodiscard]] supervisor::Awaitable<std::optional<Message>> read();
  /// Sends one text message, which must be UTF-8. Writers wait for each other and for the peer.
  /// False once the connection is over.
  [[nodiscard]] supervisor::Awaitable<bool> write(std::string text);
  /// The same with one binary message.
  [[nodiscard]] supervisor::Awaitable<bool> write_binary(std::string bytes);
  /// The closing handshake, bounded in time; a reader then gets nothing more.
  [[nodiscard]] supervisor::Awaitable<void> close(std::uint16_t code, std::string reason = {});
  /// Drops the connection.
  void abort();

  /// How many bytes may wait for a peer that takes them slowly; then `write` waits. The kernel's
  /// own bound is many times as much.
  void limit_waiting(std::size_t bytes);
  /// Whether the peer may be silent for long, because nobody reads what it says.
  void expect_silence(bool expected);

 private:
  struct Stream;
  explicit WebSocket(std::unique_ptr<Stream> stream);
  supervisor::Awaitable<bool> write(std::string bytes, bool binary);
  std::unique_ptr<Stream> stream_;
};

}  // namespace belljar::api
