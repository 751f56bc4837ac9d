// The OpenAPI document, and the commit that was built, as the build has them.
#pragma once

#include <string_view>

namespace belljar::api {

/// api/v1/openapi.json
[[nodiscard]] std::string_view openapi_document();
/// The commit's id, "unknown" where the build had no repository.
[[nodiscard]] std::string_view build_commit();

}  // namespace belljar::api
