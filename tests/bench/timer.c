// Times COUNT runs of a command, one after the other, after one that does not count.
//
//   timer COUNT COMMAND [ARG...]
//
// Prints a line for each run: nanoseconds from the spawn until the command ended, and until every
// process that it left behind had ended too. A launcher may return before its sandbox is gone; the
// timer adopts what is left and waits for it, so that no run is slowed down by the one before.
//
// It is a program of its own, because the driver's interpreter would cost more than a launch and
// because vfork (under posix_spawn) costs the same whatever the size of the caller. The command's
// stdin and stdout are /dev/null, so that no contender treats a terminal specially; stderr is ours.

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char** environ;

struct run {
  long long ended_ns;
  long long gone_ns;
};

static void fail(const char* what, int error) {
  fprintf(stderr, "timer: %s: %s\n", what, strerror(error));
  exit(1);
}

static long long now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

// Moves our own stdout to another descriptor and puts /dev/null on 0 and 1, once for all runs.
static FILE* give_away_stdio(void) {
  int own_stdout = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (own_stdout < 0) fail("stdout", errno);
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) fail("/dev/null", errno);
  if (dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0) fail("dup2", errno);
  close(null);
  FILE* stream = fdopen(own_stdout, "w");
  if (stream == NULL) fail("fdopen", errno);
  return stream;
}

static void require_success(const char* command, int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  if (WIFEXITED(status)) {
    fprintf(stderr, "timer: %s exited with %d\n", command, WEXITSTATUS(status));
  } else {
    fprintf(stderr, "timer: %s died of signal %d\n", command, WTERMSIG(status));
  }
  exit(1);
}

static struct run run_once(char** argv) {
  struct run run;
  pid_t pid;
  int status;

  long long start = now_ns();
  int error = posix_spawn(&pid, argv[0], NULL, NULL, argv, environ);
  if (error != 0) fail(argv[0], error);
  if (waitpid(pid, &status, 0) < 0) fail("waitpid", errno);
  run.ended_ns = now_ns() - start;
  while (wait(NULL) > 0 || errno == EINTR) continue;
  run.gone_ns = now_ns() - start;

  require_success(argv[0], status);
  return run;
}

int main(int argc, char** argv) {
  int count = argc > 2 ? atoi(argv[1]) : 0;
  if (count < 1) {
    fprintf(stderr, "usage: timer COUNT COMMAND [ARG...]\n");
    return 2;
  }
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0) fail("PR_SET_CHILD_SUBREAPER", errno);
  FILE* report = give_away_stdio();
  struct run* runs = calloc((size_t)count, sizeof *runs);
  if (runs == NULL) fail("calloc", errno);

  run_once(argv + 2);
  for (int i = 0; i < count; ++i) runs[i] = run_once(argv + 2);
  for (int i = 0; i < count; ++i) {
    fprintf(report, "%lld %lld\n", runs[i].ended_ns, runs[i].gone_ns);
  }
  free(runs);
  return fclose(report) == 0 ? 0 : 1;
}
