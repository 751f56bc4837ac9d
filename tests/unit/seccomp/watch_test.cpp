// The filter that tells of refusals refuses what the policy's own does.
#include "launcher/seccomp/watch.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <cerrno>
#include <set>

#include "launcher/seccomp/embedded.hpp"
#include "launcher/seccomp/names.hpp"
#include "tests/unit/seccomp/support.hpp"

using namespace belljar;
using namespace belljar::launcher;

namespace {

constexpr std::uint32_t kOwn =
#if defined(__x86_64__)
    0xC000003E;
#else
    0xC00000B7;
#endif
constexpr std::uint32_t kForeign = 0x40000003;  // AUDIT_ARCH_I386

std::uint32_t verdict(std::span<const sock_filter> program, const seccomp_data& data) {
  const auto found = test::evaluate(program, data);
  REQUIRE(found.has_value());
  return found->value;
}

std::set<int> watched_numbers() {
  std::set<int> numbers;
  for (const WatchedCall& call : watched_calls())
    if (const auto number = resolve_syscall(call.name)) numbers.insert(*number);
  return numbers;
}

/// What the watching filter must say where the other says `judged`.
std::uint32_t expected(std::uint32_t judged, const seccomp_data& data, bool watched) {
  const bool own = data.arch == kOwn;
  const bool listens =
      own && data.nr == SYS_seccomp && (data.args[1] & SECCOMP_FILTER_FLAG_NEW_LISTENER) != 0;
  const std::uint32_t action = judged & SECCOMP_RET_ACTION_FULL;
  const bool passes = action == SECCOMP_RET_ALLOW || action == SECCOMP_RET_LOG;
  if (listens) return passes ? SECCOMP_RET_ERRNO | EBUSY : judged;
  if (action == SECCOMP_RET_ERRNO) return SECCOMP_RET_USER_NOTIF;
  if (action == SECCOMP_RET_ALLOW && own && watched) return SECCOMP_RET_USER_NOTIF;
  return judged;
}

/// Compares both filters on every number with a few arguments. AT_EMPTY_PATH is not among them.
void compare(std::span<const sock_filter> judged) {
  const auto made = watching_filter(judged);
  REQUIRE(made.has_value());
  const std::set<int> watched = watched_numbers();
  for (const std::uint32_t architecture : {kOwn, kForeign})
    for (int number = -1; number < 520; ++number)
      for (const std::uint64_t argument :
           {0ULL, 1ULL, 8ULL, 9ULL, 0x10000000ULL, ~0ULL & ~0x1000ULL}) {
        const seccomp_data data = test::make_data(
            architecture, number, {argument, argument, argument, argument, argument, argument});
        const std::uint32_t own =
            judged.empty() ? std::uint32_t{SECCOMP_RET_ALLOW} : verdict(judged, data);
        if (verdict(made->instructions(), data) != expected(own, data, watched.contains(number)))
          FAIL("number " << number << " argument " << argument);
      }
}

}  // namespace

TEST_CASE("an errno becomes a question, a kill stays a kill, and what is allowed stays so") {
  compare(embedded_filter(policy::SyscallBase::kAgent1));
  compare(embedded_filter(policy::SyscallBase::kStrict1));
  compare({});
}

TEST_CASE("a call that the policy kills for is killed for, watched or not") {
  Verdicts verdicts;
  verdicts.default_action = {policy::SyscallAction::Kind::kLog, 0};
  for (const int number : {SYS_openat, SYS_seccomp, SYS_getpid})
    verdicts.calls[number] = {{}, {policy::SyscallAction::Kind::kKill, 0}};
  const auto program = compile_filter(verdicts);
  REQUIRE(program.has_value());
  compare(program->instructions);
}

TEST_CASE("a look at what is open already is not told") {
  const auto made = watching_filter({});
  REQUIRE(made.has_value());
  const auto with_flags = [&](std::uint64_t flags) {
    return verdict(made->instructions(), test::make_data(kOwn, SYS_newfstatat, {3, 0, 0, flags}));
  };
  CHECK(with_flags(AT_EMPTY_PATH) == SECCOMP_RET_ALLOW);
  CHECK(with_flags(0) == SECCOMP_RET_USER_NOTIF);
}

TEST_CASE("a filter that is too long three times over is refused") {
  const std::vector<sock_filter> long_one(2000,
                                          sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW});
  CHECK_FALSE(watching_filter(long_one).has_value());
}

TEST_CASE("every watched call exists on some architecture") {
  for (const WatchedCall& call : watched_calls()) {
    CAPTURE(call.name);
    const auto number = resolve_syscall(call.name);
    CHECK((number.has_value() || number.error().kind == ErrorKind::kUnavailable));
  }
}
