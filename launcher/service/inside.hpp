// Opening what is in a workspace, without believing anything that its session has made there.
//
// Runs in a helper, under the session's uid. No link is followed, on the way or at the end; nothing
// but directories and regular files is ever opened, so that no FIFO, device or socket is touched.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <string>
#include <string_view>

#include "launcher/service/fault.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::service {

/// An O_PATH descriptor of what `path` (message.hpp: is_inner_path, or empty for `at` itself) leads
/// to below the directory `at`.
[[nodiscard]] Outcome<sys::UniqueFd> find_inside(int at, const std::string& path);

/// The directory that `path` is.
[[nodiscard]] Outcome<sys::UniqueFd> open_directory(int at, const std::string& path);

enum class Parents { kMustBe, kMake };

/// The directory that holds what `path` names; `kMake` makes what is missing of it, 0700.
[[nodiscard]] Outcome<sys::UniqueFd> open_parent(int at, const std::string& path, Parents parents);

/// Whether a file may be touched: regular, of the session's, and known by this name alone. A hard
/// link could be to a file of somebody else's, who never meant to show it here.
[[nodiscard]] bool is_plain(const struct stat& about, uid_t owner);

struct OpenedFile {
  sys::UniqueFd file;
  struct stat about {};
};

/// A plain file, for reading.
[[nodiscard]] Outcome<OpenedFile> open_plain(int at, const std::string& path, uid_t owner);

/// Gives the owner of what O_PATH descriptor `fd` is all rights on it. False when it cannot.
bool take_rights(int fd);

/// "c" of "a/b/c".
[[nodiscard]] std::string last_part(const std::string& path);

/// Writes all of it; 0 or the errno.
[[nodiscard]] int write_all(int fd, std::string_view bytes);

}  // namespace belljar::service
