#include "supervisor/journal.hpp"

#include <algorithm>
#include <utility>

namespace belljar::supervisor {
namespace {

constexpr std::size_t kBlockSize = std::size_t{16} << 10;
/// Bytes that come later than this after a block's first get a block, and thereby a time, of their
/// own.
constexpr std::chrono::milliseconds kSameTime(100);

}  // namespace

Journal::Journal(const asio::any_io_executor& executor, std::shared_ptr<Clock> clock,
                 JournalLimits limits)
    : limits_(limits), changed_(executor, std::move(clock)) {
  limits_.total = std::max(limits_.total, limits_.head + sizeof(Block) + kBlockSize);
}

std::uint64_t Journal::tail_begin() const { return tail_.empty() ? size_ : tail_.front().from; }

void Journal::append(std::string_view bytes) {
  if (finished_ || bytes.empty()) return;
  if (size_ == 0) head_time_ = changed_.clock().wall();
  if (size_ < limits_.head) {
    const std::string_view first = bytes.substr(0, limits_.head - static_cast<std::size_t>(size_));
    head_ += first;
    size_ += first.size();
    bytes.remove_prefix(first.size());
  }
  append_to_tail(bytes);
  changed_.notify();
}

void Journal::append_to_tail(std::string_view bytes) {
  const WallTime now = changed_.clock().wall();
  while (!bytes.empty()) {
    if (tail_.empty() || tail_.back().bytes.size() >= kBlockSize ||
        now - tail_.back().time > kSameTime) {
      tail_.push_back(Block{size_, now, {}});
      tail_memory_ += tail_.back().memory();
    }
    Block& block = tail_.back();
    const std::string_view part = bytes.substr(0, kBlockSize - block.bytes.size());
    tail_memory_ -= block.memory();
    block.bytes += part;
    tail_memory_ += block.memory();
    size_ += part.size();
    bytes.remove_prefix(part.size());
    while (limits_.head + tail_memory_ > limits_.total && tail_.size() > 1) {
      tail_memory_ -= tail_.front().memory();
      tail_.pop_front();
    }
  }
}

void Journal::finish() {
  if (finished_) return;
  finished_ = true;
  head_.shrink_to_fit();
  if (!tail_.empty()) {
    tail_memory_ -= tail_.back().memory();
    tail_.back().bytes.shrink_to_fit();
    tail_memory_ += tail_.back().memory();
  }
  changed_.notify();
}

const Journal::Block& Journal::block_at(std::uint64_t offset) const {
  const auto after =
      std::upper_bound(tail_.begin(), tail_.end(), offset,
                       [](std::uint64_t at, const Block& block) { return at < block.from; });
  return *std::prev(after);
}

Piece Journal::read(std::uint64_t offset, std::size_t max) const {
  Piece piece;
  piece.from = piece.to = offset;
  if (offset >= size_) {
    piece.kind = finished_ ? Piece::Kind::kEnd : Piece::Kind::kNothing;
    return piece;
  }
  if (offset >= head_.size() && offset < tail_begin()) {
    piece.kind = Piece::Kind::kGap;
    piece.to = tail_begin();
    return piece;
  }
  const bool in_head = offset < head_.size();
  const Block* block = in_head ? nullptr : &block_at(offset);
  const std::string& bytes = in_head ? head_ : block->bytes;
  piece.kind = Piece::Kind::kData;
  piece.data = bytes.substr(static_cast<std::size_t>(offset - (in_head ? 0 : block->from)), max);
  piece.to = offset + piece.data.size();
  piece.time = in_head ? head_time_ : block->time;
  return piece;
}

std::string Journal::tail(std::size_t max) const {
  std::uint64_t from = size_ > max ? size_ - max : 0;
  if (dropped() > 0) from = std::max(from, tail_begin());
  std::string text;
  while (from < size_) {
    const Piece piece = read(from, static_cast<std::size_t>(size_ - from));
    text += piece.data;
    from = piece.to;
  }
  return text;
}

Cursor::Cursor(std::shared_ptr<Journal> journal, std::uint64_t offset)
    : journal_(std::move(journal)), offset_(offset) {}

Piece Cursor::read(std::size_t max) {
  Piece piece = journal_->read(offset_, max);
  offset_ = piece.to;
  return piece;
}

Awaitable<bool> Cursor::wait(Milliseconds limit) {
  const std::shared_ptr<Journal> journal = journal_;
  const std::uint64_t offset = offset_;
  const auto something = [&] { return journal->read(offset, 0).kind != Piece::Kind::kNothing; };
  const TimePoint deadline = journal->changed().clock().now() + limit;
  co_return co_await wait_for(journal->changed(), something, deadline);
}

}  // namespace belljar::supervisor
