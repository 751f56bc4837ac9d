#include "launcher/service/further_command.hpp"

#include <utility>

#include "launcher/failure.hpp"

namespace belljar::launcher {
namespace {

Result<Step> open_terminal(const policy::Policy& policy, const sys::TerminalSize& size) {
  const auto dev = policy.filesystem.mounts.find("/dev");
  if (dev == policy.filesystem.mounts.end() || dev->second.type != policy::MountType::kDev)
    return fail({ErrorKind::kRefused, 0, "a terminal needs the sandbox's own /dev", "io.tty",
                 "add \"/dev\": {\"type\": \"dev\"} to filesystem.mounts"});
  OpenTerminal terminal;
  terminal.descriptors = {0, 1, 2};
  terminal.further = true;
  terminal.size = size;
  return Step{Side::kInit, terminal, "stdio", {}};
}

/// What has no origin is the policy's too.
bool is_of_the_request(const policy::Policy& policy, const std::string& name) {
  const auto origin = policy.origins.find(policy::member_path("env.set", name));
  return origin != policy.origins.end() && origin->second.file == kOfTheRequest;
}

/// Of `env`: `set` is what every command of the sandbox has; `deny` keeps the host's variables away
/// from `pass`, and not those that a request brings along.
Status check_variables(const policy::Policy& policy,
                       const std::map<std::string, std::string>& wanted) {
  for (const auto& [name, value] : wanted) {
    const auto set = policy.env.set.find(name);
    if (set == policy.env.set.end() || set->second == value || is_of_the_request(policy, name))
      continue;
    return fail({ErrorKind::kRefused, 0, name + " is set by the policy",
                 policy::member_path("env.set", name), "leave it out"});
  }
  return {};
}

}  // namespace

std::map<std::string, std::string> FurtherCommands::fixed_variables() const {
  std::map<std::string, std::string> fixed = policy_.env.set;
  std::erase_if(fixed,
                [this](const auto& entry) { return is_of_the_request(policy_, entry.first); });
  return fixed;
}

SetupFailure further_refusal(const Error& error, const policy::Policy& policy) {
  SetupFailure failure = describe_refusal(error, policy);
  if (error.kind != ErrorKind::kRefused || !error.where.starts_with("env.")) return failure;
  failure.control = "policy";
  failure.policy = error.where;
  return failure;
}

Result<Plan> FurtherCommands::plan(const FurtherCommand& further) const {
  BELLJAR_CHECK(check_variables(policy_, further.environment));
  policy::Policy policy = policy_;
  policy.io = {};
  // Its pipes are the client's, who counts (`started` has told the limit).
  policy.limits.output.reset();
  for (const auto& [name, value] : further.environment) policy.env.set[name] = value;
  Host host = host_;
  host.directory_descriptors.clear();
  host.absent_descriptors.clear();
  Result<Plan> whole = build_plan(policy, host, further.command);
  if (!whole) return whole;
  std::vector<Step> steps;
  if (further.terminal)
    steps.push_back(BELLJAR_TRY(open_terminal(policy_, *further.terminal)));
  else
    steps.push_back({Side::kPayload, TakeStreams{}, "stdio", {}});
  for (Step& step : whole->steps) {
    if (step.side != Side::kPayload) continue;
    if (auto* check = std::get_if<CheckInit>(&step.action)) check->further = true;
    if (auto* group = std::get_if<NewProcessGroup>(&step.action); group && further.terminal)
      *group = {.terminal = {0, 1, 2}, .own_session = true};
    steps.push_back(std::move(step));
  }
  whole->steps = std::move(steps);
  return whole;
}

}  // namespace belljar::launcher
