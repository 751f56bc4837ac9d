// Where a directory is, whatever it is called: two names, a link or a bind mount lead to one place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace belljar::sys {

/// A path in a file system, counted from the file system's own top.
struct Place {
  std::string device;  ///< "MAJOR:MINOR" of the file system, as mountinfo has it.
  std::string path;
};

/// Whether one is the other, or lies in it.
[[nodiscard]] bool overlap(const Place& one, const Place& other);

/// What of `mounts` (/proc/self/mountinfo) a `path` below the mount number `mount` stands for.
/// Nothing when there is no such mount or the path does not lie below its mount point.
[[nodiscard]] std::optional<Place> place_in(std::string_view mounts, std::uint64_t mount,
                                            std::string_view path);

/// Where the open directory `fd` is now, whatever it was opened as. No file system is asked: the
/// kernel has the names and mounts itself. Nothing when it is deleted out of reach, or its mount
/// is.
[[nodiscard]] std::optional<Place> place_of(int fd, std::string_view mounts);

/// /proc/self/mountinfo; empty when it cannot be read.
[[nodiscard]] std::string mount_table();

/// mountinfo writes space, tab, newline and backslash as three octal digits (man 5 proc).
[[nodiscard]] std::string unescaped(std::string_view text);

}  // namespace belljar::sys
