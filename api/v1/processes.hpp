// Further processes of a session, for the operations that start one.
#pragma once

#include "api/v1/context.hpp"

namespace belljar::api {

/// A further process, within what the session allows to each.
[[nodiscard]] supervisor::Awaitable<supervisor::Outcome<std::shared_ptr<supervisor::Process>>>
start_further(std::shared_ptr<supervisor::Session> session, supervisor::ProcessSpec spec);

/// Whether `spec` asks for no more than the session allows to each process, which the supervisor
/// holds it to in any case.
[[nodiscard]] supervisor::Outcome<void> within_limits(const supervisor::Session& session,
                                                      const supervisor::ProcessSpec& spec);

/// "claim": true: what others have added to the session's existing workspace becomes its own first.
[[nodiscard]] supervisor::Awaitable<supervisor::Outcome<void>> claim_first(
    std::shared_ptr<supervisor::Session> session, bool wanted);

/// 422 of a duration in a query that is longer than anybody waits.
[[nodiscard]] Response too_long(Request& request, const std::string& parameter,
                                supervisor::Milliseconds most);

}  // namespace belljar::api
