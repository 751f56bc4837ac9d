#include "policy/variables.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "policy/decode.hpp"
#include "policy/merge.hpp"
#include "policy/quote.hpp"
#include "policy/suggest.hpp"

namespace belljar::policy {
namespace {

constexpr std::string_view kOpen = "${";
constexpr std::string_view kEscaped = "$${";

std::string_view type_name(VariableType type) {
  switch (type) {
    case VariableType::kPath:
      return "a path such as \"/srv/work\"";
    case VariableType::kSize:
      return "a size such as \"512MiB\"";
    case VariableType::kDuration:
      return "a duration such as \"30s\"";
    case VariableType::kString:
      return "a string";
    case VariableType::kEnum:
      return "one of its values";
    case VariableType::kInt:
      return "a whole number";
  }
  return {};
}

/// The measure that `min` and `max` compare.
Parsed<std::uint64_t> measure(VariableType type, std::string_view text) {
  if (type == VariableType::kSize) return parse_size(text);
  if (type == VariableType::kDuration) {
    const Parsed<std::chrono::milliseconds> duration = parse_duration(text);
    if (!duration) return tl::unexpected(duration.error());
    return static_cast<std::uint64_t>(duration->count());
  }
  const bool digits =
      !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  const std::optional<std::uint64_t> number = digits ? parse_unsigned(text) : std::nullopt;
  if (!number)
    return tl::unexpected("expected a whole number of at least 0, got " + in_quotes(text));
  return *number;
}

Parsed<std::string> check_measure(const Variable& variable, std::string_view text) {
  const Parsed<std::uint64_t> value = measure(variable.type, text);
  if (!value) return tl::unexpected(value.error());
  const auto limit = [&](const std::optional<std::string>& bound, std::uint64_t none) {
    return bound ? measure(variable.type, *bound).value_or(none) : none;
  };
  if (*value < limit(variable.min, 0)) {
    return tl::unexpected(in_quotes(text) + " is below the smallest, " + in_quotes(*variable.min));
  }
  if (*value > limit(variable.max, std::numeric_limits<std::uint64_t>::max())) {
    return tl::unexpected(in_quotes(text) + " is above the largest, " + in_quotes(*variable.max));
  }
  if (variable.type == VariableType::kInt) return std::to_string(*value);
  return std::string(text);
}

Parsed<std::string> check_enum(const Variable& variable, std::string_view text) {
  const std::vector<std::string_view> known(variable.values.begin(), variable.values.end());
  if (std::find(known.begin(), known.end(), text) != known.end()) return std::string(text);
  return tl::unexpected(with_suggestion(in_quotes(text) + " is none of its values", text, known));
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// What is no name has been refused as one (VariableName), and repeated could send control
/// characters to a terminal.
bool is_name(std::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), is_name_character);
}

/// The name in the reference that `text` begins with, or empty when that is none.
std::string_view reference_name(std::string_view text) {
  std::size_t end = kOpen.size();
  while (end < text.size() && is_name_character(text[end])) ++end;
  if (end == text.size() || text[end] != '}') return {};
  return text.substr(kOpen.size(), end - kOpen.size());
}

/// Whether the keys of the object at `path` are data in which a variable can stand.
bool has_replaceable_keys(std::string_view path) {
  constexpr std::array<std::string_view, 3> kMaps{"filesystem.hide", "filesystem.mask",
                                                  "filesystem.mounts"};
  return std::find(kMaps.begin(), kMaps.end(), path) != kMaps.end();
}

/// A number stands for itself everywhere but here, where each value is a text.
bool is_text_place(std::string_view path) { return path.starts_with("env.set"); }

/// What speaks about the text only, or is dealt with apart.
bool is_of_text(std::string_view key) {
  return key == "$schema" || key == "version" || key == "extends" || key == "final" ||
         key.starts_with("x-");
}

void append_escaped(std::string& out, std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t next = std::min(text.find(kOpen, at), text.size());
    out += text.substr(at, next - at);
    if (next < text.size()) out += kEscaped;
    at = next + kOpen.size();
  }
}

void escape_node(Node& node, std::string& path) {
  if (node.kind == Node::Kind::kString && node.text.find(kOpen) != std::string::npos) {
    std::string escaped;
    append_escaped(escaped, node.text);
    node.text = std::move(escaped);
  }
  for (Node& element : node.elements) escape_node(element, path);
  const bool keys = node.kind == Node::Kind::kObject && has_replaceable_keys(path);
  for (Member& member : node.members) {
    const std::size_t length = path.size();
    append_member(path, member.key);
    escape_node(member.value, path);
    path.resize(length);
    if (!keys || member.key.find(kOpen) == std::string::npos) continue;
    std::string escaped;
    append_escaped(escaped, member.key);
    member.key = std::move(escaped);
  }
}

}  // namespace

Parsed<std::string> check_value(const Variable& variable, std::string_view text) {
  switch (variable.type) {
    case VariableType::kPath:
      return normalise_path(text);
    case VariableType::kString:
      return std::string(text);
    case VariableType::kEnum:
      return check_enum(variable, text);
    case VariableType::kSize:
    case VariableType::kDuration:
    case VariableType::kInt:
      return check_measure(variable, text);
  }
  return std::string(text);
}

void Variables::report(const Place& place, std::string path, std::string message) {
  if (findings_.size() < kMostFindings) {
    findings_.push_back({place, std::move(path), std::move(message)});
  }
}

/// A lower text relies on what it has declared, so that a higher one sets the default only.
void Variables::check_redeclared(const Member& variable) {
  const Member* before = declarations_.find(variable.key);
  if (before == nullptr) return;
  if (const Member* now = variable.value.find("default")) {
    const Member* old = before->value.find("default");
    const bool same = old != nullptr && old->value.kind == now->value.kind &&
                      old->value.text == now->value.text && old->value.number == now->value.number;
    const std::string path = member_path("vars", variable.key) + ".default";
    if (!same && is_frozen(variable.key, now->value.place, path)) return;
  }
  for (const std::string_view key : {"max", "min", "type", "values"}) {
    const Member* old = before->value.find(key);
    const Member* now = variable.value.find(key);
    if (now == nullptr || before->value.find("type") == nullptr) continue;
    std::string old_json, now_json;
    if (old != nullptr) append_json(old_json, old->value);
    append_json(now_json, now->value);
    if (old_json == now_json) continue;
    report(now->key_place, member_path(member_path("vars", variable.key), key),
           "was decided by " + locate(sources_, before->key_place).text() +
               "; a policy that extends it sets the default only");
  }
}

void Variables::freeze(std::string_view path, const Place& place) {
  constexpr std::string_view kOne = "vars.";
  for (const Member& member : declarations_.members) {
    const bool named = path.starts_with(kOne) && path.substr(kOne.size()) == member.key;
    if (named || path == "vars") frozen_.emplace(member.key, place);
  }
}

/// Reports a value for a variable that takes none any more.
bool Variables::is_frozen(const std::string& name, const Place& place, std::string path) {
  const auto frozen = frozen_.find(name);
  if (frozen == frozen_.end()) return false;
  report(place, std::move(path),
         "the variable " + in_quotes(name) + " is final in " +
             locate(sources_, frozen->second).text());
  return true;
}

void Variables::take(Node& tree) {
  Member* member = tree.find("vars");
  if (member == nullptr) return;
  Node vars = std::move(member->value);
  std::erase_if(tree.members, [](const Member& each) { return each.key == "vars"; });
  if (vars.kind == Node::Kind::kNull) return;
  (void)decode_variables(vars, Pass::kLayer, sources_, findings_);
  if (vars.kind != Node::Kind::kObject) return;
  for (const Member& variable : vars.members) check_redeclared(variable);
  declarations_.kind = Node::Kind::kObject;
  merge(declarations_, std::move(vars));
}

void Variables::give(const std::vector<GivenVariable>& given, bool complete) {
  std::vector<std::string_view> names;
  for (const Member& member : declarations_.members)
    if (is_name(member.key)) names.push_back(member.key);
  for (const GivenVariable& variable : given) {
    if (complete && declarations_.find(variable.name) == nullptr) {
      const std::string what = names.empty() ? "the policy declares no variables"
                                             : "there is no variable " + in_quotes(variable.name);
      report(variable.place, {}, with_suggestion(what, variable.name, names));
    }
    given_[variable.name] = variable;
  }
  const std::size_t before = findings_.size();
  const std::map<std::string, Variable> variables =
      decode_variables(declarations_, Pass::kMerged, sources_, findings_);
  const bool sound = findings_.size() == before;
  for (const Member& member : declarations_.members) {
    const auto variable = variables.find(member.key);
    if (sound && variable != variables.end()) {
      decide(member.key, variable->second, member);
    } else {
      values_[member.key] = {};
    }
  }
}

void Variables::decide(const std::string& name, const Variable& variable,
                       const Member& declaration) {
  Value& value = values_[name];
  value.type = variable.type;
  const auto check = [&](std::string_view text, const Place& place, const std::string& path) {
    Parsed<std::string> checked = check_value(variable, text);
    if (!checked) return report(place, path, checked.error());
    value.text = std::move(*checked);
  };
  const std::string path = member_path("vars", name);
  if (const Member* fallback = declaration.value.find("default")) {
    check(*variable.default_value, fallback->value.place, path + ".default");
  }
  if (const auto given = given_.find(name); given != given_.end()) {
    value.text.reset();
    if (is_frozen(name, given->second.place, {})) return;
    return check(given->second.value, given->second.place, {});
  }
  if (variable.default_value) return;
  std::string kind(type_name(variable.type));
  if (variable.type == VariableType::kEnum) {
    kind = "one of";
    for (const std::string& choice : variable.values) kind += " " + in_quotes(choice);
  }
  report(declaration.key_place, path,
         "has no value; it is " + kind + ": give one with --var " + name +
             "=..., or a \"default\" here");
}

const Variables::Value* Variables::find(std::string_view name, const Place& place,
                                        std::string_view path) {
  const auto found = values_.find(name);
  used_.emplace(name);
  if (found != values_.end()) return found->second.text ? &found->second : nullptr;
  std::vector<std::string_view> names;
  for (const auto& entry : values_)
    if (is_name(entry.first)) names.push_back(entry.first);
  std::string message = with_suggestion("there is no variable " + in_quotes(name), name, names);
  if (names.empty()) {
    message += "; declare it under \"vars\", or write \"$${\" for the characters \"${\"";
  }
  report(place, std::string(path), std::move(message));
  return nullptr;
}

std::optional<std::string> Variables::replace_in_text(std::string_view text, const Place& place,
                                                      std::string_view path) {
  std::string out;
  bool good = true;
  while (!text.empty()) {
    if (text.starts_with(kEscaped)) {
      out += kOpen;
      text.remove_prefix(kEscaped.size());
    } else if (text.starts_with(kOpen)) {
      const std::string_view name = reference_name(text);
      if (name.empty()) {
        report(place, std::string(path),
               "\"${\" begins a variable such as \"${work}\"; write \"$${\" for the characters "
               "themselves");
        return std::nullopt;
      }
      const Value* value = find(name, place, path);
      good &= value != nullptr;
      if (value != nullptr) out += *value->text;
      text.remove_prefix(kOpen.size() + name.size() + 1);
    } else {
      out += text.front();
      text.remove_prefix(1);
    }
  }
  if (!good) return std::nullopt;
  return out;
}

bool Variables::replace_in_string(Node& node, std::string_view path) {
  if (node.text.find(kOpen) == std::string::npos) return true;
  const std::string_view name =
      node.text.starts_with(kOpen) ? reference_name(node.text) : std::string_view{};
  const bool whole = !name.empty() && name.size() + kOpen.size() + 1 == node.text.size();
  const auto value = whole ? values_.find(name) : values_.end();
  std::optional<std::string> text = replace_in_text(node.text, node.place, path);
  if (!text) return false;
  node.text = std::move(*text);
  if (value == values_.end() || value->second.type != VariableType::kInt || is_text_place(path)) {
    return true;
  }
  node.kind = Node::Kind::kUnsigned;
  node.number = parse_unsigned(node.text).value_or(0);
  return true;
}

void Variables::replace_in_array(Node& node, std::string& path) {
  std::vector<Node> kept;
  for (std::size_t i = 0; i < node.elements.size(); ++i) {
    const std::size_t length = path.size();
    path += '[' + std::to_string(i) + ']';
    if (replace_in_node(node.elements[i], path)) kept.push_back(std::move(node.elements[i]));
    path.resize(length);
  }
  node.elements = std::move(kept);
}

void Variables::replace_in_object(Node& node, std::string& path) {
  const bool keys = has_replaceable_keys(path);
  std::vector<Member> kept;
  for (Member& member : node.members) {
    if (path.empty() && is_of_text(member.key)) {
      kept.push_back(std::move(member));
      continue;
    }
    const std::size_t length = path.size();
    append_member(path, member.key);
    bool good = replace_in_node(member.value, path);
    if (keys && member.key.find(kOpen) != std::string::npos) {
      std::optional<std::string> key = replace_in_text(member.key, member.key_place, path);
      good &= key.has_value();
      if (key) member.key = std::move(*key);
    }
    path.resize(length);
    if (good) kept.push_back(std::move(member));
  }
  node.members = std::move(kept);
}

bool Variables::replace_in_node(Node& node, std::string& path) {
  if (node.kind == Node::Kind::kString) return replace_in_string(node, path);
  if (node.kind == Node::Kind::kArray) replace_in_array(node, path);
  if (node.kind == Node::Kind::kObject) replace_in_object(node, path);
  return true;
}

void Variables::replace_in(Node& tree) {
  std::string path;
  replace_in_object(tree, path);
}

void Variables::report_unused() {
  for (const Member& member : declarations_.members) {
    if (used_.contains(member.key) || !is_name(member.key)) continue;
    report(member.key_place, member_path("vars", member.key),
           "is not used; write ${" + member.key + "} where its value goes, or remove it");
  }
}

void escape_references(Node& tree) {
  std::string path;
  escape_node(tree, path);
}

}  // namespace belljar::policy
