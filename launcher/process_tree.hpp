// The processes that descend from one, found from outside.
#pragma once

#include <sys/types.h>

#include <set>

namespace belljar::launcher {

/// Sends `number` to everything that descends from `keeper`, which is a child subreaper and itself
/// not meant. What is found is stopped until many looks agree, so that nothing slips away by
/// forking, and goes on afterwards unless it was killed. How many were meant.
int signal_descendants(pid_t keeper, int number);

/// Kills every child of `init`, with what descends from it, that is none of `spared` (as the host
/// numbers them) and not `spared_inside` (as init's namespace does; 0: nobody).
void kill_orphans(pid_t init, const std::set<pid_t>& spared, pid_t spared_inside);

}  // namespace belljar::launcher
