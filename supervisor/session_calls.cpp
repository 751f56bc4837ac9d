// What may be asked of a session while it lives: its time, its processes, its ports.
#include <algorithm>
#include <utility>

#include "policy/base/tighter.hpp"
#include "supervisor/listeners.hpp"
#include "supervisor/session_impl.hpp"

namespace belljar::supervisor {
namespace {

constexpr Milliseconds kListenPause{50};

}  // namespace

Attachment::Attachment(std::shared_ptr<Session> session) : session_(std::move(session)) {
  if (session_) session_->attached(+1);
}

Attachment& Attachment::operator=(Attachment&& other) noexcept {
  if (this != &other) {
    release();
    session_ = std::move(other.session_);
  }
  return *this;
}

void Attachment::release() {
  if (const std::shared_ptr<Session> session = std::exchange(session_, nullptr))
    session->attached(-1);
}

void SessionImpl::attached(int change) {
  attachments_ += change;
  touch();
}

void SessionImpl::touch() { last_use_ = core_->clock->now(); }

void SessionImpl::note(const std::string& type, const ProcessImpl* process,
                       const std::string& cause, const std::string& detail) {
  Event event;
  event.type = type;
  event.session = spec_.id;
  event.client = spec_.client;
  if (process) event.process = process->id();
  event.cause = cause;
  event.detail = detail;
  core_->events.add(std::move(event));
}

std::optional<WallTime> SessionImpl::expires() const {
  if (!expires_) return std::nullopt;
  const auto away = *expires_ - core_->clock->now();
  return core_->clock->wall() + std::chrono::duration_cast<WallTime::duration>(away);
}

void SessionImpl::set_labels(std::map<std::string, std::string> labels) {
  spec_.labels = std::move(labels);
}

Outcome<std::optional<TimePoint>> SessionImpl::deadline_after(Milliseconds from_now) const {
  if (state_ == State::kEnding || state_ == State::kEnded || end_requested_)
    return refuse(Code::kEnded, "session " + spec_.id + " is ending");
  const TimePoint now = core_->clock->now();
  const TimePoint most = created_ + core_->config.max_ttl;
  if (from_now < Milliseconds(0) || from_now > core_->config.max_ttl || now + from_now > most) {
    Outcome<std::optional<TimePoint>> refused =
        refuse(Code::kBeyondMaximum, "session " + spec_.id + " may be " +
                                         std::to_string(core_->config.max_ttl.count() / 1000) +
                                         " s old at most");
    refused.error().limit = static_cast<std::uint64_t>(core_->config.max_ttl.count() / 1000);
    return refused;
  }
  return now + from_now;
}

Outcome<void> SessionImpl::keep_alive(Milliseconds for_time) {
  const Outcome<std::optional<TimePoint>> until = deadline_after(for_time);
  if (!until) return tl::unexpected<Failure>(until.error());
  expires_ = expires_ ? std::max(*expires_, **until) : **until;
  touch();
  return {};
}

Outcome<void> SessionImpl::set_ttl(std::optional<Milliseconds> from_now) {
  const Outcome<std::optional<TimePoint>> until =
      deadline_after(from_now.value_or(Milliseconds(0)));
  if (!until) return tl::unexpected<Failure>(until.error());
  expires_ = from_now ? *until : created_ + core_->config.max_ttl;
  return {};
}

Outcome<void> SessionImpl::set_idle(std::optional<Milliseconds> idle) {
  const Outcome<std::optional<TimePoint>> alive = deadline_after(Milliseconds(0));
  if (!alive) return tl::unexpected<Failure>(alive.error());
  spec_.idle = idle;
  touch();
  return {};
}

// Looks at what is so now: a renewal a moment before counts, and none can come too late to count.
void SessionImpl::check_expiry(TimePoint now) {
  if (state_ != State::kRunning || end_requested_) return;
  if (attachments_ > 0) last_use_ = now;
  for (const auto& [id, process] : processes_)
    if (process->live()) last_use_ = now;
  if (expires_ && now >= *expires_) {
    request_end(EndedBy::kExpired);
  } else if (spec_.idle && now - last_use_ >= *spec_.idle) {
    request_end(EndedBy::kIdle);
  } else if (const auto left = spec_.owner ? spec_.owner->left() : std::nullopt;
             left && now - *left >= core_->config.owner_grace) {
    request_end(EndedBy::kOwnerGone);
  }
}

Awaitable<bool> SessionImpl::wait_ended(Milliseconds limit) {
  const std::shared_ptr<SessionImpl> self = this->self();
  const auto ended = [this] { return state_ == State::kEnded; };
  const TimePoint deadline = core_->clock->now() + limit;
  co_return co_await wait_for(changed_, ended, deadline);
}

// Processes.

std::vector<std::shared_ptr<Process>> SessionImpl::processes() const {
  std::vector<std::shared_ptr<Process>> all;
  for (const auto& [id, process] : processes_) all.push_back(process);
  return all;
}

std::shared_ptr<Process> SessionImpl::process(std::uint32_t id) const {
  const auto found = processes_.find(id);
  return found == processes_.end() ? nullptr : found->second;
}

std::size_t SessionImpl::running_processes() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(processes_, [](const auto& entry) { return entry.second->live(); }));
}

std::size_t SessionImpl::memory() const {
  std::size_t bytes = sizeof(SessionImpl) + degraded_.size() + shell_.memory();
  for (const auto& [id, process] : processes_) bytes += process->memory();
  return bytes;
}

Outcome<void> SessionImpl::usable() const {
  if (state_ == State::kRunning && !end_requested_ && monitor_ && !monitor_->closed()) return {};
  if (state_ == State::kStarting)
    return refuse(Code::kBusy, "session " + spec_.id + " is still starting");
  return refuse(Code::kEnded, "session " + spec_.id + " has ended or is ending");
}

Awaitable<Outcome<Reply>> SessionImpl::ask(Request request, Milliseconds limit) {
  const std::shared_ptr<SessionImpl> self = this->self();
  const std::shared_ptr<Channel> monitor = monitor_;
  if (!monitor || monitor->closed())
    co_return refuse(Code::kEnded, "session " + spec_.id + " has ended or is ending");
  touch();
  co_return co_await monitor->ask(std::move(request), limit);
}

namespace {

// Goes on whether or not the caller waits: the process may have begun by then.
struct Starting {
  explicit Starting(const Core& core) : changed(core.executor, core.clock) {}
  std::optional<Outcome<Reply>> reply;
  Notifier changed;
};

Awaitable<void> ask_into(std::shared_ptr<Starting> starting, std::shared_ptr<SessionImpl> session,
                         std::shared_ptr<ProcessImpl> process, Request request) {
  Outcome<Reply> reply = co_await session->ask(std::move(request), kAskLimit);
  const bool terminal = process->spec().terminal.has_value();
  if (reply && reply->descriptors.size() != (terminal ? 1 : 0)) {
    reply = refuse(Code::kLost, "exec: the monitor gave " +
                                    std::to_string(reply->descriptors.size()) + " descriptors");
  } else if (reply && terminal) {
    const Outcome<void> taken = process->take_terminal(std::move(reply->descriptors[0]));
    if (!taken) reply = tl::unexpected<Failure>(taken.error());
  }
  if (reply) {
    const auto pid = reply->ok.find("pid");
    process->running(pid != reply->ok.end() && pid->is_number_integer() ? pid->get<int>() : 0);
    if (process->start_untold()) session->note("process.started", process.get(), {}, {});
  } else {
    process->abandon();
  }
  starting->reply = std::move(reply);
  starting->changed.notify();
}

Json members_of(const ProcessImpl& process) {
  const ProcessSpec& spec = process.spec();
  Json members;
  members["process"] = process.id();
  members["argv"] = spec.argv;
  members["environment"] = Json::object();
  for (const auto& [name, value] : spec.environment) members["environment"][name] = value;
  if (!spec.directory.empty()) members["directory"] = spec.directory;
  if (spec.wall_time) members["wall_time_ms"] = spec.wall_time->count();
  if (spec.terminal) {
    members["terminal"] = Json::object();
    members["terminal"]["columns"] = spec.terminal->columns;
    members["terminal"]["rows"] = spec.terminal->rows;
  }
  return members;
}

}  // namespace

Awaitable<Outcome<std::shared_ptr<Process>>> SessionImpl::start(ProcessSpec spec) {
  const std::shared_ptr<SessionImpl> self = this->self();
  const Outcome<void> alive = usable();
  BELLJAR_CO_TRY(alive);
  if (spec.argv.empty()) co_return refuse(Code::kInvalid, "a process needs an argv");
  if (running_processes() >= core_->config.processes_of_a_session) {
    Outcome<std::shared_ptr<Process>> full =
        refuse(Code::kQuota, "session " + spec_.id + " runs " +
                                 std::to_string(running_processes()) + " processes already");
    full.error().limit = core_->config.processes_of_a_session;
    co_return full;
  }
  spec.output = tighter(spec.output, limits_.output);
  const std::uint32_t id = ++last_process_;
  const auto process = std::make_shared<ProcessImpl>(self, id, std::move(spec));
  Request request("exec", members_of(*process));
  if (!process->spec().terminal) {
    Outcome<std::vector<UniqueFd>> streams = process->make_streams();
    BELLJAR_CO_TRY(streams);
    request.descriptors = std::move(*streams);
  }
  processes_.emplace(id, process);
  const auto starting = std::make_shared<Starting>(*core_);
  asio::co_spawn(core_->executor, ask_into(starting, self, process, std::move(request)),
                 asio::detached);
  const auto answered = [&] { return starting->reply.has_value(); };
  (void)co_await wait_for(starting->changed, answered, TimePoint::max());
  if (*starting->reply) co_return process;
  processes_.erase(id);
  co_return tl::unexpected<Failure>(starting->reply->error());
}

Awaitable<Outcome<ShellResult>> SessionImpl::run_in_shell(ShellCommand command) {
  const std::shared_ptr<SessionImpl> self = this->self();
  const Outcome<void> alive = usable();
  BELLJAR_CO_TRY(alive);
  co_return co_await shell_.run(self, std::move(command));
}

void SessionImpl::process_ended(const ProcessImpl& process) {
  touch();
  const End& end = *process.end_record();
  note("process.ended", &process, end.cause, end.record);
  ended_processes_.push_back(process.id());
  forget_old_processes();
  changed_.notify();
}

// The session's own command stays as long as the session.
void SessionImpl::forget_old_processes() {
  while (ended_processes_.size() > core_->config.ended_processes_kept) {
    if (ended_processes_.front() != 0) processes_.erase(ended_processes_.front());
    ended_processes_.pop_front();
  }
}

// Ports.

bool SessionImpl::listens(std::uint16_t port) const {
  return usable().has_value() && uid_listens(init_pid_, place_.uid, port);
}

Awaitable<Outcome<void>> SessionImpl::wait_listening(std::uint16_t port, Milliseconds limit) {
  const std::shared_ptr<SessionImpl> self = this->self();
  const TimePoint deadline = core_->clock->now() + limit;
  while (true) {
    const Outcome<void> alive = usable();
    BELLJAR_CO_TRY(alive);
    const TimePoint now = core_->clock->now();
    if (core_->listeners.listens(init_pid_, place_.uid, port, now)) co_return Outcome<void>();
    if (now >= deadline)
      co_return refuse(Code::kTimeout, "nothing of session " + spec_.id + " listens on port " +
                                           std::to_string(port) + " after " +
                                           std::to_string(limit.count()) + " ms");
    // Wakes when the session changes too: its end is not waited out.
    co_await changed_.wait_until(std::min(deadline, now + kListenPause));
  }
}

Awaitable<Outcome<UniqueFd>> SessionImpl::connect(std::uint16_t port) {
  const std::shared_ptr<SessionImpl> self = this->self();
  const Outcome<void> alive = usable();
  BELLJAR_CO_TRY(alive);
  // In a shared network the port may be anybody's by now.
  if (!listens(port))
    co_return refuse(Code::kPortClosed,
                     "nothing of session " + spec_.id + " listens on port " + std::to_string(port));
  Json members;
  members["port"] = port;
  Request request("connect", std::move(members));
  Outcome<Reply> reply = co_await ask(std::move(request), kAskLimit);
  BELLJAR_CO_TRY(reply);
  if (reply->descriptors.size() != 1)
    co_return refuse(Code::kLost, "connect: the monitor gave no socket");
  co_return std::move(reply->descriptors[0]);
}

}  // namespace belljar::supervisor
