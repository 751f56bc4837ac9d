// Runs a program on a kernel that seems to have an older Landlock, or none.
//
//   landlock_abi N|ENOSYS|EOPNOTSUPP PROGRAM [ARG...]
//
// With N the question for the version is answered with it, and what a later version added to the
// other calls' own arguments is refused as an older kernel does. (The bits of a ruleset are behind
// a pointer: that belljar does not ask for one too many shows on the plan.) With a name every call
// fails with that error.
//
// A filter alone can answer with an errno but not with a number, hence the listener.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kCreateRuleset = 444, kAddRule = 445, kRestrictSelf = 446 };
enum { kVersionFlag = 1, kNetPortRule = 2 };

struct Job {
  int abi;  // 0: none, `error` says why.
  int error;
  char** argv;
  volatile int listener;
  volatile int failed;
};

#define LOAD(member) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, member))
#define SKIP_UNLESS(value, count) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, count)
#define GIVE(value) BPF_STMT(BPF_RET | BPF_K, value)

static int install(const struct Job* job) {
  const unsigned refuse = SECCOMP_RET_ERRNO | (unsigned)(job->abi > 0 ? EINVAL : job->error);
  const unsigned version = job->abi > 0 ? SECCOMP_RET_USER_NOTIF : refuse;
  const unsigned create = job->abi > 0 ? SECCOMP_RET_ALLOW : refuse;
  const unsigned add_path = create;
  const unsigned add_port = job->abi >= 4 ? SECCOMP_RET_ALLOW : refuse;
  const unsigned restrict_plain = create;
  const unsigned restrict_flags = job->abi >= 7 ? SECCOMP_RET_ALLOW : refuse;
  struct sock_filter instructions[] = {
      LOAD(nr),
      SKIP_UNLESS(kCreateRuleset, 4),
      LOAD(args[2]),
      SKIP_UNLESS(kVersionFlag, 1),
      GIVE(version),
      GIVE(create),
      SKIP_UNLESS(kAddRule, 4),
      LOAD(args[1]),
      SKIP_UNLESS(kNetPortRule, 1),
      GIVE(add_port),
      GIVE(add_path),
      SKIP_UNLESS(kRestrictSelf, 4),
      LOAD(args[1]),
      SKIP_UNLESS(0, 1),
      GIVE(restrict_plain),
      GIVE(restrict_flags),
      GIVE(SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog filter = {sizeof instructions / sizeof *instructions, instructions};
  const unsigned flags = SECCOMP_FILTER_FLAG_NEW_LISTENER;
  int fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter);
  if (fd >= 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fd;
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter);
}

// Shares descriptors with the supervisor until its exec, and memory.
static int child_main(void* argument) {
  struct Job* job = argument;
  const int fd = install(job);
  if (fd < 0) {
    job->failed = errno;
    _exit(2);
  }
  job->listener = fd;
  execvp(job->argv[0], job->argv);
  _exit(2);
}

static void answer_versions(const struct Job* job) {
  for (;;) {
    struct pollfd ready = {job->listener, POLLIN, 0};
    if (poll(&ready, 1, -1) < 0) continue;
    if ((ready.revents & POLLIN) == 0) return;  // Nobody has the filter any more.
    struct seccomp_notif request;
    memset(&request, 0, sizeof request);
    if (ioctl(job->listener, SECCOMP_IOCTL_NOTIF_RECV, &request) != 0) continue;
    struct seccomp_notif_resp response = {.id = request.id, .val = job->abi};
    ioctl(job->listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
  }
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fputs("usage: landlock_abi N|ENOSYS|EOPNOTSUPP PROGRAM [ARG...]\n", stderr);
    return 2;
  }
  struct Job* job =
      mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  job->abi = atoi(argv[1]);
  job->error = strcmp(argv[1], "EOPNOTSUPP") == 0 ? EOPNOTSUPP : ENOSYS;
  job->argv = argv + 2;
  job->listener = -1;
  static char stack[64 << 10] __attribute__((aligned(16)));
  const pid_t program = clone(child_main, stack + sizeof stack, CLONE_FILES | SIGCHLD, job);
  while (program > 0 && job->listener < 0 && job->failed == 0) sched_yield();
  if (program < 0 || job->failed != 0) {
    fprintf(stderr, "landlock_abi: no listener: %s\n", strerror(program < 0 ? errno : job->failed));
    return 2;
  }
  answer_versions(job);
  int status = 0;
  waitpid(program, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
