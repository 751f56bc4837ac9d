#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "launcher/cli/options.hpp"
#include "launcher/failure.hpp"
#include "launcher/launch.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::launcher {
namespace {

using Clock = std::chrono::steady_clock;

/// Writes whole lines to a descriptor; a reader that is gone is not an error of the run.
void write_line(int fd, std::string line) {
  line += '\n';
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t wrote = write(fd, line.data() + done, line.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return;
    done += static_cast<std::size_t>(wrote);
  }
}

/// Where the record goes: a file that is made before the launch, so that a run whose record could
/// not be written never starts, or a descriptor of the caller's.
class RecordSink {
 public:
  /// False, after saying why, when it cannot be written.
  bool open(const std::string& where) {
    if (where.empty()) return true;
    if (where.starts_with("fd:")) {
      const auto [end, error] = std::from_chars(where.data() + 3, where.data() + where.size(), fd_);
      if (error == std::errc() && end == where.data() + where.size() && fcntl(fd_, F_GETFD) >= 0)
        return true;
      std::fprintf(stderr, "belljar: --record %s: is not an open descriptor\n", where.c_str());
      return false;
    }
    file_ = sys::UniqueFd(
        ::open(where.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0644));
    fd_ = file_.get();
    if (file_.valid()) return true;
    std::fprintf(stderr, "belljar: --record %s: cannot be made: %s (%s)\n", where.c_str(),
                 strerrordesc_np(errno), errno_name(errno).c_str());
    return false;
  }

  void write(const std::string& json) const {
    if (fd_ >= 0) write_line(fd_, json);
  }

 private:
  int fd_ = -1;
  sys::UniqueFd file_;
};

Events status_events(int fd) {
  if (fd < 0) return {};
  const auto say = [fd](const nlohmann::ordered_json& json) { write_line(fd, json.dump()); };
  return {.started =
              [say](int pid) {
                say({{"type", "started"}, {"pid", pid}});
              },
          .stopped =
              [say](int number) {
                say({{"type", "stopped"}, {"signal", signal_name(number)}});
              },
          .continued =
              [say] {
                say({{"type", "continued"}});
              }};
}

void print_plan_texts(const Plan& plan, bool default_policy) {
  if (default_policy && isatty(STDERR_FILENO) == 1)
    std::fputs(
        "belljar: under builtin:dev@1: the current directory is writable, the rest of the host "
        "read-only, no network\n",
        stderr);
  for (const std::string& note : plan.notes)
    std::fprintf(stderr, "belljar: note: %s\n", note.c_str());
}

/// An exit status of 137, 153 or 159 tells nobody that a limit or the filter did it.
void say_why_it_ended(const Record& record, const policy::Policy& policy) {
  const char* what = nullptr;
  std::string path;
  if (record.cause == Cause::kWallTime)
    what = "was ended at its wall time", path = "limits.wall_time";
  if (record.cause == Cause::kCpuTime)
    what = "was ended at its CPU time", path = "limits.rlimits.cpu";
  if (record.cause == Cause::kFileSize)
    what = "was ended for writing a file beyond its size", path = "limits.rlimits.fsize";
  if (record.cause == Cause::kSyscall)
    what = "was killed by the system call filter (SIGSYS)", path = "syscalls";
  if (what != nullptr)
    std::fprintf(stderr, "belljar: the command %s, %s\n", what, origin_text(policy, path).c_str());
}

/// What the policy preferred and this run did without: in the record always, and for a person too.
void say_what_is_degraded(const Record& record) {
  if (record.degraded.empty() || isatty(STDERR_FILENO) != 1) return;
  for (const Degraded& item : record.degraded)
    std::fprintf(stderr, "belljar: note: degraded: %s: %s\n", item.control.c_str(),
                 item.what.c_str());
}

/// A shell loop around belljar must stop when the command died of a signal that asks for it.
void die_likewise(const Record& record) {
  const bool asked = record.signal && (*record.signal == SIGINT || *record.signal == SIGQUIT ||
                                       *record.signal == SIGTERM);
  if (!asked || record.cause == Cause::kWallTime) return;
  std::fflush(nullptr);
  signal(*record.signal, SIG_DFL);
  raise(*record.signal);
}

Record run_planned(const policy::Policy& policy, const Result<Host>& host,
                   const PolicyOptions& options, const Events& events, Clock::time_point begun) {
  const auto refused = [&](const Error& error) {
    Record record;
    record.cause = Cause::kSetup;
    record.exit_code = kBelljarFailed;
    record.policy_name = policy.name;
    record.policy_digest = policy.digest;
    record.setup = describe_refusal(error, policy);
    return record;
  };
  if (!host) return refused(host.error());
  Result<Plan> plan = build_plan(policy, *host, {options.command, options.directory});
  if (!plan) return refused(plan.error());
  print_plan_texts(*plan, options.policy.empty());
  const auto planned = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begun);
  Record record = launch(*plan, policy, *host, events);
  record.plan_time = planned;
  return record;
}

}  // namespace

int run_command(const PolicyOptions& options, const std::string& record_to, int status_fd) {
  const Clock::time_point begun = Clock::now();
  std::optional<policy::Policy> policy = options.resolve();
  if (!policy) return kBelljarFailed;
  const Result<Host> host = observe_host(*policy);
  // A reader that is gone must not end belljar, and with it the command. (The command itself gets
  // the default back.)
  if (!record_to.empty() || status_fd >= 0) signal(SIGPIPE, SIG_IGN);
  RecordSink sink;
  if (!sink.open(record_to)) return kBelljarFailed;
  if (status_fd >= 0 && fcntl(status_fd, F_GETFD) < 0) {
    std::fprintf(stderr, "belljar: --status-fd %d: is not an open descriptor\n", status_fd);
    return kBelljarFailed;
  }
  const Record record = run_planned(*policy, host, options, status_events(status_fd), begun);
  const std::string json = record_to.empty() && status_fd < 0 ? std::string() : record.json();
  sink.write(json);
  if (status_fd >= 0) write_line(status_fd, "{\"type\":\"record\",\"record\":" + json + "}");
  if (record.setup) std::fputs(failure_text(*record.setup).c_str(), stderr);
  say_why_it_ended(record, *policy);
  say_what_is_degraded(record);
  die_likewise(record);
  // Without destructors: freeing would write to every page that the clone left to be copied.
  std::fflush(nullptr);
  _exit(record.exit_status());
}

}  // namespace belljar::launcher
