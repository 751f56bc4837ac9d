// The nearest known name to one that is unknown.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace belljar::policy {

/// The known name that was probably meant, or empty: at most two edits away, a third of its
/// length in a long name, one edit in a short one.
[[nodiscard]] std::string_view nearest(std::string_view name,
                                       std::span<const std::string_view> known);

/// `what` with `; did you mean "readonly"?`, or with ` (one of: a, b, c)` when nothing is near and
/// the list is short enough to help.
[[nodiscard]] std::string with_suggestion(std::string what, std::string_view name,
                                          std::span<const std::string_view> known);

}  // namespace belljar::policy
