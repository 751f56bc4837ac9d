#include "policy/setting.hpp"

#include <utility>

#include "policy/quote.hpp"

namespace belljar::policy {
namespace {

tl::unexpected<std::string> wrong_path(std::string_view path, std::string_view why) {
  return tl::unexpected<std::string>("the path " + in_quotes(path) + " " + std::string(why));
}

/// Where the JSON string ends that begins `text`; npos when it has no end.
std::size_t string_end(std::string_view text) {
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

/// Decodes the JSON string `text`.
std::optional<std::string> unquote(std::string_view text) {
  Findings findings;
  std::optional<Node> node = parse_json(text, 0, Comments::kRefused, findings);
  if (!node || !findings.empty() || node->kind != Node::Kind::kString) return std::nullopt;
  return std::move(node->text);
}

/// The key in brackets at the start of `rest`, which is cut off.
std::optional<std::string> take_bracket(std::string_view& rest) {
  rest.remove_prefix(1);
  const bool quoted = rest.starts_with('"');
  const std::size_t end = quoted ? string_end(rest) : rest.find(']');
  if (end == std::string_view::npos || end == 0 || end >= rest.size() || rest[end] != ']') {
    return std::nullopt;
  }
  const std::string_view key = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  return quoted ? unquote(key) : std::string(key);
}

void forget_places(Node& node, int source) {
  node.place = {source, 0, 0};
  for (Node& element : node.elements) forget_places(element, source);
  for (Member& member : node.members) {
    member.key_place = {source, 0, 0};
    forget_places(member.value, source);
  }
}

}  // namespace

bool is_text(std::string_view text) {
  if (text.size() > kLongestText || text.find('\0') != std::string_view::npos) return false;
  // The bytes that JSON wants escaped are replaced: they are ASCII, as their stand-in is, and so
  // change nothing about sequences.
  std::string json = "\"";
  for (const char c : text) {
    const bool escaped = c == '"' || c == '\\' || (c >= 0 && c < ' ');
    json += escaped ? '.' : c;
  }
  return unquote(json + '"').has_value();
}

std::size_t end_of_setting_path(std::string_view text) {
  bool bracket = false, quote = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quote && text[i] == '\\')
      ++i;
    else if (bracket && text[i] == '"')
      quote = !quote;
    else if (!quote && text[i] == '[')
      bracket = true;
    else if (!quote && text[i] == ']')
      bracket = false;
    else if (!bracket && text[i] == '=')
      return i;
  }
  return std::string_view::npos;
}

Parsed<std::vector<std::string>> parse_setting_path(std::string_view path) {
  if (!is_text(path)) return wrong_path(path, "is no text: invalid UTF-8, NUL, or too long");
  std::vector<std::string> keys;
  std::string_view rest = path;
  while (!rest.empty() || keys.empty()) {
    if (rest.starts_with('[')) {
      std::optional<std::string> key = take_bracket(rest);
      if (!key) return wrong_path(path, "has a bracket that is not [\"KEY\"] or [KEY]");
      keys.push_back(std::move(*key));
    } else {
      if (!keys.empty() && !rest.starts_with('.')) {
        return wrong_path(path, "needs \".\" or \"[\" after a bracket");
      }
      if (!keys.empty()) rest.remove_prefix(1);
      const std::string_view name = rest.substr(0, rest.find_first_of(".["));
      if (name.empty()) return wrong_path(path, "has an empty name in it");
      keys.emplace_back(name);
      rest.remove_prefix(name.size());
    }
    if (keys.size() > kDeepest) return wrong_path(path, "is too deep");
  }
  return keys;
}

std::optional<Node> parse_setting_value(std::string_view text, int source, Findings& findings) {
  Findings problems;
  std::optional<Node> node = parse_json(text, source, Comments::kRefused, problems);
  if (node) {
    // JSON after all, so that what is wrong with it counts.
    for (Finding& problem : problems) {
      problem.place = {source, 0, 0};
      findings.push_back(std::move(problem));
    }
    forget_places(*node, source);
    return node;
  }
  if (!is_text(text)) {
    findings.push_back(
        {{source, 0, 0}, {}, "the value is no text: invalid UTF-8, NUL, or too long"});
    return std::nullopt;
  }
  Node plain;
  plain.kind = Node::Kind::kString;
  plain.place = {source, 0, 0};
  plain.text = text;
  return plain;
}

Node wrap_setting(const std::vector<std::string>& path, Node value) {
  const Place place{value.place.source, 0, 0};
  for (auto key = path.rbegin(); key != path.rend(); ++key) {
    Node object;
    object.kind = Node::Kind::kObject;
    object.place = place;
    object.members.push_back({*key, place, std::move(value)});
    value = std::move(object);
  }
  return value;
}

}  // namespace belljar::policy
