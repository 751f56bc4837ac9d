#include "launcher/service/monitors.hpp"

#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "launcher/sys/raw.hpp"

namespace belljar::service {

using sys::UniqueFd;

Outcome<void> Monitors::launch(Session session, const UniqueFd& order,
                               const std::vector<UniqueFd>& standard, int existing,
                               Started started) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return call_failed(errno, "make a session socket");
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  LaunchParts parts = {order.get(), standard[0].get(), standard[1].get(), standard[2].get(),
                       theirs.get()};
  if (existing >= 0) parts.push_back(existing);
  const int error = zygote_.ask(parts);
  if (error == EAGAIN || error == ETOOMANYREFS)
    return refuse(Code::kBusy, "too many launches wait already");
  if (error != 0) return call_failed(error, "ask the zygote for a monitor");
  expected_.push_back({std::move(session), std::move(ours), std::move(started)});
  return {};
}

void Monitors::take_answers() {
  while (!expected_.empty()) {
    const std::optional<long> answer = zygote_.next_monitor();
    if (!answer) return;
    Expected next = std::move(expected_.front());
    expected_.pop_front();
    if (*answer < 0) {
      next.started(call_failed(static_cast<int>(-*answer), "fork a monitor"));
      continue;
    }
    const auto pid = static_cast<pid_t>(*answer);
    running_[pid] = std::move(next.session);
    UniqueFd pidfd(static_cast<int>(sys::raw(SYS_pidfd_open, pid, 0U)));
    std::vector<UniqueFd> descriptors;
    descriptors.push_back(std::move(next.socket));
    descriptors.push_back(std::move(pidfd));
    // Without its pidfd nobody could hold it: the session socket closes, and that ends it.
    if (descriptors[1].valid())
      next.started(std::move(descriptors));
    else
      next.started(call_failed(EMFILE, "open the monitor's pidfd"));
  }
}

bool Monitors::has_uid(uid_t uid) const {
  const auto is = [uid](const auto& entry) { return entry.second.uid == uid; };
  const auto will = [uid](const Expected& expected) { return expected.session.uid == uid; };
  return std::any_of(running_.begin(), running_.end(), is) ||
         std::any_of(expected_.begin(), expected_.end(), will);
}

bool Monitors::has_workspace(const std::string& name) const {
  const auto is = [&name](const auto& entry) { return entry.second.workspace == name; };
  const auto will = [&name](const Expected& expected) {
    return expected.session.workspace == name;
  };
  return std::any_of(running_.begin(), running_.end(), is) ||
         std::any_of(expected_.begin(), expected_.end(), will);
}

std::vector<pid_t> Monitors::processes() const {
  std::vector<pid_t> found;
  for (const auto& entry : running_) found.push_back(entry.first);
  return found;
}

}  // namespace belljar::service
