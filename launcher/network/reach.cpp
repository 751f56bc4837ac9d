#include "launcher/network/reach.hpp"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <sstream>

#include "launcher/endpoint.hpp"
#include "launcher/record.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::network {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// A datagram may be lost: it is sent anew.
constexpr std::chrono::milliseconds kAgain{250};

/// "." NS IN: what every resolver knows, or can find out without naming anybody.
constexpr std::array<unsigned char, 17> kQuestion = {0, 0, 1, 0, 0, 1, 0, 0, 0,
                                                     0, 0, 0, 0, 0, 2, 0, 1};

class Attempt {
 public:
  explicit Attempt(const std::string& target) {
    reached_.target = target;
    asks_ = target.find(':') == std::string::npos;
    if (const int error = begin(asks_ ? target + ":53" : target); error != 0)
      end(launcher::errno_name(error));
    else
      ask();
  }

  [[nodiscard]] bool over() const { return !fd_.valid(); }
  [[nodiscard]] pollfd waits_for() const {
    const bool reads = asks_ || reached_.verdict == kConnected;
    return {fd_.get(), static_cast<short>(reads ? POLLIN : POLLOUT), 0};
  }

  void go_on() {
    if (asks_) return take_datagram();
    if (reached_.verdict == kConnected) return take_word();
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error != 0) return end(launcher::errno_name(error));
    reached_.verdict = kConnected;
  }

  /// Nothing came: a question is asked again.
  void ask() {
    if (!asks_ || over()) return;
    std::array<unsigned char, kQuestion.size()> question = kQuestion;
    if (getrandom(number_.data(), number_.size(), 0) != static_cast<ssize_t>(number_.size()))
      return end(launcher::errno_name(errno));
    std::copy(number_.begin(), number_.end(), question.begin());
    if (send(fd_.get(), question.data(), question.size(), MSG_NOSIGNAL) < 0)
      end(launcher::errno_name(errno));
  }

  [[nodiscard]] Reached reached() && {
    if (reached_.verdict.empty()) reached_.verdict = kUnanswered;
    return std::move(reached_);
  }

 private:
  /// 0, or the errno.
  int begin(const std::string& endpoint) {
    const Result<launcher::Endpoint> to = launcher::parse_endpoint(endpoint);
    if (!to) return EINVAL;
    const int type = (asks_ ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC | SOCK_NONBLOCK;
    fd_ = sys::UniqueFd(socket(to->family(), type, 0));
    if (!fd_.valid()) return errno;
    return connect(fd_.get(), to->get(), to->size) != 0 && errno != EINPROGRESS ? errno : 0;
  }

  void end(std::string_view verdict) {
    reached_.verdict = verdict;
    fd_.reset();
  }

  void take_datagram() {
    std::array<unsigned char, 512> reply{};
    const ssize_t got = recv(fd_.get(), reply.data(), reply.size(), 0);
    if (got < 0) return errno == EAGAIN ? void() : end(launcher::errno_name(errno));
    constexpr ssize_t kHead = 12;
    const bool is_ours =
        got >= kHead && reply[0] == number_[0] && reply[1] == number_[1] && (reply[2] & 0x80) != 0;
    if (!is_ours) return;
    const int code = reply[3] & 0x0f;
    // That there is no such name is an answer, too.
    constexpr int kNoSuchName = 3;
    if (code != 0 && code != kNoSuchName) reached_.said = "code " + std::to_string(code);
    end(kResolved);
  }

  void take_word() {
    std::array<char, 64> piece{};
    const ssize_t got = recv(fd_.get(), piece.data(), piece.size(), 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got > 0)
      for (const char c : std::string_view(piece.data(), static_cast<std::size_t>(got)))
        reached_.said += c > ' ' && c <= '~' ? c : '?';
    end(kConnected);
  }

  Reached reached_;
  bool asks_ = false;
  std::array<unsigned char, 2> number_{};
  sys::UniqueFd fd_;
};

}  // namespace

std::vector<Reached> reach(const std::vector<std::string>& targets,
                           std::chrono::milliseconds patience) {
  std::vector<Attempt> attempts;
  attempts.reserve(targets.size());
  for (const std::string& target : targets) attempts.emplace_back(target);
  const Clock::time_point last = Clock::now() + patience;
  Clock::time_point again = Clock::now() + kAgain;
  std::vector<pollfd> waiting(attempts.size());
  while (!std::ranges::all_of(attempts, &Attempt::over)) {
    const Clock::time_point now = Clock::now();
    if (now >= last) break;
    if (now >= again) {
      for (Attempt& one : attempts) one.ask();
      again = now + kAgain;
    }
    for (std::size_t i = 0; i < attempts.size(); ++i) waiting[i] = attempts[i].waits_for();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(std::min(last, again) - now);
    if (poll(waiting.data(), waiting.size(), static_cast<int>(left.count())) <= 0) continue;
    for (std::size_t i = 0; i < attempts.size(); ++i)
      if (waiting[i].revents != 0) attempts[i].go_on();
  }
  std::vector<Reached> answers;
  for (Attempt& one : attempts) answers.push_back(std::move(one).reached());
  return answers;
}

std::vector<std::string> name_servers(std::string_view resolv_conf) {
  std::vector<std::string> found;
  std::istringstream lines{std::string(resolv_conf)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string key, address;
    if (words >> key >> address && key == "nameserver" && address.find(':') == std::string::npos)
      found.push_back(address);
  }
  return found;
}

}  // namespace belljar::network
