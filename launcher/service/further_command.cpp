#include "launcher/service/further_command.hpp"

#include <utility>

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

}  // namespace

Result<Plan> FurtherCommands::plan(const FurtherCommand& further) const {
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
