// Reading the text of a policy from a file, safely: bounded, and without waiting.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "policy/json_tree.hpp"
#include "policy/units.hpp"

namespace belljar::policy {

/// Which file it is, whatever name it was opened by.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileId&) const = default;
};

struct PolicyFile {
  std::string text;  ///< At most one byte more than a policy may have.
  FileId id;         ///< kRegular only, whose kind has to be looked at anyway.
};

enum class FileKinds {
  kRegular,  ///< For a name that a policy chose: a FIFO or a device could hang or feed us.
  kAny,      ///< For a name that the caller typed, as in `--policy <(generate)`.
};

/// The file, or "cannot read the policy: ...".
[[nodiscard]] Parsed<PolicyFile> read_policy_file(const std::string& name, FileKinds kinds);

/// What `name` leads to now; no file's when that is nothing.
[[nodiscard]] FileId file_id(const std::string& name);

/// Files called .jsonc may hold comments.
[[nodiscard]] Comments comments_of(std::string_view name);

/// `name` as it is meant in the file `label`: relative to its directory.
[[nodiscard]] std::string beside(std::string_view label, std::string_view name);

}  // namespace belljar::policy
