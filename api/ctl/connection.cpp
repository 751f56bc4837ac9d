#include "api/ctl/connection.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "policy/base/result.hpp"

namespace belljar::ctl {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace websocket = boost::beast::websocket;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kConnectPatience{10'000};
constexpr std::uint64_t kLargestAnswer = std::uint64_t{64} << 20;  ///< Of one that is kept.
constexpr std::uint32_t kLargestHead = 64 << 10;
constexpr std::size_t kPiece = std::size_t{64} << 10;

tl::unexpected<Failure> broken(std::string what) {
  return failed(FailureKind::kBroken, std::move(what));
}

// --- connecting

/// The result of a connect that was begun on a non-blocking socket; 0: it is connected.
int finish_connect(int socket) {
  pollfd place{socket, POLLOUT, 0};
  int ready = -1;
  do ready = poll(&place, 1, static_cast<int>(kConnectPatience.count()));
  while (ready < 0 && errno == EINTR);
  if (ready <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

/// errno, or 0 with the socket in `socket`.
int connect_one(int family, const sockaddr* where, socklen_t size, UniqueFd& socket) {
  socket.reset(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return errno;
  if (connect(socket.get(), where, size) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  return finish_connect(socket.get());
}

std::string remedy_for_socket(int error) {
  if (error == EACCES)
    return "as root, or as a member of the group that the socket has (usermod -aG belljar USER)";
  return "is belljard running, and is this its socket? --socket PATH and --url URL name another";
}

Outcome<UniqueFd> connect_to_socket(const std::string& path) {
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  if (path.size() >= sizeof where.sun_path)
    return failed(FailureKind::kUsage, "the path of a unix socket has at most " +
                                           std::to_string(sizeof where.sun_path - 1) +
                                           " bytes: " + path);
  std::memcpy(where.sun_path, path.c_str(), path.size() + 1);
  UniqueFd socket;
  const int error = connect_one(AF_UNIX, reinterpret_cast<sockaddr*>(&where), sizeof where, socket);
  if (error == 0) return socket;
  return failed(FailureKind::kUnreachable, "connect to " + path + ": " + std::strerror(error),
                remedy_for_socket(error));
}

Outcome<UniqueFd> connect_to_host(const Address& address) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int lookup = getaddrinfo(address.host.c_str(), address.port.c_str(), &wanted, &found);
  if (lookup != 0)
    return failed(FailureKind::kUnreachable,
                  "look up " + address.host + ": " + gai_strerror(lookup));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, freeaddrinfo);
  int error = 0;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    UniqueFd socket;
    error = connect_one(one->ai_family, one->ai_addr, one->ai_addrlen, socket);
    if (error != 0) continue;
    // A peer that is gone without a word is noticed, however long nothing is to be said.
    const int on = 1, idle_s = 30;
    (void)setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    return socket;
  }
  return failed(FailureKind::kUnreachable,
                "connect to " + address.text() + ": " + std::strerror(error),
                "is belljard running, and does it listen there (--listen)?");
}

// --- one request

/// Hands a body on as it comes.
struct SinkBody {
  using value_type = std::function<bool(std::string_view)>;
  class reader {
   public:
    template <bool kRequest, class Fields>
    reader(http::header<kRequest, Fields>&, value_type& sink) : sink_(sink) {}
    void init(const boost::optional<std::uint64_t>&, beast::error_code& error) { error = {}; }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, beast::error_code& error) {
      std::size_t taken = 0;
      error = {};
      for (const auto piece : beast::buffers_range_ref(buffers)) {
        taken += piece.size();
        if (sink_({static_cast<const char*>(piece.data()), piece.size()})) continue;
        error = asio::error::operation_aborted;
        break;
      }
      return taken;
    }
    void finish(beast::error_code& error) { error = {}; }

   private:
    value_type& sink_;
  };
};

bool is_safe(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

std::string host_of(const Address& address) {
  if (!address.socket.empty()) return "belljard";
  const bool six = address.host.find(':') != std::string::npos;
  return (six ? '[' + address.host + ']' : address.host) + ':' + address.port;
}

Outcome<std::string> head_of(const Address& address, const Call& call) {
  std::string head = call.method + ' ' + call.target + " HTTP/1.1\r\nHost: " + host_of(address) +
                     "\r\nUser-Agent: belljarctl/" BELLJAR_VERSION "\r\nConnection: close\r\n";
  std::vector<std::pair<std::string, std::string>> headers = call.headers;
  if (!address.token.empty()) headers.emplace_back("Authorization", "Bearer " + address.token);
  if (!call.content_type.empty()) headers.emplace_back("Content-Type", call.content_type);
  if (call.source)
    headers.emplace_back("Transfer-Encoding", "chunked");
  else if (!call.body.empty() || call.method == "POST" || call.method == "PUT")
    headers.emplace_back("Content-Length", std::to_string(call.body.size()));
  for (const auto& [name, value] : headers) {
    if (!is_safe(value))
      return failed(FailureKind::kUsage, "the field " + name + " cannot have such a value");
    head += name + ": " + value + "\r\n";
  }
  return head + "\r\n";
}

class Conversation {
 public:
  Conversation(UniqueFd socket, const Call& call) : socket_(std::move(socket)), call_(call) {
    if (call.silence) until_ = steady_clock::now() + *call.silence;
    parser_.header_limit(kLargestHead);
    parser_.body_limit(boost::none);
    parser_.eager(true);
    parser_.get().body() = [this](std::string_view bytes) { return take(bytes); };
    if (call.method == "HEAD") parser_.skip(true);
  }

  Outcome<Answer> hold(std::string head) {
    BELLJAR_CHECK(send(std::move(head) + call_.body));
    if (call_.source) BELLJAR_CHECK(send_source());
    BELLJAR_CHECK(receive());
    return answer();
  }

 private:
  enum class Wait { kReady, kStopped };

  /// For `events` of the socket; the watches are served meanwhile.
  Outcome<Wait> wait(short events) {
    std::vector<pollfd> places = {{socket_.get(), events, 0}};
    for (const Watch& watch : call_.watches) places.push_back({watch.descriptor, POLLIN, 0});
    for (;;) {
      int patience = -1;
      if (call_.silence) {
        const auto left = std::chrono::ceil<milliseconds>(until_ - steady_clock::now());
        if (left.count() <= 0)
          return broken("nothing was heard for " + std::to_string(call_.silence->count() / 1000) +
                        " s");
        patience = static_cast<int>(left.count());
      }
      const int ready = poll(places.data(), places.size(), patience);
      if (ready < 0 && errno != EINTR) return call_failed(errno, "wait for the daemon");
      if (ready <= 0) continue;
      for (std::size_t i = 0; i < call_.watches.size(); ++i)
        if (places[i + 1].revents != 0 && !call_.watches[i].ready()) return Wait::kStopped;
      if (places[0].revents != 0) return Wait::kReady;
    }
  }

  void heard() {
    if (call_.silence) until_ = steady_clock::now() + *call_.silence;
  }

  /// All of it, or until the other end answers although it has not got all.
  Done send(std::string_view bytes) {
    while (!bytes.empty() && !answers_early_ && !stopped_) {
      const ssize_t sent =
          ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) {
        bytes.remove_prefix(static_cast<std::size_t>(sent));
        heard();
        continue;
      }
      if (errno == EPIPE || errno == ECONNRESET) answers_early_ = true;  // Perhaps with a reason.
      if (errno != EAGAIN && errno != EINTR && !answers_early_)
        return broken(std::string("the connection broke: ") + std::strerror(errno));
      if (errno == EAGAIN) BELLJAR_CHECK(wait_to_send());
    }
    return {};
  }

  Done wait_to_send() {
    const Outcome<Wait> waited = wait(POLLOUT | POLLIN);
    if (!waited) return tl::unexpected(waited.error());
    stopped_ = *waited == Wait::kStopped;
    pollfd place{socket_.get(), POLLIN, 0};
    answers_early_ = poll(&place, 1, 0) > 0;
    return {};
  }

  Done send_source() {
    while (!answers_early_ && !stopped_) {
      Outcome<std::string> piece = call_.source();
      if (!piece) return tl::unexpected(std::move(piece).error());
      std::array<char, 24> size{};
      std::snprintf(size.data(), size.size(), "%zx\r\n", piece->size());
      BELLJAR_CHECK(send(size.data() + *piece + "\r\n"));
      if (piece->empty()) return {};
    }
    return {};
  }

  Done receive() {
    std::string buffer;
    while (!parser_.is_done() && !stopped_) {
      const Outcome<Wait> waited = wait(POLLIN);
      if (!waited) return tl::unexpected(waited.error());
      stopped_ = *waited == Wait::kStopped;
      if (stopped_) return {};
      std::array<char, kPiece> piece{};
      const ssize_t got = recv(socket_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (got < 0) return broken(std::string("the connection broke: ") + std::strerror(errno));
      heard();
      buffer.append(piece.data(), static_cast<std::size_t>(got));
      BELLJAR_CHECK(parse(buffer, got == 0));
    }
    return {};
  }

  Done parse(std::string& buffer, bool ended) {
    beast::error_code error;
    while (!buffer.empty() && !parser_.is_done() && !error) {
      const std::size_t taken = parser_.put(asio::buffer(buffer), error);
      buffer.erase(0, taken);
      if (taken == 0) break;
    }
    if (error == http::error::need_more) error = {};
    if (ended && !parser_.got_some()) return broken("the connection ended without an answer");
    if (ended && !error && !parser_.is_done()) parser_.put_eof(error);
    stopped_ = error == asio::error::operation_aborted && !too_large_;
    if (!error || stopped_) return {};
    if (too_large_) return broken("the answer is larger than 64 MiB");
    if (ended) return broken("the connection ended before the answer did");
    return broken("what answers does not speak HTTP as belljard does: " + error.message());
  }

  bool take(std::string_view bytes) {
    const unsigned status = parser_.get().result_int();
    if (call_.sink && status >= 200 && status < 300) return call_.sink(bytes);
    too_large_ = kept_.size() + bytes.size() > kLargestAnswer;
    if (!too_large_) kept_ += bytes;
    return !too_large_;
  }

  Answer answer() {
    Answer answer;
    answer.status = parser_.is_header_done() ? static_cast<int>(parser_.get().result_int()) : 0;
    for (const auto& field : parser_.get().base())
      answer.headers.add(std::string(field.name_string()),
                         std::string(field.value().data(), field.value().size()));
    answer.body = std::move(kept_);
    answer.stopped = stopped_;
    return answer;
  }

  UniqueFd socket_;
  const Call& call_;
  steady_clock::time_point until_;
  http::response_parser<SinkBody> parser_;
  std::string kept_;
  bool answers_early_ = false, stopped_ = false, too_large_ = false;
};

}  // namespace

std::string Address::text() const {
  return socket.empty() ? "http://" + host_of(*this) : "unix:" + socket;
}

Outcome<Address> parse_url(std::string_view url) {
  Address address;
  const auto wrong = [&](std::string why, std::string remedy) {
    return failed(FailureKind::kUsage, "--url " + std::string(url) + ": " + std::move(why),
                  std::move(remedy));
  };
  if (url.starts_with("unix:/")) {
    address.socket = url.substr(5);
    return address;
  }
  if (url.starts_with("https:"))
    return wrong(
        "belljard speaks no TLS",
        "http:// on its own machine, or through a tunnel: ssh -L 8080:127.0.0.1:8080 HOST");
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme) || !is_safe(url))
    return wrong("is neither http://HOST:PORT nor unix:/PATH", {});
  std::string_view rest = url.substr(kScheme.size());
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const std::size_t bracket = rest.starts_with('[') ? rest.find(']') : 0;
  const std::size_t colon = bracket == std::string_view::npos ? bracket : rest.find(':', bracket);
  if (rest.find_first_of("/?#@") != std::string_view::npos || bracket == std::string_view::npos)
    return wrong("has more than a host and a port", "http://HOST:PORT");
  address.host = rest.substr(0, colon);
  if (bracket > 0) address.host = rest.substr(1, bracket - 1);
  address.port = colon == std::string_view::npos ? "80" : std::string(rest.substr(colon + 1));
  if (address.host.empty() || address.port.empty() ||
      address.port.find_first_not_of("0123456789") != std::string::npos)
    return wrong("has no host, or no number for a port", "http://HOST:PORT");
  return address;
}

Outcome<UniqueFd> connect_to(const Address& address) {
  return address.socket.empty() ? connect_to_host(address) : connect_to_socket(address.socket);
}

Outcome<Answer> exchange(const Address& address, const Call& call) {
  Outcome<std::string> head = head_of(address, call);
  if (!head) return tl::unexpected(std::move(head).error());
  Outcome<UniqueFd> socket = connect_to(address);
  if (!socket) return tl::unexpected(std::move(socket).error());
  return Conversation(*std::move(socket), call).hold(*std::move(head));
}

// --- WebSockets

struct WebSocket::Stream {
  static constexpr std::size_t kMostWaiting = 16;  ///< Messages that nobody has asked for yet.
  using Socket = asio::generic::stream_protocol::socket;
  asio::io_context loop;
  websocket::stream<Socket, false> socket{loop};
  beast::flat_buffer buffer;
  websocket::response_type answer;
  std::deque<std::string> came, queued;
  std::size_t unsent = 0;
  bool reading = true, writing = false, over = false;
  std::string reason;

  void read() {
    socket.async_read(buffer, [this](beast::error_code error, std::size_t) {
      if (error) return end(error);
      came.push_back(beast::buffers_to_string(buffer.data()));
      buffer.clear();
      reading = came.size() < kMostWaiting;
      if (reading) read();
    });
  }

  void write() {
    if (writing || queued.empty() || over) return;
    writing = true;
    socket.async_write(asio::buffer(queued.front()), [this](beast::error_code error, std::size_t) {
      writing = false;
      if (error) return end(error);
      unsent -= queued.front().size();
      queued.pop_front();
      write();
    });
  }

  void end(beast::error_code error) {
    if (over) return;
    over = true;
    const auto said = socket.reason().reason;
    reason = error == websocket::error::closed && !said.empty()
                 ? std::string(said.data(), said.size())
                 : "the connection ended: " + error.message();
  }

  Done shake_hands(const Address& address, const std::string& target, const std::string& protocol) {
    socket.set_option(websocket::stream_base::decorator([&](websocket::request_type& request) {
      request.set(http::field::sec_websocket_protocol, protocol);
      request.set(http::field::user_agent, "belljarctl/" BELLJAR_VERSION);
      if (!address.token.empty())
        request.set(http::field::authorization, "Bearer " + address.token);
    }));
    beast::error_code result = asio::error::timed_out;
    socket.async_handshake(answer, host_of(address), target,
                           [&](beast::error_code error) { result = error; });
    loop.run_for(kConnectPatience);
    loop.restart();
    if (result == websocket::error::upgrade_declined)
      return tl::unexpected(problem_of(static_cast<int>(answer.result_int()), answer.body()));
    if (result) return broken("the WebSocket was not opened: " + result.message());
    if (answer[http::field::sec_websocket_protocol] != protocol)
      return broken("the other end does not speak " + protocol);
    return {};
  }
};

WebSocket::WebSocket(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}
WebSocket::~WebSocket() = default;

Outcome<std::unique_ptr<WebSocket>> WebSocket::connect(const Address& address,
                                                       const std::string& target,
                                                       const std::string& protocol) {
  constexpr std::size_t kLargestMessage = std::size_t{4} << 20;
  Outcome<UniqueFd> descriptor = connect_to(address);
  if (!descriptor) return tl::unexpected(std::move(descriptor).error());
  auto stream = std::make_unique<Stream>();
  const int family = address.socket.empty() ? AF_INET : AF_UNIX;
  beast::error_code error;
  stream->socket.next_layer().assign(asio::generic::stream_protocol(family, 0), descriptor->get(),
                                     error);
  if (error) return broken("take the socket into the loop: " + error.message());
  (void)descriptor->release();
  websocket::stream_base::timeout timeout{};
  timeout.handshake_timeout = kConnectPatience;
  timeout.idle_timeout = std::chrono::seconds(60);  // The daemon pings every 20 s.
  timeout.keep_alive_pings = true;
  stream->socket.set_option(timeout);
  stream->socket.read_message_max(kLargestMessage);
  const Done shaken = stream->shake_hands(address, target, protocol);
  if (!shaken) return tl::unexpected(shaken.error());
  stream->socket.binary(true);
  stream->read();
  return std::unique_ptr<WebSocket>(new WebSocket(std::move(stream)));
}

int WebSocket::descriptor() const { return stream_->socket.next_layer().native_handle(); }

short WebSocket::events() const {
  return static_cast<short>(stream_->writing ? POLLIN | POLLOUT : POLLIN);
}

void WebSocket::turn() {
  stream_->loop.poll();
  if (stream_->loop.stopped()) stream_->loop.restart();
}

std::optional<std::string> WebSocket::next() {
  if (stream_->came.empty()) return std::nullopt;
  std::string message = std::move(stream_->came.front());
  stream_->came.pop_front();
  if (!std::exchange(stream_->reading, true)) stream_->read();
  return message;
}

void WebSocket::send(std::string message) {
  stream_->unsent += message.size();
  stream_->queued.push_back(std::move(message));
  stream_->write();
}

std::size_t WebSocket::unsent() const { return stream_->unsent; }
bool WebSocket::over() const { return stream_->over && stream_->came.empty(); }
std::string WebSocket::reason() const { return stream_->reason; }

void WebSocket::close() {
  const auto until = steady_clock::now() + std::chrono::seconds(1);
  while (!stream_->over && stream_->writing && steady_clock::now() < until) {
    stream_->loop.restart();
    stream_->loop.run_one_for(milliseconds(100));
  }
  if (stream_->over || stream_->writing) return;
  stream_->loop.restart();
  stream_->socket.async_close(websocket::close_code::normal,
                              [this](beast::error_code error) { stream_->end(error); });
  stream_->loop.run_until(until);
}

}  // namespace belljar::ctl
