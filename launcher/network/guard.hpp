// Who keeps a private network: the process beside belljar that starts pasta, sets the rules, and
// ends both with the sandbox.
#pragma once

#include <sys/types.h>

#include "launcher/plan.hpp"

namespace belljar::network {

/// The namespaces to attach, by descriptors of theirs, and whose they are.
struct Place {
  int user = -1;
  int net = -1;
  uid_t uid = 0;
  gid_t gid = 0;
};

/// Runs in a forked child of belljar's. `way` leads to belljar: what happens is told there, and its
/// end of file is the end of the network. It has the session's ids and all capabilities over the
/// session's user namespace, as whoever has these ids outside, and none over the host. When it
/// dies, pasta dies (death signal); when belljar dies, it dies (death signal, and the end of file).
[[noreturn]] void guard_network(const launcher::AttachNetwork& wanted, const Place& place, int way);

}  // namespace belljar::network
