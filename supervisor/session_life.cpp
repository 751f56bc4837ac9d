// The life of a session, from its slot to the end of everything that it had.
#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

#include "supervisor/session_impl.hpp"

namespace belljar::supervisor {
namespace {

/// Between the order to kill a sandbox and the end of its lifeline.
constexpr Milliseconds kKillLimit{500};
/// Of a monitor, once its socket is closed, to be gone.
constexpr Milliseconds kMonitorLimit{500};
/// How long a uid is swept before its slot is quarantined.
constexpr Milliseconds kSweepLimit{2000};
constexpr Milliseconds kSweepPause{50};

Milliseconds grace_of(const SessionSpec& spec, const Config& config) {
  return std::clamp(spec.term_grace.value_or(config.term_grace), Milliseconds(0),
                    Milliseconds(4000));
}

// What the service's `prepare` takes: a line of JSON, and the contents one after another.
std::string body_of(const std::vector<WorkspaceFile>& files) {
  Json list = Json::array();
  std::string contents;
  for (const WorkspaceFile& file : files) {
    Json entry;
    entry["path"] = file.path;
    if (file.directory) {
      entry["directory"] = true;
    } else {
      std::string mode = "0000";
      for (std::size_t digit = 0; digit < 4; ++digit)
        mode[3 - digit] = static_cast<char>('0' + (file.mode >> (3 * digit) & 7));
      entry["mode"] = mode;
      entry["size"] = file.content.size();
      contents += file.content;
    }
    list.push_back(std::move(entry));
  }
  return dumped(list) + "\n" + contents;
}

Json terminal_json(TerminalSize size) {
  Json json;
  json["columns"] = size.columns;
  json["rows"] = size.rows;
  return json;
}

/// Whether a session's cause is that of everything in it: a limit of the whole sandbox, or the loss
/// of what it stands on. Its own command's end, and whoever has ended it, are no process's cause.
bool ends_processes_too(const std::string& cause) {
  constexpr std::array<std::string_view, 8> kCauses = {
      "wall_time", "cpu_time", "memory", "processes", "disk", "network_lost", "owner_gone", "lost"};
  return std::ranges::find(kCauses, cause) != kCauses.end();
}

std::string end_cause(EndedBy by) {
  const bool killed = by == EndedBy::kClient || by == EndedBy::kOperator || by == EndedBy::kDrain ||
                      by == EndedBy::kDaemon;
  return killed ? "killed" : std::string(ended_by_name(by));
}

}  // namespace

std::string_view ended_by_name(EndedBy by) {
  switch (by) {
    case EndedBy::kClient:
      return "client";
    case EndedBy::kOperator:
      return "operator";
    case EndedBy::kDrain:
      return "drain";
    case EndedBy::kDaemon:
      return "daemon";
    case EndedBy::kExpired:
      return "expired";
    case EndedBy::kIdle:
      return "idle";
    case EndedBy::kOwnerGone:
      return "owner_gone";
    case EndedBy::kWorkspaceGone:
      return "workspace_gone";
  }
  return "operator";
}

SessionImpl::SessionImpl(std::shared_ptr<Core> core, SessionSpec spec, Lease lease,
                         const Place& place)
    : core_(std::move(core)),
      spec_(std::move(spec)),
      lease_(std::move(lease)),
      place_(place),
      grace_(grace_of(spec_, core_->config)),
      created_(core_->clock->now()),
      last_use_(created_),
      created_wall_(core_->clock->wall()),
      shell_(core_->executor, core_->clock, core_->facts.sessions_root + "/" + spec_.id),
      changed_(core_->executor, core_->clock) {
  spec_.complete = nullptr;
  expires_ =
      created_ + spec_.ttl.value_or(core_->config.default_ttl.value_or(core_->config.max_ttl));
}

void SessionImpl::change_state(State state) {
  state_ = state;
  static constexpr const char* kNames[] = {"session.starting", "session.running", "session.ending",
                                           "session.ended"};
  const std::string cause = state == State::kEnded && end_ ? end_->cause : std::string();
  if (state != State::kEnded || !failed())
    note(kNames[static_cast<int>(state)], nullptr, cause,
         state == State::kEnded && end_ ? end_->record : std::string());
  changed_.notify();
}

// The one place where the parts of a session are given back: in this order, on every path.
Awaitable<void> SessionImpl::live(std::shared_ptr<SessionImpl> self) {
  SessionImpl& session = *self;
  Outcome<void> made = co_await session.bring_up();
  if (made) {
    session.change_state(State::kRunning);
    session.brought_up_ = made;
    session.changed_.notify();
    const auto over = [&] {
      return session.over_ || !session.why_lost_.empty() || session.end_requested_;
    };
    (void)co_await wait_for(session.changed_, over, TimePoint::max());
  } else {
    session.brought_up_ = made;
  }
  session.change_state(State::kEnding);
  co_await session.terminate();
  session.decide_end();
  co_await session.clear_slot();
  session.ended_at_ = session.core_->clock->now();
  session.shell_.forget();
  session.change_state(State::kEnded);
  session.core_->settled(self);
}

void SessionImpl::broke() {
  if (state_ == State::kEnded) return;
  why_lost_ = "the daemon ran into an exception";
  if (!brought_up_) brought_up_ = refuse(Code::kSystem, "session " + spec_.id + ": " + why_lost_);
  if (monitor_) monitor_->close(why_lost_);
  decide_end();
  core_->quarantine(std::move(lease_), workspace_made_ ? spec_.id : std::string(), why_lost_);
  ended_at_ = core_->clock->now();
  shell_.forget();
  change_state(State::kEnded);
  core_->settled(self());
}

Awaitable<Outcome<void>> SessionImpl::bring_up() {
  Outcome<StartQueue::Turn> turn = co_await core_->starts.enter(core_->config.start_wait);
  BELLJAR_CO_TRY(turn);
  const Outcome<void> prepared = co_await prepare();
  BELLJAR_CO_TRY(prepared);
  const Outcome<void> adopted = co_await adopt();
  BELLJAR_CO_TRY(adopted);
  const Outcome<void> launched = co_await launch();
  BELLJAR_CO_TRY(launched);
  co_return co_await wait_started();
}

Awaitable<Outcome<void>> SessionImpl::prepare() {
  if (end_requested_) co_return refuse(Code::kEnded, "session " + spec_.id + " was ended");
  Json members;
  members["workspace"] = spec_.id;
  members["uid"] = place_.uid;
  Request request("prepare", std::move(members));
  Outcome<UniqueFd> body = sealed_memfd(body_of(spec_.files));
  BELLJAR_CO_TRY(body);
  request.descriptors.push_back(std::move(*body));
  spec_.files.clear();
  workspace_made_ = true;
  const Outcome<Reply> reply = co_await core_->ask(std::move(request), kFileWorkLimit);
  if (reply) co_return Outcome<void>();
  // A plain no leaves nothing behind, and what was there before, if that is the reason, is not
  // ours to remove. Without an answer it may still be made.
  const Code code = reply.error().code;
  workspace_made_ = code == Code::kTimeout || code == Code::kLost;
  unsure_ = workspace_made_;
  co_return tl::unexpected<Failure>(reply.error());
}

Awaitable<Outcome<void>> SessionImpl::adopt() {
  if (!spec_.workspace) co_return Outcome<void>();
  Json members;
  members["workspace"] = spec_.id;
  members["path"] = spec_.workspace->path;
  members["owner"] = spec_.workspace->chown ? "chown" : "keep";
  Request request("adopt", std::move(members));
  const Outcome<Reply> reply = co_await core_->ask(std::move(request), kFileWorkLimit);
  BELLJAR_CO_TRY(reply);
  co_return Outcome<void>();
}

Awaitable<Outcome<void>> SessionImpl::launch() {
  if (end_requested_) co_return refuse(Code::kEnded, "session " + spec_.id + " was ended");
  Json members;
  members["session"] = spec_.id;
  members["uid"] = place_.uid;
  members["workspace"] = spec_.id;
  members["policy"] = spec_.policy;
  if (!spec_.policy_digest.empty()) members["digest"] = spec_.policy_digest;
  members["settings"] = spec_.settings;
  members["variables"] = Json::object();
  for (const auto& [name, value] : spec_.variables) members["variables"][name] = value;
  members["environment"] = Json::object();
  for (const auto& [name, value] : spec_.environment) members["environment"][name] = value;
  const auto process = std::make_shared<ProcessImpl>(
      self(), 0, spec_.command ? std::move(*spec_.command) : ProcessSpec());
  const ProcessSpec& command = process->spec();
  if (spec_.command) {
    members["argv"] = command.argv;
    for (const auto& [name, value] : command.environment) members["environment"][name] = value;
    if (!command.directory.empty()) members["directory"] = command.directory;
    if (command.terminal) members["terminal"] = terminal_json(*command.terminal);
    if (command.wall_time)
      members["settings"].push_back(
          "limits.wall_time=" + std::to_string(command.wall_time->count()) + "ms");
    processes_.emplace(0, process);
  }
  Request request("launch", std::move(members));
  Outcome<std::vector<UniqueFd>> streams = process->make_streams();
  BELLJAR_CO_TRY(streams);
  request.descriptors = std::move(*streams);
  launched_ = true;
  Outcome<Reply> reply = co_await core_->ask(std::move(request), kAskLimit);
  if (!reply) {
    const Code code = reply.error().code;
    unsure_ = code == Code::kTimeout || code == Code::kLost;
    co_return tl::unexpected<Failure>(reply.error());
  }
  if (reply->descriptors.size() != 2)
    co_return refuse(Code::kLost, "launch: the launch service gave " +
                                      std::to_string(reply->descriptors.size()) +
                                      " descriptors instead of 2");
  monitor_pidfd_ = std::move(reply->descriptors[1]);
  open_monitor(std::move(reply->descriptors[0]));
  co_return Outcome<void>();
}

void SessionImpl::open_monitor(UniqueFd socket) {
  monitor_ = std::make_shared<Channel>(core_->executor, core_->clock, std::move(socket),
                                       "the monitor of session " + spec_.id);
  const std::weak_ptr<SessionImpl> weak = self();
  monitor_->open(
      [weak](const std::string& name, const Json& event) {
        if (const auto session = weak.lock()) session->take_event(name, event);
      },
      [weak](const std::string& why) {
        if (const auto session = weak.lock()) session->lose(why);
      });
}

Awaitable<Outcome<void>> SessionImpl::wait_started() {
  const auto known = [&] { return started_ || over_ || !why_lost_.empty() || end_requested_; };
  const TimePoint deadline = core_->clock->now() + core_->config.start_timeout;
  const bool in_time = co_await wait_for(changed_, known, deadline);
  if (started_) co_return Outcome<void>();
  if (over_) {
    Outcome<void> failed = refuse(Code::kSandbox, "the sandbox could not be built");
    const auto setup = over_->find("setup");
    if (setup != over_->end() && setup->is_object()) {
      failed.error().setup = dumped(*setup);
      if (const std::optional<std::string> reason = text_of(*setup, "reason"))
        failed.error().error.what += ": " + *reason;
      failed.error().error.remedy = text_of(*setup, "remedy").value_or("");
    }
    co_return failed;
  }
  if (end_requested_) co_return refuse(Code::kEnded, "session " + spec_.id + " was ended");
  if (!in_time)
    co_return refuse(Code::kTimeout, "the sandbox did not stand after " +
                                         std::to_string(core_->config.start_timeout.count()) +
                                         " ms");
  co_return refuse(Code::kLost, "the monitor of session " + spec_.id + " ended: " + why_lost_);
}

// What the monitor tells.

void SessionImpl::take_event(const std::string& name, const Json& event) {
  if (name == "started") {
    take_started(event);
  } else if (name == "over") {
    take_over(event);
  } else if (name == "ended" || name == "stopped" || name == "continued") {
    // A process that is not known any more had been given up.
    const std::shared_ptr<ProcessImpl> process = process_of(event);
    if (!process) return;
    if (name == "ended") {
      // Short ones end before whoever started them has been woken.
      if (process->start_untold()) note("process.started", process.get(), {}, {});
      const auto record = event.find("record");
      Json told = record == event.end() ? Json() : *record;
      process->tell_wish(told);
      process->conclude(end_of(told, core_->clock->wall()));
    } else {
      process->stopped(name == "stopped");
      note("process." + name, process.get(), {}, {});
    }
  } else {
    monitor_->close("it told of \"" + name + "\", which is unknown");
  }
}

void SessionImpl::take_started(const Json& event) {
  started_ = true;
  const auto pid = event.find("pid");
  if (pid != event.end() && pid->is_number_integer()) init_pid_ = pid->get<int>();
  back_end_ = text_of(event, "back_end").value_or("");
  if (const std::optional<std::string> digest = text_of(event, "policy_digest"))
    spec_.policy_digest = *digest;
  if (const auto limit = number_of(event, "wall_time_ms"))
    limits_.wall_time = Milliseconds(static_cast<std::int64_t>(*limit));
  limits_.output = number_of(event, "output");
  if (const auto fixed = event.find("fixed_variables"); fixed != event.end() && fixed->is_object())
    for (const auto& [name, value] : fixed->items())
      if (value.is_string()) limits_.fixed_variables.emplace(name, value.get<std::string>());
  if (const auto degraded = event.find("degraded"); degraded != event.end() && degraded->is_array())
    degraded_ = dumped(*degraded);
  if (degraded_ != "[]") note("session.degraded", nullptr, {}, degraded_);
  if (const auto command = processes_.find(0); command != processes_.end()) {
    command->second->limit_output(limits_.output);
    command->second->running(0);
    if (command->second->start_untold()) note("process.started", command->second.get(), {}, {});
  }
  changed_.notify();
}

// Who ended it is known here; how the command took that, in the record.
void SessionImpl::take_over(const Json& event) {
  const auto record = event.find("record");
  Json told = record != event.end() && record->is_object() ? *record : Json::object();
  if (end_requested_ && text_of(told, "cause").value_or("") != "setup") {
    told["cause"] = end_cause(*end_requested_);
    if (told["cause"] == "killed") told["by"] = ended_by_name(*end_requested_);
  }
  over_ = std::move(told);
  const End end = end_of(*over_, core_->clock->wall());
  const bool of_all = !end_requested_ && ends_processes_too(end.cause);
  const End of_others = made_up_end(of_all ? end.cause : "killed", "session", end.time);
  for (const auto& [id, process] : std::map(processes_))
    process->conclude(id == 0 ? end : of_others);
  changed_.notify();
}

std::shared_ptr<ProcessImpl> SessionImpl::process_of(const Json& event) const {
  const auto id = event.find("process");
  if (id == event.end() || !id->is_number_unsigned()) return nullptr;
  const auto found = processes_.find(id->get<std::uint32_t>());
  return found == processes_.end() ? nullptr : found->second;
}

void SessionImpl::lose(const std::string& why) {
  if (why_lost_.empty()) why_lost_ = why;
  if (!over_)
    for (const auto& [id, process] : std::map(processes_))
      process->conclude(made_up_end("lost", {}, core_->clock->wall()));
  changed_.notify();
}

// How it ends.

void SessionImpl::request_end(EndedBy by) {
  if (end_requested_ || state_ == State::kEnding || state_ == State::kEnded) return;
  end_requested_ = by;
  changed_.notify();
}

// After this no process of the sandbox is left, or the service is told by the end of its lifeline
// that none is to be.
Awaitable<void> SessionImpl::terminate() {
  const auto over = [&] { return over_ || !why_lost_.empty(); };
  if (monitor_ && !over()) {
    if (started_) co_await ask_to_end();
    if (!over()) co_await kill();
  }
  if (monitor_) monitor_->close("the session is over");
  if (!over_ && why_lost_.empty()) why_lost_ = "it was never launched";
  co_await monitor_gone();
  // What is left of their output is read, whatever became of them.
  if (!over_) lose(why_lost_);
  const auto ended = [&] {
    for (const auto& [id, process] : processes_)
      if (process->live()) return false;
    return true;
  };
  const TimePoint deadline = core_->clock->now() + kMonitorLimit;
  (void)co_await wait_for(changed_, ended, deadline);
}

// TERM to every command's group, so that a program can say goodbye, and CONT, since one that is
// stopped sees TERM only when it goes on.
Awaitable<void> SessionImpl::ask_to_end() {
  const TimePoint deadline = core_->clock->now() + grace_;
  std::size_t asked = 0;
  for (const int signal : {SIGTERM, SIGCONT}) {
    for (const auto& [id, process] : std::map(processes_)) {
      if (!process->live() || process->concluding() || !monitor_) continue;
      process->ask_to_end("session");
      Json members;
      members["process"] = id;
      members["signal"] = signal;
      members["to"] = "group";
      Request request("signal", std::move(members));
      asio::co_spawn(core_->executor, monitor_->ask(std::move(request), kAskLimit), asio::detached);
      ++asked;
    }
  }
  const auto gone = [&] {
    if (over_ || !why_lost_.empty() || asked == 0) return true;
    // A session without a command of its own is not over when its processes are.
    if (processes_.contains(0)) return false;
    for (const auto& [id, process] : processes_)
      if (process->live()) return false;
    return true;
  };
  (void)co_await wait_for(changed_, gone, deadline);
}

Awaitable<void> SessionImpl::kill() {
  Json members;
  members["by"] = ended_by_name(end_requested_.value_or(EndedBy::kDaemon));
  Request request("kill", std::move(members));
  asio::co_spawn(core_->executor, monitor_->ask(std::move(request), kKillLimit), asio::detached);
  const auto over = [&] { return over_ || !why_lost_.empty(); };
  const TimePoint deadline = core_->clock->now() + kKillLimit;
  (void)co_await wait_for(changed_, over, deadline);
}

// The end of the lifeline makes the monitor go; one that does not is the service's to find, and the
// sweep's.
Awaitable<void> SessionImpl::monitor_gone() {
  if (!monitor_pidfd_.valid()) co_return;
  asio::posix::stream_descriptor pidfd(core_->executor, monitor_pidfd_.release());
  Notifier& changed = changed_;
  bool gone = false;
  const auto flag = std::make_shared<bool>(false);
  const std::weak_ptr<SessionImpl> weak = self();
  pidfd.async_wait(asio::posix::descriptor_base::wait_read,
                   [flag, weak](const boost::system::error_code& error) {
                     *flag = !error;
                     if (const auto session = weak.lock()) session->changed_.notify();
                   });
  const auto is_gone = [&] { return *flag; };
  const TimePoint deadline = core_->clock->now() + kMonitorLimit;
  gone = co_await wait_for(changed, is_gone, deadline);
  if (!gone) unsure_ = true;
}

void SessionImpl::decide_end() {
  const WallTime now = core_->clock->wall();
  if (over_) {
    end_ = end_of(*over_, now);
  } else if (end_requested_ && !core_->service_lost && !started_) {
    end_ =
        made_up_end(end_cause(*end_requested_), std::string(ended_by_name(*end_requested_)), now);
  } else {
    end_ = made_up_end(failed() ? "setup" : "lost", {}, now);
  }
}

// The uid first: whoever is left could write into the workspace while it is removed.
Awaitable<void> SessionImpl::clear_slot() {
  std::string why = unsure_ ? "the launch service did not say what became of it" : "";
  if (launched_ && core_->facts.privileged) {
    const TimePoint deadline = core_->clock->now() + kSweepLimit;
    while (true) {
      const Outcome<std::uint64_t> left = co_await core_->sweep(place_.uid);
      if (left && *left == 0) break;
      if (!left || core_->clock->now() >= deadline) {
        why = left ? std::to_string(*left) + " processes of uid " + std::to_string(place_.uid) +
                         " are left"
                   : left.error().error.what;
        break;
      }
      Notifier pause(core_->executor, core_->clock);
      co_await pause.wait_until(core_->clock->now() + kSweepPause);
    }
  }
  if (workspace_made_) {
    const Outcome<void> removed = co_await core_->remove_workspace(spec_.id, kFileWorkLimit);
    if (removed)
      workspace_made_ = false;
    else if (why.empty())
      why = removed.error().error.what;
  }
  if (why.empty()) {
    lease_.give_back();
  } else {
    core_->quarantine(std::move(lease_), workspace_made_ || unsure_ ? spec_.id : std::string(),
                      why);
  }
}

}  // namespace belljar::supervisor
