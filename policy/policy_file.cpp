#include "policy/policy_file.hpp"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace belljar::policy {
namespace {

tl::unexpected<std::string> cannot_read(int error) {
  const char* const description = strerrordesc_np(error);
  const char* const name = strerrorname_np(error);
  return tl::unexpected(std::string("cannot read the policy: ") +
                        (description ? description : "unknown error") + " (" +
                        (name ? name : std::to_string(error)) + ")");
}

/// Reads up to one byte more than a policy may have, so that the parser sees that it is too long.
int read_bounded(int fd, std::string& text) {
  constexpr std::size_t kFirstRoom = 16 << 10;  // More than most policies have.
  text.resize(kFirstRoom);
  // A regular file is read in one call: there a short read is the end of it.
  const ssize_t whole = pread(fd, text.data(), text.size(), 0);
  if (whole >= 0 && static_cast<std::size_t>(whole) < text.size()) {
    text.resize(static_cast<std::size_t>(whole));
    return 0;
  }
  std::size_t size = 0;
  while (size <= kLongestText) {
    if (size == text.size()) text.resize(std::min(2 * size, kLongestText + 1));
    const ssize_t got = read(fd, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  text.resize(size);
  return 0;
}

Parsed<PolicyFile> read_opened(int fd, FileKinds kinds) {
  PolicyFile file;
  if (kinds == FileKinds::kRegular) {
    struct stat status {};
    if (fstat(fd, &status) != 0) return cannot_read(errno);
    if (S_ISDIR(status.st_mode)) return cannot_read(EISDIR);
    if (!S_ISREG(status.st_mode))
      return tl::unexpected<std::string>("cannot read the policy: it is no regular file");
    file.id = {status.st_dev, status.st_ino};
  }
  if (const int error = read_bounded(fd, file.text); error != 0) return cannot_read(error);
  return file;
}

}  // namespace

Parsed<PolicyFile> read_policy_file(const std::string& name, FileKinds kinds) {
  if (name.find('\0') != std::string::npos) return cannot_read(EINVAL);
  // Opening a FIFO would wait for a writer, and for a regular file O_NONBLOCK changes nothing.
  const int wait = kinds == FileKinds::kRegular ? O_NONBLOCK : 0;
  const int fd = open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | wait);
  if (fd < 0) return cannot_read(errno);
  Parsed<PolicyFile> file = read_opened(fd, kinds);
  close(fd);
  return file;
}

FileId file_id(const std::string& name) {
  struct stat status {};
  if (stat(name.c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino};
}

Comments comments_of(std::string_view name) {
  return name.ends_with(".jsonc") ? Comments::kAllowed : Comments::kRefused;
}

std::string beside(std::string_view label, std::string_view name) {
  if (name.starts_with('/')) return std::string(name);
  const std::size_t slash = label.rfind('/');
  const std::size_t directory = slash == std::string_view::npos ? 0 : slash + 1;
  return std::string(label.substr(0, directory)) + std::string(name);
}

}  // namespace belljar::policy
