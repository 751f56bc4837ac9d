// What the tests of the filters share.
#pragma once

#include <linux/audit.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "launcher/seccomp/seccomp.hpp"
#include "tests/unit/seccomp/bpf_evaluator.hpp"

namespace belljar::test {

using launcher::SeccompAction;
using policy::SyscallBase;
using Kind = policy::SyscallAction::Kind;

inline constexpr std::uint32_t kNative = launcher::kNativeArchitecture;

inline constexpr SyscallBase kBases[] = {SyscallBase::kAgent1, SyscallBase::kStrict1};

/// A value for the upper half of an argument that the kernel reads as an int.
inline constexpr std::uint64_t kGarbage = 0xDEADBEEF'00000000;

/// The return value of a filter in the words of the table: "allow", "kill", "EPERM", …
inline std::string verdict_text(std::uint32_t value) {
  switch (value & SECCOMP_RET_ACTION_FULL) {
    case SECCOMP_RET_ALLOW:
      return "allow";
    case SECCOMP_RET_LOG:
      return "log";
    case SECCOMP_RET_KILL_PROCESS:
      return "kill";
    case SECCOMP_RET_ERRNO:
      return launcher::action_text({Kind::kErrno, static_cast<int>(value & SECCOMP_RET_DATA)});
    default:
      return "unknown " + std::to_string(value);
  }
}

inline std::string run(std::span<const sock_filter> program, const seccomp_data& data) {
  const auto evaluation = evaluate(program, data);
  return evaluation ? verdict_text(evaluation->value) : "left the program";
}

/// The verdict on a call of this architecture.
inline std::string run(std::span<const sock_filter> program, int number,
                       std::initializer_list<std::uint64_t> arguments = {}) {
  return run(program, make_data(kNative, number, arguments));
}

inline launcher::SeccompFilter filter_of(const policy::Syscalls& syscalls) {
  return launcher::seccomp_program(syscalls).value().value();
}

inline launcher::SeccompFilter filter_of(SyscallBase base) {
  policy::Syscalls syscalls;
  syscalls.base = base;
  return filter_of(syscalls);
}

inline std::string run(SyscallBase base, int number,
                       std::initializer_list<std::uint64_t> arguments = {}) {
  return run(filter_of(base).instructions(), number, arguments);
}

inline int number_of(std::string_view name) { return launcher::resolve_syscall(name).value(); }

inline policy::SyscallAction refuse(int error) { return {Kind::kErrno, error, {}}; }

}  // namespace belljar::test
