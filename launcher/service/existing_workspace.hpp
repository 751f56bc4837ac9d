// Workspaces that are not the service's: a directory of the caller's, below one of the operator's
// workspace roots, opened once and held.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "launcher/service/fault.hpp"
#include "launcher/service/jobs.hpp"
#include "launcher/sys/place.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::service {

struct ExistingWorkspace {
  sys::UniqueFd directory;  ///< O_RDONLY | O_DIRECTORY
  std::string path;         ///< As it was asked for.
  uid_t owner = 0;          ///< When it was opened.
  std::uint64_t device = 0, inode = 0;
  sys::Place place = {};     ///< When it was last looked for.
  bool handed_over = false;  ///< It was made the session's; otherwise it had been so before.
};

/// The directory `path` (absolute, without "..") below one of `roots`: {"owner": uid, "device": n,
/// "inode": n} and its descriptor. Root's own links are followed on the way to the root, and none
/// below it. Runs in a helper: a file system on the way may never answer.
[[nodiscard]] Outcome<Finding> find_existing(const std::vector<std::string>& roots,
                                             const std::string& path);

/// What `find_existing` has found, as the service has got it.
[[nodiscard]] Outcome<ExistingWorkspace> existing_of(Answer found, const std::string& path);

/// Which of `held` (directory, name) nobody can get to by any name any more: {"workspaces":
/// [names]}, at most 256. Runs in a helper.
[[nodiscard]] Outcome<Finding> find_gone(const std::vector<std::pair<int, std::string>>& held);

/// Directories that other live sessions work in, by device and inode.
using OthersPlaces = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

/// Gives `directory` and what is in it to `uid` and `gid`: {"changed": n, "left_out": n}. Follows
/// no link and crosses no mount; leaves out files with a second name, setuid and setgid files,
/// devices, FIFOs, sockets, and what is in one of `others`. Runs in a helper that has given up all
/// but CHOWN and DAC_OVERRIDE (`keep_for_chown`).
[[nodiscard]] Outcome<Finding> hand_over(int directory, uid_t uid, gid_t gid,
                                         const OthersPlaces& others);

/// Keeps CHOWN and DAC_OVERRIDE alone, for good. Ends the process when it cannot.
void keep_for_chown();

}  // namespace belljar::service
