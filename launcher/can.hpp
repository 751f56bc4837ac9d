// What the command could do, told without running anything: `belljar explain --can`.
#pragma once

#include <string>
#include <string_view>

#include "launcher/host.hpp"
#include "launcher/plan.hpp"
#include "policy/base/result.hpp"
#include "policy/policy.hpp"

namespace belljar::launcher {

enum class Verb { kRead, kWrite, kExec };

/// Who or what says no.
enum class Decision {
  kAllowed,
  kMasked,
  kReadOnly,
  kNoExec,
  kHidden,     ///< Nothing of the plan shows it.
  kOwner,      ///< Owner, mode or ACL on the host.
  kAbsent,     ///< The host has nothing there.
  kNoNetwork,  ///< There is no way out.
  kFilter,     ///< No such socket can be made.
  kPort,       ///< Landlock.
};

struct Answer {
  bool yes = false;
  std::string because;  ///< Which of policy and host decided, and its line.
  Decision decision = Decision::kAllowed;
  std::string policy;  ///< The policy path that decided, where one did.
};

/// Answers "read:/path", "write:/path", "exec:/path" or "connect:ADDR:PORT" for the payload: first
/// by the plan, following links as the sandbox would, then by owner and mode on this host as the
/// session's uid. Nothing of the sandbox is made. Errors: a question that cannot be read
/// (kInvalid), or whose answer only a run can give (kUnavailable).
[[nodiscard]] Result<Answer> can(std::string_view question, const Plan& plan,
                                 const policy::Policy& policy, const Host& host);

[[nodiscard]] Result<Answer> can(Verb verb, const std::string& path, const Plan& plan,
                                 const policy::Policy& policy, const Host& host);

}  // namespace belljar::launcher
