#include "api/http/websocket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/compose.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/buffer_traits.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <boost/beast/websocket/stream.hpp>

namespace belljar::api {

namespace asio = boost::asio;
namespace websocket = boost::beast::websocket;
using supervisor::Awaitable;
using supervisor::kAsTuple;
using Socket = asio::generic::stream_protocol::socket;

namespace {

constexpr std::size_t kTogether = std::size_t{16} << 10;  // Bytes that go out in one call.
constexpr std::size_t kMasked = std::size_t{32} << 10;    // Of a client's message, masked at once.
constexpr int kQuietTurns = 3;  // Turns of the loop without a further frame, before they go.

/// A socket that gives the kernel small writes together. A frame of a hundred bytes costs a call
/// and the peer's waking, which is most of what passing it on takes. So a write is done when its
/// bytes are held here, at most `kTogether`, and they leave as soon as the loop has nothing more to
/// add. A failure is told to the next write.
class CoalescingSocket {
 public:
  using executor_type = Socket::executor_type;

  explicit CoalescingSocket(Socket socket) : line_(std::make_shared<Line>(std::move(socket))) {}
  CoalescingSocket(const CoalescingSocket&) = delete;
  CoalescingSocket& operator=(const CoalescingSocket&) = delete;
  ~CoalescingSocket() { close(); }

  [[nodiscard]] executor_type get_executor() { return line_->socket.get_executor(); }
  [[nodiscard]] Socket& next_layer() { return line_->socket; }

  /// What is held is dropped.
  void close() {
    boost::system::error_code ignored;
    line_->socket.close(ignored);
    line_->held.clear();
  }

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return line_->socket.async_read_some(buffers, std::forward<Token>(token));
  }

  /// One at a time.
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return asio::async_compose<Token, void(boost::system::error_code, std::size_t)>(
        Writing<Buffers>{line_, buffers}, token, line_->socket);
  }

  /// Once everything has gone.
  template <class Token>
  auto async_teardown(boost::beast::role_type role, Token&& token) {
    return asio::async_compose<Token, void(boost::system::error_code)>(Teardown{line_, role}, token,
                                                                       line_->socket);
  }

 private:
  struct Line {
    Socket socket;
    asio::steady_timer sent;  ///< Who waits for room waits for its cancellation.
    std::string held;
    bool sending = false;
    boost::system::error_code error;

    explicit Line(Socket connected)
        : socket(std::move(connected)),
          sent(socket.get_executor(), asio::steady_timer::time_point::max()) {}
  };

  /// Sends what is held until nothing is.
  static Awaitable<void> send(std::shared_ptr<Line> line) {
    std::string leaving;
    while (!line->held.empty() && !line->error) {
      std::size_t before = 0;
      for (int quiet = 0; quiet < kQuietTurns && line->held.size() < kTogether;) {
        quiet = line->held.size() == before ? quiet + 1 : 0;
        before = line->held.size();
        co_await asio::post(line->socket.get_executor(), asio::use_awaitable);
      }
      leaving.swap(line->held);
      const auto [error, size] =
          co_await asio::async_write(line->socket, asio::buffer(leaving), kAsTuple);
      leaving.clear();
      if (error) line->error = error;
      line->sent.cancel();
    }
    line->sending = false;
    line->sent.cancel();
  }

  template <class Buffers>
  struct Writing {
    std::shared_ptr<Line> line;
    Buffers buffers;
    std::size_t taken = 0;
    enum class Step { kBegin, kWait, kHeld, kPassed } step = Step::kBegin;

    template <class Self>
    void operator()(Self& self, boost::system::error_code error = {}, std::size_t size = 0) {
      if (step == Step::kPassed) return self.complete(error, size);
      if (step == Step::kHeld) return self.complete(line->error, line->error ? 0 : taken);
      const std::size_t all = boost::beast::buffer_bytes(buffers);
      if (!line->error && all >= kTogether && !line->sending) {
        step = Step::kPassed;
        const Buffers passed = buffers;
        return line->socket.async_write_some(passed, std::move(self));
      }
      if (!line->error && (all >= kTogether || line->held.size() >= kTogether)) {
        step = Step::kWait;
        return line->sent.async_wait(std::move(self));
      }
      if (!line->error) hold(all);
      step = Step::kHeld;
      asio::post(line->socket.get_executor(), std::move(self));
    }

    void hold(std::size_t all) {
      const std::size_t before = line->held.size();
      line->held.resize(before + all);
      taken = asio::buffer_copy(asio::buffer(line->held.data() + before, all), buffers);
      if (std::exchange(line->sending, true)) return;
      asio::co_spawn(line->socket.get_executor(), send(line), asio::detached);
    }
  };

  struct Teardown {
    std::shared_ptr<Line> line;
    boost::beast::role_type role;
    bool torn = false;

    template <class Self>
    void operator()(Self& self, boost::system::error_code error = {}) {
      if (torn) return self.complete(error);
      if (line->sending) return line->sent.async_wait(std::move(self));
      torn = true;
      websocket::async_teardown(role, line->socket, std::move(self));
    }
  };

  std::shared_ptr<Line> line_;
};

/// What Beast calls when a connection ends in order (found by its argument).
template <class Handler>
void async_teardown(boost::beast::role_type role, CoalescingSocket& socket, Handler&& handler) {
  socket.async_teardown(role, std::forward<Handler>(handler));
}

}  // namespace

struct WebSocket::Stream {
  static websocket::stream_base::timeout timeout_of(const WebSocketOptions& options) {
    websocket::stream_base::timeout timeout{};
    timeout.handshake_timeout = options.handshake;
    timeout.idle_timeout = 2 * options.ping;
    timeout.keep_alive_pings = true;
    return timeout;
  }

  websocket::stream<CoalescingSocket, false>
      socket;  ///< false: without compression, at compile time.
  websocket::stream_base::timeout timeout;
  asio::steady_timer turn;  ///< Who waits to write waits for its cancellation.
  boost::beast::flat_buffer buffer;
  bool writing = false, over = false;

  Stream(Socket connected, const WebSocketOptions& options)
      : socket(std::move(connected)),
        timeout(timeout_of(options)),
        turn(socket.get_executor(), asio::steady_timer::time_point::max()) {
    socket.set_option(timeout);
    socket.read_message_max(options.most_message);
    socket.text(true);
    socket.auto_fragment(false);
  }

  /// Until no one else writes.
  Awaitable<void> take_turn() {
    while (writing) co_await turn.async_wait(kAsTuple);
    writing = true;
  }

  void give_turn() {
    writing = false;
    turn.cancel();
  }
};

namespace {

/// An owned descriptor of any family becomes a socket of the loop.
Socket adopt(const asio::any_io_executor& executor, UniqueFd descriptor) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  int family = AF_INET;
  if (getsockname(descriptor.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0)
    family = address.ss_family;
  const int on = 1;
  // A frame is to leave when it is written; there is nothing to turn off on a unix socket.
  if (family != AF_UNIX)
    (void)setsockopt(descriptor.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  Socket socket(executor);
  boost::system::error_code error;
  socket.assign(asio::generic::stream_protocol(family, 0), descriptor.get(), error);
  if (!error) (void)descriptor.release();
  return socket;
}

}  // namespace

WebSocket::WebSocket(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}
WebSocket::~WebSocket() = default;

Awaitable<std::unique_ptr<WebSocket>> WebSocket::accept(UniqueFd descriptor, const Request& request,
                                                        WebSocketOptions options) {
  auto stream = std::make_unique<Stream>(
      adopt(co_await asio::this_coro::executor, std::move(descriptor)), options);
  boost::beast::http::request<boost::beast::http::empty_body> head;
  head.method(boost::beast::http::verb::get);
  head.target(request.target);
  for (const auto& [name, value] : request.headers.all()) head.insert(name, value);
  if (!options.protocol.empty())
    stream->socket.set_option(websocket::stream_base::decorator(
        [protocol = options.protocol](websocket::response_type& answer) {
          answer.set(boost::beast::http::field::sec_websocket_protocol, protocol);
        }));
  const auto [error] = co_await stream->socket.async_accept(head, kAsTuple);
  if (error) co_return nullptr;
  co_return std::unique_ptr<WebSocket>(new WebSocket(std::move(stream)));
}

Awaitable<std::unique_ptr<WebSocket>> WebSocket::connect(UniqueFd descriptor, std::string host,
                                                         WebSocketOptions options,
                                                         std::string target) {
  auto stream = std::make_unique<Stream>(
      adopt(co_await asio::this_coro::executor, std::move(descriptor)), options);
  stream->socket.write_buffer_bytes(kMasked);
  const auto [error] = co_await stream->socket.async_handshake(host, target, kAsTuple);
  if (error) co_return nullptr;
  co_return std::unique_ptr<WebSocket>(new WebSocket(std::move(stream)));
}

Awaitable<std::optional<WebSocket::Message>> WebSocket::read() {
  if (stream_->over) co_return std::nullopt;
  const auto [error, size] = co_await stream_->socket.async_read(stream_->buffer, kAsTuple);
  if (error) {
    stream_->over = true;
    co_return std::nullopt;
  }
  Message message;
  message.binary = stream_->socket.got_binary();
  message.data = boost::beast::buffers_to_string(stream_->buffer.data());
  stream_->buffer.clear();
  // What one large message took is not kept for as long as the connection lasts.
  if (size > std::size_t{64} << 10) stream_->buffer.shrink_to_fit();
  co_return message;
}

Awaitable<bool> WebSocket::write(std::string text) {
  co_return co_await write(std::move(text), false);
}

Awaitable<bool> WebSocket::write_binary(std::string bytes) {
  co_return co_await write(std::move(bytes), true);
}

Awaitable<bool> WebSocket::write(std::string bytes, bool binary) {
  co_await stream_->take_turn();
  bool sent = false;
  if (!stream_->over) {
    stream_->socket.binary(binary);
    const asio::const_buffer message(bytes.data(), bytes.size());
    const auto [error, size] = co_await stream_->socket.async_write(message, kAsTuple);
    sent = !error;
    if (error) stream_->over = true;
  }
  stream_->give_turn();
  co_return sent;
}

Awaitable<void> WebSocket::close(std::uint16_t code, std::string reason) {
  co_await stream_->take_turn();
  if (!stream_->over) {
    websocket::close_reason why;
    why.code = code;
    why.reason.assign(reason.data(), std::min(reason.size(), why.reason.max_size()));
    co_await stream_->socket.async_close(why, kAsTuple);
    stream_->over = true;
  }
  stream_->give_turn();
}

void WebSocket::limit_waiting(std::size_t bytes) {
  // The kernel doubles it, for what it keeps beside the bytes (man 7 socket).
  const int half = static_cast<int>(bytes / 2);
  (void)setsockopt(stream_->socket.next_layer().next_layer().native_handle(), SOL_SOCKET, SO_SNDBUF,
                   &half, sizeof half);
}

void WebSocket::expect_silence(bool expected) {
  websocket::stream_base::timeout timeout = stream_->timeout;
  if (expected) timeout.idle_timeout = websocket::stream_base::none();
  stream_->socket.set_option(timeout);
}

void WebSocket::abort() {
  stream_->over = true;
  stream_->socket.next_layer().close();
}

}  // namespace belljar::api
