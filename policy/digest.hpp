// The digest that names an effective policy.
#pragma once

#include <string>
#include <string_view>

namespace belljar::policy {

/// "sha256:" and 64 hexadecimal digits.
[[nodiscard]] std::string sha256_digest(std::string_view bytes);

}  // namespace belljar::policy
