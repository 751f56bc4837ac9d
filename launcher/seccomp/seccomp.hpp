// A policy's `syscalls` section as a filter.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/seccomp/base.hpp"
#include "launcher/seccomp/names.hpp"
#include "launcher/seccomp/program.hpp"
#include "policy/base/result.hpp"
#include "policy/policy.hpp"

namespace belljar::launcher {

/// A verdict that another control needs on one call, before whatever the policy says of it.
struct Refinement {
  std::string_view call;
  SeccompAction action;
  std::vector<std::vector<policy::ArgumentTest>> when;
};

/// The filter that a policy asks for: one of the built-in arrays when it only names a base, else a
/// program compiled here (milliseconds; allocates; never in a child). nullopt when nothing is
/// filtered at all: base `none` without rules, default and refinements.
/// kInvalid: an unknown name or an impossible test, `where` naming the rule.
[[nodiscard]] Result<std::optional<SeccompFilter>> seccomp_program(
    const policy::Syscalls& syscalls, std::span<const Refinement> refinements = {});

/// The names among a policy's rules that only other architectures know: their rules do nothing
/// here.
[[nodiscard]] std::vector<std::string> absent_calls(const policy::Syscalls& syscalls);

/// The policy path whose word on a call the filter carries out.
[[nodiscard]] std::string path_of_call(const policy::Syscalls& syscalls, const std::string& name);

/// "none", "agent@1", "strict@1".
[[nodiscard]] std::string_view seccomp_set_name(policy::SyscallBase base);

/// SHA-256 of the table of built-in sets, "sha256:" and 64 hex digits.
[[nodiscard]] std::string_view seccomp_table_digest();

/// "allow", "log", "kill", or the name of the error, "EPERM".
[[nodiscard]] std::string action_text(SeccompAction action);

}  // namespace belljar::launcher
