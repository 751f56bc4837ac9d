// The process that monitors are forked from.
//
// It is forked before the service reads its first message, so that no sandbox can be a copy of a
// process that has seen another session's. It passes a launch on without reading it: what is wrong
// with one is found in its own monitor.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launcher/service/pool.hpp"
#include "launcher/service/served_policies.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::service {

/// What a launch is made of: the request's text in a sealed memfd, the command's stdin, stdout and
/// stderr, the monitor's end of the session socket, and, where it is not its workspace, the
/// directory that the session works in.
using LaunchParts = std::vector<int>;
inline constexpr std::size_t kLaunchParts = 5;  ///< Without the last.

class Zygote {
 public:
  /// `lifeline` is the reading end.
  [[nodiscard]] static Result<Zygote> start(const ServedPolicies& policies, const Pool& pool,
                                            const std::string& sessions_root, int lifeline,
                                            bool sandboxed);

  /// Asks for a monitor, which becomes a child of the service: 0 or the errno.
  [[nodiscard]] int ask(const LaunchParts& parts) const;

  /// The next monitor, in the order in which they were asked for: its pid, or -errno. Nothing when
  /// there is no answer yet.
  [[nodiscard]] std::optional<long> next_monitor() const;

  [[nodiscard]] int socket() const { return socket_.get(); }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  Zygote(sys::UniqueFd socket, pid_t pid) : socket_(std::move(socket)), pid_(pid) {}

  sys::UniqueFd socket_;
  pid_t pid_;
};

}  // namespace belljar::service
