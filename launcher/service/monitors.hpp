// The monitors of the service: who has which uid and workspace.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/service/fault.hpp"
#include "launcher/service/zygote.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::service {

/// One launch, from being asked for to the end of its monitor.
struct Session {
  uid_t uid = 0;
  std::string workspace;
};

class Monitors {
 public:
  /// The session socket of belljard's end, and the pidfd of the monitor.
  using Started = std::function<void(Outcome<std::vector<sys::UniqueFd>>)>;

  explicit Monitors(Zygote zygote) : zygote_(std::move(zygote)) {}

  /// Asks the zygote for one; `started` is called when there is an answer. `standard` are the
  /// command's stdin, stdout and stderr, `order` a sealed memfd, `existing` the directory that it
  /// works in when that is not its workspace (-1: it is).
  [[nodiscard]] Outcome<void> launch(Session session, const sys::UniqueFd& order,
                                     const std::vector<sys::UniqueFd>& standard, int existing,
                                     Started started);

  /// Takes the zygote's answers.
  void take_answers();

  /// Takes note of a child that has been reaped; false when it is no monitor.
  bool ended(pid_t pid) { return running_.erase(pid) > 0; }

  /// While one is on its way, no child that is not known may be reaped: it could be the one, and
  /// its number would be somebody else's by the time that it is known.
  [[nodiscard]] bool expecting() const { return !expected_.empty(); }

  [[nodiscard]] bool has_uid(uid_t uid) const;
  [[nodiscard]] bool has_workspace(const std::string& name) const;
  [[nodiscard]] std::vector<pid_t> processes() const;
  [[nodiscard]] const Zygote& zygote() const { return zygote_; }

 private:
  struct Expected {
    Session session;
    sys::UniqueFd socket;
    Started started;
  };

  Zygote zygote_;
  std::deque<Expected> expected_;
  std::map<pid_t, Session> running_;
};

}  // namespace belljar::service
