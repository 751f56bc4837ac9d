#include "launcher/attempts.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/controls/paths.hpp"
#include "launcher/endpoint.hpp"
#include "launcher/record.hpp"
#include "launcher/sys/raw.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::launcher {
namespace {

using sys::UniqueFd;

/// Without waiting for the other end of a FIFO, and never a terminal of ours.
constexpr int kHarmless = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

int try_open(const std::string& path, int flags) {
  const UniqueFd file(open(path.c_str(), flags | kHarmless, 0600));
  return file.valid() ? 0 : errno;
}

int try_make(const std::string& path) {
  const int error = try_open(path, O_WRONLY | O_CREAT | O_EXCL);
  if (error == 0) unlink(path.c_str());
  return error;
}

int try_write(const std::string& path) {
  const int error = try_open(path, O_WRONLY);
  if (error == EISDIR) return try_make(join(path, ".belljar-try"));
  return error == ENOENT ? try_make(path) : error;
}

/// AT_EXECVE_CHECK (Linux 6.14) asks all that an exec would ask, Landlock included. Without it:
/// mode bits and the mount.
int try_exec(const std::string& path) {
  constexpr int kCheck = 0x10000;
  char* const none[] = {nullptr};
  const long asked = sys::raw(SYS_execveat, AT_FDCWD, path.c_str(), none, none, kCheck);
  if (asked == 0) return 0;
  if (asked != -EINVAL && asked != -EPERM && asked != -ENOSYS) return static_cast<int>(-asked);
  if (faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) != 0) return errno;
  struct statvfs about {};
  if (statvfs(path.c_str(), &about) != 0) return errno;
  return (about.f_flag & ST_NOEXEC) != 0 ? EACCES : 0;
}

/// Of a connect that has been begun; -1 when nothing came in time.
int end_of_connect(int fd) {
  constexpr int kPatienceMs = 2000;
  pollfd ready{fd, POLLOUT, 0};
  if (poll(&ready, 1, kPatienceMs) != 1) return -1;
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

int try_connect(const std::string& target) {
  const Result<Endpoint> to = parse_endpoint(target);
  if (!to) return EINVAL;
  const UniqueFd fd(socket(to->family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errno;
  int error = connect(fd.get(), to->get(), to->size) == 0 ? 0 : errno;
  if (error == EINPROGRESS) error = end_of_connect(fd.get());
  // Somebody is there, and said no.
  return error == ECONNREFUSED ? 0 : error;
}

}  // namespace

std::string attempt(const std::string& text) {
  const std::string verb = text.substr(0, text.find(' '));
  const std::string operand = text.size() > verb.size() ? text.substr(verb.size() + 1) : "";
  const int error = verb == "read"      ? try_open(operand, O_RDONLY)
                    : verb == "write"   ? try_write(operand)
                    : verb == "exec"    ? try_exec(operand)
                    : verb == "connect" ? try_connect(operand)
                                        : EINVAL;
  return error == 0 ? kGranted : error < 0 ? kUnanswered : errno_name(error);
}

}  // namespace belljar::launcher
