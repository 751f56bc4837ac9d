// Processes of a session: their output, their stdin, and their ends.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "fake_service.hpp"

namespace belljar::supervisor {
namespace {

ProcessSpec command(const std::string& name) {
  ProcessSpec spec;
  spec.argv = {name};
  return spec;
}

struct Running {
  Running() : session(world.session()), monitor(world.service->monitor("one")) {}
  std::shared_ptr<Process> start(ProcessSpec spec) {
    auto made = world.run(session->start(std::move(spec)));
    if (!made) throw std::runtime_error(made.error().error.what);
    return *made;
  }
  World world;
  std::shared_ptr<Session> session;
  FakeMonitor& monitor;
};

std::string read_pipe(const UniqueFd& from) {
  std::array<char, 70000> buffer{};
  const ssize_t length = ::read(from.get(), buffer.data(), buffer.size());
  return length > 0 ? std::string(buffer.data(), static_cast<std::size_t>(length)) : "";
}

TEST_CASE("output is drained from the first moment, whether or not anybody listens") {
  Running of;
  const std::string block(60000, 'x');
  for (int times = 0; times < 20; ++times) {
    of.monitor.write(0, 1, block);
    of.world.settle();
  }
  CHECK(of.session->process(0)->out()->size() == 20 * block.size());
  CHECK(of.session->process(0)->err()->size() == 0);
}

TEST_CASE("stdout and stderr are two journals, or one in the order that was written") {
  Running of;
  const auto two = of.start(command("two"));
  ProcessSpec spec = command("one");
  spec.merge_output = true;
  const auto one = of.start(std::move(spec));
  for (const std::uint32_t id : {1U, 2U}) {
    of.monitor.write(id, 1, "out ");
    of.monitor.write(id, 2, "err ");
    of.monitor.write(id, 1, "out");
  }
  of.world.settle();
  CHECK(two->out()->tail(99) == "out out");
  CHECK(two->err()->tail(99) == "err ");
  CHECK(one->out()->tail(99) == "out err out");
  CHECK(one->err() == one->out());
}

TEST_CASE("by the time that a process has ended all of its output is there") {
  Running of;
  const auto process = of.start(command("echo"));
  of.monitor.write(1, 1, "the last line\n");
  of.monitor.ended(1, "exited", {{"exit_code", 7}});
  CHECK(of.world.run(process->wait(Milliseconds(1000))));
  CHECK(process->out()->finished());
  CHECK(process->out()->tail(99) == "the last line\n");
  CHECK(process->end_record()->exit_code == 7);
  CHECK(of.session->state() == Session::State::kRunning);
}

TEST_CASE("a program left behind with the pipe does not keep its parent from ending") {
  Running of;
  const auto process = of.start(command("daemon"));
  FakeProcess& inside = of.monitor.processes[1];
  const std::vector<UniqueFd> kept = std::move(inside.streams);
  of.monitor.ended(1, "exited", {{"exit_code", 0}});
  const TimePoint before = of.world.clock->now();
  CHECK(of.world.run(process->wait(Milliseconds(5000))));
  CHECK(of.world.clock->now() - before <= Milliseconds(500));
  CHECK(process->out()->finished());
}

TEST_CASE("a process that is too loud is ended for it, and what it may write is kept") {
  Running of;
  ProcessSpec spec = command("loud");
  spec.output = 10;
  const auto process = of.start(std::move(spec));
  of.monitor.write(1, 1, "0123456789abcdef");
  CHECK(of.world.run(process->wait(Milliseconds(1000))));
  CHECK(process->end_record()->cause == "output");
  CHECK(process->out()->tail(99) == "0123456789");
  // Of the session's command, where the policy says so.
  SessionSpec session = of.world.spec("two");
  session.policy = "small";
  CHECK(of.world.run(of.world.supervisor->create(std::move(session))));
  FakeMonitor& monitor = of.world.service->monitor("two");
  monitor.instead["end"] = [&monitor](const Json& request) {
    monitor.peer->answer(request, Json::object());
    monitor.over(request["cause"]);
  };
  monitor.write(0, 1, "more than ten bytes");
  CHECK(of.world.run(of.world.supervisor->find("two")->wait_ended(Milliseconds(5000))));
  CHECK(of.world.supervisor->find("two")->end_record()->cause == "output");
}

TEST_CASE("what its session may write counts for each process, whatever it asks for itself") {
  World world;
  world.service->on_launch = [](FakeMonitor& monitor) { monitor.started({{"output", 10}}); };
  const auto session = world.session();
  FakeMonitor& monitor = world.service->monitor("one");
  CHECK(session->limits().output == 10U);
  const auto written_by = [&](std::optional<std::uint64_t> asked) {
    ProcessSpec spec = command("loud");
    spec.output = asked;
    auto process = world.run(session->start(std::move(spec)));
    REQUIRE(process);
    monitor.write((*process)->id(), 1, "0123456789abcdef");
    CHECK(world.run((*process)->wait(Milliseconds(1000))));
    CHECK((*process)->end_record()->cause == "output");
    return (*process)->out()->tail(99);
  };
  CHECK(written_by(std::nullopt) == "0123456789");
  CHECK(written_by(1000) == "0123456789");
  CHECK(written_by(3) == "012");
}

TEST_CASE("a command that was too loud before its session's limit was known is ended for it") {
  World world;
  world.service->on_launch = [](FakeMonitor& monitor) {
    monitor.write(0, 1, "more than ten bytes");
    monitor.instead["end"] = [&monitor](const Json& request) {
      monitor.peer->answer(request, Json::object());
      monitor.over(request["cause"]);
    };
    monitor.started({{"output", 10}});
  };
  const auto session = world.session();
  CHECK(world.run(session->wait_ended(Milliseconds(5000))));
  CHECK(session->end_record()->cause == "output");
}

TEST_CASE("stdin is at its end at once, holds a text, or stays open, as is asked for") {
  Running of;
  (void)of.start(command("none"));
  CHECK(read_pipe(of.monitor.processes[1].streams[0]).empty());
  ProcessSpec spec = command("text");
  spec.stdin_text = "hello";
  (void)of.start(std::move(spec));
  of.world.settle();
  CHECK(read_pipe(of.monitor.processes[2].streams[0]) == "hello");
  CHECK(read_pipe(of.monitor.processes[2].streams[0]).empty());
  spec = command("open");
  spec.stdin_mode = ProcessSpec::Stdin::kOpen;
  const auto open = of.start(std::move(spec));
  const auto& keys = of.monitor.processes[3].streams[0];
  CHECK(of.world.run(open->write_stdin("abc", std::nullopt)).value() == 3);
  CHECK(read_pipe(keys) == "abc");
  CHECK(open->close_stdin());
  CHECK(read_pipe(keys).empty());
  CHECK(of.world.run(open->write_stdin("d", std::nullopt)).error().code == Code::kEnded);
}

TEST_CASE("a retried write to stdin does not type twice, and one from the future is refused") {
  Running of;
  ProcessSpec spec = command("cat");
  spec.stdin_mode = ProcessSpec::Stdin::kOpen;
  const auto process = of.start(std::move(spec));
  CHECK(of.world.run(process->write_stdin("abcd", 0)).value() == 4);
  CHECK(of.world.run(process->write_stdin("abcd", 0)).value() == 4);
  CHECK(of.world.run(process->write_stdin("cdef", 2)).value() == 6);
  CHECK(read_pipe(of.monitor.processes[1].streams[0]) == "abcdef");
  CHECK(of.world.run(process->write_stdin("x", 7)).error().code == Code::kConflict);
}

TEST_CASE("who writes more than a program reads waits, alone, and until the program is gone") {
  Running of;
  ProcessSpec spec = command("deaf");
  spec.stdin_mode = ProcessSpec::Stdin::kOpen;
  const auto process = of.start(std::move(spec));
  const auto waiting =
      of.world.begin(process->write_stdin(std::string(1 << 20, 'x'), std::nullopt));
  CHECK_FALSE(waiting->has_value());
  CHECK(of.world.run(process->write_stdin("y", std::nullopt)).error().code == Code::kBusy);
  CHECK(process->close_stdin().error().code == Code::kBusy);
  of.monitor.ended(1, "exited", {{"exit_code", 0}});
  CHECK(of.world.run(process->wait(Milliseconds(1000))));
  REQUIRE(*waiting);
  CHECK((*waiting)->error().code == Code::kEnded);
}

TEST_CASE(
    "a write that waits can be stopped, says how far it came, and the next one goes on there") {
  Running of;
  ProcessSpec spec = command("deaf");
  spec.stdin_mode = ProcessSpec::Stdin::kOpen;
  const auto process = of.start(std::move(spec));
  process->stop_writing();  // Nothing waits: that of later is not stopped for it.
  const auto waiting = of.world.begin(process->write_stdin(std::string(1 << 20, 'x'), 0));
  CHECK_FALSE(waiting->has_value());
  process->stop_writing();
  of.world.settle();
  REQUIRE(*waiting);
  CHECK((*waiting)->error().code == Code::kTimeout);
  CHECK((*waiting)->error().error.what.find("65536 bytes") != std::string::npos);
  CHECK(of.world.run(process->write_stdin("x", 65535)).value() == 65536);
}

TEST_CASE("a program that closes its stdin kills nobody") {
  Running of;
  ProcessSpec spec = command("closed");
  spec.stdin_mode = ProcessSpec::Stdin::kOpen;
  const auto process = of.start(std::move(spec));
  of.monitor.processes[1].streams[0].reset();
  CHECK(of.world.run(process->write_stdin("x", std::nullopt)).error().code == Code::kEnded);
}

TEST_CASE("a terminal is one stream and an open stdin, and can change its size") {
  Running of;
  ProcessSpec spec = command("bash");
  spec.terminal.emplace();
  const auto process = of.start(std::move(spec));
  FakeProcess& inside = of.monitor.processes[1];
  CHECK(inside.request["terminal"]["columns"] == 80);
  REQUIRE(inside.streams.size() == 1);
  REQUIRE(::write(inside.streams[0].get(), "$ ", 2) == 2);
  of.world.settle();
  CHECK(process->out()->tail(9) == "$ ");
  CHECK(process->err() == process->out());
  CHECK(of.world.run(process->write_stdin("ls\n", std::nullopt)).value() == 3);
  CHECK(read_pipe(inside.streams[0]) == "ls\n");
  CHECK(of.world.run(process->resize(TerminalSize())));
  CHECK(of.monitor.asked.back() == "resize");
  const auto plain = of.start(command("true"));
  CHECK(of.world.run(plain->resize(TerminalSize())).error().code == Code::kConflict);
}

TEST_CASE("what a command that ended at once has told its terminal is kept") {
  Running of;
  FakeMonitor& monitor = of.monitor;
  monitor.instead["exec"] = [&monitor](const Json& message) {
    auto [inside, master] = socket_pair();
    REQUIRE(::write(inside.get(), "yes", 3) == 3);
    inside.reset();
    monitor.peer->answer(message, {{"pid", 7}}, {master.get()});
    monitor.ended(message["process"].get<std::uint32_t>(), "exited", {{"exit_code", 0}});
  };
  ProcessSpec spec = command("echo");
  spec.terminal.emplace();
  const auto process = of.start(std::move(spec));
  REQUIRE(of.world.run(process->wait(Milliseconds(30000))));
  CHECK(process->end_record()->cause == "exited");
  CHECK(process->out()->tail(9) == "yes");
}

TEST_CASE("one command is ended without its session: TERM, grace, and its tree is killed") {
  Running of;
  const auto gentle = of.start(command("gentle"));
  CHECK(of.world.run(gentle->end()).value());
  CHECK(gentle->end_record()->signal == SIGTERM);
  of.monitor.dies_of_term = false;
  const auto stubborn = of.start(command("stubborn"));
  const TimePoint before = of.world.clock->now();
  CHECK(of.world.run(stubborn->end()).value());
  CHECK(of.world.clock->now() - before >= Milliseconds(2000));
  CHECK(stubborn->end_record()->cause == "killed");
  CHECK(of.world.run(stubborn->end()).value());
  CHECK(of.session->state() == Session::State::kRunning);
}

TEST_CASE("the end of a session's own command by a call is the end of the session") {
  Running of;
  const auto other = of.start(command("other"));
  CHECK(of.world.run(of.session->process(0)->end()).value());
  CHECK(of.world.run(of.session->wait_ended(Milliseconds(5000))));
  CHECK(other->end_record());
  CHECK(of.world.run(other->signal(SIGHUP, Process::Target::kLeader)).error().code == Code::kEnded);
}

TEST_CASE("signals go to the leader, the group or the tree, and only to what is there") {
  Running of;
  const auto process = of.start(command("x"));
  of.monitor.dies_of_term = false;
  CHECK(of.world.run(process->signal(SIGHUP, Process::Target::kTree)));
  CHECK(of.monitor.processes[1].signals == std::vector<int>{SIGHUP});
  for (const int bad : {0, -1, 65, 1000})
    CHECK(of.world.run(process->signal(bad, Process::Target::kLeader)).error().code ==
          Code::kInvalid);
  of.monitor.processes.erase(1);
  CHECK(of.world.run(process->signal(SIGHUP, Process::Target::kTree)).error().code == Code::kEnded);
}

TEST_CASE("a process that cannot be started is none") {
  Running of;
  of.monitor.instead["exec"] = [&of](const Json& request) {
    of.monitor.peer->fail(request, "not_found");
  };
  const auto made = of.world.run(of.session->start(command("nowhere")));
  CHECK(made.error().code == Code::kNotFound);
  CHECK(of.session->processes().size() == 1);
  CHECK(of.world.run(of.session->start(ProcessSpec())).error().code == Code::kInvalid);
  of.monitor.instead.clear();
  CHECK(of.world.run(of.session->start(command("\xff"))).error().code == Code::kInvalid);
  CHECK(of.monitor.asked == std::vector<std::string>{"exec"});
  CHECK(of.world.run(of.session->start(command("é"))));
}

TEST_CASE("a session has so many processes at once, and remembers so many that have ended") {
  Config config;
  config.processes_of_a_session = 3;
  config.ended_processes_kept = 4;
  World world(config);
  const auto session = world.session();
  FakeMonitor& monitor = world.service->monitor("one");
  CHECK(world.run(session->start(command("a"))));
  CHECK(world.run(session->start(command("b"))));
  CHECK(world.run(session->start(command("c"))).error().code == Code::kQuota);
  for (std::uint32_t id = 2; id < 50; ++id) {
    monitor.ended(id, "exited", {{"exit_code", 0}});
    REQUIRE(world.run(session->process(id)->wait(Milliseconds(1000))));
    REQUIRE(world.run(session->start(command("again"))));
  }
  CHECK(session->processes().size() == 3 + 4);
  CHECK(session->process(2) == nullptr);
  CHECK(session->process(0) != nullptr);
}

TEST_CASE("nobody is dialled on a port where nothing of the session's uid listens") {
  World world({}, [](FakeService& service) {
    // The fake's init is this process, so that its sockets are those of the session's uid.
    service.hello["uid_base"] = 4000000;
    service.hello["privileged"] = false;
    service.hello["uid"] = ::getuid();
  });
  const auto session = world.session();
  const UniqueFd server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(server.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  socklen_t length = sizeof address;
  REQUIRE(::getsockname(server.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  const std::uint16_t port = ntohs(address.sin_port);
  CHECK(world.run(session->connect(port)).error().code == Code::kPortClosed);
  CHECK(world.run(session->wait_listening(port, Milliseconds(500))).error().code == Code::kTimeout);
  CHECK(world.service->monitor("one").asked.empty());
  const auto waiting = world.begin(session->wait_listening(port, Milliseconds(5000)));
  REQUIRE(::listen(server.get(), 1) == 0);
  CHECK(world.turn_until([&] { return waiting->has_value(); }, Milliseconds(1000)));
  CHECK(world.run(session->connect(port)).value().valid());
}

TEST_CASE("what the service lists is read with its bytes, and what is no list is refused") {
  Running of;
  const UniqueFd list =
      sealed_memfd(
          "{\"entries\":[{\"path\":\"a\",\"type\":\"file\",\"size\":3,\"mode\":\"0600\","
          "\"modified_ms\":5,\"content_base64\":\"AGH/\"},{\"path\":\"?\",\"path_base64\":"
          "\"/w==\",\"type\":\"directory\"},{\"path\":\"b\",\"type\":\"file\",\"size\":9,"
          "\"too_large\":true}]}")
          .value();
  of.world.service->instead["list"] = [&](const Json& request) {
    of.world.service->peer->answer(request, {{"truncated", true}}, {list.get()});
  };
  const Listing listing = of.world.run(of.session->list(ListRequest(""))).value();
  REQUIRE(listing.entries.size() == 3);
  CHECK(listing.entries[0].content == std::string("\0a\xff", 3));
  CHECK(listing.entries[0].mode == 0600);
  CHECK(listing.entries[1].path == "\xff");
  CHECK(listing.entries[1].type == Entry::Type::kDirectory);
  CHECK(listing.entries[2].too_large);
  CHECK(listing.truncated);
  for (const char* wrong :
       {"", "[]", "{\"entries\":[1]}", "{\"entries\":[{\"path\":\"a\"}]}", "x"}) {
    const UniqueFd other = sealed_memfd(wrong).value();
    of.world.service->instead["list"] = [&](const Json& request) {
      of.world.service->peer->answer(request, Json::object(), {other.get()});
    };
    CHECK(of.world.run(of.session->list(ListRequest(""))).error().code == Code::kLost);
  }
  std::vector<Json> opened;
  of.world.service->instead["open"] = [&](const Json& request) {
    opened.push_back(request);
    of.world.service->peer->fail(request, "refused");
  };
  CHECK(of.world.run(of.session->open("link")).error().code == Code::kRefused);
  for (const char* name : {"\xff", "ab\xff", "a\xff\xfe"})
    CHECK_FALSE(of.world.run(of.session->open(name)));
  CHECK(opened[0]["path"] == "link");
  CHECK(opened[1]["path_base64"] == "/w==");
  CHECK(opened[2]["path_base64"] == "YWL/");
  CHECK(opened[3]["path_base64"] == "Yf/+");
}

}  // namespace
}  // namespace belljar::supervisor
