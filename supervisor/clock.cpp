#include "supervisor/clock.hpp"

#include <utility>
#include <vector>

namespace belljar::supervisor {
namespace {

class SteadyClock final : public Clock {
 public:
  explicit SteadyClock(asio::io_context& loop) : timer_(loop) {}
  [[nodiscard]] TimePoint now() const override { return std::chrono::steady_clock::now(); }
  [[nodiscard]] WallTime wall() const override { return std::chrono::system_clock::now(); }

  Ticket call_at(TimePoint when, std::function<void()> what) override {
    const Ticket ticket = ++last_;
    when_.emplace(ticket, when);
    calls_.emplace(std::pair{when, ticket}, std::move(what));
    if (calls_.begin()->first.second == ticket) arm();
    return ticket;
  }

  void cancel(Ticket ticket) override {
    const auto found = when_.find(ticket);
    if (found == when_.end()) return;
    calls_.erase({found->second, ticket});
    when_.erase(found);
  }

 private:
  // A timer that was set too early, for a call that is cancelled by now, does nothing but set
  // itself again.
  void arm() {
    if (calls_.empty()) return;
    timer_.expires_at(calls_.begin()->first.first);
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) fire();
    });
  }

  void fire() {
    const TimePoint until = now();
    while (!calls_.empty() && calls_.begin()->first.first <= until) {
      auto call = calls_.extract(calls_.begin());
      when_.erase(call.key().second);
      call.mapped()();
    }
    arm();
  }

  asio::steady_timer timer_;
  Ticket last_ = 0;
  std::map<Ticket, TimePoint> when_;
  std::map<std::pair<TimePoint, Ticket>, std::function<void()>> calls_;
};

}  // namespace

std::shared_ptr<Clock> steady_clock(asio::io_context& loop) {
  return std::make_shared<SteadyClock>(loop);
}

Clock::Ticket TestClock::call_at(TimePoint when, std::function<void()> what) {
  const Ticket ticket = ++last_;
  calls_.emplace(std::pair{when, ticket}, std::move(what));
  return ticket;
}

void TestClock::cancel(Ticket ticket) {
  for (auto call = calls_.begin(); call != calls_.end(); ++call) {
    if (call->first.second != ticket) continue;
    calls_.erase(call);
    return;
  }
}

void TestClock::advance(Milliseconds by) {
  now_ += by;
  wall_ += by;
  std::vector<std::function<void()>> due;
  while (!calls_.empty() && calls_.begin()->first.first <= now_)
    due.push_back(std::move(calls_.extract(calls_.begin()).mapped()));
  for (auto& call : due) asio::post(loop_, std::move(call));
}

TimePoint TestClock::next() const {
  return calls_.empty() ? TimePoint::max() : calls_.begin()->first.first;
}

Notifier::Notifier(const asio::any_io_executor& executor, std::shared_ptr<Clock> clock)
    : timer_(std::make_shared<asio::steady_timer>(executor, TimePoint::max())),
      clock_(std::move(clock)) {}

void Notifier::notify() { timer_->cancel(); }

Awaitable<void> Notifier::wait() {
  const std::shared_ptr<asio::steady_timer> timer = timer_;
  co_await timer->async_wait(kAsTuple);
}

namespace {

// Takes the call back when the waiter is gone, however it went.
struct Alarm {
  Alarm(Clock& owner, TimePoint when, const std::shared_ptr<asio::steady_timer>& timer)
      : clock(owner), ticket(clock.call_at(when, [weak = std::weak_ptr(timer)] {
          if (const auto alive = weak.lock()) alive->cancel();
        })) {}
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
  ~Alarm() { clock.cancel(ticket); }
  Clock& clock;
  Clock::Ticket ticket;
};

}  // namespace

Awaitable<void> Notifier::wait_until(TimePoint deadline) {
  if (deadline == TimePoint::max()) {
    co_await wait();
    co_return;
  }
  const std::shared_ptr<asio::steady_timer> timer = timer_;
  const std::shared_ptr<Clock> clock = clock_;
  const Alarm alarm(*clock, deadline, timer);
  co_await timer->async_wait(kAsTuple);
}

}  // namespace belljar::supervisor
