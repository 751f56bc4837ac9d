#include "api/http/websocket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/generic/stream_protocol.hpp>
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

struct WebSocket::Stream {
  static websocket::stream_base::timeout timeout_of(const WebSocketOptions& options) {
    websocket::stream_base::timeout timeout{};
    timeout.handshake_timeout = options.handshake;
    timeout.idle_timeout = 2 * options.ping;
    timeout.keep_alive_pings = true;
    return timeout;
  }

  websocket::stream<Socket, false> socket;  ///< false: without compression, at compile time.
  websocket::stream_base::timeout timeout;
  asio::steady_timer turn;  ///< Who waits to write waits for its cancellation.
  boost::beast::flat_buffer buffer;
  bool writing = false, over = false;

  Stream(Socket connected, const WebSocketOptions& options)
      : socket(std::move(connected)), timeout(timeout_of(options)), turn(socket.get_executor()) {
    socket.set_option(timeout);
    socket.read_message_max(options.most_message);
    socket.text(true);
    socket.auto_fragment(false);
  }

  /// Until no one else writes.
  Awaitable<void> take_turn() {
    while (writing) {
      turn.expires_at(asio::steady_timer::time_point::max());
      co_await turn.async_wait(kAsTuple);
    }
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
  (void)setsockopt(stream_->socket.next_layer().native_handle(), SOL_SOCKET, SO_SNDBUF, &half,
                   sizeof half);
}

void WebSocket::expect_silence(bool expected) {
  websocket::stream_base::timeout timeout = stream_->timeout;
  if (expected) timeout.idle_timeout = websocket::stream_base::none();
  stream_->socket.set_option(timeout);
}

void WebSocket::abort() {
  stream_->over = true;
  boost::system::error_code ignored;
  stream_->socket.next_layer().close(ignored);
}

}  // namespace belljar::api
