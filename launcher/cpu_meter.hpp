// limits.cpu_time: what all processes of the sandbox together have used, measured from outside.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>

#include "launcher/cgroups.hpp"
#include "launcher/plan.hpp"

namespace belljar::launcher {

/// Asks the sandbox's cgroup where it has one that counts, which is exact. Elsewhere it adds up the
/// tree of processes below init: what each has used, with the children that it has waited for. Who
/// forks twice leaves children to init, which waits for all. A process that ignores SIGCHLD is
/// never told what its children used, and neither is belljar (man 2 getrusage): a policy accepts
/// that by "prefer". Idle for plans that do not ask for it.
class CpuMeter {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = std::chrono::microseconds;

  CpuMeter(const Plan& plan, const Cgroups& cgroups);

  /// The command has started: what making the sandbox took is not counted.
  void begin(pid_t init);

  [[nodiscard]] std::optional<Time> limit() const { return limit_; }

  /// When to look again: not before the limit can be met on all processors. Nothing when never.
  [[nodiscard]] std::optional<Clock::time_point> next() const { return next_; }

  /// Looks, when it is time to. True when the limit is met.
  bool work();

  /// Why nothing can be measured any more: a cgroup that counted and does not. Null while all is
  /// well.
  [[nodiscard]] const Error* failure() const { return failure_ ? &*failure_ : nullptr; }

  /// What was used in the end, `all` being what the kernel has added up for init and all that was
  /// waited for. Nothing for plans that do not ask for it, and where it could not be measured.
  [[nodiscard]] std::optional<Time> end(Time all);

 private:
  [[nodiscard]] Result<Time> read() const;
  void look();
  void fail_with(Error error);

  std::optional<Time> limit_;
  const Cgroups& cgroups_;
  pid_t init_ = 0;
  std::optional<Error> failure_;
  Time before_{};
  Time used_{};  ///< The most that was seen: a process that is just being waited for is not.
  std::optional<Clock::time_point> next_;
};

/// The processor time of `init` and all of its descendants. /proc is that of sys::proc_directory().
[[nodiscard]] std::chrono::microseconds cpu_time_of_tree(pid_t init);

}  // namespace belljar::launcher
