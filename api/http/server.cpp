#include "api/http/server.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
extern "C" {  // glibc 2.36 has forgotten to say so itself.
#include <sys/pidfd.h>
}
#include <sys/socket.h>

#include <array>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <cstdio>
#include <set>

#include "api/http/request_reader.hpp"

namespace belljar::api {

using supervisor::kAsTuple;
using Socket = asio::generic::stream_protocol::socket;
using std::chrono::milliseconds;

namespace {

constexpr std::size_t kSlice = std::size_t{64} << 10;
constexpr std::size_t kMostDiscarded = std::size_t{1} << 20;
constexpr milliseconds kLinger{2000};

/// Cancels what a socket waits for, once its time is up.
class Deadline {
 public:
  explicit Deadline(Socket& socket)
      : timer_(socket.get_executor()), state_(std::make_shared<State>(State{&socket})) {}
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;
  ~Deadline() { state_->socket = nullptr; }

  void set(milliseconds after) {
    state_->passed = false;
    const unsigned round = ++state_->round;
    timer_.expires_after(after);
    timer_.async_wait([state = state_, round](const boost::system::error_code& error) {
      if (error || state->socket == nullptr || state->round != round) return;
      state->passed = true;
      boost::system::error_code ignored;
      state->socket->cancel(ignored);
    });
  }
  [[nodiscard]] bool passed() const { return state_->passed; }
  /// What it watched is somebody else's now.
  void stop() { ++state_->round; }

 private:
  struct State {
    Socket* socket;
    unsigned round = 0;
    bool passed = false;
  };
  asio::steady_timer timer_;
  std::shared_ptr<State> state_;
};

/// Who has connected, whatever has become of him (Linux 6.5); before that, who has his number now.
std::shared_ptr<const UniqueFd> process_of(int descriptor, pid_t pid) {
#ifndef SO_PEERPIDFD
  constexpr int SO_PEERPIDFD = 77;  // asm-generic/socket.h
#endif
  int pidfd = -1;
  socklen_t size = sizeof pidfd;
  if (getsockopt(descriptor, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) != 0)
    pidfd = errno == ENOPROTOOPT ? ::pidfd_open(pid, 0) : -1;
  return pidfd < 0 ? nullptr : std::make_shared<const UniqueFd>(pidfd);
}

Peer peer_of(int descriptor) {
  Peer peer;
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return peer;
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_UNIX) {
    ucred who{};
    socklen_t length = sizeof who;
    if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0) return peer;
    peer.local = true;
    peer.uid = who.uid;
    peer.gid = who.gid;
    peer.pid = who.pid;
    if (who.pid > 0) peer.process = process_of(descriptor, who.pid);
    peer.address = "uid " + std::to_string(who.uid);
  } else if (storage.ss_family == AF_INET) {
    const auto* address = reinterpret_cast<const sockaddr_in*>(&storage);
    inet_ntop(AF_INET, &address->sin_addr, text, sizeof text);
    peer.address = std::string(text) + ':' + std::to_string(ntohs(address->sin_port));
  } else if (storage.ss_family == AF_INET6) {
    const auto* address = reinterpret_cast<const sockaddr_in6*>(&storage);
    inet_ntop(AF_INET6, &address->sin6_addr, text, sizeof text);
    peer.address = '[' + std::string(text) + "]:" + std::to_string(ntohs(address->sin6_port));
  }
  return peer;
}

}  // namespace

struct Server::State {
  asio::io_context& loop;
  Handler& handler;
  ServerOptions options;
  std::vector<std::unique_ptr<asio::posix::stream_descriptor>> listeners;
  std::set<Connection*> connections;
  std::size_t bodies = 0;  ///< Bytes that bodies under way may take.
  std::uint64_t requests = 0;
  bool stopping = false;
};

/// One client's connection, from its accept to its end; lives in its own coroutine.
class Server::Connection {
 public:
  Connection(std::shared_ptr<State> state, Socket socket)
      : state_(std::move(state)),
        socket_(std::move(socket)),
        deadline_(socket_),
        write_deadline_(socket_) {
    state_->connections.insert(this);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { state_->connections.erase(this); }

  static Awaitable<void> live(std::shared_ptr<State> state, Socket socket);
  /// Ends it where it only waits for a request.
  void stop() {
    boost::system::error_code ignored;
    if (idle_) socket_.cancel(ignored);
  }

 private:
  using Reader = RequestReader;
  class Stream;
  Awaitable<void> run();
  Awaitable<bool> serve_one();
  Awaitable<bool> read_head(Reader& reader);
  Awaitable<bool> read_body(Reader& reader, std::size_t limit);
  Awaitable<bool> receive();
  Awaitable<bool> answer(Reader& reader, const Verdict& verdict);
  Awaitable<bool> stream(Reader& reader, const Verdict& verdict);
  Awaitable<void> go_on(const Reader& reader);
  Awaitable<void> upgrade(Reader& reader, const Verdict& verdict);
  Awaitable<bool> refuse(Reader& reader, Refusal why);
  Awaitable<bool> send(Reader& reader, Response response, bool keep);
  Awaitable<bool> send_bytes(std::string_view text);
  void told(const Request& request, int status);
  Awaitable<void> discard();
  bool reserve(std::size_t bytes);
  [[nodiscard]] bool hung_up();

  std::shared_ptr<State> state_;
  Socket socket_;
  Deadline deadline_, write_deadline_;  ///< Either ends both: the connection goes with it.
  Peer peer_;
  std::string buffer_;
  std::chrono::steady_clock::time_point began_;
  bool idle_ = false;
  std::size_t reserved_ = 0;
};

Awaitable<void> Server::Connection::live(std::shared_ptr<State> state, Socket socket) {
  Connection connection(std::move(state), std::move(socket));
  co_await connection.run();
}

Awaitable<void> Server::Connection::run() {
  peer_ = peer_of(socket_.native_handle());
  bool goes_on = true;
  while (goes_on) goes_on = co_await serve_one();
}

/// Whether the connection goes on.
Awaitable<bool> Server::Connection::serve_one() {
  Reader reader;
  reader.request().peer = peer_;
  if (!co_await read_head(reader)) co_return false;
  deadline_.stop();
  began_ = std::chrono::steady_clock::now();
  if (reader.state() == Reader::State::kRefused)
    co_return co_await refuse(reader, reader.refusal());
  reader.request().id = std::to_string(++state_->requests);
  const Verdict verdict = state_->handler.judge(reader.request());
  if (verdict.refuse) {
    Response response = *verdict.refuse;
    co_return co_await send(reader, std::move(response), !reader.has_body());
  }
  if (verdict.upgrade) {
    co_await upgrade(reader, verdict);
    co_return false;
  }
  if (verdict.stream) co_return co_await stream(reader, verdict);
  const bool complete = co_await read_body(reader, verdict.body_limit);
  deadline_.stop();
  bool keep = complete;
  if (complete) keep = co_await answer(reader, verdict);
  state_->bodies -= std::exchange(reserved_, 0);
  co_return keep;
}

Awaitable<bool> Server::Connection::receive() {
  const std::size_t held = buffer_.size();
  buffer_.resize(held + kSlice / 4);
  const asio::mutable_buffer space(buffer_.data() + held, kSlice / 4);
  const auto [error, size] = co_await socket_.async_read_some(space, kAsTuple);
  buffer_.resize(held + size);
  co_return !error && size > 0;
}

/// False when there is nobody to answer.
Awaitable<bool> Server::Connection::read_head(Reader& reader) {
  deadline_.set(state_->options.keep_alive);
  bool begun = false;
  while (reader.feed(buffer_) == Reader::State::kHead) {
    if (reader.begun() && !begun) deadline_.set(state_->options.head);
    begun = reader.begun();
    if (!begun && state_->stopping) co_return false;
    idle_ = !begun;
    const bool received = co_await receive();
    idle_ = false;
    if (received) continue;
    if (!begun || !deadline_.passed()) co_return false;
    co_await refuse(reader, Refusal(408, "the request took too long"));
    co_return false;
  }
  co_return true;
}

bool Server::Connection::reserve(std::size_t bytes) {
  if (state_->bodies + bytes > state_->options.bodies) return false;
  reserved_ = bytes;
  state_->bodies += bytes;
  return true;
}

/// Asks for a body that waits to be asked for.
Awaitable<void> Server::Connection::go_on(const Reader& reader) {
  if (!reader.expects_continue() || !buffer_.empty()) co_return;
  const std::string text = "HTTP/1.1 100 Continue\r\n\r\n";
  co_await asio::async_write(socket_, asio::buffer(text), kAsTuple);
}

/// False when it has been refused, or there is nobody any more.
Awaitable<bool> Server::Connection::read_body(Reader& reader, std::size_t limit) {
  deadline_.set(state_->options.body);
  if (reader.accept_body(limit) == Reader::State::kBody) {
    if (!reserve(std::min(limit, reader.body_size().value_or(limit)))) {
      co_await refuse(reader, Refusal(503, "too many bodies at once"));
      co_return false;
    }
    co_await go_on(reader);
  }
  while (reader.feed(buffer_) == Reader::State::kBody) {
    const bool received = co_await receive();
    if (received) continue;
    if (deadline_.passed()) co_await refuse(reader, Refusal(408, "the request took too long"));
    co_return false;
  }
  if (reader.state() == Reader::State::kDone) co_return true;
  co_await refuse(reader, reader.refusal());
  co_return false;
}

bool Server::Connection::hung_up() {
  pollfd peer{socket_.native_handle(), POLLRDHUP, 0};
  return poll(&peer, 1, 0) > 0;
}

Awaitable<bool> Server::Connection::answer(Reader& reader, const Verdict& verdict) {
  reader.request().gone = [this] { return hung_up(); };
  Response response = co_await verdict.answer(reader.request());
  co_return co_await send(reader, std::move(response), true);
}

/// From here on the socket is the WebSocket's.
Awaitable<void> Server::Connection::upgrade(Reader& reader, const Verdict& verdict) {
  if (!buffer_.empty()) {  // Nobody may send frames before the answer.
    co_await refuse(reader, Refusal(400, "bytes behind the upgrade"));
    co_return;
  }
  WebSocketOptions options;
  options.most_message = verdict.most_message;
  options.protocol = verdict.protocol;
  options.ping = state_->options.ping;
  UniqueFd descriptor(socket_.release());
  const Request& request = reader.request();
  auto socket = co_await WebSocket::accept(std::move(descriptor), request, options);
  if (socket) co_await verdict.upgrade(request, *socket);
  told(request, 101);
}

Awaitable<bool> Server::Connection::refuse(Reader& reader, Refusal why) {
  co_return co_await send(reader, state_->handler.refusal(why), false);
}

/// Whether the peer has taken it.
Awaitable<bool> Server::Connection::send_bytes(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    write_deadline_.set(state_->options.write);
    const asio::const_buffer slice(text.data() + at, std::min(kSlice, text.size() - at));
    const auto [error, size] = co_await asio::async_write(socket_, slice, kAsTuple);
    write_deadline_.stop();
    if (error) co_return false;
    at += size;
  }
  co_return true;
}

void Server::Connection::told(const Request& request, int status) {
  state_->handler.done(request, status,
                       std::chrono::duration_cast<std::chrono::microseconds>(
                           std::chrono::steady_clock::now() - began_));
}

Awaitable<bool> Server::Connection::send(Reader& reader, Response response, bool keep) {
  const Request& request = reader.request();
  keep = keep && request.keep_alive && !state_->stopping;
  const std::string text = serialise(response, keep, request.method == "HEAD");
  const bool sent = co_await send_bytes(text);
  keep = keep && sent;
  told(request, response.status);
  if (!keep) co_await discard();
  co_return keep;
}

// --- piece by piece

class Server::Connection::Stream final : public Exchange {
 public:
  Stream(Connection& connection, Reader& reader)
      : connection_(connection),
        reader_(reader),
        patience_(connection.state_->options.body),
        keep_(reader.request().keep_alive) {}

  Request& request() override { return reader_.request(); }
  Awaitable<std::optional<std::string>> read() override;
  void stop_reading() override;
  Awaitable<void> answer(Response response) override;
  Awaitable<bool> begin(Response head, std::optional<std::uint64_t> length) override;
  Awaitable<bool> write(std::string bytes) override;
  Awaitable<void> finish() override;
  [[nodiscard]] bool gone() const override;
  Raw take(int status) override;

  [[nodiscard]] bool accept_body(std::size_t limit) {
    return reader_.accept_body(limit) != Reader::State::kRefused;
  }
  /// What is left to do once whoever answers has returned; whether the connection goes on.
  Awaitable<bool> settle();

 private:
  enum class State { kBefore, kBegun, kDone, kDropped };
  [[nodiscard]] bool whole() const { return reader_.state() == Reader::State::kDone; }
  Awaitable<bool> receive();

  Connection& connection_;
  Reader& reader_;
  milliseconds patience_;  ///< Left of what the sender may take for his next slice.
  std::size_t received_ = 0;
  State state_ = State::kBefore;
  bool keep_, asked_ = false, chunked_ = false, silent_ = false;
  bool stopped_ = false;  ///< Nobody wants the rest of the body.
  int status_ = 0;
  std::uint64_t left_ = 0;  ///< Of an answer whose length was told.
};

/// Some more of the connection, within what is left of the sender's time.
Awaitable<bool> Server::Connection::Stream::receive() {
  const auto began = std::chrono::steady_clock::now();
  connection_.deadline_.set(std::max(patience_, milliseconds(1)));
  const bool came = co_await connection_.receive();
  connection_.deadline_.stop();
  patience_ -= std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - began);
  received_ += connection_.buffer_.size();
  if (received_ >= kSlice) {
    received_ = 0;
    patience_ = connection_.state_->options.body;
  }
  co_return came;
}

Awaitable<std::optional<std::string>> Server::Connection::Stream::read() {
  if (state_ == State::kDropped || stopped_) co_return std::nullopt;
  if (!std::exchange(asked_, true)) co_await connection_.go_on(reader_);
  for (;;) {
    const auto state = reader_.feed(connection_.buffer_);
    if (state == Reader::State::kRefused) {
      const Refusal why = reader_.refusal();
      keep_ = false;
      if (state_ == State::kBefore) co_await answer(connection_.state_->handler.refusal(why));
      co_return std::nullopt;
    }
    if (std::string bytes = reader_.take_body(); !bytes.empty() || whole()) co_return bytes;
    if (const bool came = co_await receive(); came) continue;
    keep_ = false;
    if (stopped_) co_return std::nullopt;
    if (connection_.deadline_.passed() && state_ == State::kBefore) {
      const Refusal late(408, "the request took too long");
      co_await answer(connection_.state_->handler.refusal(late));
    }
    if (state_ == State::kBefore) state_ = State::kDropped;
    co_return std::nullopt;
  }
}

void Server::Connection::Stream::stop_reading() {
  stopped_ = true;
  boost::system::error_code ignored;
  connection_.socket_.cancel(ignored);
}

Awaitable<void> Server::Connection::Stream::answer(Response response) {
  if (state_ != State::kBefore) co_return;
  state_ = State::kDone;
  status_ = response.status;
  keep_ = keep_ && whole() && !connection_.state_->stopping;
  const std::string text = serialise(response, keep_, request().method == "HEAD");
  if (!co_await connection_.send_bytes(text)) state_ = State::kDropped;
}

Awaitable<bool> Server::Connection::Stream::begin(Response head,
                                                  std::optional<std::uint64_t> length) {
  if (state_ != State::kBefore) co_return false;
  state_ = State::kBegun;
  status_ = head.status;
  chunked_ = !length;
  left_ = length.value_or(0);
  silent_ = request().method == "HEAD";
  keep_ = keep_ && whole() && !connection_.state_->stopping;
  const std::string text = serialise_head(head, keep_, length);
  if (co_await connection_.send_bytes(text)) co_return true;
  state_ = State::kDropped;
  co_return false;
}

Awaitable<bool> Server::Connection::Stream::write(std::string bytes) {
  if (state_ != State::kBegun) co_return false;
  if (silent_ || bytes.empty()) co_return true;
  if (chunked_) {
    std::array<char, 20> size{};
    std::snprintf(size.data(), size.size(), "%zx\r\n", bytes.size());
    bytes.insert(0, size.data());
    bytes += "\r\n";
  } else if (bytes.size() > left_) {  // More than was said would be read as the next answer.
    bytes.resize(left_);
  }
  left_ -= std::min<std::uint64_t>(left_, bytes.size());
  if (co_await connection_.send_bytes(bytes)) co_return true;
  state_ = State::kDropped;
  co_return false;
}

Awaitable<void> Server::Connection::Stream::finish() {
  if (state_ != State::kBegun) co_return;
  if (!silent_ && !chunked_ && left_ > 0) {
    state_ = State::kDropped;
    co_return;
  }
  state_ = State::kDone;
  if (silent_ || !chunked_) co_return;
  const bool sent = co_await connection_.send_bytes("0\r\n\r\n");
  if (!sent) state_ = State::kDropped;
}

bool Server::Connection::Stream::gone() const {
  return state_ == State::kDropped || connection_.hung_up();
}

Exchange::Raw Server::Connection::Stream::take(int status) {
  state_ = State::kDropped;
  status_ = status;
  connection_.deadline_.stop();
  connection_.write_deadline_.stop();
  return {UniqueFd(connection_.socket_.release()), std::exchange(connection_.buffer_, {})};
}

Awaitable<bool> Server::Connection::Stream::settle() {
  if (state_ == State::kBefore) {
    Response failed = connection_.state_->handler.refusal(Refusal(500, "no answer"));
    co_await answer(std::move(failed));
  }
  connection_.told(request(), status_);
  if (state_ != State::kDone) co_return false;
  if (!keep_) co_await connection_.discard();
  co_return keep_;
}

Awaitable<bool> Server::Connection::stream(Reader& reader, const Verdict& verdict) {
  Stream exchange(*this, reader);
  if (!exchange.accept_body(verdict.body_limit))
    co_return co_await refuse(reader, reader.refusal());
  co_await verdict.stream(exchange);
  co_return co_await exchange.settle();
}

/// A socket that is closed with bytes unread resets the connection, and the answer is lost.
Awaitable<void> Server::Connection::discard() {
  boost::system::error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  deadline_.set(kLinger);
  for (std::size_t read = 0; read < kMostDiscarded && !deadline_.passed(); read += buffer_.size()) {
    buffer_.clear();
    const bool received = co_await receive();
    if (!received) break;
  }
}

Server::Server(asio::io_context& loop, Handler& handler, ServerOptions options)
    : state_(std::make_shared<State>(State{loop, handler, options, {}, {}, 0, 0, false})) {}

Server::~Server() { stop(); }

void Server::serve(UniqueFd listener) {
  // Asio's acceptors know their protocol; a descriptor that is readable can be of any.
  fcntl(listener.get(), F_SETFL, fcntl(listener.get(), F_GETFL) | O_NONBLOCK);
  state_->listeners.push_back(
      std::make_unique<asio::posix::stream_descriptor>(state_->loop, listener.release()));
  asio::co_spawn(state_->loop, accept(state_, state_->listeners.size() - 1), asio::detached);
}

Awaitable<void> Server::accept(std::shared_ptr<State> state, std::size_t index) {
  const auto wait_read = asio::posix::stream_descriptor::wait_read;
  asio::steady_timer pause(state->loop);
  while (!state->stopping) {
    const auto [error] = co_await state->listeners[index]->async_wait(wait_read, kAsTuple);
    if (error || state->stopping) co_return;
    UniqueFd accepted(accept4(state->listeners[index]->native_handle(), nullptr, nullptr,
                              SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!accepted.valid()) {
      // Out of descriptors or memory: it stays readable, and would turn the loop at full speed.
      if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR) continue;
      pause.expires_after(milliseconds(100));
      co_await pause.async_wait(kAsTuple);
      continue;
    }
    if (state->connections.size() >= state->options.most_connections) continue;
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (getsockname(accepted.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) continue;
    const int on = 1;
    if (address.ss_family != AF_UNIX)
      (void)setsockopt(accepted.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    Socket socket(state->loop);
    boost::system::error_code failed;
    socket.assign(asio::generic::stream_protocol(address.ss_family, 0), accepted.get(), failed);
    if (failed) continue;
    (void)accepted.release();
    asio::co_spawn(state->loop, Connection::live(state, std::move(socket)), asio::detached);
  }
}

void Server::stop() {
  state_->stopping = true;
  for (const auto& listener : state_->listeners) {
    boost::system::error_code ignored;
    listener->close(ignored);
  }
  for (Connection* connection : state_->connections) connection->stop();
}

std::size_t Server::connections() const { return state_->connections.size(); }

}  // namespace belljar::api
