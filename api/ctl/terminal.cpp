#include "api/ctl/terminal.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "policy/base/result.hpp"

namespace belljar::ctl {

std::optional<Size> terminal_size(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return std::nullopt;
  return Size{size.ws_col, size.ws_row};
}

Done RawTerminal::enter(int fd) {
  if (before_) return {};
  termios settings{};
  if (tcgetattr(fd, &settings) != 0) return call_failed(errno, "ask the terminal for its settings");
  before_ = settings;
  fd_ = fd;
  cfmakeraw(&settings);
  if (tcsetattr(fd, TCSADRAIN, &settings) != 0) {
    before_.reset();
    return call_failed(errno, "make the terminal raw");
  }
  return {};
}

void RawTerminal::leave() {
  // What was typed and not read stays for the shell.
  if (before_) (void)tcsetattr(fd_, TCSADRAIN, &*before_);
  before_.reset();
}

// --- keys

Outcome<DetachKeys> DetachKeys::parse(std::string_view text) {
  DetachKeys keys;
  if (text == "none") return keys;
  const auto wrong = [&](std::string_view key) {
    return failed(
        FailureKind::kUsage,
        "--detach-keys " + std::string(text) + ": there is no key \"" + std::string(key) + '"',
        "single characters and ctrl-a to ctrl-z with commas between, or none");
  };
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t to = std::min(text.find(',', from), text.size());
    const std::string_view key = text.substr(from, to - from);
    from = to + 1;
    const bool control = key.size() == 6 && key.starts_with("ctrl-");
    if (control && key[5] >= 'a' && key[5] <= 'z')
      keys.sequence_ += static_cast<char>(key[5] - 'a' + 1);
    else if (key.size() == 1 && key[0] > ' ' && key[0] < 0x7f)
      keys.sequence_ += key[0];
    else
      return wrong(key);
  }
  return keys;
}

std::string DetachKeys::pass(std::string_view keys) {
  if (sequence_.empty()) return std::string(keys);
  std::string out;
  for (const char key : keys) {
    if (detached_) break;
    take(key, out);
  }
  return out;
}

/// Whether the key had to do with a "~".
bool DetachKeys::take_tilde(char key, std::string& out) {
  if (tilde_) {
    tilde_ = at_start_ = false;
    if (key == '.') return detached_ = true;
    out += '~';
    return key == '~';
  }
  return tilde_ = at_start_ && matched_ == 0 && key == '~';
}

void DetachKeys::take(char key, std::string& out) {
  if (take_tilde(key, out)) return;
  if (key != sequence_[matched_]) {
    // What has matched so far belongs to the command, and the key may begin anew.
    out.append(sequence_, 0, matched_);
    matched_ = 0;
  }
  if (key == sequence_[matched_]) {
    detached_ = ++matched_ == sequence_.size();
    return;
  }
  out += key;
  at_start_ = key == '\r' || key == '\n';
}

// --- signals

Outcome<Signals> Signals::take(Which which) {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&wanted, number);
  if (which == Which::kTerminal)
    for (const int number : {SIGWINCH, SIGTSTP, SIGCONT}) sigaddset(&wanted, number);
  if (pthread_sigmask(SIG_BLOCK, &wanted, nullptr) != 0) return call_failed(errno, "block signals");
  Signals signals;
  signals.fd_.reset(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.fd_.valid()) return call_failed(errno, "open a descriptor for signals");
  return signals;
}

std::optional<int> Signals::next() const {
  signalfd_siginfo about{};
  if (read(fd_.get(), &about, sizeof about) != sizeof about) return std::nullopt;
  return static_cast<int>(about.ssi_signo);
}

int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = write(fd, bytes.data(), bytes.size());
    if (wrote >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(wrote));
    } else if (errno == EAGAIN) {  // Somebody else has made the terminal or pipe so.
      pollfd place{fd, POLLOUT, 0};
      (void)poll(&place, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace belljar::ctl
