// Requests and answers piece by piece, over real sockets, with peers that stall, vanish and lie.
#include "api/http/server.hpp"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

using namespace belljar;
using namespace belljar::api;
using std::chrono::milliseconds;

namespace {

using Stream = std::function<Awaitable<void>(Exchange&)>;

class TestHandler final : public Handler {
 public:
  explicit TestHandler(Stream stream) : stream_(std::move(stream)) {}
  Verdict judge(Request&) override {
    Verdict verdict;
    verdict.body_limit = std::size_t{1} << 20;
    verdict.stream = stream_;
    return verdict;
  }
  Response refusal(const Refusal& why) override {
    Response response;
    response.status = why.status;
    response.body = std::string(why.why);
    return response;
  }
  void done(const Request&, int status, std::chrono::microseconds) override {
    last_status = status;
  }
  std::atomic<int> last_status{0};

 private:
  Stream stream_;
};

/// A server in a thread of its own, which waits so long for who stalls.
class Rig {
 public:
  explicit Rig(Stream stream, milliseconds patience = milliseconds(60000))
      : handler_(std::move(stream)), server_(loop_, handler_, options(patience)) {
    static int number = 0;
    address_.sun_family = AF_UNIX;
    const std::string name =
        "belljar-server-test-" + std::to_string(getpid()) + '-' + std::to_string(++number);
    std::memcpy(address_.sun_path + 1, name.data(), name.size());
    UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_) ==
            0);
    REQUIRE(listen(listener.get(), 16) == 0);
    server_.serve(std::move(listener));
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~Rig() {
    loop_.stop();
    thread_.join();
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  [[nodiscard]] UniqueFd connect() const {
    UniqueFd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address_),
                      sizeof address_) == 0);
    return client;
  }
  [[nodiscard]] int last_status() const { return handler_.last_status; }

 private:
  static ServerOptions options(milliseconds patience) {
    ServerOptions options;
    options.body = patience;
    options.write = patience;
    return options;
  }
  asio::io_context loop_{1};
  TestHandler handler_;
  Server server_;
  sockaddr_un address_{};
  std::thread thread_;
};

void send_text(const UniqueFd& client, std::string_view text) {
  REQUIRE(send(client.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(text.size()));
}

/// What comes until the end of the connection, or until `wanted` has come.
std::string receive(const UniqueFd& client, std::string_view wanted = {}) {
  std::string text;
  while (wanted.empty() || text.find(wanted) == std::string::npos) {
    pollfd readable{client.get(), POLLIN, 0};
    if (poll(&readable, 1, 20000) != 1) return text + "(nothing more)";
    std::array<char, 4096> piece{};
    const ssize_t size = recv(client.get(), piece.data(), piece.size(), 0);
    if (size <= 0) return text + "(end)";
    text.append(piece.data(), static_cast<std::size_t>(size));
  }
  return text;
}

/// Whether it comes to hold.
bool soon(const std::function<bool()>& holds) {
  for (int i = 0; i < 2000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

const std::string kGet = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const std::string kPost = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";

Awaitable<void> echo(Exchange& exchange) {
  std::string body;
  for (;;) {
    const std::optional<std::string> piece = co_await exchange.read();
    if (!piece) co_return;
    if (piece->empty()) break;
    body += *piece;
  }
  Response response;
  response.body = std::move(body);
  co_await exchange.answer(std::move(response));
}

/// Begins an answer of 5 bytes, or of chunks, and writes `text`.
Awaitable<void> say(Exchange& exchange, std::optional<std::uint64_t> length, std::string text,
                    bool finish) {
  Response head;
  const bool begun = co_await exchange.begin(std::move(head), length);
  if (!begun) co_return;
  const bool written = co_await exchange.write(std::move(text));
  if (written && finish) co_await exchange.finish();
}

Awaitable<void> write_for_ever(Exchange& exchange, std::atomic<bool>& ended) {
  Response head;
  bool goes_on = co_await exchange.begin(std::move(head), std::nullopt);
  while (goes_on) {
    std::string piece(65536, 'x');
    goes_on = co_await exchange.write(std::move(piece));
  }
  ended = true;
}

}  // namespace

TEST_CASE("a body is the same however it is cut, and the connection serves on") {
  const Rig rig(echo);
  const UniqueFd client = rig.connect();
  for (const std::string& request :
       {kPost + "hello",
        std::string("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                    "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n")}) {
    for (const char byte : request) send_text(client, std::string_view(&byte, 1));
    CHECK(receive(client, "hello").starts_with("HTTP/1.1 200 OK\r\n"));
  }
}

TEST_CASE("a sender who stops in the middle of a body is told so, and cut off") {
  const Rig rig(echo, milliseconds(200));
  const UniqueFd client = rig.connect();
  send_text(client, kPost + "he");
  const std::string answer = receive(client);
  CHECK(answer.starts_with("HTTP/1.1 408 "));
  CHECK(answer.ends_with("(end)"));
}

TEST_CASE("a body that is broken, or larger than it may be, is answered and ends the connection") {
  const Rig rig(echo);
  for (const auto& [body, status] : {std::pair<std::string, std::string>{"zz\r\n", "400"},
                                     {"200000\r\n" + std::string(1000, 'x'), "413"}}) {
    const UniqueFd client = rig.connect();
    send_text(client, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + body);
    const std::string answer = receive(client);
    CHECK(answer.starts_with("HTTP/1.1 " + status));
    CHECK(answer.ends_with("(end)"));
  }
}

TEST_CASE("who waits to be asked for his body is asked once somebody reads it") {
  const Rig rig(echo);
  const UniqueFd client = rig.connect();
  send_text(client,
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
  CHECK(receive(client, "\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
  send_text(client, "hello");
  CHECK(receive(client, "hello").starts_with("HTTP/1.1 200 OK\r\n"));
}

TEST_CASE("an answer has the length that was told, or is cut short for all to see") {
  for (const auto& [text, whole] :
       {std::pair<std::string, bool>{"hello", true}, {"hello and more", true}, {"hell", false}}) {
    const Rig rig([text = text](Exchange& exchange) { return say(exchange, 5, text, true); });
    const UniqueFd client = rig.connect();
    send_text(client, kGet);
    const std::string answer = receive(client, whole ? "hello" : std::string_view());
    CHECK(answer.ends_with(whole ? "\r\n\r\nhello" : "\r\n\r\nhell(end)"));
    if (!whole) continue;
    send_text(client, kGet);
    CHECK(receive(client, "hello").starts_with("HTTP/1.1 200 OK\r\n"));
  }
}

TEST_CASE("chunks end with the last chunk only when all has been said") {
  const Rig rig([](Exchange& exchange) {
    return say(exchange, std::nullopt, "hello", exchange.request().target == "/");
  });
  const UniqueFd client = rig.connect();
  send_text(client, kGet);
  CHECK(receive(client, "0\r\n\r\n").ends_with("\r\n\r\n5\r\nhello\r\n0\r\n\r\n"));
  send_text(client, "GET /cut HTTP/1.1\r\nHost: a\r\n\r\n");
  CHECK(receive(client).ends_with("5\r\nhello\r\n(end)"));
}

TEST_CASE("HEAD gets the head alone, of either kind, and the connection serves on") {
  const Rig rig([](Exchange& exchange) {
    const bool chunks = exchange.request().target == "/chunks";
    return say(exchange, chunks ? std::nullopt : std::optional<std::uint64_t>(5), "hello", true);
  });
  const UniqueFd client = rig.connect();
  for (const char* target : {"/", "/chunks"}) {
    send_text(client, std::string("HEAD ") + target + " HTTP/1.1\r\nHost: a\r\n\r\n");
    const std::string head = receive(client, "\r\n\r\n");
    CHECK(head.ends_with("\r\n\r\n"));
  }
  send_text(client, kGet);
  CHECK(receive(client, "hello").starts_with("HTTP/1.1 200 OK\r\n"));
}

TEST_CASE("a receiver who takes nothing is given up, and one who has gone is noticed") {
  std::atomic<bool> ended{false};
  const Rig rig([&ended](Exchange& exchange) { return write_for_ever(exchange, ended); },
                milliseconds(200));
  {
    const UniqueFd client = rig.connect();
    send_text(client, kGet);
    CHECK(soon([&] { return ended.load(); }));
  }
  ended = false;
  {
    const UniqueFd client = rig.connect();
    send_text(client, kGet);
    receive(client, "xxxx");
  }
  CHECK(soon([&] { return ended.load(); }));
}

namespace {

/// Writes while somebody else still reads the body, and then gives that up.
Awaitable<void> answer_early(Exchange& exchange, std::atomic<int>& read) {
  std::optional<std::string> first = co_await exchange.read();
  if (!first) co_return;
  auto executor = co_await asio::this_coro::executor;
  const auto rest = [](Exchange& other, std::atomic<int>& count) -> Awaitable<void> {
    const std::optional<std::string> piece = co_await other.read();
    count = piece ? static_cast<int>(piece->size()) : -1;
  };
  asio::co_spawn(executor, rest(exchange, read), asio::detached);
  asio::steady_timer pause(executor, milliseconds(50));
  co_await pause.async_wait(supervisor::kAsTuple);
  exchange.stop_reading();
  std::string text = "hello";
  co_await say(exchange, 5, std::move(text), true);
  while (read == 0) {
    pause.expires_after(milliseconds(10));
    co_await pause.async_wait(supervisor::kAsTuple);
  }
}

}  // namespace

TEST_CASE("an answer can come before the body has, of which the rest is then given up") {
  std::atomic<int> read{0};
  const Rig rig([&read](Exchange& exchange) { return answer_early(exchange, read); });
  const UniqueFd client = rig.connect();
  send_text(client, kPost + "he");
  const std::string answer = receive(client);
  CHECK(answer.starts_with("HTTP/1.1 200 OK\r\n"));
  CHECK(answer.find("connection: close\r\n") != std::string::npos);
  CHECK(answer.ends_with("\r\n\r\nhello(end)"));
  CHECK(read == -1);
}

TEST_CASE("who answers nothing at all has failed") {
  const Rig rig([](Exchange&) -> Awaitable<void> { co_return; });
  const UniqueFd client = rig.connect();
  send_text(client, kGet);
  CHECK(receive(client, "no answer").starts_with("HTTP/1.1 500 "));
  CHECK(soon([&] { return rig.last_status() == 500; }));
}
