// From a Plan to a running sandbox, and from its end to the Record.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/child/image.hpp"
#include "launcher/plan.hpp"
#include "launcher/record.hpp"
#include "launcher/sys/unique_fd.hpp"
#include "policy/base/result.hpp"

namespace belljar::launcher {

/// What belljar itself watches over while a command runs, as the loop that ends it has it: none
/// where it does not.
struct Watched {
  std::optional<std::chrono::milliseconds> wall_time;
  std::optional<std::chrono::microseconds> cpu_time;
  std::optional<std::uint64_t> output;
  std::optional<std::uint64_t> disk;
  std::vector<std::string> cgroup;  ///< The limits that the kernel watches over, by name.
};

/// What happens while a command runs, told as it happens. Any member may be empty.
struct Events {
  std::function<void(int pid)> started;     ///< The sandbox's init, as the caller sees it.
  std::function<void(int signal)> stopped;  ///< The command was stopped.
  std::function<void()> continued;
  std::function<void(const Watched&)> armed = {};  ///< The command has begun.
  /// A literal plan's init is there and waits for the return; an error ends it.
  std::function<Status(int pid)> born = {};
};

/// Init's word on something other than the plan's own command.
struct Heard {
  Message message;
  std::array<sys::UniqueFd, 2> beside;  ///< Descriptors that came along.
  pid_t sender = 0;                     ///< As the launcher numbers it.
};

/// A sandbox whose command runs, or that waits for commands.
struct RunningSandbox {
  int control = -1;  ///< Leads to init, and stays launch's.
  pid_t init = 0;    ///< On the host.
  BackEnd back_end = BackEnd::kModern;
  std::vector<Degraded> degraded;
  std::chrono::microseconds setup_time{0};
  std::function<int()> terminal;  ///< The master of the command's own terminal; -1 without.
};

/// Why a sandbox is to be ended from outside.
struct Ending {
  Cause cause = Cause::kKilled;
  const char* by = nullptr;  ///< For kKilled.
};

/// Serves whoever uses a sandbox beyond its command: further commands, connections inside. It is
/// asked from within launch, in the same thread, and never waits.
class Attendant {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~Attendant() = default;

  virtual void begin(const RunningSandbox& sandbox) = 0;
  /// What is waited for beside init.
  [[nodiscard]] virtual int descriptor() const = 0;
  /// The descriptor is ready.
  virtual void serve() = 0;
  virtual void hear(Heard heard) = 0;
  /// When work() has something to do by the clock.
  [[nodiscard]] virtual std::optional<Clock::time_point> next() const = 0;
  virtual void work() = 0;
  /// Whether the sandbox is to be ended now.
  [[nodiscard]] virtual std::optional<Ending> ending() const = 0;

 protected:
  Attendant() = default;
  Attendant(const Attendant&) = default;
  Attendant& operator=(const Attendant&) = default;
};

/// Launches, forwards INT, TERM, HUP, QUIT, WINCH, USR1 and USR2 to the command's process group,
/// enforces the wall time, and returns the record when nothing of the sandbox is left. Never fails:
/// what goes wrong is the record's cause. Changes the caller's signal mask for the duration. One
/// launch at a time; the calling thread must be the process's only one. With an attendant no signal
/// is forwarded, and one that stands by has no wall time.
[[nodiscard]] Record launch(const Plan& plan, const policy::Policy& policy, const Host& host,
                            const Events& events, Attendant* attendant = nullptr);

/// As `launch`; where the policy prefers a private network and this host has none to give, once
/// more with the host's, which the record says (`degraded`). `plan` is that of `command`.
[[nodiscard]] Record launch_preferring(const Plan& plan, const policy::Policy& policy,
                                       const Host& host, const Command& command,
                                       const Events& events, Attendant* attendant = nullptr);

}  // namespace belljar::launcher
