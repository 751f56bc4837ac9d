#include "launcher/test_ground.hpp"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "launcher/controls/paths.hpp"

namespace belljar::launcher {
namespace {

constexpr const char* kCopy = "belljar";

tl::unexpected<Error> ground_failure(int error, std::string what, std::string remedy) {
  return fail(
      {ErrorKind::kSystem, error, std::move(what), "filesystem.workspace.path", std::move(remedy)});
}

}  // namespace

TestGround::TestGround(TestGround&& other) noexcept
    : root_(std::move(other.root_)),
      path_(std::exchange(other.path_, {})),
      directory_(std::move(other.directory_)),
      made_(std::exchange(other.made_, {})),
      copied_(other.copied_) {}

TestGround::~TestGround() {
  if (copied_) unlinkat(directory_.get(), kCopy, 0);
  if (!path_.empty()) rmdir(path_.c_str());
  for (auto made = made_.rbegin(); made != made_.rend(); ++made) rmdir(made->c_str());
}

Result<TestGround> TestGround::make(const std::string& root, const SessionIds& ids,
                                    const Host& host) {
  TestGround ground;
  BELLJAR_CHECK(ground.make_root(root));
  BELLJAR_CHECK(ground.make_own(ids, host));
  return ground;
}

Status TestGround::make_root(const std::string& root) {
  root_ = root;
  for (std::size_t end = root.find('/', 1);; end = root.find('/', end + 1)) {
    const std::string part = root.substr(0, end);
    if (mkdir(part.c_str(), 0711) == 0)
      made_.push_back(part);
    else if (errno != EEXIST)
      return ground_failure(errno, "make the workspace root " + part,
                            "make it, or name another with --sessions-root or the setting "
                            "sessions_root");
    if (end == std::string::npos) return {};
  }
}

/// The root's owner could put a link in place of what is made in it, so it must be the caller's or
/// root's, and nobody else may write there.
Status TestGround::make_own(const SessionIds& ids, const Host& host) {
  const sys::UniqueFd root(open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat about {};
  if (!root.valid() || fstat(root.get(), &about) != 0)
    return ground_failure(errno, "open the workspace root " + root_,
                          "it must be a directory and no link");
  const bool others = (about.st_mode & 0022) != 0 && (about.st_mode & S_ISVTX) == 0;
  if ((about.st_uid != host.uid && about.st_uid != 0) || others)
    return ground_failure(EPERM, "workspace root " + root_ + ": others than belljar can change it",
                          "chown root " + root_ + " && chmod 0711 " + root_);
  const std::string name = "selftest-" + std::to_string(getpid());
  if (mkdirat(root.get(), name.c_str(), 0700) != 0)
    return ground_failure(errno, "make a workspace in " + root_,
                          "the directory must be writable for belljar");
  path_ = join(root_, name);
  directory_ = sys::UniqueFd(
      openat(root.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const bool other = ids.uid != host.uid || ids.gid != host.gid;
  if (!directory_.valid() || (other && fchown(directory_.get(), ids.uid, ids.gid) != 0))
    return ground_failure(errno, "give " + path_ + " to uid " + std::to_string(ids.uid),
                          "belljar needs CAP_CHOWN to give a session its workspace");
  return {};
}

Result<std::string> TestGround::copy_of_belljar() {
  if (copied_) return join(path_, kCopy);
  const sys::UniqueFd program(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  struct stat about {};
  if (!program.valid() || fstat(program.get(), &about) != 0)
    return ground_failure(errno, "open belljar's own program", {});
  const sys::UniqueFd copy(
      openat(directory_.get(), kCopy, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755));
  copied_ = copy.valid();
  off_t done = 0;
  while (copied_ && done < about.st_size)
    if (sendfile(copy.get(), program.get(), &done, static_cast<std::size_t>(about.st_size)) <= 0)
      return ground_failure(errno, "copy belljar into " + path_, "is the file system full?");
  // The umask is the caller's.
  if (!copied_ || fchmod(copy.get(), 0755) != 0)
    return ground_failure(errno, "copy belljar into " + path_, {});
  return join(path_, kCopy);
}

std::string default_sessions_root(const Host& host) {
  if (host.privileged()) return "/var/lib/belljar/sessions";
  const auto runtime = host.environment.find("XDG_RUNTIME_DIR");
  const bool usable = runtime != host.environment.end() && runtime->second.starts_with("/") &&
                      access(runtime->second.c_str(), W_OK | X_OK) == 0;
  if (usable) return join(runtime->second, "belljar");
  return "/tmp/belljar-" + std::to_string(host.uid) + "-" + std::to_string(getpid());
}

}  // namespace belljar::launcher
