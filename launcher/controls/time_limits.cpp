#include "launcher/controls/control.hpp"

namespace belljar::launcher {
namespace {

// The wall clock is watched by the launcher, outside the sandbox, from the moment the command
// starts (launch.cpp); there is nothing to plan inside.
Status plan(PlanBuilder&) { return {}; }

std::vector<Requirement> require(const policy::Policy&, const Host&) { return {}; }

std::string remedy(const FailedStep&, const policy::Policy&, const Host&) { return {}; }

}  // namespace

const Control kTimeLimits = {
    "time_limits", "the launcher kills the whole sandbox at limits.wall_time",
    require,       plan,
    nullptr,       {},
    remedy};

}  // namespace belljar::launcher
