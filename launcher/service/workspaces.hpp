// The directories of sessions: root makes each, 0700 and its session's, and takes it away when it
// is empty. What is in one is nobody's business here.
#pragma once

#include <string>
#include <vector>

#include "launcher/service/fault.hpp"
#include "launcher/service/pool.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::service {

struct OpenedWorkspace {
  sys::UniqueFd directory;  ///< O_PATH
  uid_t owner = 0;          ///< Always one of the pool.
};

class Workspaces {
 public:
  /// Makes `root` where it is missing, and holds it: no two services have one. Refuses one that
  /// somebody else could rearrange.
  [[nodiscard]] static Result<Workspaces> open(const std::string& root, const Pool& pool);

  /// That directory, when it belongs to a session.
  [[nodiscard]] Outcome<OpenedWorkspace> find(const std::string& name) const;

  /// Makes it, empty.
  [[nodiscard]] Outcome<OpenedWorkspace> make(const std::string& name, uid_t owner) const;

  /// Removes it, when it is empty: 0 or the errno.
  [[nodiscard]] int drop(const std::string& name) const;

  /// All that are there.
  [[nodiscard]] std::vector<std::string> names() const;

  [[nodiscard]] std::string path_of(const std::string& name) const { return root_ + "/" + name; }
  [[nodiscard]] const std::string& root() const { return root_; }
  [[nodiscard]] int root_directory() const { return directory_.get(); }

 private:
  Workspaces(std::string root, const Pool& pool) : root_(std::move(root)), pool_(&pool) {}
  [[nodiscard]] Status take_root();

  std::string root_;
  const Pool* pool_;
  sys::UniqueFd directory_;
};

}  // namespace belljar::service
