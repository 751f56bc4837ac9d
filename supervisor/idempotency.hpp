// Idempotency keys: a request that is sent twice is done once.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "supervisor/clock.hpp"
#include "supervisor/failure.hpp"

namespace belljar::supervisor {

/// The answer that is given again: opaque here.
struct StoredAnswer {
  int status = 0;
  std::string location, body;
};

/// The answers to keys that clients sent, for a time and in bounded memory; the oldest go first.
class IdempotencyStore {
 public:
  struct Limits {
    std::size_t entries = 10000;
    std::size_t bytes = std::size_t{16} << 20;
    std::chrono::milliseconds keep = std::chrono::hours(24);
  };
  struct Key {
    std::string client, key;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  IdempotencyStore(const asio::any_io_executor& executor, std::shared_ptr<Clock> clock,
                   Limits limits);

  /// What a request with `key` and a body of `digest` is to do. Nothing: go on, and call `finish`
  /// or `abandon`. An answer: give it again. kConflict: the key came with another body. A request
  /// that is still under way with this key is waited for, at most `limit` (kBusy).
  [[nodiscard]] Awaitable<Outcome<std::optional<StoredAnswer>>> claim(Key key, std::string digest,
                                                                      Milliseconds limit);
  void finish(const Key& key, StoredAnswer answer);
  /// The request came to nothing that is worth repeating: the key is free again.
  void abandon(const Key& key);
  [[nodiscard]] std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string digest;
    std::optional<StoredAnswer> answer;  ///< Absent while it is under way.
    TimePoint until;
    std::list<Key>::iterator age;
    [[nodiscard]] std::size_t memory() const;
  };
  void forget(const Key& key);
  void make_room();

  Limits limits_;
  std::map<Key, Entry> entries_;
  std::list<Key> by_age_;
  std::size_t bytes_ = 0;
  Notifier changed_;
};

}  // namespace belljar::supervisor
