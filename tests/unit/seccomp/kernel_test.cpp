// The built-in filters in the running kernel. Each case runs in a child that loads the filter, so
// that this process stays unfiltered; children answer by their exit status.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/seccomp/support.hpp"

namespace belljar::test {

namespace {

constexpr SyscallBase kAgent = SyscallBase::kAgent1;
constexpr SyscallBase kStrict = SyscallBase::kStrict1;
constexpr int kNotLoaded = 254;

bool load(std::span<const sock_filter> instructions) {
  const sock_fprog program{static_cast<unsigned short>(instructions.size()),
                           const_cast<sock_filter*>(instructions.data())};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

// The wait status of a child that ran `body` under the filter; its exit status is body's result.
template <class Body>
int status_under(std::span<const sock_filter> instructions, Body body) {
  const pid_t child = fork();
  if (child == 0) {
    if (!instructions.empty() && !load(instructions)) _exit(kNotLoaded);
    _exit(body());
  }
  return wait_for(child);
}

template <class Body>
int under(SyscallBase base, Body body) {
  const launcher::SeccompFilter filter = filter_of(base);
  const int status = status_under(filter.instructions(), body);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) != kNotLoaded);
  return WEXITSTATUS(status);
}

// The error of a raw call, 0 when it succeeds.
template <class... Arguments>
int error_of(long number, Arguments... arguments) {
  return syscall(number, arguments...) == -1 ? errno : 0;
}

template <class... Arguments>
int error_under(SyscallBase base, long number, Arguments... arguments) {
  return under(base, [=] { return error_of(number, arguments...); });
}

// A terminal that the calling process leads, so that an unfiltered TIOCSTI would be allowed.
int open_own_terminal() {
  const int controller = posix_openpt(O_RDWR | O_NOCTTY);
  if (controller < 0 || grantpt(controller) != 0 || unlockpt(controller) != 0) return -1;
  setsid();
  return open(ptsname(controller), O_RDWR);
}

// New kernels exempt these two from every filter (observed on 6.18): they are the kernel's own way
// back from a probe, and callers that did not come from one get ENXIO.
bool passes_every_filter(int number) {
#ifdef __x86_64__
  return number == 335 || number == 336;
#else
  return number < 0;
#endif
}

void* do_nothing(void* argument) { return argument; }

}  // namespace

TEST_CASE("the kernel refuses every refused number from 0 to 469 with the error of the table") {
  for (const SyscallBase base : kBases) {
    const launcher::SeccompFilter filter = filter_of(base);
    int children = 0;
    for (int number = 0; number <= 469; ++number) {
      const launcher::TableEntry entry = launcher::seccomp_verdict(base, number);
      if (!entry.clauses.empty() || entry.verdict.kind != Kind::kErrno) continue;
      const int status = status_under(filter.instructions(),
                                      [=] { return error_of(number, 0L, 0L, 0L, 0L, 0L, 0L); });
      INFO(launcher::seccomp_set_name(base), " ", number, " ", entry.name);
      REQUIRE(WIFEXITED(status));
      if (passes_every_filter(number) && WEXITSTATUS(status) == ENXIO) continue;
      CHECK(WEXITSTATUS(status) == entry.verdict.error);
      ++children;
    }
    CHECK(children > 150);
  }
}

TEST_CASE("processes and threads start under both filters") {
  for (const SyscallBase base : kBases) {
    CHECK(under(base, [] {
            const pid_t child = fork();
            if (child == 0) _exit(7);
            return WEXITSTATUS(wait_for(child));
          }) == 7);
    CHECK(under(base, [] {
            pthread_t thread{};
            if (pthread_create(&thread, nullptr, do_nothing, nullptr) != 0) return 1;
            return pthread_join(thread, nullptr);
          }) == 0);
  }
}

TEST_CASE("no call makes a namespace") {
  for (const SyscallBase base : kBases) {
    for (const long space : {CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET}) {
      CHECK(error_under(base, SYS_clone, space | SIGCHLD, 0L, 0L, 0L, 0L) == EPERM);
      CHECK(error_under(base, SYS_clone, (1L << 40) | space | SIGCHLD, 0L, 0L, 0L, 0L) == EPERM);
      CHECK(error_under(base, SYS_unshare, space) == EPERM);
    }
    CHECK(error_under(base, SYS_clone3, 0L, 88L) == ENOSYS);
  }
}

TEST_CASE("sockets of forbidden families are not made") {
  for (const long family : {AF_UNSPEC, AF_AX25, AF_PACKET, AF_ALG, AF_VSOCK, AF_RXRPC, AF_TIPC,
                            AF_XDP, AF_QIPCRTR, AF_SMC}) {
    for (const SyscallBase base : kBases) {
      CHECK(error_under(base, SYS_socket, family, SOCK_DGRAM, 0) == EAFNOSUPPORT);
      CHECK(error_under(base, SYS_socket, (1L << 32) | family, SOCK_DGRAM, 0) == EAFNOSUPPORT);
      CHECK(error_under(base, SYS_socketpair, family, SOCK_DGRAM, 0, 0) == EAFNOSUPPORT);
    }
  }
  CHECK(error_under(kAgent, SYS_socket, AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER) == EAFNOSUPPORT);
  CHECK(error_under(kAgent, SYS_socket, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE) == 0);
  CHECK(error_under(kAgent, SYS_socket, AF_INET, SOCK_STREAM, 0) == 0);
  CHECK(error_under(kAgent, SYS_socket, AF_UNIX, SOCK_STREAM, 0) == 0);
  CHECK(error_under(kStrict, SYS_socket, AF_INET, SOCK_STREAM, 0) == EAFNOSUPPORT);
  CHECK(error_under(kStrict, SYS_socket, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE) == EAFNOSUPPORT);
  CHECK(error_under(kStrict, SYS_socket, AF_UNIX, SOCK_STREAM, 0) == 0);
}

TEST_CASE("socket options that load code are refused, others work") {
  const auto set = [](int level, int option) {
    return under(kAgent, [=] {
      const int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
      const int one = 1;
      return setsockopt(socket_fd, level, option, &one, sizeof one) == 0 ? 0 : errno;
    });
  };
  CHECK(set(SOL_TCP, TCP_ULP) == ENOPROTOOPT);
  CHECK(set(SOL_SOCKET, SO_ATTACH_BPF) == EPERM);
  CHECK(set(SOL_TCP, TCP_NODELAY) == 0);
  CHECK(set(SOL_SOCKET, SO_REUSEADDR) == 0);
}

TEST_CASE("nothing is typed into a terminal") {
  for (const SyscallBase base : kBases) {
    const launcher::SeccompFilter filter = filter_of(base);
    const auto typed = [&](long request) {
      const int status = status_under({}, [&] {
        const int terminal = open_own_terminal();
        char letter = 'x';
        if (terminal < 0 || error_of(SYS_ioctl, terminal, TIOCSTI, &letter) == EPERM) return 253;
        if (!load(filter.instructions())) return kNotLoaded;
        return error_of(SYS_ioctl, terminal, request, &letter);
      });
      return WEXITSTATUS(status);
    };
    CHECK(typed(TIOCSTI) == EPERM);
    CHECK(typed(TIOCSTI + (1L << 32)) == EPERM);
    CHECK(typed(TIOCLINUX) == EPERM);
    CHECK(typed(TIOCCONS) == EPERM);
    CHECK(typed(TIOCSETD) == EPERM);
    CHECK(typed(TIOCGPGRP) == 0);
  }
}

TEST_CASE("personality can be asked for but not changed to a weaker one") {
  for (const SyscallBase base : kBases) {
    CHECK(error_under(base, SYS_personality, 0xFFFFFFFFL) == 0);
    CHECK(error_under(base, SYS_personality, -1L) == 0);
    CHECK(error_under(base, SYS_personality, 0x20000L) == 0);
    CHECK(error_under(base, SYS_personality, 0x0040000L) == EPERM);  // ADDR_NO_RANDOMIZE
    CHECK(error_under(base, SYS_personality, (1L << 32) | 0x0100000L) == EPERM);  // MMAP_PAGE_ZERO
  }
}

TEST_CASE("no file becomes a device or runs as its owner") {
  const char* missing = "/nonexistent/file";
  for (const SyscallBase base : kBases) {
    CHECK(error_under(base, SYS_mknodat, AT_FDCWD, missing, S_IFCHR | 0600, 0) == EPERM);
    CHECK(error_under(base, SYS_mknodat, AT_FDCWD, missing, S_IFBLK | 0600, 0) == EPERM);
    CHECK(error_under(base, SYS_mknodat, AT_FDCWD, missing, S_IFIFO | 0600, 0) == ENOENT);
    CHECK(error_under(base, SYS_fchmodat, AT_FDCWD, missing, 04755) == EPERM);
    CHECK(error_under(base, SYS_fchmodat, AT_FDCWD, missing, 0755) == ENOENT);
    CHECK(error_under(base, SYS_fchmod, -1, 02755) == EPERM);
    CHECK(error_under(base, SYS_fchmod, -1, 0755) == EBADF);
  }
}

TEST_CASE("leases, locks, memory files and listeners are as each set says") {
  CHECK(error_under(kAgent, SYS_fcntl, -1, F_SETLEASE, F_RDLCK) == EPERM);
  CHECK(error_under(kAgent, SYS_fcntl, -1, F_SETLK, 0) == EBADF);
  CHECK(error_under(kStrict, SYS_fcntl, -1, F_SETLK, 0) == EPERM);
  CHECK(error_under(kStrict, SYS_fcntl, -1, F_GETFL, 0) == EBADF);
  CHECK(error_under(kAgent, SYS_memfd_create, "m", 0) == 0);
  CHECK(error_under(kStrict, SYS_memfd_create, "m", 0) == EPERM);
  CHECK(error_under(kStrict, SYS_memfd_create, "m", 8) != EPERM);
  CHECK(error_under(kStrict, SYS_seccomp, SECCOMP_SET_MODE_FILTER, 8, 0) == EPERM);
  CHECK(error_under(kStrict, SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, 0) == EFAULT);
}

#ifdef __x86_64__
TEST_CASE("a 32-bit call kills the process") {
  const auto getpid_as_i386 = [] {
    long result = 20;
    asm volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
    return result > 0 ? 0 : 1;
  };
  const int unfiltered = status_under({}, getpid_as_i386);
  if (!WIFEXITED(unfiltered) || WEXITSTATUS(unfiltered) != 0) {
    MESSAGE("this kernel has no 32-bit calls");
    return;
  }
  for (const SyscallBase base : kBases) {
    const int status = status_under(filter_of(base).instructions(), getpid_as_i386);
    REQUIRE(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGSYS);
  }
}

TEST_CASE("x32 calls are unknown to the kernel's caller") {
  for (const SyscallBase base : kBases) CHECK(error_under(base, 0x40000000 | SYS_getpid) == ENOSYS);
}
#endif

}  // namespace belljar::test
