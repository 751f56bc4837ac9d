// What helpers do with the files of a workspace. `workspace` is an O_PATH descriptor of it, `owner`
// its session's uid, which is the helper's own.
#pragma once

#include <sys/types.h>

#include <string>

#include "launcher/service/inside.hpp"
#include "launcher/service/jobs.hpp"
#include "launcher/service/message.hpp"

namespace belljar::service {

/// No list, body or archive has more.
inline constexpr std::size_t kMostEntries = 10000;

[[nodiscard]] Outcome<Finding> list_files(int workspace, uid_t owner, const List& order);
[[nodiscard]] Outcome<Finding> open_file(int workspace, uid_t owner, const Open& order);

/// Reads `source` to its end into a new file, which then takes the place of the old one.
[[nodiscard]] Outcome<Finding> write_file(int workspace, uid_t owner, const Write& order,
                                          int source);

/// With `if_match`: of a plain file alone, which loses its name before it is looked at for the last
/// time, so that nothing that takes the name meanwhile is removed in its place.
[[nodiscard]] Outcome<Finding> delete_file(int workspace, uid_t owner, const Delete& order);

/// Fills a new workspace from the body of `prepare`, of so many bytes.
[[nodiscard]] Outcome<Finding> fill_workspace(int workspace, int body, std::uint64_t size);

/// Removes all that is in the directory, whatever modes it has: `left` says how much could not be.
[[nodiscard]] Outcome<Finding> empty_workspace(int workspace);

}  // namespace belljar::service
