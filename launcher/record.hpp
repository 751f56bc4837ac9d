// The record: how a run ended, as one JSON object that only belljar can write.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/compile.hpp"
#include "launcher/denials.hpp"
#include "launcher/network/messages.hpp"
#include "launcher/plan.hpp"

namespace belljar::launcher {

/// Why a run ended. The name of a limit is the name of its cause.
enum class Cause {
  kExited,    ///< The command exited by itself; `exit_code` is its own.
  kSignaled,  ///< A signal of its own or of the kernel ended it.
  kWallTime,
  kCpuTime,  ///< One process used up its rlimit, or all together limits.cpu_time.
  kFileSize,
  kMemory,       ///< The kernel killed for the cgroup's memory, and the command did not end well.
  kOutput,       ///< It wrote more than it may; what it may has been passed on.
  kDisk,         ///< What it can write held more than it may, or could not be measured.
  kProcesses,    ///< The command failed after the cgroup had refused it a process.
  kSyscall,      ///< The system call filter killed it.
  kSetup,        ///< The sandbox could not be built, or the command could not be started in it.
  kNetworkLost,  ///< The private network ended before the command did.
  kKilled,       ///< By a signal that was sent to belljar.
  kLost,         ///< The sandbox ended without saying how.
};

[[nodiscard]] const char* cause_name(Cause cause);

/// The step that failed, for cause kSetup.
struct SetupFailure {
  std::string step;  ///< "step 7 of 41: bind /srv/data on /data, read-only"
  std::string control;
  std::string error;    ///< "ENOENT", empty when no system call failed.
  std::string reason;   ///< "No such file or directory: /srv/data"
  bool hidden = false;  ///< The line hides what was looked for, instead of asking for the step.
  std::string policy;   ///< "agent.json:14:9 filesystem.mounts[\"/data\"]"
  std::string remedy;
  // For a front end with words of its own:
  int index = -1;  ///< Of the step; -1: before there was any.
  int number = 0;  ///< The errno.
  Detail detail = Detail::kNone;
  std::string subject;
};

/// What the run used. Times and blocks are of the whole sandbox once it has ended; the kernel adds
/// up what was waited for. Memory is the most that the cgroup held, where the policy limits it; the
/// largest resident set of any one process elsewhere: without a cgroup there is no sum.
struct Usage {
  std::chrono::microseconds wall{0};
  std::chrono::microseconds user{0};
  std::chrono::microseconds system{0};
  std::optional<std::chrono::microseconds> cpu;  ///< As limits.cpu_time counts; absent without.
  std::optional<std::uint64_t> peak_memory_kib;
  std::int64_t max_rss_of_one_process_kib = 0;
  std::int64_t read_blocks = 0;  ///< Of 512 bytes.
  std::int64_t written_blocks = 0;
};

struct Record {
  Cause cause = Cause::kLost;
  std::optional<int> exit_code;
  std::optional<int> signal;
  std::string killed_by;  ///< "signal", for kKilled.
  std::optional<SetupFailure> setup;
  std::vector<std::string> limits;  ///< Limits that were touched, by name.
  Usage usage;
  std::vector<Degraded> degraded;
  std::optional<Denials> denials;                          ///< Where they were asked for.
  std::optional<std::vector<network::Refusal>> unreached;  ///< Of a private network.
  std::optional<std::string> network_error;                ///< For kNetworkLost: how.
  BackEnd back_end = BackEnd::kModern;
  bool sandboxed = true;  ///< False only where an operator has switched the sandbox off.
  std::string policy_name;
  std::string policy_digest;
  std::chrono::microseconds plan_time{0};   ///< Reading the policy and planning.
  std::chrono::microseconds setup_time{0};  ///< From the clone to the command's exec.

  /// One line of JSON, without the newline.
  [[nodiscard]] std::string json() const;

  /// What `belljar run` exits with: the command's own code, 128+n for a signal, 124 for wall time,
  /// 137 for `output` and `disk`, 125 for a setup failure, 126 and 127 as the shell has them.
  [[nodiscard]] int exit_status() const;
};

/// The limit, or the filter, that explains a process's death by `number`, after so much processor
/// time. None: the signal was the command's own affair, or somebody sent it.
[[nodiscard]] std::optional<Cause> cause_of_signal(int number, std::chrono::microseconds used,
                                                   const policy::Limits& limits, bool filtered);

/// The failure as the record has it, one JSON object.
[[nodiscard]] std::string setup_text(const SetupFailure& failure);

/// "SIGTERM", or "SIG40" for one without a name.
[[nodiscard]] std::string signal_name(int number);

/// "ENOENT", or "errno 4711".
[[nodiscard]] std::string errno_name(int number);

}  // namespace belljar::launcher
