// HTTP and WebSockets to belljard, as a client that waits: the one file here that knows a library
// for it is connection.cpp.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/ctl/failure.hpp"
#include "api/http/message.hpp"
#include "policy/base/unique_fd.hpp"

namespace belljar::ctl {

/// Where the daemon is, and who we are to it.
struct Address {
  std::string socket;  ///< Of a unix socket; empty: over TCP.
  std::string host, port;
  std::string token;  ///< Empty: none is sent.

  /// "unix:/run/belljar/belljard.sock", "http://127.0.0.1:8080"
  [[nodiscard]] std::string text() const;
};

/// "http://HOST:PORT", with brackets around an IPv6 address, or "unix:/PATH".
[[nodiscard]] Outcome<Address> parse_url(std::string_view url);

/// A connected, non-blocking socket.
[[nodiscard]] Outcome<UniqueFd> connect_to(const Address& address);

/// Something else that is looked after while an answer is waited for.
struct Watch {
  int descriptor = -1;
  std::function<bool()> ready;  ///< There is something to read. False: nobody waits any longer.
};

struct Call {
  Call() = default;
  Call(std::string verb, std::string what) : method(std::move(verb)), target(std::move(what)) {}

  std::string method = "GET";
  std::string target;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::string content_type;  ///< Of the body; empty: there is none.
  /// The next bytes of a body that nobody knows the length of; empty at its end.
  std::function<Outcome<std::string>()> source;
  /// Takes the body of a 2xx answer as it comes. False: that is enough.
  std::function<bool(std::string_view)> sink;
  /// Nothing heard for so long is a broken connection; absent: there is patience.
  std::optional<std::chrono::milliseconds> silence = std::chrono::seconds(30);
  std::vector<Watch> watches;
};

struct Answer {
  int status = 0;
  api::Headers headers;
  std::string body;      ///< Without what a sink has taken.
  bool stopped = false;  ///< A sink or a watch had enough; the rest was not read.
};

/// One request on a connection of its own, and its answer. Everything of it has come then: a body
/// that was cut is kBroken.
[[nodiscard]] Outcome<Answer> exchange(const Address& address, const Call& call);

/// A WebSocket between its users' own waits: whoever has one polls `descriptor` for `events`, at
/// least each second, and calls `turn` then.
class WebSocket {
 public:
  /// A refusal is the daemon's problem. `protocol` is the only one that is taken.
  [[nodiscard]] static Outcome<std::unique_ptr<WebSocket>> connect(const Address& address,
                                                                   const std::string& target,
                                                                   const std::string& protocol);
  ~WebSocket();
  WebSocket(const WebSocket&) = delete;
  WebSocket& operator=(const WebSocket&) = delete;

  [[nodiscard]] int descriptor() const;
  [[nodiscard]] short events() const;
  /// Moves what can be moved without waiting.
  void turn();
  /// A message that has come.
  [[nodiscard]] std::optional<std::string> next();
  /// Queues a binary message. How much is queued says `unsent`.
  void send(std::string message);
  [[nodiscard]] std::size_t unsent() const;
  /// Nothing comes any more once `next` has nothing.
  [[nodiscard]] bool over() const;
  /// Why: "the connection ended", or what the other end gave as its reason.
  [[nodiscard]] std::string reason() const;
  /// Sends what is queued and says good-bye; waits for at most a second.
  void close();

 private:
  struct Stream;
  explicit WebSocket(std::unique_ptr<Stream> stream);
  std::unique_ptr<Stream> stream_;
};

}  // namespace belljar::ctl
