// What a process beside belljar begins with, when it works for one session alone.
#pragma once

#include <sys/types.h>

#include <vector>

namespace belljar::launcher {

/// Closes every other descriptor: belljar's control socket must not outlive it in a helper. Ends
/// the process when it cannot.
void close_all_but(const std::vector<int>& keep);

/// The session's ids for good, no capability, no new privileges, nobody who looks into it, and an
/// end with its parent. Ends the process when it cannot.
void become_the_session(uid_t uid, gid_t gid);

}  // namespace belljar::launcher
