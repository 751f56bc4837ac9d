// The daemon once it has no privileges left: the loop, the faces, and how it ends.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "api/tokens.hpp"
#include "policy/base/unique_fd.hpp"
#include "policy/settings.hpp"

namespace belljar::api {

/// What the daemon has been given before it let go of its rights.
struct Inheritance {
  policy::Settings settings;
  Tokens tokens;
  std::vector<UniqueFd> listeners;
  UniqueFd service, signals;
  UniqueFd audit;  ///< Not valid: none.
};

/// Serves until it is told to end. The exit status.
[[nodiscard]] int serve(Inheritance inheritance);

/// The signals that `serve` reads from a descriptor; everybody else has them blocked.
[[nodiscard]] Result<UniqueFd> take_signals();

/// What agents of the simulator get of this environment, and what is set for each of them.
[[nodiscard]] std::map<std::string, std::string> agent_environment(
    const std::map<std::string, std::string>& own);

/// The words of a command, the first found on `path`: an agent that cannot start is known at once.
[[nodiscard]] Result<std::vector<std::string>> agent_command(const std::string& command,
                                                             const std::string& path);

/// The sockets that systemd has opened for the daemon, each once.
[[nodiscard]] std::vector<UniqueFd> activated_listeners();

}  // namespace belljar::api
