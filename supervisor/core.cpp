#include "supervisor/core.hpp"

#include <sys/random.h>

#include <algorithm>
#include <set>
#include <utility>

#include "policy/base/tighter.hpp"
#include "supervisor/session_impl.hpp"

namespace belljar::supervisor {
namespace {

constexpr Milliseconds kHousekeeping{1000};
constexpr Milliseconds kRetryQuarantine{5000};

bool is_name(std::string_view text, std::size_t most) {
  return !text.empty() && text.size() <= most && std::ranges::all_of(text, [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') || letter == '_' || letter == '-';
  });
}

Slots::Range slots_of(const Config& config, const ServiceFacts& facts) {
  Slots::Range range;
  range.uid_base = facts.uid_base;
  range.count = facts.max_sessions;
  range.port_base = config.port_base;
  range.same_uid = !facts.privileged;
  return range;
}

template <class T>
Outcome<T> with_limit(Outcome<T> outcome, std::uint64_t limit) {
  if (!outcome) outcome.error().limit = limit;
  return outcome;
}

Outcome<void> at_member(Outcome<void> refused, std::string pointer) {
  refused.error().error.where = std::move(pointer);
  return refused;
}

/// What is only preferred can be the host's.
bool wants_own_network(const std::vector<std::string>& settings) {
  const auto says = [&](std::string_view setting) {
    return std::ranges::find(settings, setting) != settings.end();
  };
  return (says("network.mode=none") || says("network.mode=private")) &&
         !says("network.enforce=prefer");
}

}  // namespace

StartQueue::StartQueue(const asio::any_io_executor& executor, std::shared_ptr<Clock> clock,
                       std::size_t at_once, std::size_t most_waiting)
    : at_once_(std::max<std::size_t>(at_once, 1)),
      most_waiting_(most_waiting),
      changed_(executor, std::move(clock)) {}

StartQueue::Turn::~Turn() {
  if (!queue_) return;
  --queue_->under_way_;
  queue_->changed_.notify();
}

Awaitable<Outcome<StartQueue::Turn>> StartQueue::enter(Milliseconds limit) {
  if (under_way_ < at_once_ && waiting_.empty()) co_return Turn(this);
  if (full())
    co_return refuse(Code::kBusy, std::to_string(waiting_.size()) + " starts wait already");
  const std::uint64_t ticket = ++last_ticket_;
  waiting_.push_back(ticket);
  // Whoever gives up leaves the queue, and the next one looks whether it is his turn.
  struct InLine {
    InLine(StartQueue& owner, std::uint64_t mine) : queue(owner), ticket(mine) {}
    ~InLine() {
      std::erase(queue.waiting_, ticket);
      queue.changed_.notify();
    }
    StartQueue& queue;
    std::uint64_t ticket;
  } const in_line(*this, ticket);
  const auto my_turn = [&] { return under_way_ < at_once_ && waiting_.front() == ticket; };
  const TimePoint deadline = changed_.clock().now() + limit;
  if (!co_await wait_for(changed_, my_turn, deadline))
    co_return refuse(Code::kBusy, "too many sessions start at once: no turn came in " +
                                      std::to_string(limit.count()) + " ms");
  co_return Turn(this);
}

Core::Core(asio::io_context& loop, std::shared_ptr<Clock> the_clock,
           std::shared_ptr<Channel> the_service, Config the_config, ServiceFacts the_facts)
    : executor(loop.get_executor()),
      clock(std::move(the_clock)),
      service(std::move(the_service)),
      config(std::move(the_config)),
      facts(std::move(the_facts)),
      slots(slots_of(config, facts)),
      starts(executor, clock, config.starts_at_once, config.starts_waiting),
      events(executor, clock),
      idempotency(executor, clock, IdempotencyStore::Limits()),
      changed(executor, clock) {}

// Sessions.

std::shared_ptr<SessionImpl> Core::find(std::string_view id) const {
  for (const std::shared_ptr<SessionImpl>& session : sessions_)
    if (session->id() == id) return session;
  return nullptr;
}

std::vector<std::shared_ptr<SessionImpl>> Core::sessions() const { return sessions_; }

std::size_t Core::live() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      sessions_, [](const auto& session) { return session->state() != Session::State::kEnded; }));
}

std::string Core::make_id() const {
  static constexpr std::string_view kLetters = "abcdefghijkmnpqrstuvwxyz23456789";
  static_assert(kLetters.size() == 32);
  std::array<unsigned char, 16> random{};
  // Up to 256 bytes come whole or not at all (man 2 getrandom).
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    return {};
  std::string id = "s-" + config.node + "-";
  for (const unsigned char byte : random) id += kLetters[byte % kLetters.size()];
  return id;
}

Outcome<void> Core::admits(const std::string& client, bool one_shot) const {
  if (service_lost)
    return refuse(Code::kUnavailable, "the launch service is gone", "restart belljard");
  if (draining) return refuse(Code::kDraining, "the daemon is going down");
  std::size_t of_client = 0, runs = 0;
  for (const std::shared_ptr<SessionImpl>& session : sessions_) {
    if (session->state() == Session::State::kEnded) continue;
    runs += session->one_shot();
    // Each kind for itself, so that a run can stand in for a session that is refused.
    of_client += session->client() == client && session->one_shot() == one_shot;
  }
  if (config.sessions_of_a_client > 0 && of_client >= config.sessions_of_a_client)
    return with_limit<void>(
        refuse(Code::kQuota, "client \"" + client + "\" has " + std::to_string(of_client) +
                                 (one_shot ? " runs" : " sessions") + ", which is its share"),
        config.sessions_of_a_client);
  if (one_shot && runs >= config.max_runs)
    return with_limit<void>(
        refuse(Code::kCapacity,
               std::to_string(runs) + " runs are under way, the most there may be"),
        config.max_runs);
  if (slots.free_count() == 0)
    return with_limit<void>(
        refuse(Code::kCapacity, "maximum concurrent sessions (" +
                                    std::to_string(facts.max_sessions) +
                                    ") reached: no uid is free, and " +
                                    std::to_string(slots.quarantined_count()) + " are quarantined"),
        facts.max_sessions);
  if (starts.full()) return refuse(Code::kBusy, "too many starts wait already");
  return {};
}

/// The settings of a session are not here: who reads them holds the command to them. Variables can
/// make the policy's limit another one, which is known when the sandbox stands.
Outcome<void> Core::check_output(const SessionSpec& spec) const {
  if (!spec.command || !spec.command->output || !spec.variables.empty()) return {};
  for (const ServedPolicy& policy : facts.policies)
    if (policy.name == spec.policy && policy.output && *spec.command->output > *policy.output)
      return at_member(
          with_limit<void>(refuse(Code::kBeyondMaximum, "output is beyond the policy's own"),
                           *policy.output),
          spec.one_shot ? "/output" : "/command/output");
  return {};
}

Outcome<void> Core::check(const SessionSpec& spec) const {
  if (!is_name(spec.id, 64))
    return refuse(Code::kInvalid, "a session's id is 1 to 64 of A-Za-z0-9_-");
  if (const auto other = find(spec.id); other && other->state() != Session::State::kEnded)
    return refuse(Code::kExists, "session " + spec.id + " already exists");
  if (spec.ttl && (*spec.ttl <= Milliseconds(0) || *spec.ttl > config.max_ttl))
    return with_limit<void>(
        refuse(Code::kBeyondMaximum,
               "ttl is " + std::to_string(config.max_ttl.count() / 1000) + " s at most"),
        static_cast<std::uint64_t>(config.max_ttl.count() / 1000));
  if (spec.command && spec.command->argv.empty())
    return refuse(Code::kInvalid, "a command needs an argv");
  const Outcome<void> within = check_output(spec);
  if (!within) return within;
  if (!facts.sandboxed && wants_own_network(spec.settings))
    return at_member(refuse(Code::kRefused, "without a sandbox there is no network of its own",
                            "ask for \"shared\", or have the operator turn the sandbox on"),
                     "/network");
  if (spec.workspace && !spec.files.empty())
    return refuse(Code::kInvalid, "files are for workspaces that are made",
                  "write them into the workspace that is there");
  const bool served = std::ranges::any_of(
      facts.policies, [&](const ServedPolicy& policy) { return policy.name == spec.policy; });
  if (!served)
    return refuse(Code::kNotFound, "no policy is called \"" + spec.policy + "\"",
                  "name one of those that are served");
  return {};
}

Outcome<std::shared_ptr<SessionImpl>> Core::admit(SessionSpec spec) {
  if (spec.id.empty()) spec.id = make_id();
  if (spec.policy.empty()) spec.policy = config.policy;
  const Outcome<void> sound = check(spec);
  if (!sound) return tl::unexpected<Failure>(sound.error());
  const Outcome<void> fits = admits(spec.client, spec.one_shot);
  if (!fits) return tl::unexpected<Failure>(fits.error());
  std::optional<Lease> lease = slots.lease();
  if (!lease) return refuse(Code::kCapacity, "no uid is free");
  Place place;
  place.uid = lease->slot().uid;
  place.port = lease->slot().port;
  place.workspace = spec.workspace ? spec.workspace->path : facts.sessions_root + "/" + spec.id;
  if (spec.complete) {
    const std::string id = spec.id, policy = spec.policy;
    const auto complete = std::exchange(spec.complete, nullptr);
    const Outcome<void> completed = complete(spec, place);
    spec.id = id;
    spec.policy = policy;
    const Outcome<void> still_sound = completed ? check(spec) : completed;
    if (!still_sound) {
      lease->give_back();
      return tl::unexpected<Failure>(still_sound.error());
    }
  }
  for (const ServedPolicy& policy : facts.policies)
    if (policy.name == spec.policy && spec.command)
      spec.command->output = tighter(spec.command->output, policy.output);
  // An ended one of that name makes room.
  std::erase_if(sessions_, [&](const auto& session) { return session->id() == spec.id; });
  const auto session =
      std::make_shared<SessionImpl>(shared_from_this(), std::move(spec), std::move(*lease), place);
  sessions_.push_back(session);
  session->note("session.starting", nullptr, {}, {});
  return session;
}

void Core::settled(const std::shared_ptr<SessionImpl>& session) {
  if (session->failed()) {
    ++failed;
    session->note("session.failed", nullptr,
                  std::string(fault_name(session->brought_up()->error())), {});
  } else {
    ++created;
    lost += session->end_record() && session->end_record()->cause == "lost";
  }
  if (session->failed() || session->one_shot()) std::erase(sessions_, session);
  prune(clock->now());
  changed.notify();
}

// What has ended is kept for a time, as many and as much as the configuration says.
void Core::prune(TimePoint now) {
  std::size_t ended = 0, bytes = 0;
  std::set<const SessionImpl*> gone;
  for (auto session = sessions_.rbegin(); session != sessions_.rend(); ++session) {
    if ((*session)->state() != Session::State::kEnded) continue;
    ++ended;
    bytes += (*session)->memory();
    if (ended > config.retained_sessions || bytes > config.retained_bytes ||
        now - (*session)->ended_at() >= config.retention)
      gone.insert(session->get());
  }
  if (!gone.empty())
    std::erase_if(sessions_, [&](const auto& session) { return gone.contains(session.get()); });
}

// The service.

Awaitable<Outcome<Reply>> Core::ask(Request request, Milliseconds limit) {
  const std::shared_ptr<Core> self = shared_from_this();
  if (service_lost) co_return refuse(Code::kUnavailable, "the launch service is gone");
  co_return co_await service->ask(std::move(request), limit);
}

Awaitable<Outcome<std::uint64_t>> Core::sweep(std::uint32_t uid) {
  const std::shared_ptr<Core> self = shared_from_this();
  Json members;
  members["uid"] = uid;
  Request request("sweep", std::move(members));
  const Outcome<Reply> reply = co_await ask(std::move(request), kAskLimit);
  BELLJAR_CO_TRY(reply);
  const std::optional<std::uint64_t> left = number_of(reply->ok, "left");
  if (!left)
    co_return refuse(Code::kLost, "sweep: the launch service did not say how many are left");
  co_return *left;
}

Awaitable<Outcome<void>> Core::remove_workspace(std::string workspace, Milliseconds patience) {
  const std::shared_ptr<Core> self = shared_from_this();
  Json members;
  members["workspace"] = workspace;
  const TimePoint deadline = clock->now() + patience;
  Request first("remove", members);
  Outcome<Reply> reply = co_await ask(std::move(first), kFileWorkLimit);
  // Its directory is still being handed over: that has to end first, and has a limit.
  while (!reply && reply.error().code == Code::kBusy && clock->now() < deadline) {
    Notifier pause(executor, clock);
    co_await pause.wait_until(clock->now() + kBusyPause);
    Request again("remove", members);
    reply = co_await ask(std::move(again), kFileWorkLimit);
  }
  BELLJAR_CO_TRY(reply);
  const std::optional<std::uint64_t> left = number_of(reply->ok, "left");
  if (!left) co_return refuse(Code::kLost, "remove: the launch service did not say what is left");
  if (*left > 0)
    co_return refuse(Code::kSystem, std::to_string(*left) + " entries of workspace " + workspace +
                                        " could not be removed");
  co_return Outcome<void>();
}

void Core::service_closed(const std::string& why) {
  if (std::exchange(service_lost, true)) return;
  Event event;
  event.type = "service.lost";
  event.cause = why;
  events.add(std::move(event));
  // Their monitors end with the service; one that does not is let go by the end of its lifeline.
  for (const std::shared_ptr<SessionImpl>& session : sessions())
    session->lose("the launch service is gone: " + why);
  changed.notify();
  if (const auto tell = std::exchange(on_service_lost, nullptr)) tell();
}

// Whatever still goes on finds itself alone; sessions hold this, and so must not be held by it.
void Core::stop() {
  stopped = true;
  on_service_lost = nullptr;
  service->close("the supervisor has ended");
  sessions_.clear();
}

// Keeping house.

void Core::quarantine(Lease lease, std::string workspace, const std::string& why) {
  Event event;
  event.type = "slot.quarantined";
  event.session = workspace;
  event.cause = why;
  events.add(std::move(event));
  if (!lease.held()) return;
  if (workspace.empty()) {
    left_behind_.erase(lease.slot().index);
  } else {
    left_behind_[lease.slot().index] = std::move(workspace);
  }
  lease.quarantine();
}

Awaitable<void> Core::retry_quarantined() {
  for (const std::uint32_t index : slots.quarantined()) {
    if (stopped || service_lost) co_return;
    std::optional<Lease> lease = slots.retry(index);
    if (!lease) continue;
    if (facts.privileged) {
      const Outcome<std::uint64_t> left = co_await sweep(lease->slot().uid);
      if (!left || *left > 0) continue;
    }
    if (const auto behind = left_behind_.find(index); behind != left_behind_.end()) {
      const Outcome<void> removed = co_await remove_workspace(behind->second, Milliseconds(0));
      if (!removed) continue;
      left_behind_.erase(index);
    }
    lease->give_back();
    Event event;
    event.type = "slot.recovered";
    event.cause = "uid " + std::to_string(lease->slot().uid);
    events.add(std::move(event));
  }
}

/// Nothing tells when somebody removes a directory that a session has been given.
Awaitable<void> Core::look_for_workspaces() {
  const auto elsewhere = [](const auto& session) {
    return session->works_elsewhere() && session->state() == Session::State::kRunning;
  };
  if (std::ranges::none_of(sessions_, elsewhere)) co_return;
  Request request("gone", Json::object());
  const Outcome<Reply> reply = co_await ask(std::move(request), kAskLimit);
  if (!reply) co_return;
  const auto names = reply->ok.find("workspaces");
  if (names == reply->ok.end() || !names->is_array()) co_return;
  for (const Json& name : *names)
    if (const auto session = name.is_string() ? find(name.get<std::string>()) : nullptr)
      if (session->works_elsewhere()) session->request_end(EndedBy::kWorkspaceGone);
}

Awaitable<void> Core::keep_house() {
  const std::shared_ptr<Core> self = shared_from_this();
  TimePoint next_retry = clock->now() + kRetryQuarantine;
  while (!stopped) {
    Notifier pause(executor, clock);
    co_await pause.wait_until(clock->now() + kHousekeeping);
    if (stopped) break;
    const TimePoint now = clock->now();
    for (const std::shared_ptr<SessionImpl>& session : sessions()) session->check_expiry(now);
    co_await look_for_workspaces();
    prune(now);
    if (now < next_retry) continue;
    next_retry = now + kRetryQuarantine;
    co_await retry_quarantined();
  }
}

}  // namespace belljar::supervisor
