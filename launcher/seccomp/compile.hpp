// From verdicts to a filter.
#pragma once

#include <linux/filter.h>

#include <map>
#include <span>

#include "launcher/seccomp/program.hpp"
#include "launcher/seccomp/segment.hpp"
#include "policy/base/result.hpp"

namespace belljar::launcher {

/// What a filter is to do, by number. Calls of other architectures kill the process and x32 calls
/// fail with ENOSYS whatever the verdicts are: their numbers mean other calls.
struct Verdicts {
  SeccompAction default_action;
  std::map<int, CallVerdict> calls;
};

/// A program for this architecture, checked by `validate_filter`. kInvalid: a verdict cannot be
/// expressed (see make_segment) or all together are too long.
[[nodiscard]] Result<SeccompProgram> compile_filter(const Verdicts& verdicts);

/// Whether the kernel takes the program and every path of it stays inside: at most 4096
/// instructions, known ones only, forward jumps that land inside, loads of whole words of
/// seccomp_data, and a return at the end.
[[nodiscard]] Status validate_filter(std::span<const sock_filter> program);

}  // namespace belljar::launcher
