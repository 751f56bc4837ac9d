// A workspace as a tar, in the form of pax (POSIX.1-2001): written to and read from a pipe.
#pragma once

#include <sys/types.h>

#include <string>

#include "launcher/service/jobs.hpp"

namespace belljar::service {

/// Writes the directory `path` of the workspace into `pipe`: directories and plain files, in the
/// order of a top-down walk. Answers `entries` and `left_out`, of what is neither.
[[nodiscard]] Outcome<Finding> write_archive(int workspace, uid_t owner, const std::string& path,
                                             int pipe);

/// Makes what the tar in `pipe` holds below the directory `path`: directories and files, which
/// replace files of the same name. Anything else in it is refused, and nothing is undone then.
[[nodiscard]] Outcome<Finding> read_archive(int workspace, uid_t owner, const std::string& path,
                                            int pipe);

}  // namespace belljar::service
