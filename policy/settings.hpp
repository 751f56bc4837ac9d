// The settings of the daemon: one table, from which the file, the command line and the environment
// are read alike. `belljar --selftest` tests what they say.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "policy/load.hpp"

namespace belljar::policy {

/// What the operator has set, defaults filled in.
struct Settings {
  std::vector<std::string> listen;  ///< "unix:PATH" or "tcp:ADDRESS:PORT".
  std::vector<std::string> hosts;   ///< Names that requests over TCP may be sent to.
  std::string token_file;
  std::string token;          ///< From the environment only: a file or a flag would show it.
  std::string sessions_root;  ///< Empty: the caller's default (launcher/selftest.hpp).
  std::vector<std::string> workspace_roots;
  std::uint64_t uid_base = 70000;
  std::uint64_t max_sessions = 999;
  std::string user;
  std::vector<std::string> policy_dirs = {"/etc/belljar/policies", "/usr/share/belljar/policies"};
  std::string policy = "builtin:agent@1";  ///< Of sessions that name none.
  std::string inline_ceiling;  ///< Of policies that come with requests; empty: none may.
  bool simulator = false;
  std::string sandbox = "auto";  ///< Or "off".
  std::string network;           ///< Of the session policy: auto, private, none, shared; or empty.
  std::uint64_t port_base = 7700;
  std::optional<std::chrono::milliseconds> session_ttl, max_ttl;
  std::optional<std::uint64_t> max_runs;
  std::uint64_t sessions_of_a_client = 0, starts_a_minute = 0;  ///< 0: as many as it likes.
  std::optional<std::chrono::milliseconds> retention;
  std::string agent_command = "python agent.py";  ///< Words apart by blanks.
  std::optional<std::chrono::milliseconds> term_grace, drain_timeout;
  std::string log = "text";  ///< Or "json".
  std::string audit;         ///< A file; empty: none.
  /// Limits over those of the policy; bytes, seconds, or a count.
  std::optional<std::uint64_t> rlimit_as, rlimit_fsize, rlimit_nproc, rlimit_nofile;
  std::optional<std::chrono::milliseconds> rlimit_cpu;

  std::map<std::string, std::string> origins;  ///< By name: "belljar.json:3:5", "BELLJAR_POLICY".
  std::vector<std::string> warnings;

  /// A uid outside the pool, kept for self-tests.
  [[nodiscard]] std::uint64_t self_test_uid() const { return uid_base + max_sessions; }
  /// What set it, or "the default".
  [[nodiscard]] std::string origin(std::string_view name) const;
  /// What `network` says of the session policy, as `--set` has it: path and value.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> network_settings() const;
  /// The limits among them as `--set` has them: path and value.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> limits() const;
};

/// The unit that a variable of the agent simulator counts in; its values have none.
enum class SimulatorUnit { kNone, kSeconds, kMebibytes, kGibibytes };

/// One setting: a name in the file, a flag, a variable, each once.
struct SettingRow {
  using Member =
      std::variant<std::string Settings::*, std::vector<std::string> Settings::*, bool Settings::*,
                   std::uint64_t Settings::*, std::optional<std::uint64_t> Settings::*,
                   std::optional<std::chrono::milliseconds> Settings::*>;
  enum class Form {
    kText,
    kPath,
    kAddress,
    kCount,
    kSize,
    kDuration,
    kSwitch,
    kSandbox,
    kNetwork,
    kLog
  };
  std::string_view name;      ///< "uid_base"; empty: not in the file.
  std::string_view flag;      ///< "--uid-base"; empty: none.
  std::string_view variable;  ///< "BELLJAR_UID_BASE"
  Form form;
  Member member;
  std::string_view description;
  std::string_view simulator = {};  ///< "AGENT_SIMULATOR_SESSION_UID_BASE", read with `simulator`.
  SimulatorUnit unit = SimulatorUnit::kNone;
  std::uint64_t least = 0, most = UINT64_MAX;  ///< Of numbers, and of durations in milliseconds.
};

[[nodiscard]] std::span<const SettingRow> setting_rows();

/// Where settings are looked for. A flag counts more than a variable, a variable of belljar's more
/// than one of the simulator's, any of them more than the file.
struct SettingSources {
  std::string config;  ///< --config. Empty: BELLJAR_CONFIG, then kSettingsFile where it exists.
  std::vector<std::pair<std::string, std::string>> flags;  ///< "--uid-base", "20000".
  std::map<std::string, std::string> environment;
};

inline constexpr const char* kSettingsFile = "/etc/belljar/belljar.json";

/// The settings, or everything that is wrong with them. A file called .jsonc may hold comments.
[[nodiscard]] tl::expected<Settings, Diagnostics> load_settings(const SettingSources& sources);

/// Whether a variable of the agent simulator's service is set.
[[nodiscard]] bool mentions_simulator(const std::map<std::string, std::string>& environment);

}  // namespace belljar::policy
