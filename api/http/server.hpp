// HTTP/1.1 connections over TCP and unix sockets: reading requests, answering them, handing over
// upgrades. What a request means is the Handler's.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "api/http/exchange.hpp"
#include "api/http/head_check.hpp"
#include "api/http/message.hpp"
#include "api/http/websocket.hpp"
#include "policy/base/unique_fd.hpp"
#include "supervisor/asio.hpp"

namespace belljar::api {

namespace asio = boost::asio;
template <class T>
using Awaitable = supervisor::Awaitable<T>;

/// What is to become of a request, decided on its head alone: one of four.
struct Verdict {
  std::optional<Response>
      refuse;  ///< The body is not read, and the connection ends if there is one.
  std::size_t body_limit = 0;
  std::function<Awaitable<Response>(Request&)> answer;
  std::function<Awaitable<void>(const Request&, WebSocket&)> upgrade;
  std::string protocol;  ///< That an upgrade speaks, as one of those that were offered.
  std::function<Awaitable<void>(Exchange&)> stream;  ///< `body_limit` holds for it too.
  std::size_t most_message = 0;                      ///< Of an upgrade, towards us.
};

class Handler {
 public:
  virtual ~Handler() = default;
  /// Authentication and routing, in this order. Says in `head` whose request it is.
  [[nodiscard]] virtual Verdict judge(Request& head) = 0;
  /// How a request is refused that cannot be read.
  [[nodiscard]] virtual Response refusal(const Refusal& why) = 0;
  /// Called once for each answer, and with 101 at the end of an upgraded connection.
  virtual void done(const Request& request, int status, std::chrono::microseconds took) = 0;
};

/// Bounds of every connection. A peer that is beyond one is cut off.
struct ServerOptions {
  std::chrono::milliseconds keep_alive{75000};  ///< Without a request.
  std::chrono::milliseconds head{10000};        ///< From its first byte to its last.
  std::chrono::milliseconds body{60000};
  std::chrono::milliseconds write{30000};  ///< For each 64 KiB.
  std::chrono::milliseconds ping{20000};   ///< Of WebSockets: silence before, and after, a ping.
  std::size_t most_connections = 2048;
  std::size_t bodies = std::size_t{256} << 20;  ///< Bytes of bodies that are read at once.
};

class Server {
 public:
  /// `handler` has to outlive it.
  Server(asio::io_context& loop, Handler& handler, ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Accepts on a socket that listens.
  void serve(UniqueFd listener);
  /// Accepts nothing more, and closes each connection as its request is answered.
  void stop();
  [[nodiscard]] std::size_t connections() const;

 private:
  struct State;
  class Connection;
  static Awaitable<void> accept(std::shared_ptr<State> state, std::size_t listener);

  std::shared_ptr<State> state_;
};

}  // namespace belljar::api
