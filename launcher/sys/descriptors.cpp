#include "launcher/sys/descriptors.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "launcher/sys/proc.hpp"
#include "launcher/sys/raw.hpp"

namespace belljar::sys {

/// The lowest free number is what open gives (man 2 open), so one above 2 proves that none is
/// missing.
bool guard_descriptors() {
  const int proc = proc_directory();
  if (proc < 0 || proc <= 2) {
    // The number that /proc took belongs to a standard stream: it moves up, /dev/null fills in.
    int fd = open("/dev/null", O_RDWR | O_NOCTTY);
    for (; fd <= 2; fd = open("/dev/null", O_RDWR | O_NOCTTY))
      if (fd < 0) return false;
    if (proc >= 0 && dup2(fd, proc) != proc) return false;
    close(fd);
    reopen_proc_directory();
  }
  constexpr unsigned kCloseOnExec = 4;  // CLOSE_RANGE_CLOEXEC, Linux 5.11
  if (raw(SYS_close_range, 3U, ~0U, kCloseOnExec) >= 0) return true;
  DIR* list = opendir("/proc/self/fd");
  if (list == nullptr) return false;
  while (const dirent* entry = readdir(list))
    if (const int fd = std::atoi(entry->d_name); fd > 2) fcntl(fd, F_SETFD, FD_CLOEXEC);
  closedir(list);
  return true;
}

std::vector<int> inherited_descriptors() {
  std::vector<int> found;
  DIR* list = opendir("/proc/self/fd");
  if (list == nullptr) return found;
  while (const dirent* entry = readdir(list)) {
    const int fd = std::atoi(entry->d_name);
    if (fd > 2 && fd != dirfd(list) && fd != proc_directory()) found.push_back(fd);
  }
  closedir(list);
  return found;
}

Result<std::string> read_and_close(int descriptor) {
  std::string data;
  std::array<char, 16384> piece;
  ssize_t got = 0;
  while ((got = read(descriptor, piece.data(), piece.size())) != 0) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return sys_failure(errno, "read descriptor " + std::to_string(descriptor));
    data.append(piece.data(), static_cast<std::size_t>(got));
  }
  close(descriptor);
  return data;
}

}  // namespace belljar::sys
