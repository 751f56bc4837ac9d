#include "supervisor/events.hpp"

#include <algorithm>
#include <utility>

namespace belljar::supervisor {

Events::Events(const asio::any_io_executor& executor, std::shared_ptr<Clock> clock,
               std::size_t capacity)
    : capacity_(capacity), changed_(executor, std::move(clock)) {}

void Events::add(Event event) {
  event.id = ++last_;
  event.time = changed_.clock().wall();
  if (ring_.size() >= capacity_) ring_.pop_front();
  ring_.push_back(std::move(event));
  for (const auto& listener : listeners_) listener(ring_.back());
  changed_.notify();
}

void Events::on_event(std::function<void(const Event&)> listener) {
  listeners_.push_back(std::move(listener));
}

Events::Page Events::after(std::uint64_t id, std::size_t max) const {
  Page page;
  if (ring_.empty() || id >= last_) return page;
  const std::uint64_t first = ring_.front().id;
  if (id + 1 < first) page.gap = {id + 1, first};
  const std::size_t skip = id < first ? 0 : static_cast<std::size_t>(id - first + 1);
  const auto from = ring_.begin() + static_cast<std::ptrdiff_t>(skip);
  const std::size_t count = std::min(max, ring_.size() - skip);
  page.events.assign(from, from + static_cast<std::ptrdiff_t>(count));
  return page;
}

Awaitable<bool> Events::wait_after(std::uint64_t id, Milliseconds limit) {
  const auto newer = [this, id] { return last_ > id; };
  const TimePoint deadline = changed_.clock().now() + limit;
  co_return co_await wait_for(changed_, newer, deadline);
}

}  // namespace belljar::supervisor
