// What /v1 shows of sessions and processes: the shapes of docs/api.md.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "api/http/message.hpp"
#include "supervisor/supervisor.hpp"

namespace belljar::api {

/// "2026-11-30T16:37:02.125Z" (RFC 3339), in UTC.
[[nodiscard]] std::string time_text(supervisor::WallTime time);
/// "1500ms", "30s", "15m", "2h": whole numbers of the largest unit that fits.
[[nodiscard]] std::string duration_text(std::chrono::milliseconds duration);

/// {"id", "state", "policy", "policy_digest", "created", "expires", "idle_after", "labels",
/// "client", "uid", "port", "network", "sandbox", "back_end", "workspace", "degraded",
/// "processes", "record"}. What `request`'s client may not know of the host is left out.
[[nodiscard]] nlohmann::json session_json(const Request& request,
                                          const supervisor::Supervisor& supervisor,
                                          const supervisor::Session& session);

/// {"id", "session", "argv", "state", "started", "ended", "offsets", "dropped", "exit_code",
/// "signal", "cause", "record"}; the last four are null until its end.
[[nodiscard]] nlohmann::json process_json(const Request& request, const std::string& session,
                                          const supervisor::Process& process);

/// The record as an object, as this client may see it.
[[nodiscard]] nlohmann::json record_json(const Request& request, const supervisor::End& end);

/// {"process", "exit_code", "cause", "record", "stdout" or "stdout_base64", "stderr" or
/// "stderr_base64", "truncated"}: what it has written so far, and how it ended if it has.
[[nodiscard]] nlohmann::json exec_json(const Request& request, const std::string& session,
                                       const supervisor::Process& process);

/// The same of a command of the shell, with "cwd", "notes" and, where it is wanted, "state".
[[nodiscard]] nlohmann::json shell_json(const Request& request,
                                        const supervisor::ShellResult& result, bool tells_state);

/// An answer with a JSON body.
[[nodiscard]] Response json_response(int status, const nlohmann::json& body);

/// 204.
[[nodiscard]] Response no_content();

/// The path of a session or of one of its processes, for Location.
[[nodiscard]] std::string session_path(const std::string& session);
[[nodiscard]] std::string process_path(const std::string& session, std::uint32_t process);

/// "running"
[[nodiscard]] const char* state_name(supervisor::Session::State state);
[[nodiscard]] const char* state_name(supervisor::Process::State state);

}  // namespace belljar::api
