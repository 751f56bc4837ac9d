// Path questions that need no system call: paths here are absolute and normalised.
#pragma once

#include <string_view>

namespace belljar::policy {

/// Whether `path` is `directory` or below it.
[[nodiscard]] inline bool is_within(std::string_view path, std::string_view directory) {
  if (directory == "/") return true;
  return path.starts_with(directory) &&
         (path.size() == directory.size() || path[directory.size()] == '/');
}

}  // namespace belljar::policy
