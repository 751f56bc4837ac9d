// How keys, values and paths are written in messages.
#pragma once

#include <string>
#include <string_view>

namespace belljar::policy {

/// Appends `text` as a JSON string. Control characters (C1 ones too, which some terminals obey) are
/// escaped, so that a policy cannot send commands to the terminal that shows its errors.
void append_json_string(std::string& out, std::string_view text);

/// `text` in double quotes for a message, escaped, and shortened when it is long.
[[nodiscard]] std::string in_quotes(std::string_view text);

/// Extends a display path by a member: `.name`, or `["/any key"]` when the key is no plain name.
void append_member(std::string& path, std::string_view key);

}  // namespace belljar::policy
