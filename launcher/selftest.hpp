// `belljar --selftest`: whether a session of this host's would be held.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/trial.hpp"
#include "policy/settings.hpp"

namespace belljar::launcher {

/// Under which policy, as whom and where a session would run.
struct SessionSetting {
  policy::Policy policy;  ///< Its identity is that of the session.
  SessionIds ids;
  std::string workspace_root;
  Host caller;                     ///< Only who the caller is, and its environment.
  std::vector<std::string> notes;  ///< What a person should know, one line each.
};

/// The caller: ids, capabilities and environment, nothing of the machine.
[[nodiscard]] Result<Host> observe_caller();

/// The policy that `name` means to the daemon: "builtin:NAME", a file, or a name in `policy_dirs`.
/// With what the settings say of limits on top of it.
[[nodiscard]] tl::expected<policy::Policy, policy::Diagnostics> session_policy(
    const std::string& name, const policy::Settings& settings);

/// `uid`: that of a session, or none. Then the policy's own number, the uid that the settings keep
/// for self-tests where the caller can take it, and the caller's.
[[nodiscard]] Result<SessionSetting> session_setting(policy::Policy policy,
                                                     const policy::Settings& settings,
                                                     std::optional<std::uint32_t> uid);

struct SelftestReport {
  ControlsReport controls;
  std::string policy_name, policy_digest;
  uid_t uid = 0;
  std::string workspace_root;

  [[nodiscard]] bool ok() const { return controls.holds(); }
  [[nodiscard]] std::string json() const;
};

/// Launches a sandbox as a session's, tries inside what must fail, and takes everything down again.
/// Kills nobody.
[[nodiscard]] SelftestReport selftest(const SessionSetting& setting);

}  // namespace belljar::launcher
