#include "launcher/trial.hpp"

#include <fcntl.h>
#include <linux/keyctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <sstream>

#include "launcher/controls/facts.hpp"
#include "launcher/failure.hpp"
#include "launcher/launch.hpp"
#include "launcher/sys/raw.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::launcher {
namespace {

using namespace std::chrono_literals;
using sys::UniqueFd;

/// Where belljar is shown, and the ground beside a workspace. No policy of anybody's has a use for
/// them.
constexpr const char* kInside = "/.belljar";
constexpr const char* kSecondWork = "/.belljar-workspace";

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

/// Output comes back, and what only the real caller holds is not asked for: descriptors, and places
/// to listen at, where a session may listen meanwhile.
void open_streams(policy::Policy& policy) {
  policy.network.publish.clear();
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
  // With the host's own root below it there is no place for a mount point of ours.
  const bool has_place = !policy.filesystem.mounts.contains("/");
  if (kind == TrialKind::kSession && policy.filesystem.workspace) {
    if (policy.filesystem.workspace->path == ".")
      policy.filesystem.workspace->path = ground.path();
    else
      trial.second_work_ = has_place ? kSecondWork : ground.path();
  }
  if (trial.second_work_) {
    policy::Mount shown;
    shown.source = ground.path();
    policy.filesystem.mounts[*trial.second_work_] = shown;
  }
  std::string source = own_program();
  const Result<Access> access = access_as(ids, host, source, R_OK | X_OK);
  if (!access || *access == Access::kNone) source = BELLJAR_TRY(ground.copy_of_belljar());
  trial.program_ = has_place ? kInside : source;
  if (has_place) {
    policy::Mount shown;
    shown.source = source;
    shown.readonly = true;
    policy.filesystem.mounts[kInside] = shown;
  }
  trial.policy_ = std::move(policy);
  // Looked at with the streams that a trial has.
  const Streams streams;
  trial.host_ = observe_host(trial.policy_);
  trial.find_out_about_network();
  return trial;
}

/// What a policy only prefers is promised where this host has it.
void TrialPolicy::find_out_about_network() {
  const policy::Network& network = policy_.network;
  if (!host_ || network.mode != policy::NetworkMode::kPrivate ||
      network.enforce != policy::Enforce::kPrefer)
    return;
  const Trial first = launch_belljar({"--version"});
  for (const Degraded& item : first.record.degraded)
    if (item.control == kNetwork.name) host_->no_private_network = item.what;
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
  for (Step& step : plan->steps)
    if (auto* attach = std::get_if<AttachNetwork>(&step.action); attach != nullptr && adjust_)
      adjust_(*attach);
  Streams streams;
  if (!streams.good()) {
    trial.record.cause = Cause::kSetup;
    trial.record.setup = describe_refusal(
        {ErrorKind::kSystem, streams.error(), "make pipes for the probes", {}, {}}, policy_);
    trial.begun = false;
    return trial;
  }
  // Not marked to be closed at exec, for the control that closes all.
  const UniqueFd lure(dup(0));
  Events events;
  events.armed = [&trial](const Watched& watched) { trial.watched = watched; };
  trial.record = launch_preferring(*plan, policy_, *host_, {words, {}}, events);
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

std::string ProbeAnswer::text() const {
  if (!is_fact) return attempt + ": worked";
  return attempt + ": " + seen;
}

namespace {

/// A listener on an abstract socket of a name that nobody can have taken; empty when there is none.
std::string listen_somewhere(const UniqueFd& socket) {
  std::array<unsigned char, 8> random{};
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) return {};
  std::ostringstream name;
  name << "belljar-probe-" << std::hex;
  for (const unsigned byte : random) name << byte;
  const std::string text = name.str();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, text.data(), text.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  const bool listens = socket.valid() &&
                       bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
                       listen(socket.get(), 1) == 0;
  return listens ? text : std::string();
}

/// Runs the probes, once more for those behind one that the filter killed.
class ControlsTrial {
 public:
  explicit ControlsTrial(const TrialPolicy& policy)
      : policy_(policy), listener_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    lures_.abstract_socket = listen_somewhere(listener_);
    // For the rest of this process's life: it launches nothing but trials.
    if (const long serial = sys::raw(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr); serial > 0)
      lures_.keyring = static_cast<std::int32_t>(serial);
    if (const int room = room_for_landlock_domains(); room >= 0) lures_.landlock_domains = room;
    lures_.second_work = policy.second_work();
  }

  ControlsReport run() {
    const Result<Plan> plan = policy_.plan();
    if (!plan) {
      const Trial refused = policy_.launch_belljar({"probe"});
      fail_with(*refused.record.setup, refused.begun);
      return std::move(report_);
    }
    const Result<SessionIds> ids = session_ids(policy_.policy().identity, *policy_.host());
    if (!ids) {
      fail_with(describe_refusal(ids.error(), policy_.policy()), /*begun=*/true);
      return std::move(report_);
    }
    const Made made{policy_.policy(), *policy_.host(), *plan, *ids, lures_};
    // A door that stands open is gone through: what is looked at comes first.
    for (const Control* control : controls())
      for (const Fact& fact : control->facts) list(*control, fact, made);
    for (const Control* control : controls())
      for (const Probe& probe : control->probes) list(*control, probe, made);
    while (next_ < report_.probes.size() && report_.holds()) launch_the_rest();
    report_.degraded = degraded_;
    for (const ProbeAnswer& answer : report_.probes) {
      if (answer.broken()) report_.missing.push_back(broken(answer));
      if (answer.unknown()) report_.unknown.push_back(not_seen(answer));
    }
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

  void list(const Control& control, const Fact& fact, const Made& made) {
    for (Fact::Expected& expected : fact.expected(made)) {
      ProbeAnswer answer;
      answer.control = control.name;
      answer.name = fact.name;
      answer.attempt = fact.fault;
      answer.value = std::move(expected.value);
      if (!expected.because.empty())
        answer.promised = origin_text(policy_.policy(), expected.because);
      answer.is_fact = true;
      answer.may_be_unseen = expected.may_be_unseen;
      report_.probes.push_back(std::move(answer));
    }
  }

  void launch_the_rest() {
    std::vector<std::string> words = {"probe"};
    for (std::size_t i = next_; i < report_.probes.size(); ++i) {
      const ProbeAnswer& answer = report_.probes[i];
      words.push_back(answer.name + (answer.is_fact ? "=" + answer.value : ""));
    }
    const Trial trial = policy_.launch_belljar(words);
    report_.back_end = trial.record.back_end == BackEnd::kModern ? "modern" : "legacy";
    degraded_ = trial.record.degraded;
    if (trial.record.setup) return fail_with(*trial.record.setup, trial.begun);
    take_answers(trial.output);
    check_watched(trial.watched);
    if (next_ == report_.probes.size()) return;
    // Only what was being tried can be what the filter killed. Belljar itself needs calls too, and
    // of one that dies before it tries anything nothing is known.
    if (trial.record.cause != Cause::kSyscall || !trying_) return ended_early(trial.record);
    ProbeAnswer& killed = report_.probes[next_++];
    killed.verdict = killed.is_fact ? kUnseen : "SIGSYS";
    if (killed.is_fact) killed.seen = "the filter kills who looks (SIGSYS)";
  }

  /// A line is "NAME trying", and then "NAME VERDICT" or "NAME VERDICT WHAT WAS SEEN", in the order
  /// of the table.
  void take_answers(const std::string& output) {
    trying_ = false;
    std::istringstream lines(output);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string name, verdict;
      if (!(words >> name >> verdict) || next_ == report_.probes.size() ||
          name != report_.probes[next_].name)
        continue;
      trying_ = verdict == kTrying;
      if (trying_) continue;
      ProbeAnswer& answer = report_.probes[next_++];
      answer.verdict = verdict;
      std::getline(words >> std::ws, answer.seen);
    }
  }

  /// What belljar does outside has nothing to be seen inside.
  void check_watched(const Watched& watched) {
    const policy::Limits& limits = policy_.policy().limits;
    const auto check = [this](bool is_so, const char* control, const char* limit) {
      if (is_so) return;
      report_.missing.push_back({control, std::string(limit) + " is not watched over",
                                 origin_text(policy_.policy(), limit), kNeverHappens});
    };
    check(watched.wall_time == limits.wall_time, "time_limits", "limits.wall_time");
    check(watched.cpu_time == limits.cpu_time, "time_limits", "limits.cpu_time");
    check(watched.output == limits.output, "output", "limits.output");
    check(watched.disk == limits.disk, "disk", "limits.disk");
    const bool does_without =
        std::any_of(degraded_.begin(), degraded_.end(),
                    [](const Degraded& d) { return d.control == kCgroup.name; });
    if (does_without) return;
    const std::pair<const char*, bool> kept[] = {{"memory", limits.memory.has_value()},
                                                 {"swap", limits.swap.has_value()},
                                                 {"processes", limits.processes.has_value()},
                                                 {"cpus", limits.cpus.has_value()}};
    for (const auto& [name, wanted] : kept)
      check(!wanted || std::find(watched.cgroup.begin(), watched.cgroup.end(), name) !=
                           watched.cgroup.end(),
            "cgroup", (std::string("limits.") + name).c_str());
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

  static NotInForce broken(const ProbeAnswer& answer) {
    return {answer.control, answer.text() + (answer.is_fact ? "" : ", and must be refused"),
            answer.promised, kNeverHappens, /*by_probe=*/true};
  }

  static NotInForce not_seen(const ProbeAnswer& answer) {
    return {answer.control, "it could not be found out whether " + answer.text(), answer.promised,
            "the policy keeps the probe itself from looking: allow what it names for a trial",
            /*by_probe=*/true};
  }

  static constexpr const char* kNeverHappens =
      "this must never happen: please report it with the output of `belljar explain`";

  const TrialPolicy& policy_;
  UniqueFd listener_;
  Lures lures_;
  ControlsReport report_;
  std::vector<Degraded> degraded_;
  std::size_t next_ = 0;
  bool trying_ = false;  ///< The probe `next_` had begun when the answers ended.
};

}  // namespace

ControlsReport try_controls(const TrialPolicy& policy) { return ControlsTrial(policy).run(); }

}  // namespace belljar::launcher
