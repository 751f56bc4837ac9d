// The client's end of a socket, with another end that does what it likes.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include "fake_service.hpp"
#include "policy/base/sealing.hpp"
#include "supervisor/streams.hpp"

namespace belljar::supervisor {
namespace {

struct Wire {
  Wire() {
    auto [ours, theirs] = socket_pair();
    channel = std::make_shared<Channel>(loop.get_executor(), clock, std::move(ours), "the other");
    peer = std::make_shared<FakePeer>(loop, std::move(theirs));
    peer->open(
        [this](const Json& message, std::vector<UniqueFd> descriptors) {
          requests.push_back(message);
          for (UniqueFd& one : descriptors) received.push_back(std::move(one));
        },
        [this] { peer_closed = true; });
    channel->open([this](const std::string& name, const Json&) { events.push_back(name); },
                  [this](const std::string& why) { closed_because = why; });
  }
  ~Wire() {
    channel->close("the end");
    peer->close();
    settle();
  }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  void settle() {
    for (int turn = 0; turn < 4; ++turn) {
      loop.restart();
      loop.poll();
    }
  }
  std::shared_ptr<std::optional<Outcome<Reply>>> ask(const std::string& action) {
    const auto result = std::make_shared<std::optional<Outcome<Reply>>>();
    Request request(action, Json::object());
    asio::co_spawn(loop, channel->ask(std::move(request), Milliseconds(1000)),
                   [result](const std::exception_ptr& broken, Outcome<Reply> reply) {
                     if (!broken) *result = std::move(reply);
                   });
    settle();
    return result;
  }

  asio::io_context loop;
  std::shared_ptr<TestClock> clock = std::make_shared<TestClock>(loop);
  std::shared_ptr<Channel> channel;
  std::shared_ptr<FakePeer> peer;
  std::vector<Json> requests;
  std::vector<UniqueFd> received;
  std::vector<std::string> events;
  std::string closed_because;
  bool peer_closed = false;
};

TEST_CASE("answers find their requests in whatever order they come") {
  Wire wire;
  const auto first = wire.ask("first"), second = wire.ask("second");
  REQUIRE(wire.requests.size() == 2);
  wire.peer->answer(wire.requests[1], {{"n", 2}});
  wire.peer->answer(wire.requests[0], {{"n", 1}});
  wire.settle();
  REQUIRE((*first && *second));
  CHECK((*first)->value().ok["n"] == 1);
  CHECK((*second)->value().ok["n"] == 2);
}

TEST_CASE("descriptors travel beside requests and answers, and are closed here once sent") {
  Wire wire;
  Pipe pipe = make_pipe().value();
  Request request("give", Json::object());
  request.descriptors.push_back(std::move(pipe.write_end));
  const std::size_t before = open_descriptors();
  asio::co_spawn(wire.loop, wire.channel->ask(std::move(request), Milliseconds(1)), asio::detached);
  wire.settle();
  REQUIRE(wire.received.size() == 1);
  CHECK(open_descriptors() == before);
  const auto reply = wire.ask("take");
  wire.peer->answer(wire.requests[1], Json::object(), {pipe.read_end.get()});
  wire.settle();
  REQUIRE(*reply);
  CHECK((*reply)->value().descriptors.size() == 1);
}

TEST_CASE("an answer that comes too late is dropped, with what it carries, and breaks nothing") {
  Wire wire;
  const auto late = wire.ask("late");
  wire.clock->advance(Milliseconds(1000));
  wire.settle();
  REQUIRE(*late);
  CHECK((*late)->error().code == Code::kTimeout);
  const Pipe pipe = make_pipe().value();
  const std::size_t before = open_descriptors();
  wire.peer->answer(wire.requests[0], Json::object(), {pipe.read_end.get()});
  wire.settle();
  CHECK(open_descriptors() == before);
  CHECK_FALSE(wire.channel->closed());
  const auto next = wire.ask("next");
  wire.peer->answer(wire.requests[1], Json::object());
  wire.settle();
  CHECK((*next)->has_value());
}

TEST_CASE("an error of the other end keeps its code and words") {
  Wire wire;
  for (const auto& [name, code] :
       {std::pair("not_found", Code::kNotFound), std::pair("changed", Code::kPrecondition),
        std::pair("sandbox", Code::kSandbox), std::pair("of a later version", Code::kSystem)}) {
    const auto reply = wire.ask("x");
    wire.peer->fail(wire.requests.back(), name);
    wire.settle();
    REQUIRE(*reply);
    CHECK((*reply)->error().code == code);
    CHECK((*reply)->error().error.what.find(name) != std::string::npos);
  }
}

TEST_CASE(
    "an other end that breaks the protocol is not spoken to again, and all that waits is lost") {
  const char* const breaches[] = {"no json",
                                  "[]",
                                  "7",
                                  "null",
                                  "{}",
                                  "{\"id\":99,\"ok\":{}}",
                                  "{\"id\":-1,\"ok\":{}}",
                                  "{\"id\":\"1\",\"ok\":{}}",
                                  "{\"id\":1}",
                                  "{\"id\":1,\"ok\":{},\"error\":{}}",
                                  "{\"event\":5}",
                                  "{\"id\":1.5,\"ok\":{}}",
                                  "\xff\xfe",
                                  "{\"event\":\"x\"",
                                  "{\"id\":1e99,\"ok\":{}}"};
  for (const char* breach : breaches) {
    CAPTURE(breach);
    Wire wire;
    const auto waiting = wire.ask("x");
    wire.peer->send(breach);
    wire.settle();
    CHECK(wire.channel->closed());
    CHECK_FALSE(wire.closed_because.empty());
    REQUIRE(*waiting);
    CHECK((*waiting)->error().code == Code::kLost);
    CHECK(wire.peer_closed);
    const auto later = wire.ask("y");
    CHECK((*later)->error().code == Code::kLost);
  }
  Wire control;
  const auto waiting = control.ask("x");
  control.peer->send("{\"id\":1,\"ok\":{}}");
  control.settle();
  CHECK((*waiting)->has_value());
  CHECK_FALSE(control.channel->closed());
}

TEST_CASE("a message that is too large, or has too many descriptors, is a breach") {
  for (const bool large : {true, false}) {
    Wire wire;
    const Pipe pipe = make_pipe().value();
    const std::size_t before = open_descriptors();
    if (large) {
      wire.peer->send("{\"event\":\"" + std::string(70000, 'x') + "\"}");
    } else {
      wire.peer->send("{\"event\":\"x\"}", std::vector<int>(12, pipe.read_end.get()));
    }
    wire.settle();
    CHECK(wire.channel->closed());
    CHECK(open_descriptors() <= before);
  }
}

TEST_CASE("the end of the other end is told once and loses all that waits") {
  Wire wire;
  const auto waiting = wire.ask("x");
  wire.peer->close();
  wire.settle();
  REQUIRE(*waiting);
  CHECK((*waiting)->error().code == Code::kLost);
  CHECK(wire.closed_because == "it has gone");
}

TEST_CASE("what the other end said last is heard, although it left requests unread") {
  Wire wire;
  auto [ours, theirs] = socket_pair();
  const auto channel =
      std::make_shared<Channel>(wire.loop.get_executor(), wire.clock, std::move(ours), "one");
  std::vector<std::string> heard;
  std::string why;
  channel->open([&heard](const std::string& name, const Json&) { heard.push_back(name); },
                [&why](const std::string& because) { why = because; });
  Request request("unread", Json::object());
  asio::co_spawn(wire.loop, channel->ask(std::move(request), Milliseconds(1000)), asio::detached);
  wire.settle();
  REQUIRE(::send(theirs.get(), "{\"event\":\"over\"}", 16, 0) == 16);
  theirs.reset();
  // One that is sent into the void must not hide it either.
  Request late("late", Json::object());
  asio::co_spawn(wire.loop, channel->ask(std::move(late), Milliseconds(1000)), asio::detached);
  wire.settle();
  CHECK(heard == std::vector<std::string>{"over"});
  CHECK(why == "it has gone");
}

TEST_CASE("events come in order and through a handler that may close the channel") {
  Wire wire;
  wire.peer->tell("one", Json::object());
  wire.peer->tell("two", Json::object());
  wire.settle();
  CHECK(wire.events == std::vector<std::string>{"one", "two"});
}

TEST_CASE("what the other end does not take in is queued, bounded, and goes out in order") {
  Wire wire;
  wire.peer->close();
  auto [ours, theirs] = socket_pair();
  const auto channel = std::make_shared<Channel>(wire.loop.get_executor(), wire.clock,
                                                 std::move(ours), "a deaf one");
  channel->open([](const std::string&, const Json&) {}, [](const std::string&) {});
  std::size_t busy = 0, asked = 0;
  for (; asked < 6000 && busy == 0; ++asked) {
    Json members;
    members["padding"] = std::string(1000, 'x');
    Request request("x", std::move(members));
    asio::co_spawn(wire.loop, channel->ask(std::move(request), Milliseconds(1000)),
                   [&busy](const std::exception_ptr&, Outcome<Reply> reply) {
                     busy += !reply && reply.error().code == Code::kBusy;
                   });
    wire.settle();
  }
  CHECK(busy == 1);
  const auto peer = std::make_shared<FakePeer>(wire.loop, std::move(theirs));
  std::vector<std::uint64_t> ids;
  peer->open(
      [&ids](const Json& message, const std::vector<UniqueFd>&) { ids.push_back(message["id"]); },
      [] {});
  for (int turn = 0; turn < 3000; ++turn) wire.settle();
  CHECK(ids.size() == asked - 1);
  CHECK(std::is_sorted(ids.begin(), ids.end()));
  channel->close("done");
  wire.settle();
}

TEST_CASE("a memfd of which the kernel holds a page for a while is sealed all the same") {
  UniqueFd memory(::memfd_create("held", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(memory.get(), 4096) == 0);
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  REQUIRE(page != MAP_FAILED);
  *static_cast<char*>(page) = 'x';
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  const iovec part{page, 4096};
  REQUIRE(::vmsplice(ends[1], &part, 1, 0) == 4096);
  ::munmap(page, 4096);
  CHECK(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_WRITE) != 0);
  CHECK(errno == EBUSY);
  std::thread lets_go([&ends] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ::close(ends[0]);
    ::close(ends[1]);
  });
  CHECK(add_seals(memory.get(), F_SEAL_WRITE));
  lets_go.join();
}

TEST_CASE("a memfd for the service is sealed for good and holds what it was given") {
  const std::string text(100000, 'y');
  const UniqueFd memfd = sealed_memfd(text).value();
  CHECK(read_memfd(memfd, 200000).value() == text);
  CHECK(read_memfd(memfd, 99999).error().code == Code::kTooLarge);
  CHECK(::write(memfd.get(), "z", 1) < 0);
}

}  // namespace
}  // namespace belljar::supervisor
