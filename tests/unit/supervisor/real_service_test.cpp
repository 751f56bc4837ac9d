// The supervisor with the real launch service.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "tests/unit/supervisor/real_service.hpp"

#include <doctest/doctest.h>

namespace belljar::supervisor {
namespace {

TEST_CASE("a session runs its command on its files, and leaves nothing when it is ended") {
  Real real;
  const auto session = real.session("one", "cat data/hello.txt; echo; echo up; sleep 100 & wait");
  CHECK(real.prints(session->process(0), "hello\nup\n"));
  ListRequest request("");
  request.content = 100;
  const auto listing = real.run(session->list(std::move(request)));
  REQUIRE(listing);
  bool seen = false;
  for (const Entry& entry : listing->entries)
    seen |= entry.path == "data/hello.txt" && entry.content == "hello";
  CHECK(seen);
  CHECK(real.run(real.supervisor->end("one", EndedBy::kClient)).value());
  CHECK(session->end_record()->cause == "killed");
  CHECK(session->end_record()->record.find("\"by\":\"client\"") != std::string::npos);
  real.check_that_nothing_is_left();
}

TEST_CASE("a command's own exit is its session's, with its code") {
  Real real;
  const auto session = real.session("one", "echo bye >&2; exit 7");
  CHECK(real.run(session->wait_ended(Milliseconds(30000))));
  CHECK(session->end_record()->cause == "exited");
  CHECK(session->end_record()->exit_code == 7);
  CHECK(session->process(0)->err()->tail(100) == "bye\n");
  real.check_that_nothing_is_left();
}

TEST_CASE("a session's command ignores and blocks no signal that the service does") {
  Real real;
  const auto session = real.session("one", "grep -E 'Sig(Blk|Ign)' /proc/self/status");
  CHECK(real.run(session->wait_ended(Milliseconds(30000))));
  // The two above 31 are the C library's own, which posix_spawn leaves ignored.
  std::istringstream words(session->process(0)->out()->tail(200));
  std::string name;
  std::uint64_t set = 0;
  int seen = 0;
  while (words >> name >> std::hex >> set) {
    INFO(name);
    CHECK((set & 0x7fffffff) == 0);
    ++seen;
  }
  CHECK(seen == 2);
}

TEST_CASE("DELETE: a program sees TERM, also a stopped one, and one that ignores it is killed") {
  Real real;
  const auto polite = real.session(
      "polite", "trap 'echo goodbye; exit 3' TERM; echo up; while :; do sleep 0.05; done");
  const auto stopped = real.session(
      "stopped",
      "trap 'echo goodbye; exit 3' TERM; echo up; kill -STOP $$; while :; do sleep 0.05; done");
  const auto deaf = real.session(
      "deaf",
      "trap '' TERM; (trap '' TERM; setsid sleep 1000 &) ; echo up; while :; do sleep 0.05; done");
  for (const auto& session : {polite, stopped, deaf})
    REQUIRE(real.prints(session->process(0), "up"));
  REQUIRE(real.turn_until([&] { return processes_of(stopped->uid(), 1, "T") > 0; }));
  for (const auto& session : {polite, stopped}) {
    CHECK(real.run(real.supervisor->end(session->id(), EndedBy::kClient)).value());
    INFO(session->end_record()->record);
    CHECK(session->process(0)->out()->tail(100).find("goodbye") != std::string::npos);
    CHECK(session->end_record()->exit_code == 3);
  }
  (void)real.run(real.supervisor->end("deaf", EndedBy::kClient));
  CHECK(real.run(deaf->wait_ended(Milliseconds(30000))));
  CHECK(deaf->end_record()->cause == "killed");
  real.check_that_nothing_is_left();
}

TEST_CASE("further commands have their own output, stdin, terminal and end") {
  Real real;
  const auto session = real.session("one", "echo up; sleep 1000");
  ProcessSpec spec;
  spec.argv = {"/bin/cat"};
  spec.stdin_mode = ProcessSpec::Stdin::kOpen;
  const auto cat = real.run(session->start(std::move(spec)));
  if (!cat) FAIL(cat.error().error.what);
  CHECK(real.run((*cat)->write_stdin("typed\n", 0)).value() == 6);
  CHECK(real.prints(*cat, "typed\n"));
  CHECK((*cat)->close_stdin());
  CHECK(real.run((*cat)->wait(Milliseconds(30000))));
  CHECK((*cat)->end_record()->exit_code == 0);
  spec = ProcessSpec();
  spec.argv = {"/bin/sh", "-c", "stty size; tty; read word; echo got $word"};
  spec.terminal.emplace();
  spec.environment["PATH"] = "/usr/bin:/bin";
  const auto terminal = real.run(session->start(std::move(spec)));
  if (!terminal) FAIL(terminal.error().error.what);
  CHECK(real.prints(*terminal, "24 80"));
  CHECK(real.run((*terminal)->write_stdin("key\n", std::nullopt)));
  CHECK(real.prints(*terminal, "got key"));
  CHECK(real.run((*terminal)->wait(Milliseconds(30000))));
  spec = ProcessSpec();
  spec.argv = {"/bin/sh", "-c",
               "trap '' TERM; setsid sleep 1000 & echo up; while :; do sleep 0.05; done"};
  spec.environment["PATH"] = "/usr/bin:/bin";
  const auto tree = real.run(session->start(std::move(spec)));
  if (!tree) FAIL(tree.error().error.what);
  CHECK(real.prints(*tree, "up"));
  (void)real.run((*tree)->end());
  CHECK(real.run((*tree)->wait(Milliseconds(30000))));
  CHECK((*tree)->end_record()->cause == "killed");
  spec = ProcessSpec();
  spec.argv = {"/no/such/program"};
  const auto none = real.run(session->start(std::move(spec)));
  CHECK_FALSE(none);
  CHECK(session->state() == Session::State::kRunning);
  (void)real.run(real.supervisor->end("one", EndedBy::kClient));
  CHECK(real.run(session->wait_ended(Milliseconds(30000))));
  real.check_that_nothing_is_left();
}

TEST_CASE("a port is dialled when the session listens on it, and not before") {
  Real real;
  const std::string server =
      "import "
      "socket,os\ns=socket.create_server(('127.0.0.1',0))\nprint('at',s.getsockname()[1],flush="
      "True)\n"
      "c,_=s.accept()\nc.sendall(b'from inside')\n";
  const auto session = real.session("one", "exec python3 -c \"" + server + "\"");
  REQUIRE(real.prints(session->process(0), "\n"));
  const int port = std::stoi(session->process(0)->out()->tail(100).substr(3));
  const auto number = static_cast<std::uint16_t>(port);
  CHECK(real.run(session->connect(1)).error().code == Code::kPortClosed);
  CHECK(real.run(session->wait_listening(number, Milliseconds(30000))));
  const auto socket = real.run(session->connect(number));
  REQUIRE(socket);
  std::string got;
  CHECK(real.turn_until([&] {
    std::array<char, 100> buffer{};
    const ssize_t length = ::read(socket->get(), buffer.data(), buffer.size());
    if (length > 0) got.append(buffer.data(), static_cast<std::size_t>(length));
    return got == "from inside";
  }));
  (void)real.run(real.supervisor->end("one", EndedBy::kClient));
  CHECK(real.run(session->wait_ended(Milliseconds(30000))));
}

TEST_CASE("a sandbox that cannot be built is told, and the next one starts in its slot") {
  Real real;
  SessionSpec spec;
  spec.id = "one";
  spec.command.emplace();
  spec.command->argv = {"/no/such/program"};
  const auto made = real.run(real.supervisor->create(std::move(spec)));
  REQUIRE_FALSE(made);
  CHECK(made.error().code == Code::kSandbox);
  CHECK(made.error().setup.find("/no/such/program") != std::string::npos);
  real.check_that_nothing_is_left();
  const auto session = real.session("one", "sleep 1000");
  CHECK(session->uid() == (::geteuid() == 0 ? real.base : ::geteuid()));
}

TEST_CASE("kill -9 of the service ends every session as lost, and no process stays") {
  Real real;
  const auto session =
      real.session("one", "trap '' TERM; (setsid sleep 1000 &) ; echo up; sleep 1000");
  REQUIRE(real.prints(session->process(0), "up"));
  REQUIRE(::kill(real.service, SIGKILL) == 0);
  CHECK(real.run(session->wait_ended(Milliseconds(30000))));
  CHECK(session->end_record()->cause == "lost");
  CHECK_FALSE(real.supervisor->healthy());
  if (::geteuid() == 0)
    CHECK(real.turn_until([&] { return processes_of(real.base, Real::kCount) == 0; }));
}

TEST_CASE("sessions side by side and one after another leave no descriptor, uid or directory") {
  Real real;
  std::size_t before = 0;
  for (int round = 0; round < 8; ++round) {
    std::vector<std::shared_ptr<Session>> sessions;
    for (const char* id : {"a", "b", "c"})
      sessions.push_back(real.session(id, "echo up; sleep 1000"));
    for (const auto& session : sessions) {
      (void)real.run(real.supervisor->end(session->id(), EndedBy::kClient));
      CHECK(real.run(session->wait_ended(Milliseconds(30000))));
    }
    if (round == 0) before = open_descriptors();
  }
  CHECK(open_descriptors() == before);
  real.check_that_nothing_is_left();
}

}  // namespace
}  // namespace belljar::supervisor
