#include "api/v1/output_reader.hpp"

namespace belljar::api {

namespace asio = boost::asio;
using supervisor::Awaitable;
using supervisor::Journal;
using supervisor::Milliseconds;
using supervisor::Piece;

/// Wakes the reader when either journal has changed. The watchers may outlive the reader.
struct OutputReader::Watch {
  Watch(const asio::any_io_executor& executor, std::shared_ptr<supervisor::Clock> clock)
      : changed(executor, std::move(clock)) {}
  supervisor::Notifier changed;
  bool over = false;
};

OutputReader::OutputReader(const asio::any_io_executor& executor,
                           std::shared_ptr<supervisor::Supervisor> supervisor,
                           std::shared_ptr<supervisor::Process> process, Offsets from,
                           Wanted wanted)
    : supervisor_(std::move(supervisor)),
      process_(std::move(process)),
      at_{from.out, from.err},
      watch_(std::make_shared<Watch>(executor, supervisor_->clock())) {
  if (wanted.out) journals_[0] = process_->out();
  if (wanted.err && process_->err() != process_->out()) journals_[1] = process_->err();
  for (const auto& journal : journals_)
    if (journal && !journal->finished())
      asio::co_spawn(executor, watch(watch_, journal), asio::detached);
}

OutputReader::~OutputReader() {
  watch_->over = true;
  for (const auto& journal : journals_)
    if (journal) journal->changed().notify();
}

Awaitable<void> OutputReader::watch(std::shared_ptr<Watch> shared,
                                    std::shared_ptr<Journal> journal) {
  while (!shared->over && !journal->finished()) {
    co_await journal->changed().wait();
    shared->changed.notify();
  }
}

OutputReader::Next OutputReader::next(std::size_t max) {
  Next found;
  bool ended = true;
  for (std::size_t i = 0; i < journals_.size(); ++i) {
    const std::size_t index = (turn_ + i) % journals_.size();
    if (!journals_[index]) continue;
    found.stream = index == 0 ? OutputStream::kOut : OutputStream::kErr;
    found.piece = journals_[index]->read(at_[index], max);
    if (found.piece.kind == Piece::Kind::kData || found.piece.kind == Piece::Kind::kGap) {
      at_[index] = found.piece.to;
      turn_ = index + 1;
      return found;
    }
    ended = ended && found.piece.kind == Piece::Kind::kEnd;
  }
  found.piece.kind = ended ? Piece::Kind::kEnd : Piece::Kind::kNothing;
  return found;
}

bool OutputReader::something() const {
  bool ended = true;
  for (std::size_t i = 0; i < journals_.size(); ++i) {
    if (!journals_[i]) continue;
    const Piece::Kind kind = journals_[i]->read(at_[i], 0).kind;
    if (kind == Piece::Kind::kData || kind == Piece::Kind::kGap) return true;
    ended = ended && kind == Piece::Kind::kEnd;
  }
  return ended;
}

Awaitable<bool> OutputReader::wait(Milliseconds limit) {
  const auto changed = [this] { return something(); };
  const auto deadline = supervisor_->clock()->now() + limit;
  co_return co_await supervisor::wait_for(watch_->changed, changed, deadline);
}

}  // namespace belljar::api
