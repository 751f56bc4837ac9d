// Following symbolic links only where nobody but root can have put them.
#pragma once

#include <string>

#include "launcher/sys/unique_fd.hpp"
#include "policy/base/result.hpp"

namespace belljar::sys {

/// The path that `path` (absolute) stands for, with root's own symbolic links replaced by what they
/// say: /var/run/x is /run/x. A link of anybody else on the way is an error, because an earlier
/// payload may have planted it (CVE-2024-42472), whatever uid it had. What does not exist or cannot
/// be looked at is returned as it is: whoever opens it, without following links, says so.
[[nodiscard]] Result<std::string> resolve_trusted(const std::string& path);

/// O_PATH descriptor of `path`, or -errno; -ELOOP when any component is a symbolic link, whosever.
[[nodiscard]] long open_without_links(const std::string& path);

/// An O_PATH descriptor of what `path` (absolute) leads to by root's own links alone. A last
/// component on procfs is followed, as /proc/PID/ns/net leads to a namespace.
[[nodiscard]] Result<UniqueFd> open_trusted(const std::string& path);

}  // namespace belljar::sys
