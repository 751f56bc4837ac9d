// What the sandbox's file tree must be like, looked at from inside.
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>

#include "launcher/attempts.hpp"
#include "launcher/controls/facts.hpp"
#include "launcher/controls/paths.hpp"
#include "launcher/record.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::launcher {
namespace {

using policy::Mount;
using policy::MountType;

struct MountWord {
  const char* word;
  unsigned long flag;
  bool Mount::*asked_for;
};
constexpr std::array<MountWord, 4> kWords = {{{"ro", ST_RDONLY, &Mount::readonly},
                                              {"nosuid", ST_NOSUID, &Mount::nosuid},
                                              {"nodev", ST_NODEV, &Mount::nodev},
                                              {"noexec", ST_NOEXEC, &Mount::noexec}}};

/// "ro,nosuid,nodev /usr"
std::string options_at(const Mount& mount, const std::string& path) {
  std::string words;
  for (const MountWord& word : kWords)
    if (mount.*word.asked_for) words += (words.empty() ? "" : ",") + std::string(word.word);
  return words + " " + path;
}

bool has_options(MountType type) {
  return type == MountType::kBind || type == MountType::kTmpfs || type == MountType::kOverlay;
}

bool is_masked(const policy::Filesystem& files, const std::string& path) {
  for (const auto& [mask, why] : files.mask)
    if (is_within(path, mask)) return true;
  return false;
}

Mount read_only() {
  Mount mount;
  mount.readonly = true;
  return mount;
}

/// What the policy names, in the order in which later ones are more than a part of earlier ones.
class ExpectedOptions {
 public:
  explicit ExpectedOptions(const Made& made) : made_(made), files_(made.policy.filesystem) {}

  std::vector<Fact::Expected> list() {
    if (!files_.mounts.contains("/")) add("/", read_only(), "filesystem.root", false);
    for (const auto& [target, mount] : files_.mounts) {
      // One whose source is absent is not mounted, and what is there instead is no mount.
      const bool absent = mount.optional && access(mount.source.c_str(), F_OK) != 0;
      if (has_options(mount.type) && !absent)
        add(target, mount, policy::member_path("filesystem.mounts", target), mount.optional);
    }
    add_workspace();
    if (files_.root == policy::RootKind::kHost) add_host();
    return std::move(expected_);
  }

 private:
  void add(const std::string& path, const Mount& mount, std::string because, bool may_be_unseen) {
    if (!is_masked(files_, path))
      expected_.push_back({options_at(mount, path), std::move(because), may_be_unseen});
  }

  void add_workspace() {
    workspace_ = workspace_path(made_.policy, made_.host);
    if (workspace_.empty() || files_.mounts.contains(workspace_)) return;
    Mount bind;
    bind.readonly = files_.workspace->readonly;
    add(workspace_, bind, "filesystem.workspace", false);
  }

  /// A directory that is hidden is not there, or lies in the root, which has the same options.
  void add_host() {
    const std::string home = home_path(made_.policy, made_.host);
    for (const TopLevel& top : made_.host.top_level)
      if (!top.link && top.name != home && top.name != workspace_ &&
          !files_.mounts.contains(top.name))
        add(top.name, read_only(), "filesystem.root", true);
  }

  const Made& made_;
  const policy::Filesystem& files_;
  std::string workspace_;
  std::vector<Fact::Expected> expected_;
};

Seen look_at_options(const std::string& value) {
  const std::string words = "," + value.substr(0, value.find(' ')) + ",";
  const std::string path = value.substr(value.find(' ') + 1);
  struct statvfs about {};
  if (statvfs(path.c_str(), &about) != 0) {
    // What the command cannot reach, it cannot change either.
    if (errno == EACCES) return holds(path + ": EACCES");
    return unseen(path + ": " + errno_name(errno));
  }
  for (const MountWord& word : kWords)
    if (words.find("," + std::string(word.word) + ",") != std::string::npos &&
        (about.f_flag & word.flag) == 0)
      return differs(path + " is not " + word.word);
  return holds();
}

/// An entry of a directory that is not empty; empty when it is, or cannot be read.
std::string entry_in(const std::string& path) {
  struct Close {
    void operator()(DIR* list) const { closedir(list); }
  };
  const std::unique_ptr<DIR, Close> list(opendir(path.c_str()));
  if (!list) return {};
  while (const dirent* entry = readdir(list.get()))
    if (const std::string name = entry->d_name; name != "." && name != "..") return name;
  return {};
}

std::vector<Fact::Expected> expected_masks(const Made& made) {
  std::vector<Fact::Expected> expected;
  for (const auto& [path, why] : made.policy.filesystem.mask)
    expected.push_back({path, policy::member_path("filesystem.mask", path)});
  return expected;
}

Seen look_at_mask(const std::string& path) {
  struct stat about {};
  if (stat(path.c_str(), &about) != 0) return holds(errno_name(errno));
  if (S_ISDIR(about.st_mode)) {
    const std::string name = entry_in(path);
    return name.empty() ? holds() : differs(join(path, name) + " is seen");
  }
  const sys::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  return file.valid() ? differs(path + " can be opened") : holds(errno_name(errno));
}

/// Where the command must be able to write: the workspace, and what the trial shows in its place.
std::vector<std::string> written_directories(const Made& made) {
  const policy::Filesystem& files = made.policy.filesystem;
  std::vector<std::string> found;
  if (made.lures.second_work) found.push_back(*made.lures.second_work);
  const std::string workspace = workspace_path(made.policy, made.host);
  if (workspace.empty() || files.workspace->readonly || files.mounts.contains(workspace))
    return found;
  // What the session's uid can only read is read-only inside, and a note says so.
  if (made.host.workspace_access == Access::kWrite) found.push_back(workspace);
  return found;
}

std::vector<Fact::Expected> expected_writes(const Made& made) {
  std::vector<Fact::Expected> expected;
  for (const std::string& path : written_directories(made))
    expected.push_back({path, "filesystem.workspace"});
  return expected;
}

/// A file of ours in a directory, gone afterwards.
class OwnFile {
 public:
  explicit OwnFile(const std::string& directory)
      : path_(join(directory, ".belljar-probe-" + std::to_string(getpid()))),
        fd_(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700)),
        error_(fd_.valid() ? 0 : errno) {}
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;
  ~OwnFile() {
    if (error_ == 0) unlink(path_.c_str());
  }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int error() const { return error_; }

  /// 0, or the errno.
  [[nodiscard]] int write_a_byte() const {
    rlimit size{};
    // A limit of no bytes would end the prober.
    if (getrlimit(RLIMIT_FSIZE, &size) == 0 && size.rlim_cur == 0) return 0;
    return write(fd_.get(), "#", 1) == 1 ? 0 : errno;
  }
  /// What is open for writing cannot be executed.
  void close() { fd_.reset(); }

 private:
  std::string path_;
  sys::UniqueFd fd_;
  int error_;
};

Seen look_at_writing(const std::string& directory) {
  const OwnFile file(directory);
  const int error = file.error() != 0 ? file.error() : file.write_a_byte();
  return error == 0 ? holds() : differs(directory + ": " + errno_name(error));
}

/// No policy says that a workspace can be executed from, and a host may forbid it: told, not held
/// against it.
std::vector<Fact::Expected> expected_execution(const Made& made) {
  std::vector<Fact::Expected> expected;
  for (const std::string& path : written_directories(made)) expected.push_back({path, {}});
  return expected;
}

Seen look_at_execution(const std::string& directory) {
  OwnFile file(directory);
  if (file.error() != 0) return unseen(directory + ": " + errno_name(file.error()));
  file.close();
  const std::string answer = attempt("exec " + file.path());
  return answer == kGranted ? holds() : differs(directory + ": " + answer);
}

}  // namespace

const std::array<Fact, 4> kFilesystemFacts = {
    {{"mount-options", "a mount lacks an option", look_at_options,
      [](const Made& made) { return ExpectedOptions(made).list(); }},
     {"mask", "what the policy masks is seen", look_at_mask, expected_masks},
     {"workspace-write", "the workspace cannot be written to", look_at_writing, expected_writes},
     {"workspace-execute", "what is in the workspace cannot be executed", look_at_execution,
      expected_execution}}};

}  // namespace belljar::launcher
