// Bytes within JSON (RFC 4648).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace belljar::policy {

[[nodiscard]] std::string base64(std::string_view bytes);

/// Padded, without white space; nothing when it is anything else.
[[nodiscard]] std::optional<std::string> decode_base64(std::string_view text);

}  // namespace belljar::policy
