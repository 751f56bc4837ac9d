// How a command ended: the exit status that stands for it, and the words.
#pragma once

#include <string>

#include "api/ctl/client.hpp"

namespace belljar::ctl {

/// 125: we, the daemon or the sandbox refused or failed, as opposed to the command.
inline constexpr int kFailed = 125;

/// What `belljar run` would exit with: the command's own, 124 for the wall time, 128+n for a
/// signal.
[[nodiscard]] int exit_status(const Json& record);

/// Why it ended, for a person; empty where the exit status says all of it.
[[nodiscard]] std::string why_it_ended(const Json& record);

/// Says why, and ends as the command did: of INT, QUIT and TERM by the same signal, so that a
/// shell's loop stops.
[[nodiscard]] int end_as(const Json& record);

}  // namespace belljar::ctl
