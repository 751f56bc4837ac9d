// The caller's terminal: raw while a command inside has the keys, and as it was afterwards.
#pragma once

#include <termios.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/ctl/failure.hpp"
#include "policy/base/unique_fd.hpp"

namespace belljar::ctl {

struct Size {
  std::uint16_t columns = 80, rows = 24;
  friend bool operator==(const Size&, const Size&) = default;
};
/// Nothing when `fd` is no terminal, or does not know.
[[nodiscard]] std::optional<Size> terminal_size(int fd);

/// Raw from `enter` on, and as it was once this is gone.
class RawTerminal {
 public:
  RawTerminal() = default;
  ~RawTerminal() { leave(); }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

  [[nodiscard]] Done enter(int fd);
  void leave();

 private:
  int fd_ = -1;
  std::optional<termios> before_;
};

/// Finds the keys that detach among those that are typed: a sequence, by default Ctrl-P Ctrl-Q,
/// and "~." at the beginning of a line, as of ssh; "~~" there is one "~".
class DetachKeys {
 public:
  /// "ctrl-p,ctrl-q", "ctrl-a,d", or "none": then nothing detaches, "~." neither.
  [[nodiscard]] static Outcome<DetachKeys> parse(std::string_view text);

  /// What of `keys` is the command's. What may be the beginning of a sequence is kept until the
  /// next key.
  [[nodiscard]] std::string pass(std::string_view keys);
  [[nodiscard]] bool detached() const { return detached_; }

 private:
  void take(char key, std::string& out);
  bool take_tilde(char key, std::string& out);

  std::string sequence_;
  std::size_t matched_ = 0;
  bool tilde_ = false;    ///< A "~" at the beginning of a line is kept.
  bool at_start_ = true;  ///< Of a line, as far as typed keys tell.
  bool detached_ = false;
};

inline constexpr std::string_view kDetachKeys = "ctrl-p,ctrl-q";

/// A descriptor on which the given signals are read instead of having their effect, in every thread
/// that is made afterwards.
class Signals {
 public:
  /// Those that end a program: INT, TERM, HUP, QUIT; and with `of_terminal` WINCH, TSTP and CONT.
  enum class Which { kEnding, kTerminal };
  [[nodiscard]] static Outcome<Signals> take(Which which);
  [[nodiscard]] int descriptor() const { return fd_.get(); }
  /// The next one that has come.
  [[nodiscard]] std::optional<int> next() const;

 private:
  UniqueFd fd_;
};

/// 0, or errno. Waits where `fd` does not block.
[[nodiscard]] int write_all(int fd, std::string_view bytes);

}  // namespace belljar::ctl
