// Directories of this machine as tars, and back. Plain files and directories, nothing else.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/ctl/failure.hpp"

namespace belljar::ctl {

/// A directory, piece by piece as a tar whose names begin with `prefix` (a path, or nothing).
class TreeReader {
 public:
  [[nodiscard]] static Outcome<std::unique_ptr<TreeReader>> open(const std::string& directory,
                                                                 const std::string& prefix);
  ~TreeReader();
  TreeReader(const TreeReader&) = delete;
  TreeReader& operator=(const TreeReader&) = delete;

  /// Empty at its end.
  [[nodiscard]] Outcome<std::string> next();
  /// What was neither file nor directory, or could not be read: each as it is to be said.
  [[nodiscard]] const std::vector<std::string>& left_out() const;

 private:
  struct State;
  explicit TreeReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Makes what the tar that comes from `pipe` holds below `directory`, which becomes the working
/// directory. What is in the tar was made by strangers: no name leads out of the directory, no link
/// is followed, and anything but files and directories is refused.
[[nodiscard]] Done write_tree(const std::string& directory, int pipe);

}  // namespace belljar::ctl
