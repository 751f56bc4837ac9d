// What each session gets that is not in the request for it.
#pragma once

#include "api/v1/context.hpp"

namespace belljar::api {

/// With its client, the operator's settings, and what is known once its place is.
[[nodiscard]] supervisor::SessionSpec with_operators_part(const V1Context& context,
                                                          const Request& request,
                                                          supervisor::SessionSpec spec);

}  // namespace belljar::api
