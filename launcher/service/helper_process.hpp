// What the service's own processes become after the fork: fewer descriptors, no privileges.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launcher/service/fault.hpp"
#include "launcher/service/pool.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::service {

/// Closes everything but 0, 1, 2, /proc and `kept`. False when it cannot be known what is open.
bool close_all_but(std::vector<int> kept);

/// Ends with the process `parent`, which has forked this one; ends now when that is gone already.
void die_with(pid_t parent);

/// A pipe that nobody writes to: the end of the service is the end of its last writer.
struct Lifeline {
  sys::UniqueFd reading;
  sys::UniqueFd writing;  ///< The service's alone.

  [[nodiscard]] static Result<Lifeline> make();
};

/// The kernel kills the calling process when the service is gone. For those that change their uid
/// for a moment, as a launch does: that clears what `die_with` has set (man 2 PR_SET_PDEATHSIG).
void hold_on_to(int lifeline);

/// Takes the uid of a session for good, with its group alone and no capability, in no way to be
/// traced. Without privileges only the latter two. Ends the process when it cannot.
void become_session(const Pool& pool, uid_t uid);

/// A memfd that holds `text`, sealed against every change; invalid, with errno, when it cannot be
/// made.
[[nodiscard]] sys::UniqueFd sealed_memfd(const char* name, std::string_view text);

/// The size of what is in `fd`, when that is a memfd with all four seals of at most `most` bytes.
[[nodiscard]] Outcome<std::uint64_t> check_sealed(int fd, std::uint64_t most);

/// All of a file of `size` bytes, whatever its offset.
[[nodiscard]] Outcome<std::string> read_whole(int fd, std::uint64_t size);

}  // namespace belljar::service
