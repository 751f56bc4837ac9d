// What the command could do, told without running anything: `belljar explain --can`.
#pragma once

#include <cstdint>
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
  kNoDevice,   ///< nodev.
  kHidden,     ///< Nothing of the plan shows it.
  kOwner,      ///< Owner, mode or ACL: of the host's file, or of what the policy makes.
  kAbsent,     ///< The host has nothing there.
  kOtherKind,  ///< No such thing is done with what is there: a directory is not executed.
  kNoNetwork,  ///< There is no way out.
  kFilter,     ///< The calls that it takes are refused.
  kPort,       ///< Landlock.
};

struct Answer {
  bool yes = false;
  std::string because;  ///< Which of policy and host decided, and its line.
  Decision decision = Decision::kAllowed;
  std::string policy;  ///< The policy path that decided, where one did.
};

/// Answers "read:/path", "write:/path", "exec:/path" or "connect:ADDR:PORT" for the payload: first
/// by the plan, following links as the sandbox would, then by owner and mode on this host, as the
/// session's uid with its groups. For a directory: whether it can be listed, and whether something
/// can be made in it. A connection is one by socket(2) and connect(2). Nothing of the sandbox is
/// made. Errors: a question that cannot be read (kInvalid), or whose answer only a run can give
/// (kUnavailable).
[[nodiscard]] Result<Answer> can(std::string_view question, const Plan& plan,
                                 const policy::Policy& policy, const Host& host);

[[nodiscard]] Result<Answer> can(Verb verb, const std::string& path, const Plan& plan,
                                 const policy::Policy& policy, const Host& host);

/// Whether the kind, owner and mode of `name` on the host allow it to the calling process.
[[nodiscard]] bool host_allows(Verb verb, const std::string& name);

/// Whether the plan's Landlock domain refuses a TCP port this right (launcher/sys/landlock.hpp).
[[nodiscard]] bool landlock_refuses(const Plan& plan, std::uint16_t port, std::uint64_t right);

}  // namespace belljar::launcher
