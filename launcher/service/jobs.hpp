// Forked helpers, which do what would make the service wait: a bounded number at once, in all and
// for each workspace, each with a deadline.
//
// A file system that does not answer (FUSE, a lost server) holds a helper that has been killed, for
// as long as it likes. Such a one gives its place to others and is waited for no more, but is taken
// note of when it does end: until then its `done` has not run.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/service/fault.hpp"
#include "launcher/service/pool.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::service {

/// What a helper says at its end: the members of `ok`, as JSON ("{...}"), and at most one
/// descriptor.
struct Finding {
  std::string json = "{}";
  sys::UniqueFd descriptor;
};
using Work = std::function<Outcome<Finding>()>;

/// `{"ok":{...}}` or `{"error":{...}}`, with what belongs to it.
struct Answer {
  std::string body;
  sys::UniqueFd descriptor;
  bool ok = false;
};

struct Job {
  std::optional<uid_t> uid;    ///< Done as this session; absent: with the service's own privileges.
  std::string workspace = {};  ///< Whose bound it counts for; empty: nobody's.
  std::vector<int> kept;       ///< Descriptors that the helper has, besides 0, 1, 2.
  std::vector<sys::UniqueFd> owned;  ///< The same, closed here when the job has ended.
  Work work;                         ///< Runs in the helper.
  std::chrono::seconds limit{30};
  std::function<void(Answer)> done;  ///< Runs in the service.
};

class Jobs {
 public:
  static constexpr std::size_t kMostAtOnce = 32;
  static constexpr std::size_t kMostWaiting = 1024;
  static constexpr std::size_t kMostOfOne = 20;  ///< At once, of one workspace, stuck ones as well.
  static constexpr std::size_t kMostWaitingOfOne = 256;
  static constexpr std::size_t kMostProcesses = 128;  ///< At once, stuck ones as well.

  explicit Jobs(const Pool& pool) : pool_(pool) {}

  /// Starts it, or lets it wait for its turn; false when too many wait already.
  [[nodiscard]] bool add(Job job);

  /// Takes note of a child that has been reaped; false when it is no helper.
  bool ended(pid_t pid);

  /// Kills what has used up its time, and gives away the places of what does not die.
  void expire();
  /// Milliseconds until `expire` has something to do; -1: it has not.
  [[nodiscard]] int next_deadline_ms() const;

  /// The running helpers.
  [[nodiscard]] std::vector<pid_t> processes() const;

  [[nodiscard]] bool busy() const { return !running_.empty() || !waiting_.empty(); }

  void kill_all();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Stage { kAtWork, kKilled, kStuck };
  struct Running {
    pid_t pid = 0;
    sys::UniqueFd answer;
    Clock::time_point deadline;  ///< Of this stage.
    Stage stage = Stage::kAtWork;
    Job job;
  };

  [[nodiscard]] bool has_room(const Job& job) const;
  void start_waiting();
  void start(Job job);
  [[noreturn]] void help(const Job& job, sys::UniqueFd answer) const;

  const Pool& pool_;
  std::vector<Running> running_;
  std::deque<Job> waiting_;
};

}  // namespace belljar::service
