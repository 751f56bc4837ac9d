#include "launcher/network/pasta.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <sstream>
#include <vector>

#include "launcher/network/rules.hpp"
#include "launcher/process_tree.hpp"
#include "launcher/record.hpp"
#include "launcher/sys/raw.hpp"

namespace belljar::network {
namespace {

using sys::UniqueFd;

/// Milliseconds for what pasta leaves, which has been killed, to be gone.
constexpr int kMostPauses = 1000;

/// How long pasta may take to print its help.
constexpr int kHelpMs = 2000;

/// As the session would find it out later, in words that say less.
Status check_tun() {
  const UniqueFd tun(open("/dev/net/tun", O_RDWR | O_CLOEXEC));
  if (tun.valid()) return {};
  const int error = errno;
  const bool closed = error == EACCES || error == EPERM;
  return fail({ErrorKind::kUnavailable, error,
               "uid " + std::to_string(geteuid()) + " cannot open /dev/net/tun", "network.mode",
               closed ? "chmod 666 /dev/net/tun (the mode that udev gives it; it gives nobody "
                        "anything outside of an own network namespace)"
                      : "make the device there, or give it to the container: devices: "
                        "[\"/dev/net/tun:/dev/net/tun\"]"});
}

std::vector<std::string> arguments(const std::string& program, int user, int net) {
  const auto descriptor = [](int fd) { return "/proc/self/fd/" + std::to_string(fd); };
  return {program, "-f", "-q", "-4", "--config-net",
          // Nothing comes in, nothing goes from loopback to loopback.
          "-t", "none", "-u", "none", "-T", "none", "-U", "none", "--no-map-gw",
          // Addresses of our own choice: none of the host's is hidden inside.
          "-I", "eth0", "-a", policy::text_of(kInsideAddress), "-n",
          std::to_string(kInsideNet.length), "-g", policy::text_of(kInsideGateway), "--dns-forward",
          policy::text_of(kInsideResolver), "--userns", descriptor(user), "--netns",
          descriptor(net)};
}

/// The child's half: nothing of the caller's but these descriptors, where there are any, and an end
/// with it.
[[noreturn]] void become_pasta(const std::vector<std::string>& words, int user, int net, int said,
                               pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGQUIT}) signal(number, SIG_DFL);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || dup2(null, 0) < 0 || dup2(said, 1) < 0 || dup2(said, 2) < 0) _exit(126);
  for (const int space : {user, net})
    if (space >= 0 && fcntl(space, F_SETFD, 0) < 0) _exit(126);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::array<char*, 1> environment = {nullptr};
  execve(argv[0], argv.data(), environment.data());
  _exit(127);
}

/// What it prints of itself, without an environment and with nothing of the caller's.
std::string help_of(const std::string& program) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  const UniqueFd from(ends[0]);
  UniqueFd into(ends[1]);
  const pid_t parent = getpid(), pid = fork();
  if (pid == 0) become_pasta({program, "--help"}, -1, -1, into.get(), parent);
  into.reset();
  std::string text;
  std::array<char, 4096> piece{};
  constexpr std::size_t kMost = 256 << 10;
  for (pollfd ready{from.get(), POLLIN, 0}; pid > 0 && poll(&ready, 1, kHelpMs) == 1;) {
    const ssize_t got = read(from.get(), piece.data(), piece.size());
    if (got <= 0 || text.size() > kMost) break;
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
  if (pid > 0) kill(pid, SIGKILL);
  if (pid > 0) waitpid(pid, nullptr, 0);
  return text;
}

}  // namespace

Result<std::string> find_pasta() {
  const char* given = std::getenv("BELLJAR_PASTA");
  std::vector<std::string> places = {"/usr/bin/pasta", "/usr/local/bin/pasta"};
  if (given != nullptr) places = {given};
  for (const std::string& place : places)
    if (access(place.c_str(), X_OK) == 0) return place;
  return fail({ErrorKind::kUnavailable, errno, "cannot run " + places.front(), "network.mode",
               "install pasta: apt-get install passt"});
}

std::vector<std::string> options_lacking(const std::string& program) {
  const std::string help = help_of(program);
  std::vector<std::string> lacking;
  for (const char* option : {"--foreground", "--quiet", "--ipv4-only", "--config-net",
                             "--no-map-gw", "--ns-ifname", "--address", "--netmask", "--gateway",
                             "--dns-forward", "--userns", "--netns", "--tcp-ns", "--udp-ns"})
    if (help.find(option) == std::string::npos) lacking.emplace_back(option);
  return lacking;
}

Status Pasta::start(int user, int net) {
  BELLJAR_CHECK(check_tun());
  const std::vector<std::string> words = arguments(BELLJAR_TRY(find_pasta()), user, net);
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
    return sys_failure(errno, "make a pipe for pasta's words");
  words_ = UniqueFd(ends[0]);
  const UniqueFd said(ends[1]);
  // It works through copies of itself, which outlive it by a moment and come here then.
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
    return sys_failure(errno, "become a reaper of what pasta leaves");
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) become_pasta(words, user, net, said.get(), parent);
  if (pid_ < 0) return sys_failure(errno, "start pasta");
  handle_ = UniqueFd(static_cast<int>(sys::raw(SYS_pidfd_open, pid_, 0U)));
  if (!handle_.valid()) return sys_failure(errno, "open a descriptor of pasta");
  return {};
}

void Pasta::take_words() {
  constexpr std::size_t kMost = 4096;
  std::array<char, 1024> piece{};
  for (;;) {
    const ssize_t got = read(words_.get(), piece.data(), piece.size());
    if (got == 0) words_.reset();
    if (got <= 0) return;
    const auto room = kMost - std::min(kMost, said_.size());
    said_.append(piece.data(), std::min(static_cast<std::size_t>(got), room));
  }
}

std::string Pasta::said() const {
  std::istringstream lines(said_);
  std::string all;
  for (std::string line; std::getline(lines, line);) {
    // It says so for each of its other lines where nobody listens to syslog.
    if (line.empty() || line.find("to syslog") != std::string::npos) continue;
    for (char& c : line)
      if (c < ' ' || c > '~') c = '?';
    all += (all.empty() ? "" : "; ") + line;
    if (all.size() > 300) break;
  }
  return all;
}

std::string Pasta::how_it_ended() {
  take_words();
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) != 0) return "has ended";
  std::string text = info.si_code == CLD_EXITED
                         ? "exited with status " + std::to_string(info.si_status)
                         : "was ended by " + launcher::signal_name(info.si_status);
  if (const std::string words = said(); !words.empty()) text += ": " + words;
  return text;
}

void Pasta::end() {
  if (pid_ <= 0) return;
  // Our own child, so that its number is its own until it is reaped.
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
  constexpr timespec kPause{0, 1'000'000};
  for (int tries = 0; tries < kMostPauses; ++tries) {
    launcher::signal_descendants(getpid(), SIGKILL);
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (waitpid(-1, nullptr, WNOHANG) < 0) return;
    nanosleep(&kPause, nullptr);
  }
}

}  // namespace belljar::network
