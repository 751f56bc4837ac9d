// Removing a tree that its session may have made to resist.
#pragma once

#include <cstdint>
#include <string>

namespace belljar::service {

/// Removes what is in the directory `top`, following no link, however deep it is (a path of it may
/// be longer than the kernel takes) and whatever its directories' modes are. Returns how many
/// entries are left.
[[nodiscard]] std::uint64_t empty_directory(int top);

/// Removes the entry `name` of `parent`, with all that is in it: 0, or the errno.
[[nodiscard]] int remove_tree(int parent, const std::string& name);

}  // namespace belljar::service
