#include "launcher/sys/id_ranges.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <optional>

#include "launcher/sys/raw.hpp"

namespace belljar::sys {
namespace {

/// NixOS has its set-user-id programs in the second.
constexpr std::array kPlaces = {"/usr/bin/", "/run/wrappers/bin/"};
constexpr std::uint64_t kIds = 4294967295;  // (uid_t)-1 is none.
/// It may ask a directory service.
constexpr std::chrono::seconds kPatience{60};

/// The first `room` fields of a line that are separated by colons; the last one takes the rest.
std::vector<std::string_view> fields(std::string_view line, std::size_t room) {
  std::vector<std::string_view> found;
  for (; found.size() + 1 < room && line.find(':') != std::string_view::npos;
       line.remove_prefix(line.find(':') + 1))
    found.push_back(line.substr(0, line.find(':')));
  found.push_back(line);
  return found;
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <class Function>
void each_line(std::string_view text, Function function) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    function(line);
  }
}

[[noreturn]] void become(int program, int null, int output, char* const* argv) {
  static const char* const kEnvironment[] = {"PATH=/usr/bin:/bin", "LC_ALL=C", nullptr};
  sigset_t none;
  sigemptyset(&none);
  const bool ready = dup2(null, 0) == 0 && dup2(output, 1) == 1 && dup2(output, 2) == 2 &&
                     sigprocmask(SIG_SETMASK, &none, nullptr) == 0;
  if (ready) raw(SYS_execveat, program, "", argv, kEnvironment, AT_EMPTY_PATH);
  _exit(127);
}

/// What it says until it ends. ETIMEDOUT when it does not, EINTR when it is not waited for.
Result<std::string> listen_to(int fd, const std::string& name, const Interruption& interruption) {
  std::string said;
  std::array<char, 512> buffer{};
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + kPatience;
  for (;;) {
    std::array<pollfd, 2> ready = {{{fd, POLLIN, 0}, {interruption.descriptor, POLLIN, 0}}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    const int count = left <= 0 ? 0 : poll(ready.data(), ready.size(), static_cast<int>(left));
    if (count == 0) return sys_failure(ETIMEDOUT, name + " does not end");
    if (count < 0) return sys_failure(errno, "wait for " + name);
    if (ready[1].revents != 0 && interruption.ends())
      return sys_failure(EINTR, name + " is not waited for");
    if (ready[0].revents == 0) continue;
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got <= 0) return said.substr(0, said.find('\n'));
    if (said.size() < 4096) said.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace

std::vector<std::string> owner_names(std::string_view passwd, uid_t uid) {
  std::vector<std::string> names = {std::to_string(uid)};
  each_line(passwd, [&](std::string_view line) {
    const std::vector<std::string_view> entry = fields(line, 4);
    if (entry.size() == 4 && number(entry[2]) == uid) names.emplace_back(entry[0]);
  });
  return names;
}

std::vector<IdRange> ranges_of(std::string_view table, const std::vector<std::string>& owners) {
  std::vector<IdRange> found;
  each_line(table, [&](std::string_view line) {
    const std::vector<std::string_view> entry = fields(line, 3);
    if (entry.size() != 3 || std::find(owners.begin(), owners.end(), entry[0]) == owners.end())
      return;
    const auto first = number(entry[1]), count = number(entry[2]);
    if (!first || !count || *count == 0 || *first >= kIds || *count > kIds - *first) return;
    found.push_back({static_cast<std::uint32_t>(*first), static_cast<std::uint32_t>(*count)});
  });
  return found;
}

Result<UniqueFd> open_id_helper(const std::string& name) {
  for (const char* place : kPlaces) {
    const std::string path = place + name;
    UniqueFd fd(open(path.c_str(), O_PATH | O_CLOEXEC));
    struct stat about {};
    if (!fd.valid() || fstat(fd.get(), &about) != 0) continue;
    if (S_ISREG(about.st_mode) && about.st_uid == 0 && (about.st_mode & (S_IWGRP | S_IWOTH)) == 0)
      return fd;
    return fail({ErrorKind::kRefused, EPERM,
                 path + " is not trusted: others than root can have written it", "identity.ids",
                 "reinstall the package that it belongs to"});
  }
  return fail({ErrorKind::kUnavailable, ENOENT,
               name + " is not installed, and only it may map more than the caller's own id",
               "identity.ids", "apt-get install uidmap (Fedora: shadow-utils)"});
}

Status run_id_helper(const std::string& name, pid_t pid, const std::vector<std::uint32_t>& lines,
                     const Interruption& interruption) {
  const UniqueFd program = BELLJAR_TRY(open_id_helper(name));
  std::vector<std::string> words = {name, std::to_string(pid)};
  for (std::uint32_t word : lines) words.push_back(std::to_string(word));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::array<int, 2> ends{};
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.valid() || pipe2(ends.data(), O_CLOEXEC) != 0)
    return sys_failure(errno, "prepare to run " + name);
  const UniqueFd output(ends[0]);
  UniqueFd input(ends[1]);
  const pid_t child = fork();
  if (child < 0) return sys_failure(errno, "run " + name);
  if (child == 0) become(program.get(), null.get(), input.get(), argv.data());
  input.reset();
  const Result<std::string> said = listen_to(output.get(), name, interruption);
  // A set-user-id program need not take it from us.
  const bool gone = said || kill(child, SIGKILL) == 0;
  int status = 0;
  while (gone && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (said && WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return fail({ErrorKind::kRefused, said ? EPERM : said.error().sys_errno,
               said ? name + " maps nothing: " + (said->empty() ? "it gives no reason" : *said)
                    : said.error().what,
               "identity.ids",
               "see man 1 " + name +
                   "; it has to be set-user-id root, on a file system without "
                   "nosuid, and has to know the caller's name"});
}

}  // namespace belljar::sys
