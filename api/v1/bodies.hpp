// The bodies that start something: a session's, a process's, and that of a run, which is both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/v1/body.hpp"
#include "api/v1/leases.hpp"
#include "supervisor/supervisor.hpp"

namespace belljar::api {

/// What a process body is for. Each use has members that the others have not.
enum class ProcessUse { kFurther, kCommand, kRun };

/// "argv" or "shell", "env", "cwd", "stdin", "tty", "output", "wall_time" or "timeout",
/// "cpu_time", and "background" of a further one. What limits the whole session goes to `settings`.
[[nodiscard]] supervisor::ProcessSpec read_process(Members& members, ProcessUse use,
                                                   std::vector<std::string>& settings);

/// A process's directory, absolute: a relative one is below the workspace.
[[nodiscard]] std::string directory_in(const std::string& workspace, const std::string& directory);

/// "state": true, or what an answer had: then the shell goes on from there.
struct WantedState {
  std::optional<std::string> from;
};

struct SessionBody {
  supervisor::SessionSpec spec;
  bool wait_ready = false;
  std::uint16_t ready_port = 0;  ///< 0: the session's own.
  supervisor::Milliseconds ready_limit{30000};
  DieWith die_with;
  std::optional<WantedState> state;  ///< Of a run: its command is a shell's.
};

/// The whole body of POST /v1/sessions, or everything that is wrong with it.
[[nodiscard]] tl::expected<SessionBody, Problem> read_session(const nlohmann::json& body);
/// That of POST /v1/run.
[[nodiscard]] tl::expected<SessionBody, Problem> read_run(const nlohmann::json& body);

struct FurtherBody {
  supervisor::ProcessSpec spec;
  std::optional<bool> background;    ///< Nothing: as the operation has it.
  bool claim = false;                ///< The session's existing workspace is claimed first.
  std::optional<WantedState> state;  ///< Of a shell command: the answer is to have it.
};

/// That of a further process, or of a command of the shell.
enum class FurtherUse { kProgram, kShell };
[[nodiscard]] tl::expected<FurtherBody, Problem> read_further(const nlohmann::json& body,
                                                              FurtherUse use);

/// "labels" as they may be: nothing, or what is wrong with them.
void check_labels(const std::map<std::string, std::string>& labels, Members& members);

}  // namespace belljar::api
