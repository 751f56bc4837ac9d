// Journal: what a process has written, each byte with an offset, in bounded memory.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "supervisor/clock.hpp"

namespace belljar::supervisor {

/// What a reader gets from one place of a journal.
struct Piece {
  enum class Kind {
    kData,     ///< `data` begins at `from` and ends before `to`.
    kGap,      ///< The bytes [from, to) are gone: they came too fast, or long ago.
    kNothing,  ///< Nothing yet at `from`.
    kEnd,      ///< Nothing will come any more: all of [0, from) was written.
  };
  Kind kind = Kind::kNothing;
  std::uint64_t from = 0, to = 0;
  std::string data;
  WallTime time;  ///< About when `data` was read from the process.
};

/// How much a journal keeps: its first bytes for good, and the last ones.
struct JournalLimits {
  std::size_t head = std::size_t{64} << 10;
  std::size_t total = std::size_t{1} << 20;  ///< Head and tail together; at least the head.
};

/// Written by the supervisor from the moment that the process starts, whether or not anybody reads;
/// read by any number of Cursors. Appending never waits: what does not fit pushes out the oldest
/// bytes after the head, and a reader who was there meets a gap.
class Journal {
 public:
  Journal(const asio::any_io_executor& executor, std::shared_ptr<Clock> clock,
          JournalLimits limits);

  void append(std::string_view bytes);
  /// The end of the stream. What is appended later is dropped.
  void finish();

  [[nodiscard]] bool finished() const { return finished_; }
  /// How many bytes were ever written: the offset of the next one.
  [[nodiscard]] std::uint64_t size() const { return size_; }
  /// How many of them are gone.
  [[nodiscard]] std::uint64_t dropped() const { return tail_begin() - head_.size(); }
  /// Bytes of memory that it holds.
  [[nodiscard]] std::size_t memory() const { return head_.capacity() + tail_memory_; }

  /// What is at `offset`, at most `max` bytes of it; `max` of 0 asks for the kind alone.
  [[nodiscard]] Piece read(std::uint64_t offset, std::size_t max) const;
  /// The last `max` bytes at most of those that are still there without a gap.
  [[nodiscard]] std::string tail(std::size_t max) const;
  /// Woken at each append and at the end.
  [[nodiscard]] Notifier& changed() { return changed_; }

 private:
  struct Block {
    std::uint64_t from;
    WallTime time;
    std::string bytes;
    [[nodiscard]] std::size_t memory() const { return sizeof(Block) + bytes.capacity(); }
  };
  [[nodiscard]] std::uint64_t tail_begin() const;
  void append_to_tail(std::string_view bytes);
  [[nodiscard]] const Block& block_at(std::uint64_t offset) const;

  JournalLimits limits_;
  std::string head_;
  WallTime head_time_;
  std::deque<Block> tail_;
  std::size_t tail_memory_ = 0;
  std::uint64_t size_ = 0;
  bool finished_ = false;
  Notifier changed_;
};

/// One reader's place in a journal. Keeps the journal alive; many may read one.
class Cursor {
 public:
  explicit Cursor(std::shared_ptr<Journal> journal, std::uint64_t offset = 0);

  /// What is next, at most `max` bytes, and moves past it. After a gap, the data behind it.
  [[nodiscard]] Piece read(std::size_t max);
  /// Waits until `read` gives something else than kNothing, at most `limit`; whether it does.
  [[nodiscard]] Awaitable<bool> wait(Milliseconds limit);
  [[nodiscard]] std::uint64_t offset() const { return offset_; }

 private:
  std::shared_ptr<Journal> journal_;
  std::uint64_t offset_;
};

}  // namespace belljar::supervisor
