// Events: what happened to sessions, in a ring that readers can resume from.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "supervisor/clock.hpp"

namespace belljar::supervisor {

struct Event {
  std::uint64_t id = 0;  ///< From 1, without holes.
  WallTime time;
  /// "session.starting", "session.running", "session.ending", "session.ended", "session.failed",
  /// "session.degraded", "process.started", "process.stopped", "process.continued",
  /// "process.ended", "slot.quarantined", "slot.recovered", "service.lost", "draining".
  std::string type;
  std::string session, client;
  std::optional<std::uint32_t> process;
  std::string cause;
  std::string detail;  ///< JSON text: the record of an end, the degradations; or empty.
};

/// The last `capacity` events. Nobody who reads slowly holds anybody up: he meets a gap.
class Events {
 public:
  Events(const asio::any_io_executor& executor, std::shared_ptr<Clock> clock,
         std::size_t capacity = 10000);

  /// Gives it id and time, keeps it, and tells the listeners.
  void add(Event event);
  /// Called with each event as it comes, for audit and metrics; must not throw and not wait.
  void on_event(std::function<void(const Event&)> listener);

  struct Page {
    std::vector<Event> events;
    /// Ids [first, second) that are gone, before `events`.
    std::optional<std::pair<std::uint64_t, std::uint64_t>> gap;
  };
  /// What came after `id`, at most `max`.
  [[nodiscard]] Page after(std::uint64_t id, std::size_t max) const;
  /// Waits until something came after `id`, at most `limit`; whether it did.
  [[nodiscard]] Awaitable<bool> wait_after(std::uint64_t id, Milliseconds limit);
  [[nodiscard]] std::uint64_t last() const { return last_; }

 private:
  std::size_t capacity_;
  std::uint64_t last_ = 0;
  std::deque<Event> ring_;
  std::vector<std::function<void(const Event&)>> listeners_;
  Notifier changed_;
};

}  // namespace belljar::supervisor
