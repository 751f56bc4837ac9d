// The pipes between a process and the daemon: its output into journals, its stdin from a client.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "policy/base/unique_fd.hpp"
#include "supervisor/asio.hpp"
#include "supervisor/failure.hpp"
#include "supervisor/journal.hpp"

namespace belljar::supervisor {

/// Reads one descriptor into a journal, from its start to its end, whoever listens.
class Pump : public std::enable_shared_from_this<Pump> {
 public:
  /// How many of so many new bytes the journal may have.
  using Allowance = std::function<std::size_t(std::size_t)>;

  Pump(const asio::any_io_executor& executor, UniqueFd from, std::shared_ptr<Journal> journal,
       Allowance allowance);

  /// `on_end` is called once, from the loop, at the end of file; not where `stop` came first.
  void start(std::function<void()> on_end);
  /// Takes what is there now, without waiting.
  void take_now();
  /// The same, and ends.
  void stop();
  [[nodiscard]] bool done() const { return done_; }

 private:
  [[nodiscard]] Awaitable<void> run(std::function<void()> on_end);
  enum class Got { kBytes, kNothing, kEnd };
  [[nodiscard]] Got read_some();
  void finish();

  asio::posix::stream_descriptor from_;
  std::shared_ptr<Journal> journal_;
  Allowance allowance_;
  bool done_ = false;
};

/// Writes a process's stdin. One writer at a time; closing wakes him.
class StdinWriter {
 public:
  StdinWriter(const asio::any_io_executor& executor, UniqueFd to);

  /// See Process::write_stdin. The owner lives until it has answered.
  [[nodiscard]] Awaitable<Outcome<std::uint64_t>> write(std::string bytes,
                                                        std::optional<std::uint64_t> offset);
  /// See Process::stop_writing.
  void stop_waiting();
  [[nodiscard]] Outcome<void> close();
  /// Closes it whoever writes: the process is gone.
  void drop();

 private:
  [[nodiscard]] Awaitable<Outcome<void>> write_all(std::string_view bytes);
  asio::posix::stream_descriptor to_;
  std::uint64_t taken_ = 0;
  bool busy_ = false, stopped_ = false;
};

struct Pipe {
  UniqueFd read_end, write_end;
};
/// The mode lets the session's uid open it again as /dev/stdin and /dev/stderr: nobody else has a
/// descriptor to go by.
[[nodiscard]] Outcome<Pipe> make_pipe();
[[nodiscard]] Outcome<UniqueFd> duplicate(const UniqueFd& descriptor);

}  // namespace belljar::supervisor
