#include "launcher/sys/read_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "launcher/sys/unique_fd.hpp"

namespace belljar::sys {

std::string read_file(int at, const std::string& path) {
  const UniqueFd file(openat(at, path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> buffer{};
  while (file.valid()) {
    const ssize_t got = read(file.get(), buffer.data(), buffer.size());
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return text;
}

}  // namespace belljar::sys
