#include "launcher/sys/terminal.hpp"

#include <sys/ioctl.h>
#include <termios.h>

namespace belljar::sys {

std::optional<TerminalSettings> terminal_settings(int fd) {
  TerminalSettings settings;
  if (ioctl(fd, TCGETS, &settings) != 0) return std::nullopt;
  return settings;
}

std::optional<TerminalSize> terminal_size(int fd) {
  TerminalSize size;
  if (ioctl(fd, TIOCGWINSZ, &size) != 0) return std::nullopt;
  return size;
}

bool set_terminal_settings(int fd, const TerminalSettings& settings) {
  return ioctl(fd, TCSETSW, &settings) == 0;
}

bool set_terminal_size(int fd, const TerminalSize& size) {
  return ioctl(fd, TIOCSWINSZ, &size) == 0;
}

TerminalSettings raw_settings(TerminalSettings settings, bool keep_output) {
  // As cfmakeraw has it (man 3 termios).
  settings.input &=
      ~static_cast<std::uint32_t>(IGNBRK | BRKINT | PARMRK | ISTRIP | INLCR | IGNCR | ICRNL | IXON);
  if (!keep_output) settings.output &= ~static_cast<std::uint32_t>(OPOST);
  settings.local &= ~static_cast<std::uint32_t>(ECHO | ECHONL | ICANON | ISIG | IEXTEN);
  settings.control &= ~static_cast<std::uint32_t>(CSIZE | PARENB);
  settings.control |= CS8;
  settings.characters[VMIN] = 1;
  settings.characters[VTIME] = 0;
  return settings;
}

}  // namespace belljar::sys
