#include "policy/inline_policy.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "policy/quote.hpp"
#include "policy/setting.hpp"

namespace belljar::policy {
namespace {

Diagnostic wrong_at(const Place& place, std::string path, std::string message) {
  return {
      {std::string(kInlineName), place.line, place.column}, std::move(path), std::move(message)};
}

/// What of `tree` no request may say.
Diagnostics kept_members(const Node& tree) {
  Diagnostics found;
  const auto look = [&found](const Member& member, const std::vector<std::string>& keys) {
    if (!is_kept_from_requests(keys)) return false;
    std::string path;
    for (const std::string& key : keys) append_member(path, key);
    found.push_back(wrong_at(member.key_place, std::move(path),
                             "is the operator's to say, not a request's; leave it out"));
    return true;
  };
  for (const Member& member : tree.members) {
    if (look(member, {member.key})) continue;
    for (const Member& inner : member.value.members) look(inner, {member.key, inner.key});
  }
  return found;
}

Diagnostics sorted(Diagnostics found) {
  std::stable_sort(found.begin(), found.end(), [](const Diagnostic& a, const Diagnostic& b) {
    return std::pair(a.where.line, a.where.column) < std::pair(b.where.line, b.where.column);
  });
  return found;
}

}  // namespace

bool is_kept_from_requests(const std::vector<std::string>& keys) {
  constexpr std::array<std::string_view, 7> kKept = {"identity", "namespaces", "capabilities", "io",
                                                     "final",    "report",     "tests"};
  if (keys.empty()) return false;
  if (keys.front() == "filesystem") return keys.size() > 1 && keys[1] == "workspace";
  return std::find(kKept.begin(), kKept.end(), keys.front()) != kKept.end();
}

bool InlinePolicy::says(std::string_view path) const {
  const Parsed<std::vector<std::string>> keys = parse_setting_path(path);
  const Node* node = keys ? &text : nullptr;
  for (std::size_t i = 0; node != nullptr && i < keys->size(); ++i) {
    // Null removes all that is below it.
    if (i > 0 && node->kind == Node::Kind::kNull) return true;
    const Member* member = node->find((*keys)[i]);
    node = member == nullptr ? nullptr : &member->value;
  }
  return node != nullptr;
}

tl::expected<InlinePolicy, Diagnostics> read_inline_policy(
    std::string_view text, const std::map<std::string, std::string>& variables) {
  if (text.size() > kLargestInline)
    return tl::unexpected(
        Diagnostics{wrong_at({}, {},
                             "has " + std::to_string(text.size()) + " bytes, of " +
                                 std::to_string(kLargestInline) + " at most")});
  InlinePolicy read;
  read.layers.add_text(text, kInlineName);
  for (const auto& [name, value] : variables)
    read.layers.add_variable(name, value, "the request's variable " + name.substr(0, 200));
  Diagnostics wrong;
  Findings ignored;  // They are found again below.
  if (std::optional<Node> tree = parse_json(text, 0, Comments::kRefused, ignored)) {
    wrong = kept_members(*tree);
    read.text = *std::move(tree);
  }
  auto policy = read.layers.resolve();
  if (!policy) std::move(policy.error().begin(), policy.error().end(), std::back_inserter(wrong));
  if (!wrong.empty()) return tl::unexpected(sorted(std::move(wrong)));
  read.policy = *std::move(policy);
  read.policy.name = kInlineName;
  return read;
}

}  // namespace belljar::policy
