#include "launcher/trial.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <sstream>

#include "launcher/failure.hpp"
#include "launcher/launch.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::launcher {
namespace {

using namespace std::chrono_literals;
using sys::UniqueFd;

/// Where belljar is shown. No policy of anybody's has a use for it.
constexpr const char* kInside = "/.belljar";

/// Reads what is written into a pipe for as long as anybody can write into it, and keeps the
/// beginning: a command that says much must neither wait for belljar nor fill its memory. A process
/// of its own, because belljar waits for the command meanwhile. It ends with the last writer.
class Drain {
 public:
  /// The end to write into; invalid when there is none.
  [[nodiscard]] UniqueFd begin() {
    std::array<int, 2> ends{};
    kept_ = UniqueFd(memfd_create("belljar-output", MFD_CLOEXEC));
    if (!kept_.valid() || pipe2(ends.data(), O_CLOEXEC) != 0) return {};
    const UniqueFd from(ends[0]);
    UniqueFd into(ends[1]);
    reader_ = fork();
    if (reader_ < 0) return {};
    if (reader_ == 0) {
      into.reset();
      _exit(keep_beginning(from.get()));
    }
    return into;
  }

  /// Waits until nobody writes any more. The beginning of all that was written.
  std::string finish() {
    if (reader_ <= 0) return {};
    while (waitpid(reader_, nullptr, 0) < 0 && errno == EINTR) {
    }
    reader_ = 0;
    const off_t size = lseek(kept_.get(), 0, SEEK_END);
    std::string text(size < 0 ? 0 : static_cast<std::size_t>(size), '\0');
    const ssize_t got = pread(kept_.get(), text.data(), text.size(), 0);
    text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return text;
  }

 private:
  static constexpr std::size_t kMost = 4 << 20;

  [[nodiscard]] int keep_beginning(int from) const {
    std::array<char, 16384> piece{};
    std::size_t room = kMost;
    for (;;) {
      const ssize_t got = read(from, piece.data(), piece.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return 0;
      const std::size_t part = std::min(room, static_cast<std::size_t>(got));
      if (part > 0 && write(kept_.get(), piece.data(), part) < 0) return 1;
      room -= part;
    }
  }

  UniqueFd kept_;
  pid_t reader_ = 0;
};

/// While it lives, 0 reads nothing and 1 and 2 are kept.
class Streams {
 public:
  Streams() {
    for (std::size_t i = 0; i < saved_.size(); ++i)
      saved_[i] = UniqueFd(fcntl(static_cast<int>(i), F_DUPFD_CLOEXEC, 3));
    const UniqueFd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
    const UniqueFd into = drain_.begin();
    const bool good = nothing.valid() && into.valid() && dup2(nothing.get(), 0) == 0 &&
                      dup2(into.get(), 1) == 1 && dup2(into.get(), 2) == 2;
    error_ = good ? 0 : errno;
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  ~Streams() { restore(); }

  [[nodiscard]] bool good() const { return error_ == 0; }
  [[nodiscard]] int error() const { return error_; }

  /// Puts the streams back; the beginning of what was written.
  std::string restore() {
    for (std::size_t i = 0; i < saved_.size(); ++i)
      if (saved_[i].valid()) dup2(saved_[i].get(), static_cast<int>(i));
    return drain_.finish();
  }

 private:
  std::array<UniqueFd, 3> saved_;
  Drain drain_;
  int error_ = 0;
};

std::string own_program() {
  std::array<char, PATH_MAX> path{};
  const ssize_t got = readlink("/proc/self/exe", path.data(), path.size() - 1);
  return got <= 0 ? std::string() : std::string(path.data(), static_cast<std::size_t>(got));
}

/// Output comes back, and descriptors that only the real caller holds are not asked for.
void open_streams(policy::Policy& policy) {
  policy.io.standard_output = policy.io.standard_error = policy::Stdio::kInherit;
  policy.io.keep.clear();
}

/// For the probes themselves.
void make_room(policy::Policy& policy) {
  constexpr std::uint64_t kRoom = 64 << 10;
  if (policy.limits.output) policy.limits.output = std::max(*policy.limits.output, kRoom);
  if (policy.limits.wall_time)
    policy.limits.wall_time = std::max<std::chrono::milliseconds>(*policy.limits.wall_time, 10s);
}

/// The section of a policy path as the name of a control.
std::string control_of(const std::string& where) {
  const std::string section = where.substr(0, where.find_first_of(".["));
  if (where.starts_with("limits.rlimits")) return "rlimits";
  if (section == "syscalls") return "seccomp";
  if (section == "limits") return "cgroup";
  if (section == "env") return "environment";
  if (section == "io") return "stdio";
  return section.empty() ? "host" : section;
}

}  // namespace

std::string NotInForce::text() const {
  std::string line = control + ": " + what;
  if (!policy.empty()) line += " (asked for by " + policy + ")";
  if (!remedy.empty()) line += "; remedy: " + remedy;
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

Result<TrialPolicy> TrialPolicy::make(policy::Policy policy, const SessionIds& ids,
                                      const Host& host, TestGround& ground, TrialKind kind) {
  TrialPolicy trial;
  open_streams(policy);
  if (kind != TrialKind::kWhole) make_room(policy);
  if (kind == TrialKind::kSession && policy.filesystem.workspace &&
      policy.filesystem.workspace->path == ".")
    policy.filesystem.workspace->path = ground.path();
  std::string source = own_program();
  const Result<Access> access = access_as(ids, host, source, R_OK | X_OK);
  if (!access || *access == Access::kNone) source = BELLJAR_TRY(ground.copy_of_belljar());
  // With the host's own root below it there is no place for a mount point of ours.
  const auto root = policy.filesystem.mounts.find("/");
  trial.program_ = root == policy.filesystem.mounts.end() ? kInside : source;
  if (root == policy.filesystem.mounts.end()) {
    policy::Mount shown;
    shown.source = source;
    shown.readonly = true;
    policy.filesystem.mounts[kInside] = shown;
  }
  trial.policy_ = std::move(policy);
  // Looked at with the streams that a trial has.
  const Streams streams;
  trial.host_ = observe_host(trial.policy_);
  return trial;
}

Result<Plan> TrialPolicy::plan() const {
  if (!host_) return fail(host_.error());
  return build_plan(policy_, *host_, {{program_, "probe"}, {}});
}

Trial TrialPolicy::launch_belljar(std::vector<std::string> words) const {
  words.insert(words.begin(), program_);
  return launch(words);
}

Trial TrialPolicy::launch(const std::vector<std::string>& words) const {
  Trial trial;
  Result<Plan> plan =
      host_ ? build_plan(policy_, *host_, {words, {}}) : Result<Plan>(fail(host_.error()));
  if (!plan) {
    trial.record.cause = Cause::kSetup;
    trial.record.setup = describe_refusal(plan.error(), policy_);
    trial.record.setup->control = control_of(plan.error().where);
    return trial;
  }
  Streams streams;
  if (!streams.good()) {
    trial.record.cause = Cause::kSetup;
    trial.record.setup = describe_refusal(
        {ErrorKind::kSystem, streams.error(), "make pipes for the probes", {}, {}}, policy_);
    trial.begun = false;
    return trial;
  }
  Events events;
  events.armed = [&trial](auto time) { trial.time_given = time; };
  trial.record = launcher::launch(*plan, policy_, *host_, events);
  trial.output = streams.restore();
  return trial;
}

NotInForce not_in_force(const SetupFailure& failure) {
  NotInForce missing;
  missing.control = failure.control.empty() ? "host" : failure.control;
  missing.what = failure.reason;
  if (!failure.error.empty()) missing.what += " (" + failure.error + ")";
  if (!failure.step.empty()) missing.what += " at " + failure.step;
  missing.policy = failure.policy;
  missing.remedy = failure.remedy;
  return missing;
}

namespace {

/// Runs the probes, once more for those behind one that the filter killed.
class ControlsTrial {
 public:
  explicit ControlsTrial(const TrialPolicy& policy) : policy_(policy) {}

  ControlsReport run() {
    const Result<Plan> plan = policy_.plan();
    if (!plan) {
      const Trial refused = policy_.launch_belljar({"probe"});
      fail_with(*refused.record.setup, refused.begun);
      return std::move(report_);
    }
    const Made made{policy_.policy(), *policy_.host(), *plan};
    for (const Control* control : controls())
      for (const Probe& probe : control->probes) list(*control, probe, made);
    while (next_ < report_.probes.size() && report_.holds()) launch_the_rest();
    report_.degraded = degraded_;
    for (const ProbeAnswer& answer : report_.probes)
      if (answer.broken()) report_.missing.push_back(open_door(answer));
    return std::move(report_);
  }

 private:
  void list(const Control& control, const Probe& probe, const Made& made) {
    ProbeAnswer answer;
    answer.control = control.name;
    answer.name = probe.name;
    answer.attempt = probe.attempt;
    if (const char* path = probe.promised(made))
      answer.promised = origin_text(policy_.policy(), path);
    report_.probes.push_back(std::move(answer));
  }

  void launch_the_rest() {
    std::vector<std::string> words = {"probe"};
    for (std::size_t i = next_; i < report_.probes.size(); ++i)
      words.push_back(report_.probes[i].name);
    const Trial trial = policy_.launch_belljar(words);
    report_.back_end = trial.record.back_end == BackEnd::kModern ? "modern" : "legacy";
    degraded_ = trial.record.degraded;
    if (trial.record.setup) return fail_with(*trial.record.setup, trial.begun);
    take_answers(trial.output);
    check_time(trial);
    if (next_ == report_.probes.size()) return;
    // Only what was being tried can be what the filter killed. Belljar itself needs calls too, and
    // of one that dies before it tries anything nothing is known.
    if (trial.record.cause != Cause::kSyscall || !trying_) return ended_early(trial.record);
    report_.probes[next_++].verdict = "SIGSYS";
  }

  /// A line is "NAME trying", and then "NAME VERDICT", in the order of the table.
  void take_answers(const std::string& output) {
    trying_ = false;
    std::istringstream lines(output);
    for (std::string name, verdict; lines >> name >> verdict;) {
      if (next_ == report_.probes.size() || name != report_.probes[next_].name) continue;
      trying_ = verdict == kTrying;
      if (!trying_) report_.probes[next_++].verdict = verdict;
    }
  }

  void check_time(const Trial& trial) {
    if (trial.time_given == policy_.policy().limits.wall_time) return;
    report_.missing.push_back({"time_limits", "the command is not given the policy's time",
                               origin_text(policy_.policy(), "limits.wall_time"),
                               "this must never happen: please report it"});
  }

  void fail_with(const SetupFailure& failure, bool begun) {
    report_.back_end.clear();
    (begun ? report_.missing : report_.unknown).push_back(not_in_force(failure));
  }

  void ended_early(const Record& record) {
    NotInForce missing{
        "command", "it could not be found out: the probes did not come to their end", {}, {}};
    missing.what += std::string(": ") + cause_name(record.cause);
    missing.what += " at " + report_.probes[next_].name;
    if (record.exit_code) missing.what += ", exit code " + std::to_string(*record.exit_code);
    if (record.signal) missing.what += ", " + signal_name(*record.signal);
    missing.remedy =
        "belljar itself must be able to run under the policy: look at its limits and filter";
    report_.unknown.push_back(std::move(missing));
  }

  static NotInForce open_door(const ProbeAnswer& answer) {
    return {answer.control, answer.attempt + ": worked, and must be refused", answer.promised,
            "this must never happen: please report it with the output of `belljar explain`"};
  }

  const TrialPolicy& policy_;
  ControlsReport report_;
  std::vector<Degraded> degraded_;
  std::size_t next_ = 0;
  bool trying_ = false;  ///< The probe `next_` had begun when the answers ended.
};

}  // namespace

ControlsReport try_controls(const TrialPolicy& policy) { return ControlsTrial(policy).run(); }

}  // namespace belljar::launcher
