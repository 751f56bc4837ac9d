// The verbs of belljarctl: each takes what was asked for and gives the exit status.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/ctl/client.hpp"

namespace belljar::ctl {

/// What a process is asked for.
struct ProcessOptions {
  std::vector<std::string> command;
  std::vector<std::string> environment;  ///< "NAME=VALUE", or "NAME": the caller's.
  std::string directory, timeout, output;
  bool interactive = false;
};

/// What a session, or a run, is asked for.
struct SessionOptions {
  std::string policy, network;
  std::string workspace;  ///< A directory of the daemon's host; empty: one is made.
  bool chown = false;     ///< It becomes the session's.
  std::vector<std::string> variables, files, limits;
};

struct ListOptions {
  std::string session;  ///< Its processes; empty: all sessions.
  std::string state;
  std::vector<std::string> labels;
  bool all = false, quiet = false, json = false;
};
[[nodiscard]] Outcome<int> ps(const Client& client, const ListOptions& asked);

struct CreateOptions {
  SessionOptions session;
  ProcessOptions process;
  std::vector<std::string> labels;
  std::string ttl, idle;
  std::optional<int> ready_port;
  bool json = false;
};
[[nodiscard]] Outcome<int> create(const Client& client, const CreateOptions& asked);

struct RemoveOptions {
  std::vector<std::string> sessions;
};
[[nodiscard]] Outcome<int> rm(const Client& client, const RemoveOptions& asked);

struct TopOptions {
  std::string interval = "2s";
  bool once = false, json = false;
};
[[nodiscard]] Outcome<int> top(const Client& client, const TopOptions& asked);

struct ExecOptions {
  std::string session;
  ProcessOptions process;
  bool terminal = false, background = false, claim = false, json = false;
  std::string detach_keys;
};
[[nodiscard]] Outcome<int> exec(const Client& client, const ExecOptions& asked);

struct RunOptions {
  SessionOptions session;
  ProcessOptions process;
  bool json = false;
};
[[nodiscard]] Outcome<int> run(const Client& client, const RunOptions& asked);

struct LogsOptions {
  std::string session, process = "0", stream;
  std::optional<std::uint64_t> offset;
  bool follow = false;
};
[[nodiscard]] Outcome<int> logs(const Client& client, const LogsOptions& asked);

struct AttachOptions {
  std::string session, process = "0", detach_keys;
  bool takeover = false, read_only = false, from_start = false;
};
[[nodiscard]] Outcome<int> attach(const Client& client, const AttachOptions& asked);

struct WaitOptions {
  std::string session, process = "0";
};
[[nodiscard]] Outcome<int> wait(const Client& client, const WaitOptions& asked);

struct KillOptions {
  std::string session, process = "0", signal, target = "leader";
};
[[nodiscard]] Outcome<int> kill(const Client& client, const KillOptions& asked);

struct CopyOptions {
  std::string from, to;  ///< "SESSION:PATH", a path here, or "-".
  bool tar = false;      ///< "-" is a tar.
};
[[nodiscard]] Outcome<int> cp(const Client& client, const CopyOptions& asked);

struct EventsOptions {
  std::string session, after;
  bool follow = false, json = false;
};
[[nodiscard]] Outcome<int> events(const Client& client, const EventsOptions& asked);

[[nodiscard]] Outcome<int> policies(const Client& client, bool json);
[[nodiscard]] Outcome<int> version(const Client& client, bool json);

/// All of it on standard output; where that is not possible, the failure.
[[nodiscard]] Done print(std::string_view text);

}  // namespace belljar::ctl
