// TerminalRelay: between the caller's terminal and the sandbox's own one.
//
// The command has a pseudo-terminal of its sandbox's devpts as its controlling terminal, so that
// job control and full-screen programs work and nothing that it does to a terminal (TIOCSTI, modes,
// its foreground group) reaches the caller's. What goes in and out passes through here.
#pragma once

#include <poll.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "launcher/plan.hpp"
#include "launcher/sys/terminal.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::launcher {

class TerminalRelay {
 public:
  TerminalRelay() = default;
  TerminalRelay(const TerminalRelay&) = delete;
  TerminalRelay& operator=(const TerminalRelay&) = delete;
  /// The caller's terminal is as it was.
  ~TerminalRelay();

  /// Takes over both ends of the sandbox's terminal. `plan` outlives the relay. Of what is written
  /// to it, `limit` bytes pass on.
  void start(const OpenTerminal& plan, std::optional<std::uint64_t> limit, sys::UniqueFd master,
             sys::UniqueFd slave);
  /// More was written than may pass on.
  [[nodiscard]] bool exceeded() const { return exceeded_; }
  /// Bytes so far.
  [[nodiscard]] std::uint64_t taken() const { return taken_; }
  [[nodiscard]] bool active() const { return master_.valid(); }
  /// -1 without a terminal.
  [[nodiscard]] int master() const { return master_.get(); }

  static constexpr std::size_t kPollCount = 3;
  /// What is worth waiting for now; entries of no interest have the descriptor -1.
  [[nodiscard]] std::array<pollfd, kPollCount> wanted() const;
  /// Moves what can be moved without waiting.
  void move(std::span<const pollfd, kPollCount> ready);

  /// The caller's terminal has another size, or was handed back to us.
  void take_size_over();
  /// The caller's terminal becomes raw, when we are in its foreground, and becomes as it was.
  void enter();
  void leave();
  /// Whether belljar's process group is the one that the caller's terminal listens to.
  [[nodiscard]] bool in_foreground() const;

  /// Nothing is read for it any more, and the end of what it has written will be told.
  void sandbox_has_ended();
  /// Whether anything may still come.
  [[nodiscard]] bool is_open() const { return active() || !to_caller_.empty(); }

 private:
  void read_input();
  void read_master();
  void write_master();
  void write_output();

  static constexpr std::size_t kRoom = 64 << 10;

  const OpenTerminal* plan_ = nullptr;
  sys::UniqueFd master_;
  sys::UniqueFd slave_;  ///< Kept open, so that a command that closes all of its own is no hang-up.
  sys::UniqueFd input_copy_, output_copy_;
  int input_ = -1;
  int output_ = -1;
  std::optional<sys::TerminalSettings> before_;  ///< While the caller's terminal is raw.
  std::optional<std::uint64_t> limit_;
  std::uint64_t taken_ = 0;
  bool exceeded_ = false;
  std::string to_sandbox_;
  std::string to_caller_;
};

}  // namespace belljar::launcher
