#include "launcher/sys/signals.hpp"

#include <csignal>

namespace belljar::sys {

bool expect_children() {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  return signal(SIGCHLD, SIG_DFL) != SIG_ERR && sigprocmask(SIG_UNBLOCK, &child, nullptr) == 0;
}

}  // namespace belljar::sys
