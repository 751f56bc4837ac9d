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

/// Whether the payload is, or could be, uid 0 inside, which owns what uid 0 owns. Of a joined user
/// namespace nobody knows.
[[nodiscard]] bool is_root_inside(const Made& made);

/// Whether the sandbox has a network namespace of its own, neither the host's nor a joined one.
[[nodiscard]] bool has_own_network(const policy::Policy& policy, const Host& host);

/// Whether the payload keeps a capability ("CAP_SYS_ADMIN").
[[nodiscard]] bool keeps(const policy::Policy& policy, std::string_view capability);

/// The filter refuses `call` whatever its arguments are (with the built-in sets: in the forms that
/// the probes use).
[[nodiscard]] const char* refused_call(const policy::Policy& policy, std::string_view call);

/// The payload lacks the capability ("CAP_SYS_ADMIN"), or the filter refuses `call`.
[[nodiscard]] const char* refused_without(const policy::Policy& policy, std::string_view capability,
                                          std::string_view call);

/// The policy's mounts and masks refuse "write:/usr/x", or the plan and the host's modes answer no
/// to it; what only a run could tell is no promise.
[[nodiscard]] const char* refused_path(const Made& made, std::string_view question);

}  // namespace belljar::launcher
