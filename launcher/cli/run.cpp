#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "launcher/cli/options.hpp"
#include "launcher/failure.hpp"
#include "launcher/launch.hpp"
#include "launcher/sys/resolve.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::launcher {
namespace {

using Clock = std::chrono::steady_clock;

/// How long the end of belljar waits for a reader that does not read.
constexpr int kPatienceMs = 5000;

/// Whether something can be written without waiting, within `timeout_ms`.
bool is_ready(int fd, int timeout_ms) {
  pollfd ready{fd, POLLOUT, 0};
  return poll(&ready, 1, timeout_ms) == 1;
}

/// Writes a text, waiting `patience_ms` at most each time that the reader makes no room. False when
/// it was given up; a reader that is gone is not an error of the run.
bool write_text(int fd, std::string_view text, int patience_ms) {
  for (std::size_t done = 0; done < text.size();) {
    if (!is_ready(fd, patience_ms)) return false;
    // So much goes into a pipe with room at once (man 7 pipe).
    const std::size_t piece = std::min<std::size_t>(text.size() - done, PIPE_BUF);
    const ssize_t wrote = write(fd, text.data() + done, piece);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return true;
    done += static_cast<std::size_t>(wrote);
  }
  return true;
}

bool write_line(int fd, const std::string& line, int patience_ms) {
  return write_text(fd, line + '\n', patience_ms);
}

/// Tells a person, on standard error: which may be a pipe that nobody reads, and then must not keep
/// belljar from its end.
void tell(const std::string& text) { write_text(STDERR_FILENO, text, kPatienceMs); }

/// Where the record goes. A file is looked at before the launch, so that a run whose record could
/// not be written never starts, and made after it, when nothing of the sandbox is left: the
/// directory may be one that the command writes, and what it puts there under that name, file or
/// link, is replaced.
class RecordSink {
 public:
  /// False, after saying why, when it cannot be written.
  bool open(const std::string& where) {
    if (where.empty()) return true;
    where_ = where;
    return where.starts_with("fd:") ? open_descriptor(where) : open_directory(where);
  }

  /// False, after saying why, when it could not be.
  [[nodiscard]] bool write(const std::string& json) const {
    if (fd_ >= 0 && !write_line(fd_, json, kPatienceMs)) return complain("nobody reads it");
    return !directory_.valid() || write_file(json);
  }

 private:
  bool complain(const std::string& what) const {
    tell("belljar: --record " + where_ + ": " + what + "\n");
    return false;
  }

  bool open_descriptor(const std::string& where) {
    const auto [end, error] = std::from_chars(where.data() + 3, where.data() + where.size(), fd_);
    const bool number = error == std::errc() && end == where.data() + where.size();
    if (number && fcntl(fd_, F_GETFD) >= 0) return true;
    return complain("is not an open descriptor");
  }

  bool open_directory(const std::string& where) {
    const std::size_t slash = where.rfind('/');
    name_ = slash == std::string::npos ? where : where.substr(slash + 1);
    const std::string directory = slash == std::string::npos ? "."
                                  : slash == 0               ? "/"
                                                             : where.substr(0, slash);
    const long fd = sys::open_without_links(directory);
    if (fd == -ELOOP) return complain(directory + " leads through a link; name what it points to");
    if (fd < 0) return complain("cannot be made: " + describe(static_cast<int>(-fd)));
    directory_ = sys::UniqueFd(static_cast<int>(fd));
    struct stat about {};
    if (fstatat(directory_.get(), name_.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0 &&
        !S_ISREG(about.st_mode))
      return complain("is no regular file; for a pipe or a terminal write fd:N");
    if (faccessat(directory_.get(), ".", W_OK | X_OK, AT_EACCESS) != 0)
      return complain("cannot be made: " + describe(errno));
    return true;
  }

  [[nodiscard]] bool write_file(const std::string& json) const {
    const std::string fresh = "." + name_ + "." + std::to_string(getpid());
    unlinkat(directory_.get(), fresh.c_str(), 0);
    const sys::UniqueFd file(openat(directory_.get(), fresh.c_str(),
                                    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!file.valid()) return complain("cannot be made: " + describe(errno));
    write_line(file.get(), json, kPatienceMs);
    if (renameat(directory_.get(), fresh.c_str(), directory_.get(), name_.c_str()) == 0)
      return true;
    return complain("cannot be made: " + describe(errno));
  }

  static std::string describe(int error) {
    return std::string(strerrordesc_np(error)) + " (" + errno_name(error) + ")";
  }

  std::string where_;
  std::string name_;
  int fd_ = -1;
  sys::UniqueFd directory_;
};

/// A reader that does not read must not hold up signals and the wall time, so what does not fit
/// into its pipe while the command runs is dropped.
Events status_events(int fd) {
  if (fd < 0) return {};
  const auto say = [fd](const nlohmann::ordered_json& json) { write_line(fd, json.dump(), 0); };
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
    tell(
        "belljar: under builtin:dev@1: the current directory is writable, the rest of the host "
        "read-only, no network\n");
  for (const std::string& note : plan.notes) tell("belljar: note: " + note + "\n");
}

/// An exit status of 137, 153 or 159 tells nobody that a limit or the filter did it.
void say_why_it_ended(const Record& record, const policy::Policy& policy) {
  const char* what = nullptr;
  std::string path;
  if (record.cause == Cause::kWallTime)
    what = "was ended at its wall time", path = "limits.wall_time";
  if (record.cause == Cause::kCpuTime) {
    const auto& all = policy.limits.cpu_time;
    const bool together = all && record.usage.cpu && *record.usage.cpu >= *all;
    what = "was ended at its CPU time", path = together ? "limits.cpu_time" : "limits.rlimits.cpu";
  }
  if (record.cause == Cause::kFileSize)
    what = "was ended for writing a file beyond its size", path = "limits.rlimits.fsize";
  if (record.cause == Cause::kMemory)
    what = "was ended when it needed more memory than its limit", path = "limits.memory";
  if (record.cause == Cause::kOutput)
    what = "was ended for writing more output than it may", path = "limits.output";
  if (record.cause == Cause::kDisk) what = "held more on disk than it may", path = "limits.disk";
  if (record.cause == Cause::kProcesses)
    what = "failed after it was refused a process beyond its limit", path = "limits.processes";
  if (record.cause == Cause::kSyscall)
    what = "was killed by the system call filter (SIGSYS)", path = "syscalls";
  if (record.cause == Cause::kNetworkLost)
    what = "was ended when its network was lost", path = "network.mode";
  if (record.network_error) tell("belljar: " + *record.network_error + "\n");
  if (record.cause == Cause::kLost)
    std::fputs("belljar: the sandbox's first process ended without a word, and all of it with it\n",
               stderr);
  if (what != nullptr)
    tell(std::string("belljar: the command ") + what + ", " + origin_text(policy, path) + "\n");
}

/// What the policy preferred and this run did without: in the record always, and for a person too.
void say_what_is_degraded(const Record& record) {
  if (record.degraded.empty() || isatty(STDERR_FILENO) != 1) return;
  for (const Degraded& item : record.degraded)
    tell("belljar: note: degraded: " + item.control + ": " + item.what + "\n");
}

/// A shell loop around belljar must stop when the command died of a signal that asks for it.
void die_likewise(const Record& record) {
  const bool asked = record.signal && (*record.signal == SIGINT || *record.signal == SIGQUIT ||
                                       *record.signal == SIGTERM);
  if (!asked || record.cause == Cause::kWallTime) return;
  std::fflush(nullptr);
  // No core of belljar, whose memory holds the caller's environment, in a directory of the
  // command's.
  prctl(PR_SET_DUMPABLE, 0);
  signal(*record.signal, SIG_DFL);
  raise(*record.signal);
}

Record run_planned(const policy::Policy& policy, const Result<Host>& host,
                   const PolicyOptions& options, const ReportOptions& report, const Events& events,
                   Clock::time_point begun) {
  if (!host) return refused_record(policy, host.error());
  const Command command{options.command, options.directory, report.explain_denials};
  Result<Plan> plan = build_plan(policy, *host, command);
  if (!plan) return refused_record(policy, plan.error());
  print_plan_texts(*plan, options.policy.empty());
  const auto planned = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begun);
  Record record = launch_preferring(*plan, policy, *host, command, events);
  record.plan_time = planned;
  return record;
}

}  // namespace

int run_command(const PolicyOptions& options, const ReportOptions& report) {
  const std::string& record_to = report.record;
  const int status_fd = report.status_fd;
  const Clock::time_point begun = Clock::now();
  std::optional<policy::Policy> policy = options.resolve();
  if (!policy) return kBelljarFailed;
  const Result<Host> host = observe_host(*policy);
  // A reader that is gone must not end belljar, and with it the command. (The command itself gets
  // the default back.)
  if (!record_to.empty() || status_fd >= 0) signal(SIGPIPE, SIG_IGN);
  RecordSink sink;
  if (!sink.open(record_to)) return kBelljarFailed;
  for (int fd : policy->io.keep) {
    if (fd != status_fd && record_to != "fd:" + std::to_string(fd)) continue;
    std::fprintf(
        stderr,
        "belljar: io.keep: descriptor %d is where belljar reports, so the command cannot have it\n",
        fd);
    return kBelljarFailed;
  }
  if (status_fd >= 0 && fcntl(status_fd, F_GETFD) < 0) {
    std::fprintf(stderr, "belljar: --status-fd %d: is not an open descriptor\n", status_fd);
    return kBelljarFailed;
  }
  const Record record =
      run_planned(*policy, host, options, report, status_events(status_fd), begun);
  const std::string json = record_to.empty() && status_fd < 0 ? std::string() : record.json();
  const bool kept = sink.write(json);
  if (status_fd >= 0)
    write_line(status_fd, "{\"type\":\"record\",\"record\":" + json + "}", kPatienceMs);
  if (record.setup) tell(failure_text(*record.setup));
  say_why_it_ended(record, *policy);
  say_what_is_degraded(record);
  if (record.denials) std::fputs(denials_text(*record.denials).c_str(), stderr);
  die_likewise(record);
  // Without destructors: freeing would write to every page that the clone left to be copied.
  std::fflush(nullptr);
  _exit(kept ? record.exit_status() : kBelljarFailed);
}

}  // namespace belljar::launcher
