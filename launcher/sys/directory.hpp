// Directories of the host that the launcher itself opens for a sandbox's mounts.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/sys/unique_fd.hpp"
#include "policy/base/result.hpp"

namespace belljar::sys {

/// Opens `path` and locks it (man 2 flock) for as long as the descriptor, or a copy of it, is open.
/// No link is followed. EBUSY when somebody else holds it.
[[nodiscard]] Result<UniqueFd> hold_directory(const std::string& path);

/// The same with others who share it. Invalid, and no error, where there is nothing to lock: one
/// that cannot be opened, which whoever mounts it will say; and one that only root can write, which
/// is nobody else's upper directory, while everybody could hold up all launches by a lock on /usr.
[[nodiscard]] Result<UniqueFd> share_layer(const std::string& path);

/// One pair of ids of an idmapped mount: what is `on_disk` there is `seen` through it.
struct IdPair {
  std::uint32_t on_disk = 0;
  std::uint32_t seen = 0;
};

/// A detached, private copy of the mounts at `path` with the MOUNT_ATTR_* `flags`, in which one
/// owner and group is seen as another (mount_setattr(2), MOUNT_ATTR_IDMAP, Linux 5.12). No link is
/// followed. Takes CAP_SYS_ADMIN in the user namespace that mounted the file system. Errors carry
/// the errno of the call that was refused: EINVAL where the file system cannot.
[[nodiscard]] Result<UniqueFd> mapped_tree(const std::string& path, std::uint64_t flags,
                                           IdPair user, IdPair group);

}  // namespace belljar::sys
