// Time, and waiting for it: one clock for the whole supervisor, so that tests can move it by hand.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>

#include "supervisor/asio.hpp"

namespace belljar::supervisor {

using Milliseconds = std::chrono::milliseconds;
using TimePoint = std::chrono::steady_clock::time_point;
using WallTime = std::chrono::system_clock::time_point;

/// When it is, and a call at a given time. The owner of what is called cancels the call first.
class Clock {
 public:
  using Ticket = std::uint64_t;
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;

  [[nodiscard]] virtual TimePoint now() const = 0;
  [[nodiscard]] virtual WallTime wall() const = 0;
  /// Calls `what` from the loop once `when` has come; never from within `call_at`.
  virtual Ticket call_at(TimePoint when, std::function<void()> what) = 0;
  /// Nothing happens where it has been called already.
  virtual void cancel(Ticket ticket) = 0;
};

/// The monotonic clock of the kernel.
[[nodiscard]] std::shared_ptr<Clock> steady_clock(asio::io_context& loop);

/// Stands still until it is told to move.
class TestClock final : public Clock {
 public:
  explicit TestClock(asio::io_context& loop) : loop_(loop) {}
  [[nodiscard]] TimePoint now() const override { return now_; }
  [[nodiscard]] WallTime wall() const override { return wall_; }
  Ticket call_at(TimePoint when, std::function<void()> what) override;
  void cancel(Ticket ticket) override;
  /// Moves on, and posts every call that has come due, in order.
  void advance(Milliseconds by);
  /// When the next call is due; TimePoint::max() where none is.
  [[nodiscard]] TimePoint next() const;

 private:
  asio::io_context& loop_;
  TimePoint now_{std::chrono::hours(1)};
  WallTime wall_{std::chrono::hours(500000)};
  Ticket last_ = 0;
  std::map<std::pair<TimePoint, Ticket>, std::function<void()>> calls_;
};

/// A condition variable for coroutines of one loop: who waits looks at what he waits for again
/// after each wake-up. A waiting coroutine that is cancelled leaves with an exception, as Asio's
/// do.
class Notifier {
 public:
  Notifier(const asio::any_io_executor& executor, std::shared_ptr<Clock> clock);

  /// Wakes whoever waits now.
  void notify();
  /// Until the next `notify`, or until `deadline`.
  [[nodiscard]] Awaitable<void> wait_until(TimePoint deadline);
  [[nodiscard]] Awaitable<void> wait();
  [[nodiscard]] Clock& clock() const { return *clock_; }

 private:
  std::shared_ptr<asio::steady_timer> timer_;  ///< Shared: a waiter may outlive its Notifier.
  std::shared_ptr<Clock> clock_;
};

/// Waits until `holds()`, at most until `deadline`; whether it holds then. `holds` is called
/// between suspensions only, and must be a named object: see the rule on lambdas in coroutines.
template <class Predicate>
Awaitable<bool> wait_for(Notifier& notifier, Predicate holds, TimePoint deadline) {
  while (!holds()) {
    if (notifier.clock().now() >= deadline) co_return false;
    co_await notifier.wait_until(deadline);
  }
  co_return true;
}

}  // namespace belljar::supervisor
