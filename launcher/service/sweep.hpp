// Killing what is left of a session's uid, and nobody else.
#pragma once

#include <sys/types.h>

#include <vector>

#include "launcher/service/jobs.hpp"

namespace belljar::service {

/// Runs in a helper under the session's uid. Kills the processes of `uid` that are in a user
/// namespace of this uid's and, where the service shares its uid with a person, descend from the
/// process `service`; where the kernel does not show whose the namespace is, those that descend
/// from it and are in a pid namespace below ours; with `unsandboxed` those that descend from it,
/// wherever they are. `spared` are helpers and live monitors, with
/// all that descends from them. Answers `left`: how many processes of
/// that uid there still are.
[[nodiscard]] Outcome<Finding> sweep(uid_t uid, pid_t service, bool unsandboxed, bool shared_uid,
                                     const std::vector<pid_t>& spared);

}  // namespace belljar::service
