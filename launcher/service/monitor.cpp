#include "launcher/service/monitor.hpp"

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "launcher/compile.hpp"
#include "launcher/failure.hpp"
#include "launcher/launch.hpp"
#include "launcher/process_tree.hpp"
#include "launcher/service/further_command.hpp"
#include "launcher/service/session_channel.hpp"
#include "launcher/sys/proc.hpp"
#include "launcher/sys/raw.hpp"

namespace belljar::service {
namespace {

using launcher::Attendant;
using launcher::BackEnd;
using launcher::Cause;
using launcher::Ending;
using launcher::Heard;
using launcher::Message;
using launcher::MessageKind;
using launcher::Record;
using launcher::SetupFailure;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using sys::UniqueFd;
using Clock = Attendant::Clock;
using Json = nlohmann::ordered_json;

constexpr milliseconds kSendAgain{20};

/// A command's keeper that has not told its end so long after it was killed is killed itself.
constexpr milliseconds kKeepersTime{500};

/// A command that has not passed exec by then, from a dead network file system, is given up.
constexpr std::chrono::seconds kStartDeadline{60};

/// A sandbox may idle for hours: what planning and requests have left of the heap goes back then.
constexpr std::chrono::seconds kTidyAfter{1};

/// Numbers of kConnect are told from those of processes by this bit.
constexpr std::uint32_t kConnection = 0x80000000;

/// A further command, from the request until nothing of it is left.
struct Process {
  std::uint64_t request = 0;  ///< Who waits for its start; 0: it has been answered.
  launcher::Plan plan;        ///< Until it has started: what a failure is told with.
  pid_t pid = 0;              ///< Inside.
  pid_t keeper = 0;           ///< On the host.
  UniqueFd keeper_handle;
  UniqueFd terminal;  ///< The master, until the client has it.
  UniqueFd terminal_kept;
  std::optional<milliseconds> wall_time;
  std::optional<Clock::time_point> deadline;         ///< Of its wall time.
  std::optional<Clock::time_point> keeper_deadline;  ///< It was killed.
  std::optional<Cause> wanted;                       ///< Why it was killed.
  Clock::time_point begun = Clock::now();
  /// How it ended, where it was killed: told when nothing of its tree is left.
  std::optional<Record> untold;
  bool filtered = false;  ///< A system call filter is among its steps.
  bool ended = false;     ///< Only what it has left behind runs.
};

class Monitor final : public Attendant {
 public:
  Monitor(const SessionOrder& order, const launcher::Host& host, UniqueFd socket)
      : channel_(std::move(socket)), further_(order.policy, host) {
    stands_by_ = order.command.stands_by;
  }

  void begin(const launcher::RunningSandbox& sandbox) override {
    sandbox_ = sandbox;
    channel_.started({sandbox.init, launcher::back_end_name(sandbox.back_end), sandbox.degraded,
                      further_.policy().digest, further_.policy().limits,
                      further_.fixed_variables(), plan_time, sandbox.setup_time});
    tidy_at_ = Clock::now() + kTidyAfter;
  }

  [[nodiscard]] int descriptor() const override { return channel_.descriptor(); }

  void serve() override {
    tidy_at_ = Clock::now() + kTidyAfter;
    channel_.serve([this](std::uint64_t id, const auto& demand, Descriptors& beside) {
      act(id, demand, beside);
      return !ending_;
    });
  }

  void hear(Heard heard) override {
    const std::uint32_t number = heard.message.process;
    if ((number & kConnection) != 0) return hear_of_connection(std::move(heard));
    const auto found = processes_.find(number);
    if (found == processes_.end()) return;
    Process& process = found->second;
    switch (heard.message.kind) {
      case MessageKind::kTerminal:
        process.terminal = std::move(heard.beside[0]);
        return;
      case MessageKind::kHelper:
        process.keeper = heard.sender;
        process.keeper_handle =
            UniqueFd(static_cast<int>(sys::raw(SYS_pidfd_open, heard.sender, 0U)));
        if (process.wanted) kill_tree(process, *process.wanted);
        return;
      case MessageKind::kExecuted:
        return executed(process, heard);
      case MessageKind::kFailed:
        return failed(found, heard.message);
      case MessageKind::kStopped:
      case MessageKind::kContinued:
        return tell(heard.message.kind == MessageKind::kStopped ? "stopped" : "continued", number);
      case MessageKind::kEnded:
        return ended(number, process, heard.message);
      case MessageKind::kKeeperEnded:
        // One that ends well has nothing left to keep.
        orphans_ |= heard.message.status != 0;
        if (process.untold)
          tell_end(number, *process.untold);
        else if (!process.ended)
          lost(number, process);
        processes_.erase(found);
        return;
      case MessageKind::kStarted:
      case MessageKind::kWaits:
      case MessageKind::kListener:
      case MessageKind::kNeedMaps:
      case MessageKind::kNeedTime:
      case MessageKind::kWhoseLink:
      case MessageKind::kHandedOver:
      case MessageKind::kNetworkUp:
      case MessageKind::kConnected:
      case MessageKind::kGo:
      case MessageKind::kSignal:
      case MessageKind::kExec:
      case MessageKind::kConnect:
        return;
    }
  }

  [[nodiscard]] std::optional<Clock::time_point> next() const override {
    std::optional<Clock::time_point> first;
    const auto sooner = [&first](const std::optional<Clock::time_point>& time) {
      if (time) first = first ? std::min(*first, *time) : *time;
    };
    for (const auto& [number, process] : processes_) {
      if (!process.ended) sooner(process.deadline);
      sooner(process.keeper_deadline);
    }
    sooner(tidy_at_);
    if (orphans_) sooner(Clock::now());
    if (channel_.waits()) sooner(Clock::now() + kSendAgain);
    return first;
  }

  void work() override {
    channel_.flush();
    clean_up();
    const Clock::time_point now = Clock::now();
    if (tidy_at_ && now >= *tidy_at_) {
      tidy_at_.reset();
      malloc_trim(0);
    }
    for (auto& [number, process] : processes_) {
      if (!process.ended && process.deadline && now >= *process.deadline)
        kill_tree(process, Cause::kWallTime);
      if (process.keeper_deadline && now >= *process.keeper_deadline) {
        process.keeper_deadline.reset();
        sys::raw(SYS_pidfd_send_signal, process.keeper_handle.get(), SIGKILL, nullptr, 0U);
        // Something of it does not die at once, and whoever waits is not made to wait for that.
        if (const auto record = std::exchange(process.untold, std::nullopt))
          tell_end(number, *record);
      }
    }
  }

  [[nodiscard]] std::optional<Ending> ending() const override {
    if (!ending_ && channel_.lost()) return Ending{Cause::kKilled, "owner_gone"};
    return ending_;
  }

  /// Of a process that a key or a signal has stopped, or that goes on.
  void tell(const char* event, std::uint32_t process) { channel_.told(event, process); }

  void over(const Record& record) {
    for (const auto& [number, process] : processes_)
      if (process.untold) tell_end(number, *process.untold);
    channel_.over(record);
  }

  microseconds plan_time{0};

 private:
  using Processes = std::map<std::uint32_t, Process>;

  void answer(std::uint64_t id, const Json& ok, Descriptors beside = {}) {
    channel_.answer(id, ok, std::move(beside));
  }
  void decline(std::uint64_t id, const Fault& fault) { channel_.decline(id, fault); }

  void end(Cause cause, const char* by) {
    if (!ending_) ending_ = Ending{cause, by};
  }

  // --- what it asks for ------------------------------------------------------------------------

  void act(std::uint64_t id, const Exec& exec, Descriptors& streams) {
    if (const auto wrong = check_exec(exec, last_process_, streams)) return decline(id, *wrong);
    launcher::FurtherCommand further;
    further.command.argv = exec.argv;
    further.command.directory = exec.directory;
    further.environment = exec.environment;
    further.terminal = exec.terminal;
    Result<launcher::Plan> plan = further_.plan(further);
    if (!plan)
      return channel_.not_started(id, launcher::further_refusal(plan.error(), further_.policy()),
                                  125);
    if (const int error = order(exec.process, *plan, streams); error != 0)
      return decline(id, {error == EAGAIN ? Code::kBusy : Code::kSystem,
                          "could not ask init for the command", error});
    last_process_ = exec.process;
    Process& process = processes_[exec.process];
    process.request = id;
    process.filtered = std::any_of(plan->steps.begin(), plan->steps.end(), [](const auto& step) {
      return std::holds_alternative<launcher::InstallFilter>(step.action);
    });
    process.plan = *std::move(plan);
    process.deadline = Clock::now() + kStartDeadline;
    process.wall_time = wall_time_of(exec, further_.policy().limits, stands_by_);
  }

  /// 0, or the errno.
  int order(std::uint32_t number, const launcher::Plan& plan, const Descriptors& streams) {
    launcher::Surroundings surroundings;
    surroundings.back_end = sandbox_.back_end;
    const std::vector<std::byte> image = launcher::compile(plan, surroundings);
    const UniqueFd file(memfd_create("command", MFD_CLOEXEC));
    if (!file.valid()) return errno;
    const ssize_t wrote = write(file.get(), image.data(), image.size());
    if (wrote < 0 || static_cast<std::size_t>(wrote) != image.size())
      return wrote < 0 ? errno : EIO;
    Message message;
    message.kind = MessageKind::kExec;
    message.process = number;
    std::vector<int> beside = {file.get(), sys::proc_directory()};
    for (const UniqueFd& stream : streams) beside.push_back(stream.get());
    return tell_init(message, beside);
  }

  int tell_init(const Message& message, std::span<const int> beside) {
    return send_message(sandbox_.control, {reinterpret_cast<const char*>(&message), sizeof message},
                        beside);
  }

  void act(std::uint64_t id, const Signal& signal, Descriptors&) {
    Message message;
    message.kind = MessageKind::kSignal;
    message.status = signal.number;
    message.error = signal.to == Signal::To::kLeader ? 1 : 0;
    if (signal.process == 0) {
      if (stands_by_)
        return decline(id, {Code::kNotFound, "the sandbox has no command of its own"});
      return signalled(id, tell_init(message, {}));
    }
    const auto found = processes_.find(signal.process);
    if (found == processes_.end() || found->second.ended || found->second.pid == 0)
      return answer(id, found == processes_.end() || found->second.ended
                            ? Json{{"gone", true}}
                            : Json{{"gone", false}, {"starting", true}});
    if (signal.to == Signal::To::kTree) {
      launcher::signal_descendants(found->second.keeper, signal.number);
      return answer(id, Json{{"gone", false}});
    }
    message.pid = found->second.pid;
    signalled(id, tell_init(message, {}));
  }

  void signalled(std::uint64_t id, int error) {
    if (error != 0)
      return decline(id, {error == EAGAIN ? Code::kBusy : Code::kSystem,
                          "could not ask init to send the signal", error});
    answer(id, Json{{"gone", false}});
  }

  void act(std::uint64_t id, const End& end, Descriptors&) {
    if (end.process == 0) {
      if (stands_by_)
        return decline(id, {Code::kNotFound, "the sandbox has no command of its own"});
      answer(id, Json{{"gone", false}});
      return end_all(end.output);
    }
    const auto found = processes_.find(end.process);
    const bool gone = found == processes_.end();
    if (!gone) kill_tree(found->second, end.output ? Cause::kOutput : Cause::kKilled);
    answer(id, Json{{"gone", gone || found->second.ended}});
  }

  void end_all(bool for_output) {
    end(for_output ? Cause::kOutput : Cause::kKilled, for_output ? nullptr : "client");
  }

  void act(std::uint64_t id, const Resize& resize, Descriptors&) {
    int terminal = -1;
    if (resize.process == 0 && sandbox_.terminal) terminal = sandbox_.terminal();
    const auto found = processes_.find(resize.process);
    if (found != processes_.end()) terminal = found->second.terminal_kept.get();
    if (terminal < 0) return decline(id, {Code::kNotFound, "that process has no terminal"});
    if (!sys::set_terminal_size(terminal, resize.size))
      return decline(id, {Code::kSystem, "could not set the size of the terminal", errno});
    answer(id, Json::object());
  }

  void act(std::uint64_t id, const Connect& connect, Descriptors&) {
    Message message;
    message.kind = MessageKind::kConnect;
    message.process = kConnection | (++last_connection_ & ~kConnection);
    message.status = connect.port;
    std::memcpy(message.subject, connect.path.data(), connect.path.size());
    if (const int error = tell_init(message, {}); error != 0)
      return decline(id, {error == EAGAIN ? Code::kBusy : Code::kSystem,
                          "could not ask init for the connection", error});
    connections_[message.process] = id;
  }

  void act(std::uint64_t id, const Kill& kill, Descriptors&) {
    answer(id, Json::object());
    end(Cause::kKilled, kill.by);
  }

  // --- what init and keepers say ---------------------------------------------------------------

  void hear_of_connection(Heard heard) {
    const auto found = connections_.find(heard.message.process);
    if (found == connections_.end()) return;
    const std::uint64_t id = found->second;
    connections_.erase(found);
    if (heard.message.kind == MessageKind::kConnected && heard.beside[0].valid()) {
      Descriptors beside;
      beside.push_back(std::move(heard.beside[0]));
      return answer(id, Json::object(), std::move(beside));
    }
    const Outcome<void> outcome = call_failed(heard.message.error, "connect inside the sandbox");
    decline(id, outcome.error());
  }

  void executed(Process& process, Heard& heard) {
    process.pid = heard.message.pid;
    process.plan = {};
    process.begun = Clock::now();
    process.deadline.reset();
    if (process.wall_time) process.deadline = process.begun + *process.wall_time;
    Descriptors beside;
    if (process.terminal.valid()) {
      process.terminal_kept = UniqueFd(fcntl(process.terminal.get(), F_DUPFD_CLOEXEC, 3));
      beside.push_back(std::move(process.terminal));
    }
    answer(std::exchange(process.request, 0), Json{{"pid", process.pid}}, std::move(beside));
    if (process.wanted) kill_tree(process, *process.wanted);
  }

  void failed(Processes::iterator found, const Message& message) {
    Process& process = found->second;
    const bool known = message.step < static_cast<std::int32_t>(process.plan.steps.size()) &&
                       launcher::makes_sense(message, process.plan);
    SetupFailure failure;
    failure.reason = "the command could not be started in the sandbox";
    int exit_code = 125;
    if (known && message.step >= 0) {
      failure =
          launcher::describe_failure(process.plan, further_.policy(), further_.host(), message);
      exit_code = launcher::exit_code_of(process.plan, message);
    } else if (message.error > 0) {
      failure.error = launcher::errno_name(message.error);
    }
    if (process.request != 0) channel_.not_started(process.request, failure, exit_code);
    process.request = 0;
    process.ended = true;
  }

  void ended(std::uint32_t number, Process& process, const Message& message) {
    Record record = record_of(process);
    note_end(record,
             {message.status, microseconds(message.user_us), microseconds(message.system_us),
              message.max_rss_kib},
             further_.policy().limits, process.filtered);
    note_ended(process, record);
    if (process.wanted && process.keeper_deadline)
      process.untold = std::move(record);
    else
      tell_end(number, record);
  }

  /// Its keeper was killed, by the command or by us, before it could tell.
  void lost(std::uint32_t number, Process& process) {
    Record record = record_of(process);
    record.cause = Cause::kLost;
    record.exit_code = 125;
    if (process.wanted) record.signal = SIGKILL;
    if (process.request != 0) {
      SetupFailure failure;
      failure.reason =
          "the command's keeper ended before it could tell that the command had started";
      channel_.not_started(std::exchange(process.request, 0), failure, 125);
      return;
    }
    note_ended(process, record);
    tell_end(number, record);
  }

  [[nodiscard]] Record record_of(const Process& process) const {
    Record record;
    record.back_end = sandbox_.back_end;
    record.policy_name = further_.policy().name;
    record.policy_digest = further_.policy().digest;
    record.degraded = sandbox_.degraded;
    record.usage.wall = std::chrono::duration_cast<microseconds>(Clock::now() - process.begun);
    return record;
  }

  static void note_ended(Process& process, Record& record) {
    process.ended = true;
    process.deadline.reset();
    note_wanted(record, process.wanted);
  }

  void tell_end(std::uint32_t number, const Record& record) { channel_.ended(number, record); }

  // --- ends ------------------------------------------------------------------------------------

  void kill_tree(Process& process, Cause cause) {
    if (!process.wanted) process.wanted = cause;
    process.deadline.reset();
    // One that is still starting is killed when it has.
    if (process.keeper == 0) return;
    launcher::signal_descendants(process.keeper, SIGKILL);
    process.keeper_deadline = Clock::now() + kKeepersTime;
  }

  /// What a keeper that was killed has left falls to init, and is nobody's. Who of init's children
  /// is a keeper is known when none is just starting.
  void clean_up() {
    if (!orphans_) return;
    std::set<pid_t> keepers;
    for (const auto& [number, process] : processes_) {
      if (process.keeper == 0) return;
      keepers.insert(process.keeper);
    }
    orphans_ = false;
    constexpr pid_t kOwnCommand = 2;  // CheckInit proves it.
    launcher::kill_orphans(sandbox_.init, keepers, stands_by_ ? 0 : kOwnCommand);
  }

  SessionChannel channel_;
  launcher::FurtherCommands further_;
  launcher::RunningSandbox sandbox_;
  bool stands_by_ = false;
  Processes processes_;
  std::map<std::uint32_t, std::uint64_t> connections_;
  std::uint32_t last_process_ = 0;
  std::uint32_t last_connection_ = 0;
  std::optional<Clock::time_point> tidy_at_;
  bool orphans_ = false;  ///< A keeper has died before its command's processes.
  std::optional<Ending> ending_;
};

}  // namespace

void serve_session(const SessionOrder& order, UniqueFd socket) {
  const Clock::time_point begun = Clock::now();
  Result<launcher::Host> host = launcher::observe_host(order.policy);
  if (host && order.terminal) host->terminal_size = order.terminal;
  const launcher::Host none;
  Monitor monitor(order, host ? *host : none, std::move(socket));
  if (!host) return monitor.over(launcher::refused_record(order.policy, host.error()));
  const Result<launcher::Plan> plan = launcher::build_plan(order.policy, *host, order.command);
  if (!plan) return monitor.over(launcher::refused_record(order.policy, plan.error()));
  monitor.plan_time = std::chrono::duration_cast<microseconds>(Clock::now() - begun);
  const launcher::Events events{
      .started = {},
      .stopped = [&monitor](int) { monitor.tell("stopped", 0); },
      .continued = [&monitor] { monitor.tell("continued", 0); },
  };
  Record record =
      launcher::launch_preferring(*plan, order.policy, *host, order.command, events, &monitor);
  record.plan_time = monitor.plan_time;
  monitor.over(record);
}

}  // namespace belljar::service
