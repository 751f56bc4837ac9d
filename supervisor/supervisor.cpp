#include "supervisor/supervisor.hpp"

#include <csignal>
#include <utility>

#include "supervisor/session_impl.hpp"

namespace belljar::supervisor {
namespace {

constexpr Milliseconds kHelloLimit{10000};
constexpr Milliseconds kSelfTestLimit{35000};
/// Beyond the grace, of the answer to an `end` and of a drain.
constexpr Milliseconds kEndLimit{1000};
constexpr Milliseconds kDrainLimit{10000};

Outcome<ServiceFacts> facts_of(const Json& hello) {
  ServiceFacts facts;
  facts.version = text_of(hello, "version").value_or("");
  facts.back_end = text_of(hello, "back_end").value_or("");
  facts.sessions_root = text_of(hello, "sessions_root").value_or("");
  facts.sandboxed = text_of(hello, "sandbox").value_or("") != "off";
  const auto privileged = hello.find("privileged");
  const std::optional<std::uint64_t> uid = number_of(hello, "uid"),
                                     base = number_of(hello, "uid_base"),
                                     count = number_of(hello, "max_sessions");
  if (privileged == hello.end() || !privileged->is_boolean() || !count ||
      facts.sessions_root.empty())
    return refuse(Code::kLost, "hello: the launch service does not say what it has");
  facts.privileged = privileged->get<bool>();
  const std::optional<std::uint64_t> first = facts.privileged ? base : uid;
  if (!first || *first + *count > 4294967294 || *count == 0 || *count > 1000000 ||
      (facts.privileged && *first == 0))
    return refuse(Code::kLost, "hello: the launch service's pool makes no sense");
  facts.uid_base = static_cast<std::uint32_t>(*first);
  facts.max_sessions = static_cast<std::uint32_t>(*count);
  const auto policies = hello.find("policies");
  if (policies == hello.end() || !policies->is_array()) return facts;
  for (const Json& one : *policies) {
    ServedPolicy policy;
    policy.name = text_of(one, "name").value_or("");
    policy.digest = text_of(one, "digest").value_or("");
    policy.network = text_of(one, "network").value_or("");
    if (const auto limit = number_of(one, "wall_time_ms"))
      policy.wall_time = Milliseconds(static_cast<std::int64_t>(*limit));
    policy.output = number_of(one, "output");
    facts.policies.push_back(std::move(policy));
  }
  return facts;
}

class SupervisorImpl final : public Supervisor {
 public:
  explicit SupervisorImpl(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  SupervisorImpl(const SupervisorImpl&) = delete;
  SupervisorImpl& operator=(const SupervisorImpl&) = delete;
  /// The end of the service's socket is the end of every sandbox.
  ~SupervisorImpl() override { core_->stop(); }

  [[nodiscard]] Awaitable<Outcome<std::shared_ptr<Session>>> create(SessionSpec spec) override;
  [[nodiscard]] std::shared_ptr<Session> find(std::string_view id) const override {
    return core_->find(id);
  }
  [[nodiscard]] std::vector<std::shared_ptr<Session>> list() const override {
    const std::vector<std::shared_ptr<SessionImpl>> all = core_->sessions();
    return {all.begin(), all.end()};
  }
  [[nodiscard]] Awaitable<Outcome<bool>> end(std::string id, EndedBy by) override;

  [[nodiscard]] const Config& config() const override { return core_->config; }
  [[nodiscard]] const ServiceFacts& service() const override { return core_->facts; }
  [[nodiscard]] Counts counts() const override;
  [[nodiscard]] Outcome<void> admits(const std::string& client) const override {
    return core_->admits(client, /*one_shot=*/false);
  }
  [[nodiscard]] Events& events() override { return core_->events; }
  [[nodiscard]] IdempotencyStore& idempotency() override { return core_->idempotency; }
  [[nodiscard]] const std::shared_ptr<Clock>& clock() const override { return core_->clock; }
  [[nodiscard]] Awaitable<Outcome<SelfTest>> self_test() override;
  [[nodiscard]] bool healthy() const override { return !core_->service_lost; }
  void on_service_lost(std::function<void()> what) override {
    core_->on_service_lost = std::move(what);
  }

  void begin_drain() override;
  [[nodiscard]] Awaitable<void> drain(Milliseconds limit) override;
  void hurry() override {
    core_->hurried = true;
    core_->changed.notify();
  }

 private:
  std::shared_ptr<Core> core_;
};

void start_life(const std::shared_ptr<SessionImpl>& session) {
  asio::co_spawn(session->core().executor, SessionImpl::live(session),
                 [session](const std::exception_ptr& broken) {
                   if (broken) session->broke();
                 });
}

Awaitable<Outcome<std::shared_ptr<Session>>> SupervisorImpl::create(SessionSpec spec) {
  const std::shared_ptr<Core> core = core_;
  const Outcome<std::shared_ptr<SessionImpl>> admitted = core->admit(std::move(spec));
  if (!admitted) co_return tl::unexpected<Failure>(admitted.error());
  const std::shared_ptr<SessionImpl> session = *admitted;
  start_life(session);
  // One that failed is answered for when nothing of it is left; one that cannot be cleared away is
  // quarantined by then, so that this ends.
  const auto known = [&] {
    return session->brought_up() &&
           (session->brought_up()->has_value() || session->state() == Session::State::kEnded);
  };
  (void)co_await wait_for(session->changed(), known, TimePoint::max());
  if (session->failed()) co_return tl::unexpected<Failure>(session->brought_up()->error());
  co_return session;
}

Awaitable<Outcome<bool>> SupervisorImpl::end(std::string id, EndedBy by) {
  const std::shared_ptr<SessionImpl> session = core_->find(id);
  if (!session) co_return refuse(Code::kNotFound, "there is no session " + id);
  session->request_end(by);
  co_return co_await session->wait_ended(session->grace() + kEndLimit);
}

Counts SupervisorImpl::counts() const {
  Counts counts;
  for (const std::shared_ptr<SessionImpl>& session : core_->sessions()) {
    const Session::State state = session->state();
    counts.starting += state == Session::State::kStarting;
    counts.running += state == Session::State::kRunning;
    counts.ending += state == Session::State::kEnding;
    counts.ended += state == Session::State::kEnded;
    counts.runs += session->one_shot() && state != Session::State::kEnded;
    counts.processes += session->running_processes();
  }
  counts.slots_free = core_->slots.free_count();
  counts.slots_leased = core_->slots.leased_count();
  counts.slots_quarantined = core_->slots.quarantined_count();
  counts.starts_waiting = core_->starts.waiting();
  counts.starts_under_way = core_->starts.under_way();
  counts.created = core_->created;
  counts.failed = core_->failed;
  counts.lost = core_->lost;
  return counts;
}

Awaitable<Outcome<SelfTest>> SupervisorImpl::self_test() {
  const std::shared_ptr<Core> core = core_;
  Request request("selftest", Json::object());
  const Outcome<Reply> reply = co_await core->ask(std::move(request), kSelfTestLimit);
  BELLJAR_CO_TRY(reply);
  SelfTest test;
  const auto missing = reply->ok.find("missing");
  test.ok = flag_of(reply->ok, "ok");
  test.sandbox = text_of(reply->ok, "sandbox").value_or("");
  test.missing = missing != reply->ok.end() && missing->is_array() ? dumped(*missing) : "[]";
  co_return test;
}

void SupervisorImpl::begin_drain() {
  if (std::exchange(core_->draining, true)) return;
  Event event;
  event.type = "draining";
  core_->events.add(std::move(event));
}

Awaitable<void> SupervisorImpl::drain(Milliseconds limit) {
  const std::shared_ptr<Core> core = core_;
  begin_drain();
  const auto done = [&] { return core->hurried || core->service_lost || core->live() == 0; };
  const TimePoint patience = core->clock->now() + limit;
  (void)co_await wait_for(core->changed, done, patience);
  for (const std::shared_ptr<SessionImpl>& session : core->sessions())
    session->request_end(EndedBy::kDrain);
  const auto empty = [&] { return core->live() == 0; };
  const TimePoint deadline = core->clock->now() + kDrainLimit;
  (void)co_await wait_for(core->changed, empty, deadline);
}

}  // namespace

Awaitable<Outcome<std::shared_ptr<Supervisor>>> Supervisor::start(asio::io_context& loop,
                                                                  UniqueFd service, Config config,
                                                                  std::shared_ptr<Clock> clock) {
  // A program that closes its stdin is no reason for the daemon to die.
  std::signal(SIGPIPE, SIG_IGN);
  const auto channel = std::make_shared<Channel>(loop.get_executor(), clock, std::move(service),
                                                 "the launch service");
  const auto core_place = std::make_shared<std::weak_ptr<Core>>();
  channel->open(
      [weak = std::weak_ptr(channel)](const std::string& name, const Json&) {
        if (const auto alive = weak.lock()) alive->close("it told of \"" + name + "\", unasked");
      },
      [core_place](const std::string& why) {
        if (const auto core = core_place->lock()) core->service_closed(why);
      });
  Request request("hello", Json::object());
  const Outcome<Reply> reply = co_await channel->ask(std::move(request), kHelloLimit);
  Outcome<ServiceFacts> facts =
      reply ? facts_of(reply->ok) : tl::unexpected<Failure>(reply.error());
  if (facts && facts->max_sessions + config.port_base > 65536)
    facts =
        refuse(Code::kInvalid,
               "ports " + std::to_string(config.port_base) + " to " +
                   std::to_string(config.port_base + facts->max_sessions - 1) + " go beyond 65535",
               "lower port_base or max_sessions");
  if (!facts) {
    channel->close("the supervisor did not start");
    co_return tl::unexpected<Failure>(facts.error());
  }
  const auto core =
      std::make_shared<Core>(loop, clock, channel, std::move(config), std::move(*facts));
  *core_place = core;
  if (channel->closed()) co_return refuse(Code::kUnavailable, "the launch service is gone");
  asio::co_spawn(core->executor, core->keep_house(), asio::detached);
  co_return std::make_shared<SupervisorImpl>(core);
}

}  // namespace belljar::supervisor
