#include "launcher/seccomp/seccomp.hpp"

#include <cstring>
#include <utility>

#include "launcher/seccomp/compile.hpp"
#include "launcher/seccomp/embedded.hpp"

namespace belljar::launcher {

namespace {

SeccompAction plain_action(const policy::SyscallAction& action) {
  return {action.kind, action.error};
}

CallVerdict call_verdict(const policy::SyscallRule& rule) {
  if (rule.when.empty()) return {{}, plain_action(rule.action)};
  return {{{plain_action(rule.action), rule.when}}, plain_action(rule.otherwise)};
}

tl::unexpected<Error> fail_at(Error error, std::string where) {
  error.where = std::move(where);
  return fail(std::move(error));
}

// A call that only other architectures have cannot be made here, so its rule has nothing to do:
// one policy serves machines of both kinds. absent_calls tells.
Status apply_rule(Verdicts& verdicts, const std::string& name, const policy::SyscallRule& rule) {
  Result<int> number = resolve_syscall(name);
  if (!number && number.error().kind == ErrorKind::kUnavailable) return {};
  const std::string where = "syscalls.rules." + name;
  if (!number) return fail_at(std::move(number).error(), where);
  CallVerdict verdict = call_verdict(rule);
  auto checked = make_segment(verdict);
  if (!checked) return fail_at(std::move(checked).error(), where);
  verdicts.calls.insert_or_assign(*number, std::move(verdict));
  return {};
}

Status refine(Verdicts& verdicts, const Refinement& refinement) {
  const int number = BELLJAR_TRY(resolve_syscall(refinement.call));
  const auto [call, added] =
      verdicts.calls.try_emplace(number, CallVerdict{{}, verdicts.default_action});
  call->second.clauses.insert(call->second.clauses.begin(), {refinement.action, refinement.when});
  return {};
}

// Architectures and x32 stay refused: their numbers mean other calls.
void only_log(SeccompAction& action) {
  if (action.kind != policy::SyscallAction::Kind::kAllow)
    action = {policy::SyscallAction::Kind::kLog, 0};
}

void only_log(Verdicts& verdicts) {
  only_log(verdicts.default_action);
  for (auto& [number, verdict] : verdicts.calls) {
    only_log(verdict.otherwise);
    for (CallVerdict::Clause& clause : verdict.clauses) only_log(clause.action);
  }
}

}  // namespace

std::vector<std::string> absent_calls(const policy::Syscalls& syscalls) {
  std::vector<std::string> absent;
  for (const auto& [name, rule] : syscalls.rules) {
    const Result<int> number = resolve_syscall(name);
    if (!number && number.error().kind == ErrorKind::kUnavailable) absent.push_back(name);
  }
  return absent;
}

Result<std::optional<SeccompFilter>> seccomp_program(const policy::Syscalls& syscalls,
                                                     std::span<const Refinement> refinements) {
  const bool logs = syscalls.mode == policy::SyscallMode::kLog;
  const bool plain = syscalls.rules.empty() && !syscalls.default_action && refinements.empty();
  if (plain && (!logs || syscalls.base == policy::SyscallBase::kNone)) {
    const std::span<const sock_filter> built_in = embedded_filter(syscalls.base);
    return built_in.empty() ? std::nullopt : std::optional(SeccompFilter(built_in));
  }
  Verdicts verdicts = base_verdicts(syscalls.base);
  if (syscalls.default_action) verdicts.default_action = plain_action(*syscalls.default_action);
  for (const auto& [name, rule] : syscalls.rules) BELLJAR_CHECK(apply_rule(verdicts, name, rule));
  for (const Refinement& refinement : refinements) BELLJAR_CHECK(refine(verdicts, refinement));
  if (logs) only_log(verdicts);
  Result<SeccompProgram> program = compile_filter(verdicts);
  if (!program) return fail_at(std::move(program).error(), "syscalls");
  return SeccompFilter(*std::move(program));
}

std::string path_of_call(const policy::Syscalls& syscalls, const std::string& name) {
  if (syscalls.rules.contains(name)) return policy::member_path("syscalls.rules", name);
  return syscalls.default_action ? "syscalls.default" : "syscalls.base";
}

std::string_view seccomp_set_name(policy::SyscallBase base) {
  switch (base) {
    case policy::SyscallBase::kNone:
      return "none";
    case policy::SyscallBase::kAgent1:
      return "agent@1";
    case policy::SyscallBase::kStrict1:
      return "strict@1";
  }
  return "none";
}

std::string_view seccomp_table_digest() { return embedded_table_digest(); }

std::string action_text(SeccompAction action) {
  switch (action.kind) {
    case policy::SyscallAction::Kind::kAllow:
      return "allow";
    case policy::SyscallAction::Kind::kLog:
      return "log";
    case policy::SyscallAction::Kind::kKill:
      return "kill";
    case policy::SyscallAction::Kind::kErrno:
      break;
  }
  const char* name = strerrorname_np(action.error);
  return name == nullptr ? "errno " + std::to_string(action.error) : name;
}

}  // namespace belljar::launcher
