// A real launch service and the supervisor that speaks to it: real sandboxes and real time. As root
// with a pool of uids, as anybody else with his own.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "supervisor/supervisor.hpp"

namespace belljar::supervisor {

namespace fs = std::filesystem;

inline std::string launcher() {
  if (const char* given = std::getenv("BELLJAR")) return given;
  return fs::read_symlink("/proc/self/exe").parent_path() / "../../../launcher/belljar";
}

inline std::size_t open_descriptors() {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator("/proc/self/fd"), {}));
}

// How many processes have a uid of the pool and have not ended, or are in one state (man 5 proc:
// "T" is stopped). Who is to wait for those that have ended is not known here.
inline std::size_t processes_of(std::uint32_t base, std::uint32_t count,
                                const std::string& state = "") {
  std::size_t found = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream status(entry.path() / "status");
    std::string word, its_state;
    while (status >> word) {
      if (word == "State:") status >> its_state;
      if (word != "Uid:") continue;
      std::uint64_t uid = 0;
      status >> uid;
      found += uid >= base && uid < base + count &&
               (state.empty() ? its_state != "Z" : state == its_state);
      break;
    }
  }
  return found;
}

/// A launch service in a process of its own, and the supervisor that speaks to it.
class Real {
 public:
  Real() {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
    UniqueFd ours(ends[0]);
    UniqueFd theirs(::fcntl(ends[1], F_DUPFD, 3));
    ::close(ends[1]);
    std::string directory = "/tmp/belljar-supervisor-XXXXXX";
    REQUIRE(::mkdtemp(directory.data()) != nullptr);
    root = directory;
    fs::permissions(root, fs::perms(0711));
    std::vector<std::string> command = {
        launcher(),        "launch-service", "--fd", std::to_string(theirs.get()),
        "--sessions-root", root / "sessions"};
    if (::geteuid() == 0)
      for (const std::string& word : {std::string("--uid-base"), std::to_string(base),
                                      std::string("--max-sessions"), std::to_string(kCount)})
        command.push_back(word);
    std::vector<char*> argv;
    for (std::string& word : command) argv.push_back(word.data());
    argv.push_back(nullptr);
    // Words to the suite, which the service would refuse as settings that it does not know.
    std::vector<std::string> words_to_suite;
    for (char** entry = environ; *entry != nullptr; ++entry)
      if (const std::string_view text = *entry; text.starts_with("BELLJAR_"))
        words_to_suite.emplace_back(text.substr(0, text.find('=')));
    for (const std::string& name : words_to_suite) ::unsetenv(name.c_str());
    REQUIRE(::posix_spawn(&service, argv[0], nullptr, nullptr, argv.data(), environ) == 0);
    theirs.reset();
    auto started = run(Supervisor::start(loop, std::move(ours), Config(), steady_clock(loop)));
    if (!started) FAIL(started.error().error.what);
    supervisor = *started;
  }
  ~Real() {
    supervisor.reset();
    loop.restart();
    loop.run_for(Milliseconds(100));
    int status = 0;
    ::waitpid(service, &status, 0);
    std::error_code ignored;
    fs::remove_all(root, ignored);
  }
  Real(const Real&) = delete;
  Real& operator=(const Real&) = delete;

  template <class T>
  T run(Awaitable<T> work) {
    const auto result = std::make_shared<std::optional<T>>();
    asio::co_spawn(loop, std::move(work), [result](const std::exception_ptr& broken, T value) {
      if (!broken) *result = std::move(value);
    });
    turn_until([result] { return result->has_value(); });
    REQUIRE(result->has_value());
    return std::move(**result);
  }
  // The limit only ends a test that has gone wrong.
  bool turn_until(const std::function<bool()>& done) {
    for (int turn = 0; turn < 6000 && !done(); ++turn) {
      loop.restart();
      loop.run_for(Milliseconds(10));
    }
    return done();
  }
  std::shared_ptr<Session> session(const std::string& id, const std::string& script) {
    SessionSpec spec;
    spec.id = id;
    spec.command.emplace();
    spec.command->argv = {"/bin/sh", "-c", script};
    spec.command->environment["PATH"] = "/usr/bin:/bin";
    WorkspaceFile file;
    file.path = "data/hello.txt";
    file.content = "hello";
    spec.files.push_back(file);
    auto made = run(supervisor->create(std::move(spec)));
    if (!made) FAIL(made.error().error.what << made.error().setup);
    return *made;
  }
  bool prints(const std::shared_ptr<Process>& process, const std::string& text) {
    return turn_until(
        [&] { return process->out()->tail(1 << 20).find(text) != std::string::npos; });
  }
  void check_that_nothing_is_left() {
    CHECK(supervisor->counts().slots_free == supervisor->service().max_sessions);
    CHECK(fs::is_empty(root / "sessions"));
    if (::geteuid() == 0) CHECK(processes_of(base, kCount) == 0);
  }

  static constexpr std::uint32_t kCount = 4;
  const std::uint32_t base = 1'500'000'000 + static_cast<std::uint32_t>(::getpid()) % 100'000 * 16;
  fs::path root;
  pid_t service = -1;
  asio::io_context loop;
  std::shared_ptr<Supervisor> supervisor;
};

}  // namespace belljar::supervisor
