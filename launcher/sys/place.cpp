#include "launcher/sys/place.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>

#include "launcher/sys/proc.hpp"
#include "launcher/sys/read_file.hpp"
#include "policy/paths.hpp"

namespace belljar::sys {
namespace {

/// The first word, which is taken off.
std::string_view next_word(std::string_view& line) {
  const std::size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

std::optional<Place> place_of_line(std::string_view line, std::string_view path) {
  next_word(line);  // The mount that it is mounted on.
  Place place;
  place.device = next_word(line);
  place.path = unescaped(next_word(line));
  const std::string point = unescaped(next_word(line));
  if (!policy::is_within(path, point)) return std::nullopt;
  const std::string_view below = path.substr(point == "/" ? 0 : point.size());
  if (place.path == "/" || place.path.empty()) place.path.clear();
  if (below != "/") place.path += below;
  if (place.path.empty()) place.path = "/";
  return place;
}

}  // namespace

std::string unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                 (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

bool overlap(const Place& one, const Place& other) {
  return one.device == other.device &&
         (policy::is_within(one.path, other.path) || policy::is_within(other.path, one.path));
}

std::optional<Place> place_in(std::string_view mounts, std::uint64_t mount, std::string_view path) {
  const std::string number = std::to_string(mount);
  while (!mounts.empty()) {
    const std::size_t end = std::min(mounts.find('\n'), mounts.size());
    std::string_view line = mounts.substr(0, end);
    mounts.remove_prefix(std::min(end + 1, mounts.size()));
    if (next_word(line) == number) return place_of_line(line, path);
  }
  return std::nullopt;
}

std::optional<Place> place_of(int fd, std::string_view mounts) {
  const std::string number = std::to_string(fd);
  std::array<char, PATH_MAX> path{};
  const ssize_t length =
      readlinkat(proc_directory(), ("self/fd/" + number).c_str(), path.data(), path.size());
  if (length <= 0 || path[0] != '/') return std::nullopt;
  const std::string about = read_file(proc_directory(), "self/fdinfo/" + number);
  constexpr std::string_view kMount = "mnt_id:";
  std::size_t at = about.find(kMount);
  if (at == std::string::npos) return std::nullopt;
  at = about.find_first_not_of(" \t", at + kMount.size());
  if (at == std::string::npos) return std::nullopt;
  std::uint64_t mount = 0;
  const auto [rest, error] = std::from_chars(about.data() + at, about.data() + about.size(), mount);
  if (error != std::errc()) return std::nullopt;
  return place_in(mounts, mount, {path.data(), static_cast<std::size_t>(length)});
}

std::string mount_table() { return read_file(proc_directory(), "self/mountinfo"); }

}  // namespace belljar::sys
