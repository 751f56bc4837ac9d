// A terminal, or pipes, on a process that runs: over the WebSocket belljar.attach.v1.
#pragma once

#include <optional>

#include "api/ctl/client.hpp"
#include "api/ctl/follow.hpp"
#include "api/ctl/process_calls.hpp"
#include "api/ctl/terminal.hpp"

namespace belljar::ctl {

struct Attaching {
  ProcessName name;
  DetachKeys keys;
  bool input = false;     ///< What is typed here, or comes here, goes there.
  bool terminal = false;  ///< The process has one.
  bool ours = false;      ///< It was started here: what ends us is passed on to it.
  bool takeover = false;  ///< From another who has its input.
  Offsets from;
};

/// Stays until the process ends, and then ends as it did; or until it is detached from, which is 0.
/// A connection that breaks is made again, and says so; the terminal is as it was afterwards.
[[nodiscard]] Outcome<int> attach_to(const Client& client, const Attaching& wanted,
                                     const Signals& signals);

}  // namespace belljar::ctl
