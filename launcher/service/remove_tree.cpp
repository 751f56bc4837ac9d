#include "launcher/service/remove_tree.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string_view>

#include "launcher/service/inside.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::service {
namespace {

using sys::UniqueFd;
using Listing = std::unique_ptr<DIR, int (*)(DIR*)>;

/// So many directories are open at once. What lies deeper is moved up and comes later.
constexpr int kDeepest = 48;

class Remover {
 public:
  explicit Remover(int top) : top_(top) {}

  /// Until a pass over the directory removes nothing more; what that left is the answer. (What is
  /// moved up while a directory is read may not be seen before the next pass.)
  std::uint64_t empty(int directory, int depth) {
    const Listing list(fdopendir(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
                       [](DIR* open) { return open == nullptr ? 0 : closedir(open); });
    if (!list) return 1;
    for (;;) {
      std::uint64_t left = 0;
      bool progress = false;
      rewinddir(list.get());
      while (const dirent* entry = readdir(list.get())) {
        const std::string_view name = static_cast<const char*>(entry->d_name);
        if (name == "." || name == "..") continue;
        const std::uint64_t remaining = remove(directory, std::string(name), depth);
        progress |= remaining == 0;
        left += remaining;
      }
      if (!progress) return left;
    }
  }

  /// 0: the entry is gone (or, deep down, gone from here).
  std::uint64_t remove(int parent, const std::string& name, int depth) {
    if (unlinkat(parent, name.c_str(), 0) == 0 || errno == ENOENT) return 0;
    const UniqueFd found(openat(parent, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat about {};
    if (!found.valid() || fstat(found.get(), &about) != 0) return errno == ENOENT ? 0 : 1;
    if (!S_ISDIR(about.st_mode)) return 1;
    if (unlinkat(parent, name.c_str(), AT_REMOVEDIR) == 0) return 0;
    if ((about.st_mode & 0700) != 0700) take_rights(found.get());
    if (depth == kDeepest) return move_up(parent, name) ? 0 : 1;
    const std::uint64_t left = empty(found.get(), depth + 1);
    return unlinkat(parent, name.c_str(), AT_REMOVEDIR) == 0 ? 0 : left + 1;
  }

 private:
  bool move_up(int parent, const std::string& name) {
    for (int tries = 0; tries < 1000; ++tries) {
      const std::string there = ".belljar-deep-" + std::to_string(++moved_);
      // Onto an empty directory it would be moved as well, which does no harm here.
      if (renameat(parent, name.c_str(), top_, there.c_str()) == 0) return true;
      if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR) return false;
    }
    return false;
  }

  int top_;
  std::uint64_t moved_ = 0;
};

}  // namespace

std::uint64_t empty_directory(int top) {
  take_rights(top);
  return Remover(top).empty(top, 0);
}

int remove_tree(int parent, const std::string& name) {
  if (unlinkat(parent, name.c_str(), 0) == 0) return 0;
  const int why = errno;
  const UniqueFd found(openat(parent, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!found.valid()) return why;
  // What is left in it says so itself.
  static_cast<void>(empty_directory(found.get()));
  return unlinkat(parent, name.c_str(), AT_REMOVEDIR) == 0 ? 0 : errno;
}

}  // namespace belljar::service
