// Looking at the host as the session of a plan will.
#pragma once

#include "launcher/host.hpp"
#include "launcher/plan.hpp"
#include "launcher/sys/session_credentials.hpp"
#include "policy/base/result.hpp"

namespace belljar::launcher {

/// Until `session` is left, the calling thread has the uid, gid and groups of the plan's session as
/// far as `host` can take them, and no capability in force: those of a sandbox's own namespace do
/// not reach the host's files.
[[nodiscard]] Status look_as_session(sys::SessionCredentials& session, const Plan& plan,
                                     const Host& host);

}  // namespace belljar::launcher
