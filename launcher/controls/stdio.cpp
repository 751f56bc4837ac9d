#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/controls/control.hpp"

namespace belljar::launcher {
namespace {

constexpr Probe kProbes[] = {
    {"extra-descriptors", "find an open descriptor beyond 0, 1 and 2",
     [] {
       for (int fd = 3; fd < 4096; ++fd)
         if (fcntl(fd, F_GETFD) >= 0) return 0;
       return EBADF;
     }},
    {"controlling-terminal", "open the caller's terminal through /dev/tty",
     [] {
       const int fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
       if (fd < 0) return errno;
       close(fd);
       return 0;
     }},
};

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
  builder.add(Phase::kStart, NewProcessGroup{});
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
