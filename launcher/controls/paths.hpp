// Path questions that need no system call: paths here are absolute and normalised.
#pragma once

#include <string>
#include <string_view>

#include "policy/paths.hpp"

namespace belljar::launcher {

using policy::is_within;

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
