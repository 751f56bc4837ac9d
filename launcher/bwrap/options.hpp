// A bwrap command line as a value: what each option means, in the order in which it was given.
//
// Option names and the texts that callers match on are bubblewrap's interface
// (docs/bwrap.md). Parsing touches nothing but the descriptors that options name.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "policy/base/result.hpp"

namespace belljar::launcher::bwrap {

enum class FileKind {
  kBind,
  kBindDescriptor,
  kRemountReadOnly,
  kTmpfs,
  kMqueue,
  kProc,
  kDev,
  kDirectory,
  kFile,
  kBindData,
  kSymlink,
  kChmod,
  kOverlay,
};

/// One operation on the file tree; they are carried out in their order. Which members mean
/// something depends on `kind`.
struct FileOperation {
  FileKind kind = FileKind::kBind;
  std::string option;  ///< "--ro-bind"
  std::string source;  ///< A host path; what a symbolic link says; of an overlay, its upper.
  std::string target;
  std::string work;                 ///< kOverlay, beside an upper.
  std::vector<std::string> layers;  ///< kOverlay: the lowest first.
  bool readonly = false;
  bool devices = false;   ///< Device nodes can be used.
  bool optional = false;  ///< A source that does not exist is passed over.
  bool memory = false;    ///< kOverlay: what is written is lost at the end.
  int descriptor = -1;
  std::optional<mode_t> mode;
  std::uint64_t size = 0;  ///< kTmpfs; 0: the kernel's own limit.

  /// "--ro-bind /usr /usr"
  [[nodiscard]] std::string text() const;
};

enum class Want { kNo, kIfPossible, kYes };

struct EnvironmentChange {
  enum class Kind { kSet, kUnset, kClear } kind = Kind::kSet;
  std::string name;
  std::string value;
};

struct CapabilityChange {
  bool add = false;
  std::uint64_t bits = 0;
};

struct Options {
  Want user = Want::kNo;
  Want cgroup = Want::kNo;
  bool ipc = false;
  bool pid = false;
  bool net = false;
  bool uts = false;
  std::optional<std::uint32_t> uid;
  std::optional<std::uint32_t> gid;
  std::optional<std::string> hostname;
  std::optional<std::string> directory;
  std::optional<std::string> argv0;
  std::vector<EnvironmentChange> environment;
  std::vector<CapabilityChange> capabilities;
  std::vector<FileOperation> files;
  std::vector<std::string> lock_files;
  std::vector<std::string> filters;  ///< What --add-seccomp-fd held.
  int seccomp = -1;
  int userns = -1;
  int userns2 = -1;
  int pidns = -1;
  int sync_fd = -1;
  int block_fd = -1;
  int userns_block_fd = -1;
  int info_fd = -1;
  int status_fd = -1;
  bool new_session = false;
  bool die_with_parent = false;
  bool as_pid_1 = false;
  bool disable_userns = false;
  bool userns_disabled = false;  ///< --assert-userns-disabled
  bool level_prefix = false;
  bool help = false;
  bool version = false;
  std::vector<std::string> warnings;
  std::vector<std::string> command;
};

/// Reads a descriptor to its end and closes it.
using ReadDescriptor = std::function<Result<std::string>(int descriptor)>;

/// What `words` (without the program's name) ask for. Errors are what bwrap says behind its prefix.
/// `level_prefix` is set as soon as the option has been met.
[[nodiscard]] Result<Options> parse(std::span<const std::string> words, const ReadDescriptor& read,
                                    bool* level_prefix = nullptr);

/// Options that contradict each other or lack what they need, for a caller with these ids.
[[nodiscard]] Status check(const Options& options, uid_t uid, gid_t gid);

/// "NAME=VALUE" after all changes, sorted by name.
[[nodiscard]] Result<std::vector<std::string>> environment_after(
    const std::vector<EnvironmentChange>& changes, std::span<const char* const> callers);

/// What --help prints.
[[nodiscard]] std::string help_text(const std::string& program);

}  // namespace belljar::launcher::bwrap
