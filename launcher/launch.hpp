// From a Plan to a running sandbox, and from its end to the Record.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "launcher/plan.hpp"
#include "launcher/record.hpp"

namespace belljar::launcher {

/// What happens while a command runs, told as it happens. Any member may be empty.
struct Events {
  std::function<void(int pid)> started;     ///< The sandbox's init, as the caller sees it.
  std::function<void(int signal)> stopped;  ///< The command was stopped.
  std::function<void()> continued;
  /// The time that the command is given, as the loop that ends it waits; none without a limit.
  std::function<void(std::optional<std::chrono::milliseconds>)> armed = {};
};

/// Launches, forwards INT, TERM, HUP, QUIT, WINCH, USR1 and USR2 to the command's process group,
/// enforces the wall time, and returns the record when nothing of the sandbox is left. Never fails:
/// what goes wrong is the record's cause. Changes the caller's signal mask for the duration. One
/// launch at a time; the calling thread must be the process's only one.
[[nodiscard]] Record launch(const Plan& plan, const policy::Policy& policy, const Host& host,
                            const Events& events);

}  // namespace belljar::launcher
