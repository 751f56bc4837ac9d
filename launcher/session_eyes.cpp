#include "launcher/session_eyes.hpp"

namespace belljar::launcher {

Status look_as_session(sys::SessionCredentials& session, const Plan& plan, const Host& host) {
  for (const Step& step : plan.steps)
    if (const auto* set = std::get_if<SetGroups>(&step.action))
      if (host.privileged()) return session.look_as(plan.uid, plan.gid, set->groups);
  return host.capabilities == 0 ? Status{} : session.lower_capabilities();
}

}  // namespace belljar::launcher
