// What a policy promises about a probe: the path that does, or null.
#pragma once

#include <string_view>

#include "launcher/controls/control.hpp"

namespace belljar::launcher {

template <class Action>
[[nodiscard]] bool has_step(const Plan& plan) {
  for (const Step& step : plan.steps)
    if (std::holds_alternative<Action>(step.action)) return true;
  return false;
}

/// The payload's uid inside: 0 owns what uid 0 owns.
[[nodiscard]] inline bool is_root_inside(const Plan& plan) {
  for (const Step& step : plan.steps)
    if (const auto* map = std::get_if<MapIds>(&step.action)) return map->uids.front().inside == 0;
  return true;
}

/// Whether the sandbox has a network namespace of its own, neither the host's nor a joined one.
[[nodiscard]] bool has_own_network(const policy::Policy& policy);

/// Whether the payload keeps a capability ("CAP_SYS_ADMIN").
[[nodiscard]] bool keeps(const policy::Policy& policy, std::string_view capability);

/// The filter refuses `call` whatever its arguments are (with the built-in sets: in the forms that
/// the probes use).
[[nodiscard]] const char* refused_call(const policy::Policy& policy, std::string_view call);

/// The payload lacks the capability ("CAP_SYS_ADMIN"), or the filter refuses `call`.
[[nodiscard]] const char* refused_without(const policy::Policy& policy, std::string_view capability,
                                          std::string_view call);

/// The plan and the host's modes answer no to "write:/usr/x"; what only a run could tell is no
/// promise.
[[nodiscard]] const char* refused_path(const Made& made, std::string_view question);

}  // namespace belljar::launcher
