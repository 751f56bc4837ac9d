#include "launcher/service/bare_command.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <variant>
#include <vector>

#include "launcher/service/helper_process.hpp"

namespace belljar::service {
namespace {

using sys::UniqueFd;

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> found;
  for (const std::string& text : texts) found.push_back(const_cast<char*>(text.c_str()));
  found.push_back(nullptr);
  return found;
}

/// Umask and limits as the plan has them; 0 or the errno.
int take_limits(const launcher::Plan& plan) {
  for (const launcher::Step& step : plan.steps) {
    if (const auto* mask = std::get_if<launcher::SetUmask>(&step.action)) umask(mask->mask);
    const auto* limit = std::get_if<launcher::SetLimit>(&step.action);
    if (limit == nullptr) continue;
    const rlimit value{limit->value, limit->value};
    if (setrlimit(static_cast<__rlimit_resource_t>(limit->resource), &value) != 0) return errno;
  }
  return 0;
}

void reset_signals() {
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

/// Becomes the command; returns the errno of what failed.
int execute(const launcher::Plan& plan, const Pool& pool, uid_t uid,
            const std::array<int, 3>& streams, int report) {
  setsid();
  for (int fd = 0; fd < 3; ++fd)
    if (dup2(streams[static_cast<std::size_t>(fd)], fd) != fd) return errno;
  if (!close_all_but({report})) return EMFILE;
  reset_signals();
  become_session(pool, uid);
  if (const int error = take_limits(plan); error != 0) return error;
  if (chdir(plan.directory.c_str()) != 0) return errno;
  std::vector<char*> arguments = pointers(plan.argv), environment = pointers(plan.environment);
  int error = ENOENT;
  for (const launcher::Step& step : plan.steps)
    if (const auto* exec = std::get_if<launcher::Exec>(&step.action))
      for (const std::string& path : exec->candidates) {
        execve(path.c_str(), arguments.data(), environment.data());
        if (errno != ENOENT && errno != ENOTDIR) error = errno;
      }
  return error;
}

class Keeper {
 public:
  explicit Keeper(UniqueFd socket) : socket_(std::move(socket)) {}

  [[noreturn]] void keep(pid_t command, int children) {
    command_ = command;
    for (;;) {
      std::array<pollfd, 2> places = {{{socket_.get(), POLLIN, 0}, {children, POLLIN, 0}}};
      if (poll(places.data(), places.size(), -1) < 0 && errno != EINTR) _exit(1);
      if (places[1].revents != 0) reap(children);
      if (places[0].revents != 0) obey();
    }
  }

  void say(const KeepersWord& word) const {
    static_cast<void>(send(socket_.get(), &word, sizeof word, MSG_NOSIGNAL));
  }

 private:
  void reap(int children) {
    signalfd_siginfo note{};
    while (read(children, &note, sizeof note) > 0) {
    }
    KeepersWord word;
    rusage used{};
    for (;;) {
      const pid_t pid = wait4(-1, &word.status, WNOHANG, &used);
      if (pid < 0) _exit(0);
      if (pid == 0) return;
      if (pid != command_) continue;
      command_ = 0;
      word.kind = KeepersWord::Kind::kEnded;
      word.user_us = std::int64_t{used.ru_utime.tv_sec} * 1000000 + used.ru_utime.tv_usec;
      word.system_us = std::int64_t{used.ru_stime.tv_sec} * 1000000 + used.ru_stime.tv_usec;
      word.max_rss_kib = used.ru_maxrss;
      say(word);
    }
  }

  void obey() {
    KeepersOrder order;
    const ssize_t got = recv(socket_.get(), &order, sizeof order, MSG_DONTWAIT);
    if (got == 0) _exit(0);
    if (got == static_cast<ssize_t>(sizeof order) && command_ != 0)
      kill(order.group ? -command_ : command_, order.number);
  }

  UniqueFd socket_;
  pid_t command_ = 0;
};

[[noreturn]] void be_keeper(const launcher::Plan& plan, const Pool& pool, uid_t uid,
                            const std::array<int, 3>& streams, UniqueFd socket) {
  Keeper keeper(std::move(socket));
  KeepersWord word;
  word.kind = KeepersWord::Kind::kFailed;
  std::array<int, 2> ends{};
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  sigprocmask(SIG_BLOCK, &children, nullptr);
  const UniqueFd signals(signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK));
  const bool good = signals.valid() && prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0 &&
                    pipe2(ends.data(), O_CLOEXEC) == 0;
  const pid_t self = getpid();
  const pid_t command = good ? fork() : -1;
  if (command == 0) {
    die_with(self);
    const int error = execute(plan, pool, uid, streams, ends[1]);
    _exit(write(ends[1], &error, sizeof error) < 0 ? 126 : 127);
  }
  word.error = errno;
  if (command < 0) {
    keeper.say(word);
    _exit(1);
  }
  ::close(ends[1]);
  // The end of file is the exec, which closes the other end.
  word.pid = command;
  if (read(ends[0], &word.error, sizeof word.error) == 0) word.kind = KeepersWord::Kind::kStarted;
  ::close(ends[0]);
  keeper.say(word);
  if (word.kind == KeepersWord::Kind::kFailed) _exit(1);
  keeper.keep(command, signals.get());
}

}  // namespace

Outcome<BareCommand> start_bare(const launcher::Plan& plan, const Pool& pool, uid_t uid,
                                const std::array<int, 3>& streams) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return call_failed(errno, "make a socket for a keeper");
  BareCommand command;
  command.socket = UniqueFd(ends[0]);
  UniqueFd theirs(ends[1]);
  const pid_t monitor = getpid();
  command.keeper = fork();
  if (command.keeper < 0) return call_failed(errno, "fork a keeper");
  if (command.keeper == 0) {
    die_with(monitor);
    std::vector<int> kept(streams.begin(), streams.end());
    kept.push_back(theirs.get());
    if (!close_all_but(kept)) _exit(1);
    be_keeper(plan, pool, uid, streams, std::move(theirs));
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return command;
}

}  // namespace belljar::service
