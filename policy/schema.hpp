// The JSON Schema of the policy format, made from the table of fields.
#pragma once

#include <string>

namespace belljar::policy {

/// Draft 2020-12, indented, with a line feed at the end. It judges one file by itself: what layers
/// below may add is not required, and what only their sum can tell is not in it (docs/policy.md).
[[nodiscard]] std::string schema_text();

}  // namespace belljar::policy
