// What belljar itself does for the mounts of a sandbox, before there is one.
#pragma once

#include <optional>
#include <vector>

#include "launcher/failure.hpp"
#include "launcher/plan.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::launcher {

/// Holds the directories of overlays, and makes the tree in which the workspace's owner is
/// mapped, from the plan until the sandbox has ended. No system call for plans that ask for
/// neither.
class OwnMounts {
 public:
  /// Carries its steps out. What the policy only prefers and this host refuses is appended to
  /// `degraded`.
  [[nodiscard]] std::optional<StepFailure> set_up(const Plan& plan,
                                                  std::vector<Degraded>& degraded);

  /// Without the new mount API nothing could attach the tree: as above.
  [[nodiscard]] std::optional<StepFailure> give_tree_up(const Plan& plan,
                                                        std::vector<Degraded>& degraded);

  /// The descriptor of the tree; -1 without one.
  [[nodiscard]] int tree() const { return tree_.get(); }

 private:
  std::vector<sys::UniqueFd> held_;
  sys::UniqueFd tree_;
};

}  // namespace belljar::launcher
