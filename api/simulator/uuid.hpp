// Session ids as the agent simulator's clients write them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace belljar::api {

/// A UUID in lower case with dashes, from any spelling that Python's uuid.UUID takes: braces,
/// "urn:uuid:", capitals, with or without dashes.
[[nodiscard]] std::optional<std::string> parse_uuid(std::string_view text);

}  // namespace belljar::api
