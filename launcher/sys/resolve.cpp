#include "launcher/sys/resolve.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>

#include "launcher/sys/kernel.hpp"
#include "launcher/sys/raw.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::sys {
namespace {

/// Without openat2 (Linux 5.6, or a filter): one component at a time.
long walk_without_links(const std::string& path) {
  constexpr int kFlags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
  UniqueFd at(open(path.starts_with("/") ? "/" : ".", kFlags));
  for (std::size_t from = 0; at.valid() && from < path.size();) {
    const std::size_t to = std::min(path.find('/', from), path.size());
    const std::string name = path.substr(from, to - from);
    from = to + 1;
    if (name.empty() || name == ".") continue;
    at = UniqueFd(openat(at.get(), name.c_str(), kFlags));
    struct stat about {};
    if (at.valid() && fstat(at.get(), &about) != 0) return -errno;
    if (at.valid() && S_ISLNK(about.st_mode)) return -ELOOP;
  }
  return at.valid() ? at.release() : -errno;
}

/// Whether no component of `path` is a link: one call, and the rule.
bool is_free_of_links(const std::string& path) {
  const long fd = open_without_links(path);
  if (fd >= 0) UniqueFd(static_cast<int>(fd)).reset();
  return fd >= 0;
}

Result<std::string> link_text(const std::string& link, const struct stat& about) {
  if (about.st_uid != 0) {
    Error error{ErrorKind::kRefused, ELOOP, {}, {}, {}};
    error.what = "the symbolic link " + link + " belongs to uid " + std::to_string(about.st_uid) +
                 ", so it is not followed";
    error.remedy = "name what it points to";
    return fail(std::move(error));
  }
  std::array<char, PATH_MAX> text{};
  const ssize_t length = readlink(link.c_str(), text.data(), text.size());
  if (length < 0) return sys_failure(errno, "read the link " + link);
  return std::string(text.data(), static_cast<std::size_t>(length));
}

}  // namespace

long open_without_links(const std::string& path) {
  OpenHow how;
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = kResolveNoSymlinks | kResolveNoMagicLinks;
  const long fd = raw(SYS_openat2, AT_FDCWD, path.c_str(), &how, sizeof how);
  return fd == -ENOSYS || fd == -EPERM ? walk_without_links(path) : fd;
}

Result<std::string> resolve_trusted(const std::string& path) {
  if (is_free_of_links(path)) return path;
  std::string done, rest = path;
  for (int links = 0; !rest.empty();) {
    const std::size_t from = rest.find_first_not_of('/');
    if (from == std::string::npos) break;
    const std::size_t to = std::min(rest.find('/', from), rest.size());
    const std::string name = rest.substr(from, to - from);
    rest.erase(0, to);
    if (name == ".") continue;
    if (name == "..") {
      done.erase(done.rfind('/') == std::string::npos ? 0 : done.rfind('/'));
      continue;
    }
    const std::string here = done + "/" + name;
    struct stat about {};
    if (lstat(here.c_str(), &about) != 0) return path;
    if (!S_ISLNK(about.st_mode)) {
      done = here;
      continue;
    }
    // What a link of procfs says is not where it leads.
    struct statfs system {};
    if (statfs(done.empty() ? "/" : done.c_str(), &system) != 0 ||
        system.f_type == PROC_SUPER_MAGIC)
      return path;
    if (++links > 40) return sys_failure(ELOOP, "follow the links of " + path);
    Result<std::string> text = link_text(here, about);
    if (!text) return text;
    if (text->starts_with("/")) done.clear();
    rest = *text + rest;
  }
  return done.empty() ? "/" : done;
}

Result<UniqueFd> open_trusted(const std::string& path) {
  const std::string resolved = BELLJAR_TRY(resolve_trusted(path));
  const std::size_t slash = resolved.rfind('/');
  const std::string parent = slash == 0 ? "/" : resolved.substr(0, slash);
  const long directory = open_without_links(parent);
  if (directory < 0)
    return sys_failure(static_cast<int>(-directory),
                       "open " + parent + " without following a link");
  const UniqueFd at(static_cast<int>(directory));
  struct statfs system {};
  const bool magic = fstatfs(at.get(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
  const char* name = resolved.c_str() + slash + 1;
  UniqueFd fd(
      openat(at.get(), *name == '\0' ? "." : name, O_PATH | O_CLOEXEC | (magic ? 0 : O_NOFOLLOW)));
  struct stat about {};
  if (!fd.valid() || fstat(fd.get(), &about) != 0) return sys_failure(errno, "open " + resolved);
  if (S_ISLNK(about.st_mode)) return sys_failure(ELOOP, "open " + resolved + ", which is a link");
  return fd;
}

}  // namespace belljar::sys
