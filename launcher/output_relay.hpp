// limits.output: the command writes into pipes of ours, and only so many bytes pass on.
#pragma once

#include <poll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "launcher/plan.hpp"
#include "launcher/sys/unique_fd.hpp"
#include "policy/base/result.hpp"

namespace belljar::launcher {

/// Stands between the command's descriptors 1 and 2 and the launcher's. Never blocks for long: what
/// the reader does not take stays in a buffer, and then in the pipe, and then the command waits, as
/// it would without a relay. Idle, and without a system call, for plans that do not ask for it.
class OutputRelay {
 public:
  static constexpr std::size_t kPolls = 2;

  explicit OutputRelay(const Plan& plan);

  /// Puts the pipes on the launcher's own 1 and 2, so that what it clones inherits them; `restore`
  /// puts back what was there. Once an attempt.
  [[nodiscard]] Status divert();
  [[nodiscard]] Status restore();

  /// What to wait for; -1 where there is nothing.
  void wait_for(pollfd* polls) const;

  /// Moves on what is ready. True when the command has written more than it may: then all that it
  /// may has been taken, and the rest is dropped.
  bool move(const pollfd* polls);

  /// Whether anything may still come.
  [[nodiscard]] bool is_open() const;

  [[nodiscard]] std::optional<std::uint64_t> limit() const { return limit_; }
  [[nodiscard]] bool exceeded() const { return exceeded_; }

  /// Bytes so far.
  [[nodiscard]] std::uint64_t taken() const { return taken_; }

 private:
  struct Stream {
    std::vector<int> descriptors;  ///< 1, 2 or both.
    sys::UniqueFd from;            ///< The pipe's end for reading. Invalid at the end.
    sys::UniqueFd into;            ///< Its other end, until the clone.
    std::vector<char> buffer;
    std::size_t sent = 0;  ///< Of the buffer.
    bool no_wait = true;   ///< RWF_NOWAIT works on the target.
    [[nodiscard]] bool pending() const { return sent < buffer.size(); }
  };

  [[nodiscard]] Status take_over(Stream& stream);
  void read_some(Stream& stream);
  void write_some(Stream& stream);
  long write_now(Stream& stream, const char* data, std::size_t size);

  std::optional<std::uint64_t> limit_;
  std::uint64_t taken_ = 0;
  bool exceeded_ = false;
  std::vector<Stream> streams_;
  std::array<sys::UniqueFd, 3> saved_;  ///< The launcher's own, by number, while diverted.
};

}  // namespace belljar::launcher
