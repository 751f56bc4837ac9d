#include "launcher/service/workspaces.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "launcher/service/message.hpp"
#include "launcher/sys/resolve.hpp"

namespace belljar::service {
namespace {

using sys::UniqueFd;

constexpr const char* kRemedy = "name another with --sessions-root or BELLJAR_SESSIONS_ROOT";

tl::unexpected<Error> root_failure(int error, std::string what) {
  return fail({error == 0 ? ErrorKind::kRefused : ErrorKind::kSystem, error, std::move(what),
               "sessions_root", kRemedy});
}

/// The root and what is missing above it; others may pass through, and nothing more.
Status make_root(const std::string& root) {
  for (std::size_t end = root.find('/', 1);; end = root.find('/', end + 1)) {
    const std::string part = root.substr(0, end);
    if (mkdir(part.c_str(), 0711) != 0 && errno != EEXIST)
      return root_failure(errno, "make the directory " + part);
    if (end == std::string::npos) return {};
  }
}

}  // namespace

Result<Workspaces> Workspaces::open(const std::string& root, const Pool& pool) {
  BELLJAR_CHECK(make_root(root));
  Workspaces made(root, pool);
  BELLJAR_CHECK(made.take_root());
  return made;
}

Status Workspaces::take_root() {
  const UniqueFd found = BELLJAR_TRY(sys::open_trusted(root_));
  directory_ = UniqueFd(openat(found.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat about {};
  if (!directory_.valid() || fstat(directory_.get(), &about) != 0)
    return root_failure(errno, "open the directory " + root_);
  if (about.st_uid != geteuid())
    return root_failure(0, root_ + " belongs to uid " + std::to_string(about.st_uid) +
                               ", who could exchange the workspaces in it");
  // Who may write here could rename one session's workspace to another's.
  if ((about.st_mode & 0777) != 0711 && fchmod(directory_.get(), 0711) != 0)
    return root_failure(errno, "set the mode of " + root_);
  if (flock(directory_.get(), LOCK_EX | LOCK_NB) != 0)
    return root_failure(0, "another launch service has its workspaces in " + root_);
  return {};
}

Outcome<OpenedWorkspace> Workspaces::find(const std::string& name) const {
  OpenedWorkspace opened;
  opened.directory = UniqueFd(
      openat(directory_.get(), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat about {};
  if (!opened.directory.valid() || fstat(opened.directory.get(), &about) != 0)
    return errno == ENOENT ? refuse(Code::kNotFound, "there is no workspace " + name)
                           : call_failed(errno, "open the workspace " + name);
  opened.owner = about.st_uid;
  if (!pool_->holds(opened.owner))
    return refuse(Code::kNotInPool, "the workspace " + name + " belongs to uid " +
                                        std::to_string(opened.owner) +
                                        ", which is not in the pool " + pool_->text());
  return opened;
}

Outcome<OpenedWorkspace> Workspaces::make(const std::string& name, uid_t owner) const {
  if (mkdirat(directory_.get(), name.c_str(), 0700) != 0)
    return errno == EEXIST ? refuse(Code::kExists, "there is a workspace " + name + " already")
                           : call_failed(errno, "make the workspace " + name);
  OpenedWorkspace made;
  made.owner = owner;
  made.directory = UniqueFd(
      openat(directory_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  // The mode again, whatever the umask and an inherited ACL have made of it; then the owner, after
  // whom nothing of it is the service's.
  if (made.directory.valid() && fchmod(made.directory.get(), 0700) == 0 &&
      (!pool_->privileged || fchown(made.directory.get(), owner, pool_->group_of(owner)) == 0))
    return made;
  const int error = errno;
  unlinkat(directory_.get(), name.c_str(), AT_REMOVEDIR);
  return call_failed(error, "give the workspace " + name + " to uid " + std::to_string(owner));
}

int Workspaces::drop(const std::string& name) const {
  return unlinkat(directory_.get(), name.c_str(), AT_REMOVEDIR) == 0 ? 0 : errno;
}

std::vector<std::string> Workspaces::names() const {
  std::vector<std::string> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> list(
      fdopendir(openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
      [](DIR* open) { return open == nullptr ? 0 : closedir(open); });
  while (const dirent* entry = list ? readdir(list.get()) : nullptr)
    if (is_workspace_name(static_cast<const char*>(entry->d_name)))
      found.emplace_back(static_cast<const char*>(entry->d_name));
  return found;
}

}  // namespace belljar::service
