#include "launcher/terminal_relay.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace belljar::launcher {
namespace {

using sys::UniqueFd;

/// An open file of our own for what `fd` is on: not to wait must not become true for everybody who
/// shares the caller's. Where it cannot be had (a socket, a terminal of another user's), the
/// caller's has to do.
UniqueFd own_copy(int fd, int mode) {
  // A file never waits, and another position in it would read again or overwrite.
  struct stat about {};
  if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode)) return {};
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return UniqueFd(open(path.c_str(), mode | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

bool is_for_later(ssize_t done) { return done < 0 && (errno == EAGAIN || errno == EINTR); }

}  // namespace

TerminalRelay::~TerminalRelay() { leave(); }

void TerminalRelay::start(const OpenTerminal& plan, std::optional<std::uint64_t> limit,
                          UniqueFd master, UniqueFd slave) {
  plan_ = &plan;
  limit_ = limit;
  taken_ = 0;
  exceeded_ = false;
  master_ = std::move(master);
  slave_ = std::move(slave);
  to_sandbox_.clear();
  to_caller_.clear();
  input_copy_ = own_copy(plan.input, O_RDONLY);
  input_ = input_copy_.valid() ? input_copy_.get() : plan.input;
  output_copy_ = own_copy(plan.output, O_WRONLY);
  output_ = output_copy_.valid() ? output_copy_.get() : plan.output;
  enter();
}

bool TerminalRelay::in_foreground() const {
  return plan_ != nullptr && plan_->terminal >= 0 && tcgetpgrp(plan_->terminal) == getpgrp();
}

void TerminalRelay::enter() {
  if (!active()) return;
  take_size_over();
  if (before_ || plan_->terminal != plan_->input || !in_foreground()) return;
  const auto settings = sys::terminal_settings(plan_->terminal);
  if (!settings) return;
  const bool shared = !isatty(STDOUT_FILENO);
  if (sys::set_terminal_settings(plan_->terminal, sys::raw_settings(*settings, shared)))
    before_ = settings;
}

void TerminalRelay::leave() {
  if (!before_) return;
  // From the background it would stop us, and is not ours to change.
  if (in_foreground()) sys::set_terminal_settings(plan_->terminal, *before_);
  before_.reset();
}

void TerminalRelay::take_size_over() {
  if (!active() || plan_->terminal < 0) return;
  // The kernel tells the foreground group when it is another one.
  const auto size = sys::terminal_size(plan_->terminal);
  if (size && size->rows != 0) sys::set_terminal_size(master_.get(), *size);
}

std::array<pollfd, TerminalRelay::kPollCount> TerminalRelay::wanted() const {
  std::array<pollfd, kPollCount> set = {{{-1, 0, 0}, {-1, 0, 0}, {-1, 0, 0}}};
  if (!to_caller_.empty()) set[2] = {output_, POLLOUT, 0};
  if (!active()) return set;
  // Reading a terminal from the background would stop us.
  const bool may_read = plan_->terminal != plan_->input || before_;
  if (input_ >= 0 && may_read && to_sandbox_.size() < kRoom) set[0] = {input_, POLLIN, 0};
  short events = to_caller_.size() < kRoom ? POLLIN : 0;
  if (!to_sandbox_.empty()) events |= POLLOUT;
  if (events != 0) set[1] = {master_.get(), events, 0};
  return set;
}

void TerminalRelay::move(std::span<const pollfd, kPollCount> ready) {
  if (ready[0].revents != 0) read_input();
  if (ready[1].revents & POLLOUT) write_master();
  if (ready[1].revents & (POLLIN | POLLHUP | POLLERR)) read_master();
  if (ready[2].revents != 0) write_output();
}

void TerminalRelay::read_input() {
  std::array<char, 4096> buffer;
  const ssize_t got = read(input_, buffer.data(), buffer.size());
  if (got > 0) to_sandbox_.append(buffer.data(), static_cast<std::size_t>(got));
  if (got > 0 || is_for_later(got)) return;
  input_ = -1;
  // The end of a file is a key at a terminal.
  if (const auto settings = sys::terminal_settings(slave_.get()))
    to_sandbox_ += static_cast<char>(settings->characters[VEOF]);
}

void TerminalRelay::write_master() {
  const ssize_t wrote = ::write(master_.get(), to_sandbox_.data(), to_sandbox_.size());
  if (wrote > 0) to_sandbox_.erase(0, static_cast<std::size_t>(wrote));
}

void TerminalRelay::read_master() {
  std::array<char, 16384> buffer;
  const ssize_t got = read(master_.get(), buffer.data(), buffer.size());
  if (got <= 0) {
    if (!is_for_later(got)) master_.reset();
    return;
  }
  auto size = static_cast<std::size_t>(got);
  if (limit_ && size > *limit_ - taken_) {
    exceeded_ = true;
    size = static_cast<std::size_t>(*limit_ - taken_);
  }
  taken_ += size;
  to_caller_.append(buffer.data(), size);
}

/// In pieces that a pipe takes at once when it takes anything (man 7 pipe): what cannot be made not
/// to wait must not wait either.
void TerminalRelay::write_output() {
  constexpr std::size_t kPiece = 4096;
  const ssize_t wrote = ::write(output_, to_caller_.data(), std::min(kPiece, to_caller_.size()));
  if (wrote > 0) to_caller_.erase(0, static_cast<std::size_t>(wrote));
  if (wrote > 0 || is_for_later(wrote)) return;
  // Nobody reads any more: for the command, its terminal hangs up.
  to_caller_.clear();
  slave_.reset();
  master_.reset();
}

void TerminalRelay::sandbox_has_ended() {
  // With the last one closed, the end is told after everything that was written before.
  slave_.reset();
  input_ = -1;
  to_sandbox_.clear();
}

}  // namespace belljar::launcher
