// /v1/sessions/{session}/proxy/{port}/...: an HTTP server on a port inside the session's network.
//
// Any method but CONNECT and TRACE; bodies of any kind, both ways at once; upgrades to WebSockets.
// Dialled anew for each request, only where something of this session's uid listens. What the
// server in there says is its own: also its redirects, which it can build from X-Forwarded-Prefix
// ("/v1/sessions/ID/proxy/PORT").
//
// Not passed on: Authorization, X-Agent-Simulator-Token, and what is between two hops. Cookies are;
// a Set-Cookie gets the prefix as its Path and no Domain, so that no other session is sent it. 502
// `port_closed`: nothing listens. 502 `bad_gateway`: what answers does not speak HTTP as RFC 9112
// has it. 504: it did not answer. Once an answer has begun it can only be cut short. Bounds: 5 s to
// connect, 10 s from the first to the last byte of a head of at most 32 KiB, an hour without a byte
// either way.
#include <sys/socket.h>

#include <nlohmann/json.hpp>

#include "api/http/response_reader.hpp"
#include "api/v1/operations.hpp"
#include "api/v1/problem.hpp"
#include "api/v1/transfer.hpp"
#include "policy/units.hpp"

namespace belljar::api {
namespace {

using supervisor::Milliseconds;
using supervisor::Outcome;
using supervisor::Session;
using State = ResponseReader::State;

constexpr std::size_t kMostBody = std::size_t{1} << 40;
constexpr std::size_t kSlice = std::size_t{32} << 10;
constexpr std::size_t kPrefixParts = 5;  ///< v1, sessions, ID, proxy, PORT.
constexpr Milliseconds kLook{500};
constexpr Milliseconds kConnect{5000}, kHead{10000}, kSilence{3600000};
constexpr Milliseconds kOtherSide{10000};  ///< Of a tunnel, once one side has ended.

struct Target {
  std::uint16_t port = 0;
  std::string prefix;  ///< What stands before `rest`, without the slash between them.
  std::string rest;    ///< "/a%2Fb?x": as it was written.
};

Target target_of(const Request& request) {
  Target target;
  std::size_t at = 0;
  for (std::size_t i = 0; i < kPrefixParts && at != std::string::npos; ++i)
    at = request.target.find_first_of("/?", at + 1);
  target.rest = at == std::string::npos ? "" : request.target.substr(at);
  if (!target.rest.starts_with('/')) target.rest.insert(0, "/");
  const auto port = policy::parse_decimal(request.captured[1]);
  if (port && *port <= 65535) target.port = static_cast<std::uint16_t>(*port);
  target.prefix = "/v1/sessions/" + request.captured[0] + "/proxy/" + std::to_string(target.port);
  return target;
}

bool is_ours(std::string_view name) {
  return same_name(name, "authorization") || same_name(name, "x-agent-simulator-token") ||
         same_name(name, "host") || same_name(name, "x-forwarded-prefix") ||
         same_name(name, "x-forwarded-host");
}

bool is_handshake(std::string_view name) {
  return name.size() >= 14 && same_name(name.substr(0, 14), "sec-websocket-");
}

/// The head for the server inside.
std::string inner_head(const Request& request, const Target& target) {
  std::string text = request.method + ' ' + target.rest + " HTTP/1.1\r\n";
  text += "host: 127.0.0.1:" + std::to_string(target.port) + "\r\n";
  const Headers kept = end_to_end(request.headers);
  for (const auto& [name, value] : kept.all())
    if (!is_ours(name)) text += name + ": " + value + "\r\n";
  text += "x-forwarded-prefix: " + target.prefix + "\r\n";
  if (const auto host = request.headers.find("host"))
    text += "x-forwarded-host: " + std::string(*host) + "\r\n";
  if (request.upgrade) return text + "connection: Upgrade\r\nupgrade: websocket\r\n\r\n";
  if (const auto length = request.headers.find("content-length"))
    text += "content-length: " + std::string(*length) + "\r\n";
  if (request.headers.count("transfer-encoding") > 0) text += "transfer-encoding: chunked\r\n";
  return text + "connection: close\r\n\r\n";
}

/// A cookie that comes back to this port of this session alone.
std::string own_cookie(std::string_view cookie, const std::string& prefix) {
  std::string text;
  for (std::size_t from = 0; from <= cookie.size();) {
    const std::size_t to = std::min(cookie.find(';', from), cookie.size());
    const std::string_view part = trim(cookie.substr(from, to - from));
    const std::string_view name = trim(part.substr(0, part.find('=')));
    if (from == 0 || (!same_name(name, "path") && !same_name(name, "domain")))
      text += (from == 0 ? "" : "; ") + std::string(part);
    from = to + 1;
  }
  return text + "; Path=" + prefix;
}

Response outer_head(const Response& inner, const std::string& prefix) {
  Response head;
  head.status = inner.status;
  head.content_type.clear();
  for (const auto& [name, value] : inner.headers.all())
    head.headers.add(name, same_name(name, "set-cookie") ? own_cookie(value, prefix) : value);
  return head;
}

/// The answer to an upgrade: only what a handshake is made of.
std::string upgraded_head(const Response& inner) {
  std::string text = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\n";
  text += "upgrade: websocket\r\n";
  for (const auto& [name, value] : inner.headers.all())
    if (is_handshake(name)) text += name + ": " + value + "\r\n";
  return text + "\r\n";
}

std::string chunk(const std::string& bytes) {
  std::array<char, 20> size{};
  std::snprintf(size.data(), size.size(), "%zx\r\n", bytes.size());
  return size.data() + bytes + "\r\n";
}

/// One request and its answer, or one tunnel. Held by its tasks; `run` waits for all of them.
class Proxied : public std::enable_shared_from_this<Proxied> {
 public:
  Proxied(const V1Context& context, Exchange& exchange, std::shared_ptr<Session> session,
          const asio::any_io_executor& executor)
      : context_(context),
        exchange_(exchange),
        session_(std::move(session)),
        executor_(executor),
        target_(target_of(exchange.request())),
        inner_(executor),
        changed_(executor, context.supervisor->clock()),
        reader_(exchange.request().method == "HEAD" ? ResponseReader::Of::kHead
                                                    : ResponseReader::Of::kOther) {}

  Awaitable<void> run();

 private:
  void begin(Awaitable<void> task);
  Awaitable<bool> connect();
  Awaitable<void> talk(std::string first);
  Awaitable<void> watch();
  Awaitable<bool> send_piece(const std::string& piece);
  Awaitable<void> send_body();
  Awaitable<bool> read_head();
  Awaitable<void> relay_answer();
  Awaitable<bool> receive();
  Awaitable<void> tunnel();
  Awaitable<void> copy(asio::posix::stream_descriptor& from, asio::posix::stream_descriptor& to);
  Awaitable<void> refuse(Problem problem);
  void give(Milliseconds time) { deadline_ = context_.supervisor->clock()->now() + time; }
  void close();

  const V1Context& context_;
  Exchange& exchange_;
  std::shared_ptr<Session> session_;
  asio::any_io_executor executor_;
  Target target_;
  asio::posix::stream_descriptor inner_;
  std::unique_ptr<asio::posix::stream_descriptor> client_;  ///< Of a tunnel.
  supervisor::Notifier changed_;
  ResponseReader reader_;
  std::string buffer_;  ///< From inside.
  supervisor::TimePoint deadline_{};
  bool late_ = false, over_ = false, chunked_ = false, broken_off_ = false;
  int tasks_ = 0;
};

void Proxied::begin(Awaitable<void> task) {
  ++tasks_;
  asio::co_spawn(executor_, std::move(task),
                 [self = shared_from_this()](const std::exception_ptr&) {
                   --self->tasks_;
                   self->changed_.notify();
                 });
}

void Proxied::close() {
  boost::system::error_code ignored;
  inner_.close(ignored);
  if (client_) client_->close(ignored);
}

Awaitable<void> Proxied::refuse(Problem problem) {
  co_await exchange_.answer(problem_response(exchange_.request(), std::move(problem)));
}

Awaitable<void> Proxied::run() {
  const auto self = shared_from_this();
  const auto attachment = session_->attach();
  // Before anybody writes: this may ask the client for the body.
  std::optional<std::string> first = co_await exchange_.read();
  if (!first) co_return;
  const bool connected = co_await connect();
  if (!connected) co_return;
  give(kSilence);
  begin(watch());
  co_await talk(*std::move(first));
  over_ = true;
  close();
  changed_.notify();
  while (tasks_ > 0) co_await changed_.wait();
}

Awaitable<bool> Proxied::connect() {
  Outcome<UniqueFd> socket = co_await session_->connect(target_.port);
  if (!socket) {
    co_await exchange_.answer(problem_response(exchange_.request(), socket.error()));
    co_return false;
  }
  inner_.assign(socket->release());
  give(kConnect);
  begin(watch());
  const auto [error] =
      co_await inner_.async_wait(asio::posix::descriptor_base::wait_write, supervisor::kAsTuple);
  over_ = true;  // This watch; the next one begins afresh.
  changed_.notify();
  while (tasks_ > 0) co_await changed_.wait();
  over_ = false;
  int failed = 0;
  socklen_t size = sizeof failed;
  // In a shared network the port may have become somebody else's in between.
  if (!error && ::getsockopt(inner_.native_handle(), SOL_SOCKET, SO_ERROR, &failed, &size) == 0 &&
      failed == 0 && session_->listens(target_.port)) {
    inner_.native_non_blocking(true);
    co_return true;
  }
  close();
  Problem problem(
      502, "port_closed",
      "nothing of the session takes connections on port " + std::to_string(target_.port));
  co_await refuse(std::move(problem));
  co_return false;
}

/// Ends both sides when the client has gone, or time is up.
Awaitable<void> Proxied::watch() {
  while (!over_) {
    co_await changed_.wait_until(context_.supervisor->clock()->now() + kLook);
    if (over_) co_return;
    late_ = late_ || context_.supervisor->clock()->now() >= deadline_;
    if (late_ || (!client_ && exchange_.gone())) {
      close();
      co_return;
    }
  }
}

Awaitable<void> Proxied::talk(std::string first) {
  Request& request = exchange_.request();
  chunked_ = request.headers.count("transfer-encoding") > 0;
  const std::string head = inner_head(request, target_);
  bool sent = co_await write_all(inner_, head);
  const bool more = !first.empty();
  // Who stops listening may still have answered.
  if (sent) sent = co_await send_piece(first);
  if (sent && more) begin(send_body());
  const bool answered = co_await read_head();
  if (answered && reader_.head().status == 101) {
    co_await tunnel();
    co_return;
  }
  if (answered) co_await relay_answer();
  over_ = true;
  exchange_.stop_reading();
}

/// A piece of the body; an empty one is its end.
Awaitable<bool> Proxied::send_piece(const std::string& piece) {
  if (!chunked_) co_return co_await write_all(inner_, piece);
  const std::string framed = piece.empty() ? "0\r\n\r\n" : chunk(piece);
  co_return co_await write_all(inner_, framed);
}

/// Beside the answer, which may come before the body has ended.
Awaitable<void> Proxied::send_body() {
  while (!over_) {
    const std::optional<std::string> piece = co_await exchange_.read();
    if (!piece) {
      // Half a body must not be taken for a whole one.
      broken_off_ = !over_;
      if (broken_off_) close();
      co_return;
    }
    give(kSilence);
    const bool sent = co_await send_piece(*piece);
    if (!sent || piece->empty()) co_return;
  }
}

Awaitable<bool> Proxied::receive() {
  const std::size_t held = buffer_.size();
  buffer_.resize(held + kSlice);
  const asio::mutable_buffer space(buffer_.data() + held, kSlice);
  const auto [error, size] = co_await inner_.async_read_some(space, supervisor::kAsTuple);
  buffer_.resize(held + size);
  co_return !error && size > 0;
}

/// Whether there is an answer that can be passed on; otherwise it has been said why not.
Awaitable<bool> Proxied::read_head() {
  const bool upgrade = exchange_.request().upgrade;
  bool begun = false;
  while (reader_.feed(buffer_) == State::kHead) {
    if (!begun && !buffer_.empty()) give(kHead);
    begun = begun || !buffer_.empty();
    const bool came = co_await receive();
    if (!came && reader_.end() == State::kBroken) break;
  }
  give(kSilence);
  if (reader_.state() != State::kBroken && (reader_.head().status == 101) <= upgrade)
    co_return true;
  if (broken_off_ || (!late_ && exchange_.gone())) co_return false;
  exchange_.stop_reading();
  const std::string where = "port " + std::to_string(target_.port) + ": ";
  Problem problem(504, "timeout", where + "it did not answer in time");
  if (!late_ && reader_.state() == State::kBroken)
    problem = Problem(502, "bad_gateway", where + std::string(reader_.why()));
  else if (!late_)
    problem = Problem(502, "bad_gateway", where + "it switches protocols, which nobody asked for");
  co_await refuse(std::move(problem));
  co_return false;
}

/// What begins as an answer can only be cut when it does not go on as one.
Awaitable<void> Proxied::relay_answer() {
  Response head = outer_head(reader_.head(), target_.prefix);
  const bool begun = co_await exchange_.begin(std::move(head), reader_.length());
  if (!begun) co_return;
  for (;;) {
    reader_.feed(buffer_);
    std::string piece = reader_.take_body();
    if (!piece.empty()) {
      give(kSilence);
      const bool sent = co_await exchange_.write(std::move(piece));
      if (!sent) co_return;
      continue;
    }
    if (reader_.state() != State::kBody) break;
    const bool came = co_await receive();
    if (!came && (late_ || !inner_.is_open())) co_return;
    if (!came) reader_.end();
  }
  if (reader_.state() == State::kDone)
    co_await exchange_.finish();
  else
    exchange_.request().failure = std::string(reader_.why());
}

// --- upgrades

Awaitable<void> Proxied::tunnel() {
  Exchange::Raw raw = exchange_.take(101);
  client_ = std::make_unique<asio::posix::stream_descriptor>(executor_, raw.socket.release());
  client_->native_non_blocking(true);
  const std::string head = upgraded_head(reader_.head()) + buffer_;
  const bool told = co_await write_all(*client_, head);
  if (!told) co_return;
  const bool passed = co_await write_all(inner_, raw.received);
  if (!passed) co_return;
  begin(copy(*client_, inner_));
  co_await copy(inner_, *client_);
  while (tasks_ > 1) co_await changed_.wait();  // The watch is the last one.
}

Awaitable<void> Proxied::copy(asio::posix::stream_descriptor& from,
                              asio::posix::stream_descriptor& to) {
  std::string slice(kSlice, '\0');
  for (;;) {
    const asio::mutable_buffer space(slice.data(), slice.size());
    const auto [error, size] = co_await from.async_read_some(space, supervisor::kAsTuple);
    if (error || size == 0) break;
    give(kSilence);
    session_->touch();
    const bool written = co_await write_all(to, std::string_view(slice.data(), size));
    if (!written) break;
  }
  if (to.is_open()) ::shutdown(to.native_handle(), SHUT_WR);
  give(kOtherSide);
}

Awaitable<void> proxy(const V1Context& context, Exchange& exchange) {
  Request& request = exchange.request();
  const auto session = context.session(request);
  if (!session) co_return co_await exchange.answer(context.no_session(request));
  if (request.method == "CONNECT" || request.method == "TRACE") {
    Problem problem(405, "method_not_allowed", "CONNECT and TRACE are not passed on");
    co_return co_await exchange.answer(problem_response(request, std::move(problem)));
  }
  if (target_of(request).port == 0) {
    Problem problem(400, "malformed", "expected a port from 1 to 65535");
    co_return co_await exchange.answer(problem_response(request, std::move(problem)));
  }
  const auto executor = co_await asio::this_coro::executor;
  const auto proxied = std::make_shared<Proxied>(context, exchange, session, executor);
  co_await proxied->run();
}

}  // namespace

void add_proxy_operations(Router& router, const V1Context& context) {
  Operation operation("proxy", "*", "/v1/sessions/{session}/proxy/{port}/{path...}");
  operation.takes_query = true;
  operation.body_limit = kMostBody;
  operation.stream = [&context](Exchange& exchange) { return proxy(context, exchange); };
  router.add(std::move(operation));
}

}  // namespace belljar::api
