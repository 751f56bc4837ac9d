// One value from the command line as a layer of its own.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policy/json_tree.hpp"
#include "policy/units.hpp"

namespace belljar::policy {

/// The keys that `limits.rlimits.nofile` or `filesystem.mounts["/work"].readonly` goes through.
/// Brackets hold a JSON string, or the bare key: `mounts[/work]`.
[[nodiscard]] Parsed<std::vector<std::string>> parse_setting_path(std::string_view path);

/// Where the `=` of PATH=VALUE stands: keys in brackets, quoted or not, may hold one themselves.
[[nodiscard]] std::size_t end_of_setting_path(std::string_view text);

/// Whether `text` could stand in a JSON string: valid UTF-8 without NUL, and not too long.
[[nodiscard]] bool is_text(std::string_view text);

/// `text` as JSON, or as a string when it is none; nothing when it is neither (invalid UTF-8). The
/// value has no line of its own.
[[nodiscard]] std::optional<Node> parse_setting_value(std::string_view text, int source,
                                                      Findings& findings);

/// An object that holds `value` at `path`, and nothing else.
[[nodiscard]] Node wrap_setting(const std::vector<std::string>& path, Node value);

}  // namespace belljar::policy
