#include "launcher/test_ground.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "launcher/controls/paths.hpp"

namespace belljar::launcher {
namespace {

constexpr const char* kCopy = "belljar";

tl::unexpected<Error> ground_failure(int error, std::string what, std::string remedy) {
  return fail(
      {ErrorKind::kSystem, error, std::move(what), "filesystem.workspace.path", std::move(remedy)});
}

/// Removes what lies flat in a directory, which the session may have filled, and then the
/// directory. Nothing is followed, and what has directories of its own stays.
void remove_flat(int root, const char* name, int directory) {
  if (DIR* list = fdopendir(dup(directory)); list != nullptr) {
    rewinddir(list);
    while (const dirent* entry = readdir(list)) unlinkat(directory, entry->d_name, 0);
    closedir(list);
  }
  unlinkat(root, name, AT_REMOVEDIR);
}

constexpr const char* kPrefix = "selftest-";
constexpr int kDirectory = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

/// The mode whatever the caller's umask is.
bool make_directory(const std::string& path, mode_t mode) {
  if (mkdir(path.c_str(), mode) != 0) return false;
  const sys::UniqueFd made(open(path.c_str(), kDirectory));
  if (made.valid() && fchmod(made.get(), mode) == 0) return true;
  const int error = errno;
  rmdir(path.c_str());
  errno = error;
  return false;
}

}  // namespace

void remove_left_grounds(int root) {
  DIR* list = fdopendir(openat(root, ".", kDirectory));
  if (list == nullptr) return;
  while (const dirent* entry = readdir(list)) {
    if (!std::string_view(entry->d_name).starts_with(kPrefix)) continue;
    const sys::UniqueFd left(openat(root, entry->d_name, kDirectory));
    if (left.valid() && flock(left.get(), LOCK_EX | LOCK_NB) == 0)
      remove_flat(root, entry->d_name, left.get());
  }
  closedir(list);
}

TestGround::TestGround(TestGround&& other) noexcept
    : mask_(std::exchange(other.mask_, std::nullopt)),
      root_(std::move(other.root_)),
      path_(std::exchange(other.path_, {})),
      directory_(std::move(other.directory_)),
      made_(std::exchange(other.made_, {})),
      copied_(other.copied_) {}

TestGround::~TestGround() {
  if (directory_.valid()) remove_flat(AT_FDCWD, path_.c_str(), directory_.get());
  for (auto made = made_.rbegin(); made != made_.rend(); ++made) rmdir(made->c_str());
  if (mask_) sigprocmask(SIG_SETMASK, &*mask_, nullptr);
}

/// What comes meanwhile comes when the mask is back; a launch takes it at once.
void TestGround::hold_signals() {
  sigset_t held, before;
  sigemptyset(&held);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&held, signal);
  if (sigprocmask(SIG_BLOCK, &held, &before) == 0) mask_ = before;
}

Result<TestGround> TestGround::make(const std::string& root, const SessionIds& ids,
                                    const Host& host) {
  TestGround ground;
  ground.hold_signals();
  BELLJAR_CHECK(ground.make_root(root));
  BELLJAR_CHECK(ground.make_own(ids, host));
  return ground;
}

Status TestGround::make_root(const std::string& root) {
  root_ = root;
  for (std::size_t end = root.find('/', 1);; end = root.find('/', end + 1)) {
    const std::string part = root.substr(0, end);
    if (make_directory(part, 0711))
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
  const sys::UniqueFd root(open(root_.c_str(), kDirectory));
  struct stat about {};
  if (!root.valid() || fstat(root.get(), &about) != 0)
    return ground_failure(errno, "open the workspace root " + root_,
                          "it must be a directory and no link");
  const bool others = (about.st_mode & 0022) != 0 && (about.st_mode & S_ISVTX) == 0;
  if ((about.st_uid != host.uid && about.st_uid != 0) || others)
    return ground_failure(EPERM, "workspace root " + root_ + ": others than belljar can change it",
                          "chown root " + root_ + " && chmod 0711 " + root_);
  remove_left_grounds(root.get());
  BELLJAR_CHECK(make_locked(root_));
  const bool other = ids.uid != host.uid || ids.gid != host.gid;
  if (other && fchown(directory_.get(), ids.uid, ids.gid) != 0)
    return ground_failure(errno, "give " + path_ + " to uid " + std::to_string(ids.uid),
                          "belljar needs CAP_CHOWN to give a session its workspace");
  return {};
}

/// Between the making and the lock another belljar may sweep it away: then there is a next one.
Status TestGround::make_locked(const std::string& root) {
  constexpr int kTries = 20;
  int error = EAGAIN;
  for (int i = 0; i < kTries; ++i) {
    std::string path = join(root, std::string(kPrefix) + "XXXXXX");
    if (mkdtemp(path.data()) == nullptr)
      return ground_failure(errno, "make a workspace in " + root,
                            "the directory must be writable for belljar, and have room");
    sys::UniqueFd made(open(path.c_str(), kDirectory));
    struct stat about {};
    const bool held = made.valid() && flock(made.get(), LOCK_EX | LOCK_NB) == 0 &&
                      fstat(made.get(), &about) == 0 && about.st_nlink > 0;
    error = errno;
    if (!held) continue;
    path_ = std::move(path);
    directory_ = std::move(made);
    return {};
  }
  return ground_failure(error, "lock a workspace in " + root,
                        "the file system must have flock: name another one with --sessions-root");
}

std::uint64_t TestGround::held() const {
  struct stat about {};
  const bool there = copied_ && fstatat(directory_.get(), kCopy, &about, 0) == 0;
  return there ? static_cast<std::uint64_t>(about.st_size) : 0;
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
