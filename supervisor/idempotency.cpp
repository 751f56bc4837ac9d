#include "supervisor/idempotency.hpp"

#include <utility>

namespace belljar::supervisor {

std::size_t IdempotencyStore::Entry::memory() const {
  return sizeof(Entry) + digest.size() +
         (answer ? answer->location.size() + answer->body.size() : 0);
}

IdempotencyStore::IdempotencyStore(const asio::any_io_executor& executor,
                                   std::shared_ptr<Clock> clock, Limits limits)
    : limits_(limits), changed_(executor, std::move(clock)) {}

Awaitable<Outcome<std::optional<StoredAnswer>>> IdempotencyStore::claim(Key key, std::string digest,
                                                                        Milliseconds limit) {
  const TimePoint deadline = changed_.clock().now() + limit;
  const auto settled = [&] {
    const auto entry = entries_.find(key);
    return entry == entries_.end() || entry->second.digest != digest || entry->second.answer;
  };
  make_room();
  if (!co_await wait_for(changed_, settled, deadline))
    co_return refuse(Code::kBusy,
                     "a request with idempotency key \"" + key.key + "\" is still under way",
                     "ask again with the same key");
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) {
    by_age_.push_back(key);
    Entry fresh;
    fresh.digest = std::move(digest);
    fresh.until = changed_.clock().now() + limits_.keep;
    fresh.age = std::prev(by_age_.end());
    bytes_ += fresh.memory();
    entries_.emplace(std::move(key), std::move(fresh));
    co_return std::nullopt;
  }
  if (entry->second.digest != digest)
    co_return refuse(Code::kConflict,
                     "idempotency key \"" + key.key + "\" came with another body before",
                     "take a new key for a new request");
  co_return entry->second.answer;
}

void IdempotencyStore::finish(const Key& key, StoredAnswer answer) {
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) return;
  bytes_ -= entry->second.memory();
  entry->second.answer = std::move(answer);
  bytes_ += entry->second.memory();
  make_room();
  changed_.notify();
}

void IdempotencyStore::abandon(const Key& key) {
  forget(key);
  changed_.notify();
}

void IdempotencyStore::forget(const Key& key) {
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) return;
  bytes_ -= entry->second.memory();
  by_age_.erase(entry->second.age);
  entries_.erase(entry);
}

// What is under way is never forgotten: it would be done twice.
void IdempotencyStore::make_room() {
  const TimePoint now = changed_.clock().now();
  for (auto oldest = by_age_.begin(); oldest != by_age_.end();) {
    const Key key = *oldest++;
    const Entry& entry = entries_.at(key);
    const bool full = entries_.size() > limits_.entries || bytes_ > limits_.bytes;
    if (!full && entry.until > now) break;
    if (entry.answer) forget(key);
  }
}

}  // namespace belljar::supervisor
