// Sessions without a sandbox, for operators who have switched it off when they started the daemon.
//
// The same socket is served, and less is promised: uid, groups, umask, rlimits, the environment and
// the kill of all that descends from a command stay; nothing else holds, and every record says so.
#pragma once

#include "launcher/service/monitor.hpp"
#include "launcher/service/pool.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::service {

/// As serve_session; `uid` is the session's. Terminals and sockets by path are refused.
void serve_unsandboxed(const SessionOrder& order, const Pool& pool, uid_t uid,
                       sys::UniqueFd socket);

}  // namespace belljar::service
