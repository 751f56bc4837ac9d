#include "launcher/controls/control.hpp"

namespace belljar::launcher {
namespace {

// The wall clock is watched by the launcher, outside the sandbox, from the moment the command
// starts (launch.cpp); there is nothing to plan inside.
Status plan(PlanBuilder&) { return {}; }

}  // namespace

const Control kTimeLimits = {
    "time_limits",    "the launcher kills the whole sandbox at limits.wall_time",
    nothing_required, plan,
    nullptr,          {},
    no_remedy};

}  // namespace belljar::launcher
