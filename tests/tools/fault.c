// Makes one system call of a launch fail, late, or the moment of a signal, and says which call it
// was.
//
//   fault PROCESS.CALL ACTION FD PROGRAM [ARG...]
//   fault list 0 FD PROGRAM [ARG...]
//
// Runs PROGRAM. Something happens at the CALL-th system call, from 1, of its PROCESS-th process,
// where PROGRAM is the first, 0, and the others follow in the order of their first calls. What the
// payload calls after its execve does not count.
//
//   NUMBER        the call is answered with this errno
//   kill, term    PROGRAM gets SIGKILL or SIGTERM before the call is made
//   kill-caller   the process that makes the call gets SIGKILL
//   delay         the call is made 20 ms later than it would be, while other processes go on
//
// One line goes to descriptor FD then: "PROCESS CALL-NUMBER before|after", where the last word is
// about the payload's execve; or "none" at the end, when there was no such call. `list` writes that
// line for every call and changes none. Exits as PROGRAM does, 128+n for a signal.
//
// It works by a filter with a listener (man 2 seccomp_unotify) and not by ptrace: a traced process
// is stopped by signals, cannot be killed by its parent's death in the same way, and is slow.
#include <errno.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// Shared with the child until its exec.
struct Shared {
  volatile int listener;
  volatile int failed;
};

struct Child {
  struct Shared* shared;
  char** argv;
};

static int install_listener(void) {
  struct sock_filter instructions[] = {
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
  };
  const struct sock_fprog filter = {1, instructions};
  int fd =
      (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
  if (fd >= 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fd;
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                      &filter);
}

// Shares the supervisor's descriptors, so that the listener is there too, and no memory but
// `shared`.
static int child_main(void* argument) {
  struct Child* child = argument;
  const int fd = install_listener();
  if (fd < 0) {
    child->shared->failed = errno;
    _exit(2);
  }
  child->shared->listener = fd;
  execvp(child->argv[0], child->argv);
  _exit(2);
}

enum { kLateMs = 20, kProcesses = 32 };

struct Supervisor {
  int listener;
  int list;  // Every call is told, none is changed.
  int process;
  long call;
  const char* action;
  pid_t program;
  int started;    // Whether PROGRAM's own execve has been seen.
  pid_t payload;  // The process that made the next execve.
  pid_t pids[kProcesses];
  long counted[kProcesses];
  int hit;        // Whether it has happened.
  int report;     // Where that is said.
  uint64_t late;  // The call that is delayed, or 0.
};

// In the order in which they were first seen; the last number is shared by all that do not fit.
static int number_of(struct Supervisor* s, pid_t caller) {
  int process = 0;
  while (process + 1 < kProcesses && s->pids[process] != caller && s->pids[process] != 0) ++process;
  s->pids[process] = caller;
  return process;
}

static void tell(const struct Supervisor* s, int process, const struct seccomp_notif* request) {
  dprintf(s->report, "%d %d %s\n", process, request->data.nr,
          s->payload == 0 || s->payload == (pid_t)request->pid ? "before" : "after");
}

// Whether the call is the one, counting it when it belongs to the launch.
static int is_hit(struct Supervisor* s, const struct seccomp_notif* request) {
  const pid_t caller = (pid_t)request->pid;
  if (!s->started) {
    s->started = request->data.nr == SYS_execve;
    return 0;
  }
  if (s->payload == caller) return 0;
  if (request->data.nr == SYS_execve && caller != s->program) s->payload = caller;
  const int process = number_of(s, caller);
  const int hit = ++s->counted[process] == s->call && process == s->process;
  if (hit || s->list) tell(s, process, request);
  return hit;
}

static void send_answer(const struct Supervisor* s, uint64_t id, int error) {
  struct seccomp_notif_resp response = {.id = id, .error = -error};
  if (error == 0) response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
  ioctl(s->listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
}

static void act(struct Supervisor* s, const struct seccomp_notif* request) {
  const pid_t caller = (pid_t)request->pid;
  int error = 0;
  s->hit = 1;
  if (strcmp(s->action, "kill") == 0) {
    kill(s->program, SIGKILL);
  } else if (strcmp(s->action, "term") == 0) {
    kill(s->program, SIGTERM);
  } else if (strcmp(s->action, "kill-caller") == 0) {
    kill(caller, SIGKILL);
  } else if (strcmp(s->action, "delay") == 0) {
    s->late = request->id;
    return;
  } else {
    error = atoi(s->action);
    if (s->payload == caller) s->payload = 0;  // It has not become another program.
  }
  send_answer(s, request->id, error);
}

static void supervise(struct Supervisor* s) {
  for (;;) {
    struct pollfd ready = {s->listener, POLLIN, 0};
    const int count = poll(&ready, 1, s->late != 0 ? kLateMs : -1);
    if (count < 0) continue;
    if (count == 0) {
      send_answer(s, s->late, 0);
      s->late = 0;
      continue;
    }
    if ((ready.revents & POLLIN) == 0) return;  // Nobody has the filter any more.
    struct seccomp_notif request;
    memset(&request, 0, sizeof request);
    if (ioctl(s->listener, SECCOMP_IOCTL_NOTIF_RECV, &request) != 0) continue;
    if (is_hit(s, &request))
      act(s, &request);
    else
      send_answer(s, request.id, 0);
  }
}

int main(int argc, char** argv) {
  if (argc < 5) {
    fputs("usage: fault PROCESS.CALL|list ACTION FD PROGRAM [ARG...]\n", stderr);
    return 2;
  }
  struct Shared* shared =
      mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  shared->listener = -1;
  struct Child child = {shared, argv + 4};
  static char stack[64 << 10] __attribute__((aligned(16)));
  const pid_t program = clone(child_main, stack + sizeof stack, CLONE_FILES | SIGCHLD, &child);
  while (program > 0 && shared->listener < 0 && shared->failed == 0) sched_yield();
  if (program < 0 || shared->failed != 0) {
    fprintf(stderr, "fault: no listener: %s\n", strerror(program < 0 ? errno : shared->failed));
    return 2;
  }
  struct Supervisor supervisor = {.listener = shared->listener,
                                  .list = strcmp(argv[1], "list") == 0,
                                  .action = argv[2],
                                  .program = program,
                                  .pids = {program},
                                  .report = atoi(argv[3])};
  if (!supervisor.list && sscanf(argv[1], "%d.%ld", &supervisor.process, &supervisor.call) != 2) {
    fputs("fault: which call? PROCESS.CALL\n", stderr);
    return 2;
  }
  supervise(&supervisor);
  int status = 0;
  waitpid(program, &status, 0);
  if (!supervisor.hit && !supervisor.list) dprintf(supervisor.report, "none\n");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
