#include "api/belljard/service_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace belljar::api {
namespace {

constexpr int kServiceFd = 3;
constexpr int kCouldNotStart = 125;

/// What the service gets of our environment: all that agents may inherit is among it.
std::vector<char*> environment_without_tokens() {
  std::vector<char*> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!text.starts_with("BELLJAR_TOKEN=") && !text.starts_with("AGENT_SIMULATOR_API_TOKEN=") &&
        !text.starts_with("NOTIFY_SOCKET=") && !text.starts_with("LISTEN_"))
      kept.push_back(*entry);
  }
  kept.push_back(nullptr);
  return kept;
}

/// Between fork and exec: no allocation, and no way back.
[[noreturn]] void become_service(const char* program, char* const* arguments,
                                 char* const* environment, int socket, int null) {
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  // A duplicate is open after exec, and the original is not, unless they are the same.
  const bool ready =
      dup2(null, 0) >= 0 && dup2(2, 1) >= 0 &&
      (socket == kServiceFd ? fcntl(socket, F_SETFD, 0) >= 0 : dup2(socket, kServiceFd) >= 0);
  if (ready) execve(program, arguments, environment);
  _exit(kCouldNotStart);
}

std::string directory_of_this_program() {
  std::array<char, 4096> path{};
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size());
  const std::string text(path.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  return text.substr(0, text.rfind('/') + 1);
}

}  // namespace

Result<std::string> find_launcher() {
  std::vector<std::string> places;
  if (const char* given = std::getenv("BELLJAR_LAUNCHER"); given != nullptr && *given != '\0')
    places.emplace_back(given);
  else
    places = {directory_of_this_program() + "belljar", "/usr/bin/belljar"};
  for (const std::string& place : places)
    if (access(place.c_str(), X_OK) == 0) return place;
  return fail({ErrorKind::kUnavailable,
               errno,
               "find belljar at " + places.front(),
               {},
               "install belljar beside belljard, or name it in BELLJAR_LAUNCHER"});
}

Result<ServiceProcess> start_service(const std::string& launcher,
                                     const std::vector<std::string>& arguments) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return sys_failure(errno, "make a socket for the launch service");
  ServiceProcess service;
  service.socket = UniqueFd(ends[0]);
  const UniqueFd theirs(ends[1]);
  const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null.valid()) return sys_failure(errno, "open /dev/null");
  std::vector<std::string> words = {launcher, "launch-service", "--fd", std::to_string(kServiceFd)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::vector<char*> environment = environment_without_tokens();
  service.pid = fork();
  if (service.pid < 0) return sys_failure(errno, "start " + launcher);
  if (service.pid == 0)
    become_service(launcher.c_str(), argv.data(), environment.data(), theirs.get(), null.get());
  return service;
}

}  // namespace belljar::api
