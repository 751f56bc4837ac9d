#include <fcntl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "launcher/controls/control.hpp"
#include "launcher/controls/promises.hpp"

namespace belljar::launcher {
namespace {

constexpr Probe kProbes[] = {
    {"extra-descriptors", "find an open descriptor beyond 0, 1 and 2",
     [] {
       for (int fd = 3; fd < 4096; ++fd)
         if (fcntl(fd, F_GETFD) >= 0) return 0;
       return EBADF;
     },
     [](const Made& made) -> const char* {
       return made.policy.io.keep.empty() ? "io.keep" : nullptr;
     }},
    {"controlling-terminal", "open the caller's terminal through /dev/tty",
     [] {
       const int fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
       if (fd < 0) return errno;
       // One whose session is led by the sandbox's init is the sandbox's own.
       const bool own = tcgetsid(fd) == 1;
       close(fd);
       return own ? ENXIO : 0;
     },
     [](const Made&) -> const char* { return "io.tty"; }},
};

std::vector<int> terminal_descriptors(const policy::Io& io, const Host& host) {
  const policy::Stdio streams[] = {io.standard_input, io.standard_output, io.standard_error};
  std::vector<int> found;
  for (int fd = 0; fd < 3; ++fd) {
    const bool is_terminal =
        std::find(host.terminals.begin(), host.terminals.end(), fd) != host.terminals.end();
    if (streams[fd] == policy::Stdio::kInherit && (io.tty == policy::Tty::kNew || is_terminal))
      found.push_back(fd);
  }
  return found;
}

/// The descriptors that the payload will have its terminal as; none without one.
Result<std::vector<int>> plan_terminal(PlanBuilder& builder) {
  const policy::Io& io = builder.policy.io;
  if (io.tty == policy::Tty::kNone) return std::vector<int>();
  const auto dev = builder.policy.filesystem.mounts.find("/dev");
  if (dev == builder.policy.filesystem.mounts.end() || dev->second.type != policy::MountType::kDev)
    return fail({ErrorKind::kRefused, 0, "a terminal needs the sandbox's own /dev", "io.tty",
                 "add \"/dev\": {\"type\": \"dev\"} to filesystem.mounts"});
  OpenTerminal terminal;
  terminal.descriptors = terminal_descriptors(io, builder.host);
  if (terminal.descriptors.empty()) return terminal.descriptors;
  if (!builder.host.terminals.empty()) {
    terminal.terminal = builder.host.terminals.front();
    terminal.settings = builder.host.terminal_settings;
  }
  if (builder.host.terminal_size && builder.host.terminal_size->rows != 0)
    terminal.size = *builder.host.terminal_size;
  if (io.tty == policy::Tty::kAuto) terminal.input = terminal.output = terminal.terminal;
  builder.add(Phase::kTerminal, terminal, "io.tty");
  return terminal.descriptors;
}

Status plan(PlanBuilder& builder) {
  const policy::Io& io = builder.policy.io;
  for (int fd : builder.host.absent_descriptors)
    return fail(
        {ErrorKind::kRefused, EBADF,
         "descriptor " + std::to_string(fd) + " is to be kept, and is not open", "io.keep",
         "open it for belljar (in a shell: " + std::to_string(fd) + "< FILE), or remove it"});
  for (int fd : builder.host.directory_descriptors)
    return fail({ErrorKind::kRefused, EISDIR,
                 "descriptor " + std::to_string(fd) +
                     " is a directory, through which the command would reach the host's files",
                 fd > 2 ? "io.keep" : "io",
                 "redirect it to a file, or show the directory with -v"});
  builder.add(Phase::kStart, NewProcessGroup{BELLJAR_TRY(plan_terminal(builder))});
  const std::pair<policy::Stdio, const char*> streams[] = {
      {io.standard_input, "io.stdin"},
      {io.standard_output, "io.stdout"},
      {io.standard_error, "io.stderr"},
  };
  for (int fd = 0; fd < 3; ++fd)
    if (streams[fd].first == policy::Stdio::kNull)
      builder.add(Phase::kDescriptors, NullDescriptor{fd}, streams[fd].second);
  builder.add(Phase::kReadBack, CloseDescriptors{io.keep}, "io.keep");
  return {};
}

}  // namespace

const Control kStdio = {"stdio",
                        "0, 1, 2 and the descriptors that the policy names, nothing else (the "
                        "closing call itself is the last before exec)",
                        nothing_required,
                        plan,
                        nullptr,
                        kProbes,
                        no_remedy};

}  // namespace belljar::launcher
