// A policy that comes with a request, in place of the name of one that is served.
//
// Who sends it is not trusted, and neither is who passes it on: the daemon reads it so that a
// client hears at once what is wrong with it, the launch service reads it again and holds it
// against the operator's ceiling.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "policy/json_tree.hpp"
#include "policy/load.hpp"

namespace belljar::policy {

/// What such a policy is called in records, whatever it calls itself; and in messages.
inline constexpr std::string_view kInlineName = "inline";

/// Within a message of the launch service, as a JSON string and beside a command and its
/// environment, there is room for as much.
inline constexpr std::size_t kLargestInline = std::size_t{24} << 10;

/// Whether the path that goes through `keys` is of what sessions are made of, or what is said of
/// them, which no request may set: ids, namespaces, capabilities, descriptors, the workspace,
/// `final`, `report` and `tests`.
[[nodiscard]] bool is_kept_from_requests(const std::vector<std::string>& keys);

struct InlinePolicy {
  Layers layers;  ///< Its text and the variables.
  Policy policy;  ///< What they come to.
  Node text;

  /// Whether its own text, not what it extends, has something at `path`, even null.
  [[nodiscard]] bool says(std::string_view path) const;
};

/// `text` is a JSON object, which can extend presets and declare `vars`, and has no comments;
/// `variables` are their values. On failure: all that is wrong, at line and column of `text`.
[[nodiscard]] tl::expected<InlinePolicy, Diagnostics> read_inline_policy(
    std::string_view text, const std::map<std::string, std::string>& variables);

}  // namespace belljar::policy
