// What the daemon gives up before it listens to anybody.
#pragma once

#include <sys/types.h>

#include "policy/base/result.hpp"
#include "policy/settings.hpp"

namespace belljar::api {

/// Whether this process could act as somebody else.
[[nodiscard]] bool is_privileged();

struct DaemonUser {
  uid_t uid = 0;
  gid_t gid = 0;
};

/// Whom a privileged daemon becomes: `user`, or the uid below the pool. Never root, never one of
/// the pool, whose sessions could then act on the daemon.
[[nodiscard]] Result<DaemonUser> daemon_user(const policy::Settings& settings);

/// Refuses a pool that holds the uid of a person or a service: sessions would act as them.
[[nodiscard]] Status check_pool(const policy::Settings& settings);

/// Becomes `user` for good, in no group but its own. Checked afterwards.
[[nodiscard]] Status become(const DaemonUser& user);

/// Without any capability, and without a way to get one: for whoever the daemon runs as.
[[nodiscard]] Status drop_capabilities();

/// A filter for what is left: no program is executed, nobody is traced, nothing mounted, no
/// namespace made, no id changed. A daemon that was taken over can talk to its sockets.
[[nodiscard]] Status install_filter();

}  // namespace belljar::api
