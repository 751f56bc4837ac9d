// Runs a program on a kernel that seems to lack the newer calls, so that the legacy back end is
// chosen for the same reason as in a container.
//
//   without_new_calls ENOSYS|EPERM|ONLY[+CALL...] PROGRAM [ARG...]
//
// `+CALL` takes more away: close_range, openat2, pidfd (all calls of that name), statx, landlock,
// every_exit (exit and exit_group), or whole_proc (mounts of a procfs that shows more than
// processes). `ONLY+CALL...` takes nothing else away, and knows clone3 and mount_api too.
//
// clone3 is always answered with ENOSYS, as container profiles do, because glibc falls back to
// clone on nothing else; the new mount API with the errno that was asked for.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
  kMountSetattr = 442,
  kClone3 = 435,
  kCloseRange = 436,
  kOpenat2 = 437,
  kPidfdOpen = 434,
  kPidfdSendSignal = 424,
  kPidfdGetfd = 438,
  kLandlockCreateRuleset = 444,
  kLandlockAddRule = 445,
  kLandlockRestrictSelf = 446,
  kRoom = 64
};

static const unsigned kMountCalls[] = {SYS_open_tree, SYS_move_mount, SYS_fsopen,   SYS_fsconfig,
                                       SYS_fsmount,   SYS_fspick,     kMountSetattr};

static const struct {
  const char* name;
  unsigned number;
} kMore[] = {{"+close_range", kCloseRange},
             {"+openat2", kOpenat2},
             {"+pidfd", kPidfdOpen},
             {"+pidfd", kPidfdSendSignal},
             {"+pidfd", kPidfdGetfd},
             {"+statx", SYS_statx},
             {"+landlock", kLandlockCreateRuleset},
             {"+landlock", kLandlockAddRule},
             {"+landlock", kLandlockRestrictSelf},
             {"+every_exit", SYS_exit},
             {"+every_exit", SYS_exit_group}};

struct Program {
  struct sock_filter instructions[kRoom];
  unsigned short length;
};

static void add(struct Program* program, struct sock_filter instruction) {
  program->instructions[program->length++] = instruction;
}

static void answer(struct Program* program, unsigned call, unsigned error) {
  add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
  add(program, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
}

// mount(2) of a procfs without options, read-only or not: the flags that belljar gives it, no data.
static void refuse_whole_proc(struct Program* program) {
  const unsigned flags = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
  const struct sock_filter instructions[] = {
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mount, 0, 6),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
      BPF_STMT(BPF_ALU | BPF_OR | BPF_K, MS_RDONLY),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, flags, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[4])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
  };
  for (size_t i = 0; i < sizeof instructions / sizeof *instructions; ++i)
    add(program, instructions[i]);
}

static int install(const struct Program* program) {
  const struct sock_fprog filter = {program->length, (struct sock_filter*)program->instructions};
  // Root may install a filter as it is, which leaves no_new_privs off as in a privileged service.
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0) return 0;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fputs("usage: without_new_calls ENOSYS|EPERM|ONLY[+CALL...] PROGRAM [ARG...]\n", stderr);
    return 2;
  }
  const unsigned mount_error = strncmp(argv[1], "EPERM", 5) == 0 ? EPERM : ENOSYS;
  struct Program program = {.length = 0};
  add(&program,
      (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
  const int only = strncmp(argv[1], "ONLY", 4) == 0;
  if (!only || strstr(argv[1], "+clone3") != NULL) answer(&program, kClone3, ENOSYS);
  if (!only || strstr(argv[1], "+mount_api") != NULL)
    for (size_t i = 0; i < sizeof kMountCalls / sizeof *kMountCalls; ++i)
      answer(&program, kMountCalls[i], mount_error);
  for (size_t i = 0; i < sizeof kMore / sizeof *kMore; ++i)
    if (strstr(argv[1], kMore[i].name) != NULL) answer(&program, kMore[i].number, ENOSYS);
  if (strstr(argv[1], "+whole_proc") != NULL) refuse_whole_proc(&program);
  add(&program, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  if (install(&program) != 0) {
    perror("without_new_calls: install the filter");
    return 2;
  }
  execvp(argv[2], argv + 2);
  perror(argv[2]);
  return 2;
}
