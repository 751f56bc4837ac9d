// Says how the kernel answers calls whose arguments no kernel accepts: for each word one line, the
// number of the error, or 0. What a filter refuses has the filter's number instead.
//
//   answers CALL...
//
// It starts nothing and reads nothing, so that a short list of calls is all that it needs.
#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static long call(const char* name) {
  if (strcmp(name, "chmod") == 0) return syscall(SYS_fchmodat, -1L, NULL, 0L);
  if (strcmp(name, "chroot") == 0) return syscall(SYS_chroot, NULL);
  if (strcmp(name, "clone3") == 0) return syscall(SYS_clone3, NULL, 0L);
  if (strcmp(name, "listen") == 0) return syscall(SYS_listen, -1L, 0L);
  if (strcmp(name, "prctl") == 0)
    return syscall(SYS_prctl, (long)PR_GET_CHILD_SUBREAPER, 0L, 0L, 0L, 0L);
  if (strcmp(name, "tiocnotty") == 0) return syscall(SYS_ioctl, -1L, (long)TIOCNOTTY, NULL);
  if (strcmp(name, "tiocsti") == 0) return syscall(SYS_ioctl, -1L, (long)TIOCSTI, NULL);
  // The kernel looks at the low half alone.
  if (strcmp(name, "tiocsti_high") == 0)
    return syscall(SYS_ioctl, -1L, (long)TIOCSTI | 1L << 32, NULL);
  errno = ENOTSUP;
  return -1;
}

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const int error = call(argv[i]) == 0 ? 0 : errno;
    char line[64];
    const int length = snprintf(line, sizeof line, "%s %d\n", argv[i], error);
    if (write(1, line, (size_t)length) != length) return 1;
  }
  return 0;
}
