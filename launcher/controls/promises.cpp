#include "launcher/controls/promises.hpp"

#include <algorithm>
#include <string>

#include "launcher/can.hpp"
#include "launcher/controls/paths.hpp"

namespace belljar::launcher {

bool has_own_network(const policy::Policy& policy, const Host& host) {
  return policy.network.mode != policy::NetworkMode::kJoin && !shares_network(policy, host);
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

bool is_root_inside(const Made& made) {
  return made.policy.namespaces.user == policy::NamespaceMode::kJoin ||
         made.policy.identity.inside_uid.value_or(made.ids.uid) == 0;
}

namespace {

/// What the policy alone says of a path that is reached through no link.
const char* refused_by_policy(const policy::Filesystem& files, std::string_view verb,
                              const std::string& path) {
  for (const auto& [mask, why] : files.mask)
    if (is_within(path, mask)) return "filesystem.mask";
  if (verb != "write") return nullptr;
  for (std::string above = path; above != "/"; above = parent_of(above)) {
    const auto mount = files.mounts.find(above);
    if (mount == files.mounts.end()) continue;
    const bool refuses = mount->second.readonly && !mount->second.optional;
    return refuses ? "filesystem.mounts" : nullptr;
  }
  return nullptr;
}

}  // namespace

const char* refused_path(const Made& made, std::string_view question) {
  const std::size_t colon = question.find(':');
  if (const char* where = refused_by_policy(made.policy.filesystem, question.substr(0, colon),
                                            std::string(question.substr(colon + 1))))
    return where;
  const Result<Answer> answer = can(question, made.plan, made.policy, made.host);
  return answer && !answer->yes ? "filesystem" : nullptr;
}

}  // namespace belljar::launcher
