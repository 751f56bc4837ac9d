#include "launcher/controls/control.hpp"

namespace belljar::launcher {
namespace {

// The wall clock is watched by the launcher, outside the sandbox, from the moment the command
// starts (launch.cpp); there is nothing to plan for it. Processor time is counted by a cgroup
// (controls/cgroup.cpp) or by looking at the processes (cpu_meter.hpp).
Status plan(PlanBuilder& builder) {
  if (builder.policy.limits.cpu_time)
    builder.add(Phase::kBefore, MeterCpuTime{*builder.policy.limits.cpu_time}, "limits.cpu_time");
  return {};
}

}  // namespace

const Control kTimeLimits = {
    "time_limits",
    "the launcher kills the whole sandbox at limits.wall_time and limits.cpu_time",
    nothing_required,
    plan,
    nullptr,
    {},
    no_remedy};

}  // namespace belljar::launcher
