// Reading a whole file, as those of /proc and of cgroups are read.
#pragma once

#include <string>

namespace belljar::sys {

/// All of `path` below the directory `at`; what could be read when it cannot be read to its end.
[[nodiscard]] std::string read_file(int at, const std::string& path);

}  // namespace belljar::sys
