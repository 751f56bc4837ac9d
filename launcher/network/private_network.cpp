#include "launcher/network/private_network.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "launcher/network/guard.hpp"

namespace belljar::network {

PrivateNetwork::PrivateNetwork(const launcher::Plan& plan) : plan_(plan) {
  for (const launcher::Step& step : plan.steps)
    if (const auto* attach = std::get_if<launcher::AttachNetwork>(&step.action)) wanted_ = attach;
}

Status PrivateNetwork::start(sys::UniqueFd user, sys::UniqueFd net) {
  std::array<int, 2> ends{};
  if (wanted_ == nullptr || guard_ > 0 || !user.valid() || !net.valid() ||
      socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return sys_failure(wanted_ == nullptr || guard_ > 0 ? EPROTO : errno,
                       "make a socket for the network's guard");
  way_ = sys::UniqueFd(ends[0]);
  const sys::UniqueFd other(ends[1]);
  const Place place{user.get(), net.get(), plan_.uid, plan_.gid};
  guard_ = fork();
  if (guard_ == 0) guard_network(*wanted_, place, other.get());
  if (guard_ < 0) return sys_failure(errno, "start the network's guard");
  state_ = State::kComing;
  return {};
}

void PrivateNetwork::hear() {
  const std::optional<Word> word = network::hear(way_.get());
  if (word && word->kind == Word::Kind::kUp && state_ == State::kComing) {
    state_ = State::kUp;
    return;
  }
  state_ = State::kLost;
  failure_ = word ? word->error
                  : Error{ErrorKind::kUnavailable, 0, "the network's guard has ended", {}, {}};
}

std::optional<std::vector<Refusal>> PrivateNetwork::end() {
  if (guard_ <= 0) return std::nullopt;
  // It ends pasta, tells what it has to tell, and goes. Whoever holds it up must not hold up
  // belljar: the kernel ends pasta with it.
  constexpr int kPatienceMs = 2000;
  std::vector<Refusal> refusals;
  shutdown(way_.get(), SHUT_WR);
  for (pollfd ready{way_.get(), POLLIN, 0}; poll(&ready, 1, kPatienceMs) == 1;) {
    std::optional<Word> word = network::hear(way_.get());
    if (!word) break;
    if (word->kind == Word::Kind::kOver) refusals = std::move(word->refusals);
  }
  kill(guard_, SIGKILL);
  waitpid(guard_, nullptr, 0);
  guard_ = 0;
  state_ = State::kNone;
  way_.reset();
  return refusals;
}

}  // namespace belljar::network
