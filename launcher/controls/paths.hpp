// Path questions that need no system call: paths here are absolute and normalised.
#pragma once

#include <string>
#include <string_view>

namespace belljar::launcher {

/// Whether `path` is `directory` or below it.
[[nodiscard]] inline bool is_within(std::string_view path, std::string_view directory) {
  if (directory == "/") return true;
  return path.starts_with(directory) &&
         (path.size() == directory.size() || path[directory.size()] == '/');
}

/// "/home" of "/home/ada/src"; "/" of "/".
[[nodiscard]] inline std::string_view top_level_of(std::string_view path) {
  const std::size_t slash = path.find('/', 1);
  return slash == std::string_view::npos ? path : path.substr(0, slash);
}

[[nodiscard]] inline std::string parent_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == 0 || slash == std::string_view::npos ? "/" : std::string(path.substr(0, slash));
}

[[nodiscard]] inline std::string join(std::string_view directory, std::string_view name) {
  return directory == "/" ? "/" + std::string(name)
                          : std::string(directory) + "/" + std::string(name);
}

}  // namespace belljar::launcher
