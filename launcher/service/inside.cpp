#include "launcher/service/inside.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/sys/kernel.hpp"
#include "launcher/sys/proc.hpp"
#include "launcher/sys/raw.hpp"
#include "policy/quote.hpp"

namespace belljar::service {
namespace {

using policy::in_quotes;
using sys::UniqueFd;

constexpr int kLook = O_PATH | O_NOFOLLOW | O_CLOEXEC;

/// Without openat2 (Linux 5.6, or a filter): one part at a time. No part is "..", so that whatever
/// is renamed meanwhile, the walk stays below where it began or ends in a directory of the
/// session's.
long walk(int at, const std::string& path) {
  UniqueFd here(openat(at, ".", kLook | O_DIRECTORY));
  for (std::size_t from = 0; here.valid() && from < path.size();) {
    const std::size_t to = std::min(path.find('/', from), path.size());
    const bool last = to == path.size();
    here = UniqueFd(
        openat(here.get(), path.substr(from, to - from).c_str(), kLook | (last ? 0 : O_DIRECTORY)));
    from = to + 1;
  }
  return here.valid() ? here.release() : -errno;
}

std::string proc_path(int fd) { return "self/fd/" + std::to_string(fd); }

}  // namespace

Outcome<UniqueFd> find_inside(int at, const std::string& path) {
  sys::OpenHow how;
  how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = sys::kResolveBeneath | sys::kResolveNoSymlinks | sys::kResolveNoMagicLinks;
  long fd = sys::raw(SYS_openat2, at, path.empty() ? "." : path.c_str(), &how, sizeof how);
  if (fd == -ENOSYS || fd == -EPERM) fd = walk(at, path);
  if (fd < 0) return call_failed(static_cast<int>(-fd), "open " + in_quotes(path));
  UniqueFd found(static_cast<int>(fd));
  struct stat about {};
  if (fstat(found.get(), &about) != 0) return call_failed(errno, "look at " + in_quotes(path));
  if (S_ISLNK(about.st_mode)) return refuse(Code::kRefused, in_quotes(path) + " is a link");
  return found;
}

Outcome<UniqueFd> open_directory(int at, const std::string& path) {
  const UniqueFd found = BELLJAR_TRY(find_inside(at, path));
  UniqueFd directory(openat(found.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.valid()) return directory;
  return call_failed(errno, "open the directory " + in_quotes(path));
}

Outcome<UniqueFd> open_parent(int at, const std::string& path, Parents parents) {
  const std::size_t slash = path.rfind('/');
  const std::string above = slash == std::string::npos ? "" : path.substr(0, slash);
  if (parents == Parents::kMustBe) return open_directory(at, above);
  UniqueFd here(openat(at, ".", kLook | O_DIRECTORY));
  for (std::size_t from = 0; here.valid() && from < above.size();) {
    const std::size_t to = std::min(above.find('/', from), above.size());
    const std::string name = above.substr(from, to - from);
    from = to + 1;
    if (mkdirat(here.get(), name.c_str(), 0700) != 0 && errno != EEXIST)
      return call_failed(errno, "make the directory " + in_quotes(above.substr(0, to)));
    here = UniqueFd(openat(here.get(), name.c_str(), kLook | O_DIRECTORY));
  }
  if (!here.valid()) return call_failed(errno, "open the directory " + in_quotes(above));
  UniqueFd directory(openat(here.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.valid()) return directory;
  return call_failed(errno, "open the directory " + in_quotes(above));
}

bool is_plain(const struct stat& about, uid_t owner) {
  return S_ISREG(about.st_mode) && about.st_nlink == 1 && about.st_uid == owner;
}

Outcome<OpenedFile> open_plain(int at, const std::string& path, uid_t owner) {
  const UniqueFd found = BELLJAR_TRY(find_inside(at, path));
  OpenedFile opened;
  if (fstat(found.get(), &opened.about) != 0) return call_failed(errno, "look at " + path);
  if (!is_plain(opened.about, owner))
    return refuse(Code::kRefused,
                  in_quotes(path) + " is not a regular file of the session's with a single link");
  // Not by its name again, under which there may be something else by now.
  opened.file = UniqueFd(openat(sys::proc_directory(), proc_path(found.get()).c_str(),
                                O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!opened.file.valid()) return call_failed(errno, "open " + in_quotes(path));
  return opened;
}

bool take_rights(int fd) {
  return fchmodat(sys::proc_directory(), proc_path(fd).c_str(), 0700, 0) == 0;
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

int write_all(int fd, std::string_view bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t wrote = write(fd, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return wrote < 0 ? errno : EIO;
    done += static_cast<std::size_t>(wrote);
  }
  return 0;
}

}  // namespace belljar::service
