// The monitor: one process for each sandbox of the service's, which launches it and serves its
// session socket (docs/launch-service.md) until nothing of it is left.
#pragma once

#include <optional>

#include "launcher/plan.hpp"
#include "launcher/sys/terminal.hpp"
#include "launcher/sys/unique_fd.hpp"
#include "policy/policy.hpp"

namespace belljar::service {

struct SessionOrder {
  policy::Policy policy;                      ///< With the session's uid and workspace in it.
  launcher::Command command;                  ///< `stands_by` for a sandbox without one.
  std::optional<sys::TerminalSize> terminal;  ///< The command gets one, of this size.
};

/// The calling process is a fork with one thread and nobody else's data; 0, 1 and 2 are the
/// command's. Returns when the sandbox is gone and `over` was sent. The end of file on `socket`
/// kills the sandbox.
void serve_session(const SessionOrder& order, sys::UniqueFd socket);

}  // namespace belljar::service
