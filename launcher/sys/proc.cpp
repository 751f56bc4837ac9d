#include "launcher/sys/proc.hpp"

#include <fcntl.h>

namespace belljar::sys {
namespace {

int open_proc() { return open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC); }

int proc_fd = -1;

}  // namespace

int proc_directory() {
  if (proc_fd < 0) proc_fd = open_proc();
  return proc_fd;
}

void reopen_proc_directory() { proc_fd = open_proc(); }

}  // namespace belljar::sys
