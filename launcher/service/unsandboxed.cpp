#include "launcher/service/unsandboxed.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/failure.hpp"
#include "launcher/process_tree.hpp"
#include "launcher/record.hpp"
#include "launcher/service/bare_command.hpp"
#include "launcher/service/further_command.hpp"
#include "launcher/service/session_channel.hpp"

namespace belljar::service {
namespace {

using launcher::Cause;
using launcher::Record;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using sys::UniqueFd;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

/// What the policy has and nobody holds to.
std::vector<launcher::Degraded> not_held(const policy::Policy& policy) {
  const policy::Limits& limits = policy.limits;
  std::vector<launcher::Degraded> found = {
      {"sandbox",
       "UNSANDBOXED, by the operator's setting: no namespaces, mounts, Landlock, filter"}};
  const auto add = [&found](bool asked, const char* name) {
    if (asked) found.push_back({"limits", std::string(name) + " is not enforced"});
  };
  if (policy.network.mode != policy::NetworkMode::kShared)
    found.push_back({"network", "network.mode is not enforced: the host's network is shared"});
  add(limits.cpu_time.has_value(), "limits.cpu_time");
  add(limits.output.has_value(), "limits.output");
  add(limits.disk.has_value(), "limits.disk");
  add(limits.memory.has_value(), "limits.memory");
  add(limits.swap.has_value(), "limits.swap");
  add(limits.processes.has_value(), "limits.processes");
  add(limits.cpus.has_value(), "limits.cpus");
  return found;
}

struct Process {
  BareCommand command;
  std::uint64_t request = 0;  ///< Who waits for its start.
  std::optional<milliseconds> wall_time;
  std::optional<Clock::time_point> deadline;
  std::optional<Cause> wanted;  ///< Why it was killed.
  Clock::time_point begun = Clock::now();
  bool ended = false;  ///< Only what it has left behind runs.
};

class Unsandboxed {
 public:
  Unsandboxed(const SessionOrder& order, const Pool& pool, uid_t uid, launcher::Host host,
              UniqueFd socket)
      : order_(order),
        pool_(pool),
        uid_(uid),
        host_(std::move(host)),
        further_(order.policy, host_),
        channel_(std::move(socket)) {
    // What a keeper leaves when it is killed comes here.
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  }

  void run() {
    if (begin())
      while (!over_) turn();
    kill_all();
    if (over_->cause != Cause::kLost) channel_.over(*over_);  // Otherwise there is nobody to tell.
  }

 private:
  void answer(std::uint64_t id, const Json& ok, Descriptors beside = {}) {
    channel_.answer(id, ok, std::move(beside));
  }
  void decline(std::uint64_t id, const Fault& fault) { channel_.decline(id, fault); }

  [[nodiscard]] Record blank() const {
    Record record;
    record.sandboxed = false;
    record.policy_name = order_.policy.name;
    record.policy_digest = order_.policy.digest;
    record.degraded = not_held(order_.policy);
    record.usage.wall = std::chrono::duration_cast<microseconds>(Clock::now() - begun_);
    return record;
  }

  void finish(Record record) {
    if (!over_) over_ = std::move(record);
  }

  void refuse_setup(const Error& error, int exit_code) {
    Record record = blank();
    record.cause = Cause::kSetup;
    record.exit_code = exit_code;
    record.setup = launcher::describe_refusal(error, order_.policy);
    finish(std::move(record));
  }

  // --- processes -------------------------------------------------------------------------------

  /// False when it is over already.
  bool begin() {
    if (order_.terminal) {
      refuse_setup({ErrorKind::kRefused, 0, "without a sandbox there is no terminal of its own",
                    "io.tty", "ask for none"},
                   125);
      return false;
    }
    if (order_.command.stands_by) {
      tell_start();
      return true;
    }
    launcher::FurtherCommand first;
    first.command = order_.command;
    if (const auto failed = start(0, first, {0, 1, 2})) refuse_setup(*failed, 125);
    if (over_) return false;
    processes_.at(0).wall_time = order_.policy.limits.wall_time;
    return true;
  }

  void tell_start() {
    channel_.started({getpid(), "none", not_held(order_.policy), order_.policy.digest,
                      order_.policy.limits, further_.fixed_variables(), microseconds(0),
                      std::chrono::duration_cast<microseconds>(Clock::now() - begun_)});
  }

  std::optional<Error> start(std::uint32_t number, const launcher::FurtherCommand& wanted,
                             const std::array<int, 3>& streams) {
    Result<launcher::Plan> plan = further_.plan(wanted);
    if (!plan) return plan.error();
    Outcome<BareCommand> command = start_bare(*plan, pool_, uid_, streams);
    if (!command)
      return Error{ErrorKind::kSystem, command.error().sys_errno, command.error().message, {}, {}};
    processes_[number].command = *std::move(command);
    return std::nullopt;
  }

  void hear(std::uint32_t number, Process& process) {
    KeepersWord word;
    while (!over_ && recv(process.command.socket.get(), &word, sizeof word, 0) ==
                         static_cast<ssize_t>(sizeof word)) {
      if (word.kind == KeepersWord::Kind::kStarted) started(number, process, word);
      if (word.kind == KeepersWord::Kind::kFailed) failed(number, process, word.error);
      if (word.kind == KeepersWord::Kind::kEnded) ended(number, process, word);
    }
  }

  void started(std::uint32_t number, Process& process, const KeepersWord& word) {
    process.begun = Clock::now();
    if (process.wall_time) process.deadline = process.begun + *process.wall_time;
    if (number == 0) return tell_start();
    answer(process.request, {{"pid", word.pid}});
    process.request = 0;
    if (process.wanted) kill_tree(process, *process.wanted);
  }

  void failed(std::uint32_t number, Process& process, int error) {
    process.ended = true;
    const int code = error == ENOENT ? 127 : error == EACCES ? 126 : 125;
    const Error why{ErrorKind::kSystem, error, "start the command", {}, {}};
    if (number == 0) return refuse_setup(why, code);
    channel_.not_started(process.request, launcher::describe_refusal(why, order_.policy), code);
    process.request = 0;
  }

  [[nodiscard]] Record record_of(const Process& process) const {
    Record record = blank();
    record.usage.wall = std::chrono::duration_cast<microseconds>(Clock::now() - process.begun);
    return record;
  }

  void ended(std::uint32_t number, Process& process, const KeepersWord& word) {
    Record record = record_of(process);
    note_end(
        record,
        {word.status, microseconds(word.user_us), microseconds(word.system_us), word.max_rss_kib},
        order_.policy.limits, /*filtered=*/false);
    note_wanted(record, process.wanted);
    process.ended = true;
    process.deadline.reset();
    if (number == 0) return finish(std::move(record));
    channel_.ended(number, record);
  }

  void kill_tree(Process& process, Cause cause) {
    if (!process.wanted) process.wanted = cause;
    process.deadline.reset();
    launcher::signal_descendants(process.command.keeper, SIGKILL);
  }

  /// Everything that descends from here is of this session.
  static void kill_all() {
    const Clock::time_point patience = Clock::now() + std::chrono::seconds(2);
    do {
      launcher::signal_descendants(getpid(), SIGKILL);
      while (waitpid(-1, nullptr, WNOHANG) > 0) {
      }
      poll(nullptr, 0, 2);
    } while ((waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD) && Clock::now() < patience);
  }

  // --- what is asked for -----------------------------------------------------------------------

  void act(std::uint64_t id, const Exec& exec, Descriptors& streams) {
    if (const auto wrong = check_exec(exec, last_, streams)) return decline(id, *wrong);
    if (exec.terminal)
      return decline(id, {Code::kRefused, "without a sandbox there is no terminal of its own"});
    launcher::FurtherCommand further;
    further.command.argv = exec.argv;
    further.command.directory = exec.directory;
    further.environment = exec.environment;
    if (const auto failed =
            start(exec.process, further, {streams[0].get(), streams[1].get(), streams[2].get()}))
      return failed->kind == ErrorKind::kRefused
                 ? channel_.not_started(id, launcher::further_refusal(*failed, order_.policy), 125)
                 : decline(id, fault_of(*failed));
    last_ = exec.process;
    Process& process = processes_.at(exec.process);
    process.request = id;
    process.wall_time = wall_time_of(exec, order_.policy.limits, order_.command.stands_by);
  }

  void act(std::uint64_t id, const Signal& signal, Descriptors&) {
    const auto found = processes_.find(signal.process);
    const bool gone = found == processes_.end() || found->second.ended;
    if (gone) return answer(id, {{"gone", true}});
    const KeepersOrder order{signal.number, signal.to == Signal::To::kGroup};
    if (signal.to == Signal::To::kTree)
      launcher::signal_descendants(found->second.command.keeper, signal.number);
    else
      ::send(found->second.command.socket.get(), &order, sizeof order, MSG_NOSIGNAL);
    answer(id, {{"gone", false}});
  }

  void act(std::uint64_t id, const End& end, Descriptors&) {
    const auto found = processes_.find(end.process);
    const bool gone = found == processes_.end() || found->second.ended;
    if (found != processes_.end())
      kill_tree(found->second, end.output ? Cause::kOutput : Cause::kKilled);
    answer(id, {{"gone", gone}});
  }

  void act(std::uint64_t id, const Resize&, Descriptors&) {
    decline(id, {Code::kNotFound, "that process has no terminal"});
  }

  /// To the host's own loopback, which is what a session without a network of its own has. A path
  /// is the session's to open, not that of this process, which may be root.
  void act(std::uint64_t id, const Connect& connect, Descriptors&) {
    if (connect.port == 0)
      return decline(id, {Code::kRefused, "without a sandbox no socket is opened by its path"});
    UniqueFd made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(connect.port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (!made.valid() || (::connect(made.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0 &&
                          errno != EINPROGRESS))
      return decline(id, call_failed(errno, "connect to the port").value());
    Descriptors beside;
    beside.push_back(std::move(made));
    answer(id, Json::object(), std::move(beside));
  }

  void act(std::uint64_t id, const Kill& kill, Descriptors&) {
    answer(id, Json::object());
    Record record = blank();
    record.cause = Cause::kKilled;
    record.killed_by = kill.by;
    finish(std::move(record));
  }

  void serve() {
    channel_.serve([this](std::uint64_t id, const auto& demand, Descriptors& beside) {
      act(id, demand, beside);
      return !over_;
    });
  }

  [[nodiscard]] int patience_ms() const {
    std::optional<Clock::time_point> first;
    for (const auto& [number, process] : processes_)
      if (process.deadline && (!first || *process.deadline < *first)) first = process.deadline;
    if (!first) return -1;
    const auto left = std::chrono::ceil<milliseconds>(*first - Clock::now()).count();
    return static_cast<int>(std::clamp<milliseconds::rep>(left, 0, 60000));
  }

  void turn() {
    const auto wanted = static_cast<short>(POLLIN | (channel_.waits() ? POLLOUT : 0));
    std::vector<pollfd> places = {{channel_.descriptor(), wanted, 0}};
    std::vector<std::uint32_t> numbers = {0};
    for (const auto& [number, process] : processes_) {
      places.push_back({process.command.socket.get(), POLLIN, 0});
      numbers.push_back(number);
    }
    poll(places.data(), places.size(), patience_ms());
    for (std::size_t i = 1; i < places.size() && !over_; ++i) {
      if (places[i].revents == 0) continue;
      Process& process = processes_.at(numbers[i]);
      hear(numbers[i], process);
      if ((places[i].revents & POLLHUP) != 0 && !over_) keeper_ended(numbers[i], process);
    }
    const Clock::time_point now = Clock::now();
    for (auto& [number, process] : processes_)
      if (process.deadline && *process.deadline <= now) kill_tree(process, Cause::kWallTime);
    channel_.flush();
    if (places[0].revents != 0) serve();
    if (channel_.lost()) finish(blank());  // Cause kLost.
  }

  /// Nothing of the command is left, or its keeper was killed.
  void keeper_ended(std::uint32_t number, Process& process) {
    waitpid(process.command.keeper, nullptr, 0);
    if (!process.ended) {
      Record record = record_of(process);
      record.exit_code = 125;
      if (process.request != 0) decline(process.request, {Code::kSystem, "its keeper is gone"});
      if (number == 0) return finish(std::move(record));
      note_wanted(record, process.wanted);
      if (process.request == 0) channel_.ended(number, record);
    }
    processes_.erase(number);
  }

  const SessionOrder& order_;
  const Pool& pool_;
  uid_t uid_;
  const launcher::Host host_;
  launcher::FurtherCommands further_;
  SessionChannel channel_;
  Clock::time_point begun_ = Clock::now();
  std::map<std::uint32_t, Process> processes_;
  std::uint32_t last_ = 0;
  std::optional<Record> over_;
};

}  // namespace

void serve_unsandboxed(const SessionOrder& order, const Pool& pool, uid_t uid, UniqueFd socket) {
  Result<launcher::Host> host = launcher::observe_host(order.policy);
  if (!host) {
    Record record = launcher::refused_record(order.policy, host.error());
    record.sandboxed = false;
    return SessionChannel(std::move(socket)).over(record);
  }
  Unsandboxed(order, pool, uid, *std::move(host), std::move(socket)).run();
}

}  // namespace belljar::service
