#include <doctest/doctest.h>

#include "tests/unit/seccomp/support.hpp"

namespace belljar::test {

using launcher::resolve_syscall;

TEST_CASE("names give the numbers of the kernel's headers") {
  CHECK(resolve_syscall("read").value() == SYS_read);
  CHECK(resolve_syscall("clone3").value() == SYS_clone3);
  CHECK(resolve_syscall("newfstatat").value() == SYS_newfstatat);
  CHECK(resolve_syscall("futex_waitv").value() == SYS_futex_waitv);
}

TEST_CASE("calls that are newer than libseccomp have names") {
  CHECK(resolve_syscall("cachestat").value() == 451);
  CHECK(resolve_syscall("fchmodat2").value() == 452);
  CHECK(resolve_syscall("mseal").value() == 462);
  CHECK(resolve_syscall("file_setattr").value() == 469);
#ifdef __x86_64__
  CHECK(resolve_syscall("uretprobe").value() == 335);
  CHECK(resolve_syscall("uprobe").value() == 336);
#endif
}

TEST_CASE("every named number resolves to itself") {
  for (int number = 0; number <= 600; ++number) {
    const std::string name = launcher::syscall_name(number);
    if (!name.empty()) CHECK_MESSAGE(resolve_syscall(name).value() == number, name);
  }
}

TEST_CASE("an unknown name is refused with the nearest ones") {
  const auto typo = resolve_syscall("ptrac");
  REQUIRE_FALSE(typo.has_value());
  CHECK(typo.error().kind == ErrorKind::kInvalid);
  CHECK(typo.error().what == R"(unknown system call "ptrac"; did you mean "ptrace"?)");

  const auto strange = resolve_syscall("frobnicate_everything");
  REQUIRE_FALSE(strange.has_value());
  CHECK(strange.error().what == R"(unknown system call "frobnicate_everything")");
}

TEST_CASE("a name does not end at a null byte, and an empty one is unknown") {
  CHECK_FALSE(resolve_syscall(std::string_view("ptrace\0", 7)).has_value());
  CHECK_FALSE(resolve_syscall(std::string_view("ptrace\0x", 8)).has_value());
  CHECK_FALSE(resolve_syscall("").has_value());
}

#ifdef __x86_64__
TEST_CASE("a call of other architectures is known but unavailable") {
  const auto elsewhere = resolve_syscall("socketcall");
  REQUIRE_FALSE(elsewhere.has_value());
  CHECK(elsewhere.error().kind == ErrorKind::kUnavailable);
}
#endif

}  // namespace belljar::test
