// Runs a program on a kernel, or in a container, that refuses some system calls.
//
//   refuse CALL=ERRNO[,CALL=ERRNO...] PROGRAM [ARG...]
//
// ERRNO is EPERM, EACCES, EINVAL, ENOSYS, EOPNOTSUPP or EPROTONOSUPPORT. `filter` stands for both
// ways to install a filter, which it then leaves to nobody but itself; `nftables` for sockets to
// the kernel's firewall.
#include <errno.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kRoom = 128 };

static const struct {
  const char* name;
  unsigned number;
} kCalls[] = {{"unshare", SYS_unshare},
              {"clone3", 435},
              {"mount", SYS_mount},
              {"umount2", SYS_umount2},
              {"pivot_root", SYS_pivot_root},
              {"sethostname", SYS_sethostname},
              {"landlock_create_ruleset", 444},
              {"open_tree", 428},
              {"move_mount", 429},
              {"mount_setattr", 442}};

static const struct {
  const char* name;
  unsigned number;
} kErrors[] = {{"EPERM", EPERM},           {"EACCES", EACCES},
               {"EINVAL", EINVAL},         {"ENOSYS", ENOSYS},
               {"EOPNOTSUPP", EOPNOTSUPP}, {"EPROTONOSUPPORT", EPROTONOSUPPORT}};

static struct sock_filter program[kRoom];
static unsigned short length;

static void add(struct sock_filter instruction) { program[length++] = instruction; }

static void answer(unsigned call, unsigned error) {
  add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
  add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
}

// One argument of a call, by its place in seccomp_data, has to be this.
static void answer_argument(unsigned call, unsigned place, unsigned value, unsigned error) {
  add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4));
  add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, place));
  add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
  add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
  add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
}

// seccomp(2), and prctl(PR_SET_SECCOMP) alone among the prctls.
static void refuse_filters(unsigned error) {
  answer(SYS_seccomp, error);
  answer_argument(SYS_prctl, offsetof(struct seccomp_data, args[0]), PR_SET_SECCOMP, error);
}

// Of the protocols of a socket only netlink's has this number: IPPROTO_PUP is nobody's.
static void refuse_nftables(unsigned error) {
  answer_argument(SYS_socket, offsetof(struct seccomp_data, args[2]), NETLINK_NETFILTER, error);
}

static unsigned error_of(const char* name) {
  for (size_t i = 0; i < sizeof kErrors / sizeof *kErrors; ++i)
    if (strcmp(kErrors[i].name, name) == 0) return kErrors[i].number;
  fprintf(stderr, "refuse: unknown errno %s\n", name);
  exit(2);
}

static void refuse(const char* call, unsigned error) {
  if (strcmp(call, "filter") == 0) {
    refuse_filters(error);
    return;
  }
  if (strcmp(call, "nftables") == 0) {
    refuse_nftables(error);
    return;
  }
  for (size_t i = 0; i < sizeof kCalls / sizeof *kCalls; ++i) {
    if (strcmp(kCalls[i].name, call) != 0) continue;
    answer(kCalls[i].number, error);
    return;
  }
  fprintf(stderr, "refuse: unknown call %s\n", call);
  exit(2);
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fputs("usage: refuse CALL=ERRNO[,...] PROGRAM [ARG...]\n", stderr);
    return 2;
  }
  add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
  for (char* item = strtok(argv[1], ","); item != NULL; item = strtok(NULL, ",")) {
    char* equals = strchr(item, '=');
    if (equals == NULL) return 2;
    *equals = '\0';
    refuse(item, error_of(equals + 1));
  }
  add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const struct sock_fprog filter = {length, program};
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0 &&
      (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)) {
    perror("refuse: install the filter");
    return 2;
  }
  execvp(argv[2], argv + 2);
  perror(argv[2]);
  return 2;
}
