// A plain WebSocket echo, and a client that measures one: what the relay of sessions is compared
// to.
//
//   ws_echo serve PORT                     echoes on 127.0.0.1:PORT, for ever
//   ws_echo drive TCP_PORT|UNIX_PATH TARGET SIZE COUNT WINDOW
//                                          sends COUNT messages of SIZE bytes, of which WINDOW may
//                                          be on their way; prints the seconds until all are back
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "api/http/request_reader.hpp"
#include "api/http/websocket.hpp"

namespace belljar::api {
namespace {

namespace asio = boost::asio;
template <class T>
using Awaitable = supervisor::Awaitable<T>;

WebSocketOptions large() {
  WebSocketOptions options;
  options.most_message = std::size_t{16} << 20;
  return options;
}

/// Blocking: only the upgrade is read here.
std::optional<Request> read_upgrade(int socket) {
  RequestReader reader;
  std::string buffer(4096, '\0');
  std::string held;
  while (reader.feed(held) == RequestReader::State::kHead) {
    const ssize_t size = ::read(socket, buffer.data(), buffer.size());
    if (size <= 0) return std::nullopt;
    held.append(buffer, 0, static_cast<std::size_t>(size));
  }
  if (!reader.request().upgrade) return std::nullopt;
  return reader.request();
}

Awaitable<void> echo(UniqueFd descriptor, Request request) {
  auto socket = co_await WebSocket::accept(std::move(descriptor), request, large());
  while (socket) {
    auto message = co_await socket->read();
    if (!message) co_return;
    std::string text = std::move(message->data);
    const bool sent = co_await socket->write(std::move(text));
    if (!sent) co_return;
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
    auto request = accepted.valid() ? read_upgrade(accepted.get()) : std::nullopt;
    if (!request) continue;
    asio::io_context loop{1};
    asio::co_spawn(loop, echo(std::move(accepted), *std::move(request)), asio::detached);
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

Awaitable<bool> receive(WebSocket& socket, const std::string& text) {
  for (;;) {  // What the daemon says in between is passed over.
    const auto message = co_await socket.read();
    if (!message) co_return false;
    if (message->data.size() == text.size()) co_return true;
  }
}

Awaitable<void> drive(UniqueFd descriptor, std::string target, std::size_t size, int count,
                      int window, double& seconds) {
  auto socket = co_await WebSocket::connect(std::move(descriptor), "localhost", large(), target);
  if (!socket) co_return;
  const std::string text(size, 'm');
  bool goes = co_await socket->write(text);
  if (goes) goes = co_await receive(*socket, text);  // The first one also waits for the agent.
  const auto began = std::chrono::steady_clock::now();
  int sent = 0;
  for (; sent < window && goes; ++sent) goes = co_await socket->write(text);
  for (int received = 0; received < count && goes; ++received) {
    goes = co_await receive(*socket, text);
    if (!goes || sent == count) continue;
    goes = co_await socket->write(text);
    ++sent;
  }
  if (goes)
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  co_await socket->close(1000);
}

int drive(const char* where, const char* target, std::size_t size, int count, int window) {
  UniqueFd socket = dial(where);
  if (!socket.valid()) return 1;
  asio::io_context loop{1};
  double seconds = -1;
  asio::co_spawn(loop,
                 drive(std::move(socket), target, size, count, std::min(window, count), seconds),
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
