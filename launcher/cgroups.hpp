// The cgroups of one launch, from its plan to its record.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/failure.hpp"
#include "launcher/plan.hpp"
#include "launcher/sys/cgroup.hpp"

namespace belljar::launcher {

/// What the kernel counted in the sandbox's cgroups.
struct CgroupEvidence {
  bool out_of_memory = false;                ///< It killed something there for memory.
  bool forks_refused = false;                ///< The limit of processes was met.
  std::optional<std::uint64_t> peak_memory;  ///< Bytes.
};

/// One cgroup in each hierarchy that the plan names; none, and no system call, without limits that
/// need one.
class Cgroups {
 public:
  /// Makes them and sets their limits. What the policy only prefers and this host refuses is
  /// appended to `degraded`.
  [[nodiscard]] std::optional<StepFailure> set_up(const Plan& plan,
                                                  std::vector<Degraded>& degraded);

  /// A helper and the launcher are there too for a moment, until init is known:
  /// far from the command's start, so that it never has the room.
  [[nodiscard]] Status make_room();
  [[nodiscard]] Status take_room_back();

  /// The launcher is in all of them between these two, around a clone: so the sandbox is never
  /// outside, and the root of its cgroup namespace is its own cgroup. (A clone's namespace starts
  /// where the cloning process is, CLONE_INTO_CGROUP or not: kernel/nsproxy.c.)
  [[nodiscard]] Status enter();
  [[nodiscard]] Status leave();

  /// Read-back: the process is in each of them, or is ending.
  [[nodiscard]] Status check(pid_t pid) const;

  /// Kills what is in them, where the kernel can (v2). Pid 1's death does the same, a little later.
  void kill() const;

  /// v1: readable when memory has run out; -1 without one.
  [[nodiscard]] int memory_event() const { return memory_event_.get(); }

  /// After the event: whether the kernel has killed something. v1 kills one process and lets the
  /// rest go on, so that ending the whole is left to belljar.
  [[nodiscard]] bool has_killed_for_memory() const;

  /// The names of those that were set.
  [[nodiscard]] const std::vector<std::string>& limits() const { return limits_; }

  [[nodiscard]] CgroupEvidence evidence() const;

  /// What all processes in them have used, by the one that counts it; nothing where none does. An
  /// error when it cannot be read, which it could when it was made.
  [[nodiscard]] std::optional<Result<std::chrono::microseconds>> cpu_time() const;

  /// When nothing of the sandbox is left.
  void remove() { made_.clear(); }

 private:
  struct Made {
    sys::Cgroup cgroup;
    bool memory = false;
    bool cpu_time = false;
    std::string processes;  ///< What pids.max is; empty without a limit.
  };
  [[nodiscard]] Status add(sys::Cgroup cgroup, const MakeCgroup& make, const Step& step,
                           std::vector<Degraded>& degraded);

  std::vector<Made> made_;
  std::vector<std::string> limits_;
  sys::UniqueFd memory_event_;
};

}  // namespace belljar::launcher
