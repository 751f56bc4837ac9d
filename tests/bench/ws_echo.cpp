// A plain WebSocket echo, and a client that measures one: what the relay of sessions is compared
// to.
//
//   ws_echo serve PORT                     echoes on 127.0.0.1:PORT, for ever
//   ws_echo drive TCP_PORT|UNIX_PATH TARGET SIZE COUNT WINDOW
//                                          sends COUNT messages of SIZE bytes, of which WINDOW may
//                                          be on their way; prints the seconds until all are back
//
// Both ends are Beast's own stream and nothing else, one call of the kernel a message.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "policy/base/unique_fd.hpp"
#include "supervisor/asio.hpp"

namespace belljar::api {
namespace {

namespace asio = boost::asio;
template <class T>
using Awaitable = supervisor::Awaitable<T>;

using supervisor::kAsTuple;
using Socket = asio::generic::stream_protocol::socket;
using Stream = boost::beast::websocket::stream<Socket, false>;

Stream plain(const asio::any_io_executor& executor, UniqueFd descriptor, int family) {
  if (family == AF_INET) {
    const int on = 1;
    setsockopt(descriptor.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  Stream stream(Socket(executor, asio::generic::stream_protocol(family, 0), descriptor.release()));
  stream.read_message_max(std::size_t{16} << 20);
  stream.text(true);
  stream.auto_fragment(false);
  return stream;
}

Awaitable<void> echo(UniqueFd descriptor) {
  Stream stream = plain(co_await asio::this_coro::executor, std::move(descriptor), AF_INET);
  co_await stream.async_accept(kAsTuple);
  boost::beast::flat_buffer buffer;
  for (;;) {
    const auto [unread, size] = co_await stream.async_read(buffer, kAsTuple);
    if (unread) co_return;
    const auto [unsent, sent] = co_await stream.async_write(buffer.data(), kAsTuple);
    if (unsent) co_return;
    buffer.clear();
  }
}

int serve(std::uint16_t port) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener.get(), 16) != 0)
    return 1;
  for (;;) {
    UniqueFd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!accepted.valid()) continue;
    asio::io_context loop{1};
    asio::co_spawn(loop, echo(std::move(accepted)), asio::detached);
    loop.run();
  }
}

UniqueFd dial(const std::string& where) {
  const bool local = where.front() == '/';
  UniqueFd socket(::socket(local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un path{};
  path.sun_family = AF_UNIX;
  std::strncpy(path.sun_path, where.c_str(), sizeof path.sun_path - 1);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(where.c_str())));
  const auto* any = local ? reinterpret_cast<const sockaddr*>(&path)
                          : reinterpret_cast<const sockaddr*>(&address);
  if (::connect(socket.get(), any, local ? sizeof path : sizeof address) != 0) return UniqueFd();
  return socket;
}

Awaitable<bool> receive(Stream& stream, std::size_t expected) {
  boost::beast::flat_buffer buffer;
  for (;;) {  // What the daemon says in between is passed over.
    const auto [error, size] = co_await stream.async_read(buffer, kAsTuple);
    if (error) co_return false;
    if (size == expected) co_return true;
    buffer.clear();
  }
}

Awaitable<bool> send(Stream& stream, const std::string& text) {
  const asio::const_buffer message(text.data(), text.size());
  const auto [error, size] = co_await stream.async_write(message, kAsTuple);
  co_return !error;
}

Awaitable<void> drive(UniqueFd descriptor, int family, std::string target, std::size_t size,
                      int count, int window, double& seconds) {
  Stream stream = plain(co_await asio::this_coro::executor, std::move(descriptor), family);
  const auto [refused] = co_await stream.async_handshake("localhost", target, kAsTuple);
  if (refused) co_return;
  const std::string text(size, 'm');
  bool goes = co_await send(stream, text);
  if (goes) goes = co_await receive(stream, size);  // The first one also waits for the agent.
  const auto began = std::chrono::steady_clock::now();
  int sent = 0;
  for (; sent < window && goes; ++sent) goes = co_await send(stream, text);
  for (int received = 0; received < count && goes; ++received) {
    goes = co_await receive(stream, size);
    if (!goes || sent == count) continue;
    goes = co_await send(stream, text);
    ++sent;
  }
  if (goes)
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  co_await stream.async_close(boost::beast::websocket::close_code::normal, kAsTuple);
}

int drive(const char* where, const char* target, std::size_t size, int count, int window) {
  UniqueFd socket = dial(where);
  if (!socket.valid()) return 1;
  asio::io_context loop{1};
  double seconds = -1;
  asio::co_spawn(loop,
                 drive(std::move(socket), *where == '/' ? AF_UNIX : AF_INET, target, size, count,
                       std::min(window, count), seconds),
                 asio::detached);
  loop.run();
  if (seconds < 0) return 1;
  std::printf("%.6f\n", seconds);
  return 0;
}

}  // namespace
}  // namespace belljar::api

int main(int argc, char** argv) {
  using namespace belljar::api;
  if (argc == 3 && std::strcmp(argv[1], "serve") == 0)
    return serve(static_cast<std::uint16_t>(std::atoi(argv[2])));
  if (argc == 7 && std::strcmp(argv[1], "drive") == 0)
    return drive(argv[2], argv[3], static_cast<std::size_t>(std::atoll(argv[4])),
                 std::atoi(argv[5]), std::atoi(argv[6]));
  std::fputs("usage: ws_echo serve PORT | ws_echo drive WHERE TARGET SIZE COUNT WINDOW\n", stderr);
  return 2;
}
