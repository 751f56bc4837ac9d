// Terminals as the kernel has them: settings and size, readable, comparable, without libc's wider
// struct termios, so that they can be handed to the child as they are.
#pragma once

#include <cstdint>
#include <optional>

namespace belljar::sys {

/// The kernel's struct termios (asm-generic/termbits.h), what TCGETS and TCSETSW take.
struct TerminalSettings {
  std::uint32_t input = 0;    ///< c_iflag
  std::uint32_t output = 0;   ///< c_oflag
  std::uint32_t control = 0;  ///< c_cflag
  std::uint32_t local = 0;    ///< c_lflag
  std::uint8_t line = 0;
  std::uint8_t characters[19] = {};
};
static_assert(sizeof(TerminalSettings) == 36);

/// struct winsize.
struct TerminalSize {
  std::uint16_t rows = 0;
  std::uint16_t columns = 0;
  std::uint16_t width = 0;  ///< In pixels; 0 when unknown.
  std::uint16_t height = 0;
};

/// Nothing when `fd` is no terminal.
[[nodiscard]] std::optional<TerminalSettings> terminal_settings(int fd);
[[nodiscard]] std::optional<TerminalSize> terminal_size(int fd);

/// Once what was written has left. False, with errno, on failure.
bool set_terminal_settings(int fd, const TerminalSettings& settings);
bool set_terminal_size(int fd, const TerminalSize& size);

/// Every key is passed on as it is. With `keep_output`, what others print on that terminal is still
/// processed: a program behind a pipe counts on its line feeds.
[[nodiscard]] TerminalSettings raw_settings(TerminalSettings settings, bool keep_output);

}  // namespace belljar::sys
