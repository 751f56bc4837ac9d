#include "launcher/controls/promises.hpp"

#include <algorithm>
#include <string>

#include "launcher/can.hpp"

namespace belljar::launcher {

bool has_own_network(const policy::Policy& policy) {
  return policy.network.mode != policy::NetworkMode::kJoin && !shares_network(policy);
}

bool keeps(const policy::Policy& policy, std::string_view capability) {
  const auto& held = policy.capabilities;
  return std::find(held.begin(), held.end(), capability) != held.end();
}

const char* refused_call(const policy::Policy& policy, std::string_view call) {
  const policy::Syscalls& syscalls = policy.syscalls;
  if (!has_filter(policy) || syscalls.mode == policy::SyscallMode::kLog) return nullptr;
  using Kind = policy::SyscallAction::Kind;
  if (const auto rule = syscalls.rules.find(std::string(call)); rule != syscalls.rules.end()) {
    const bool refuses = rule->second.when.empty() && (rule->second.action.kind == Kind::kErrno ||
                                                       rule->second.action.kind == Kind::kKill);
    return refuses ? "syscalls.rules" : nullptr;
  }
  const bool built_in =
      syscalls.base != policy::SyscallBase::kNone && !syscalls.default_action.has_value();
  return built_in ? "syscalls.base" : nullptr;
}

const char* refused_without(const policy::Policy& policy, std::string_view capability,
                            std::string_view call) {
  return keeps(policy, capability) ? refused_call(policy, call) : "capabilities";
}

const char* refused_path(const Made& made, std::string_view question) {
  const Result<Answer> answer = can(question, made.plan, made.policy, made.host);
  return answer && !answer->yes ? "filesystem" : nullptr;
}

}  // namespace belljar::launcher
