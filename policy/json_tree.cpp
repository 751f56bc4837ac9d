#include "policy/json_tree.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "policy/quote.hpp"
#include "policy/text_cursor.hpp"

namespace belljar::policy {
namespace {

/// Receives nlohmann's events. They arrive in the order of the tokens and right after each, so the
/// cursor, which walks the same text one token an event, knows where every value begins.
class TreeBuilder {
 public:
  TreeBuilder(std::string_view text, int source, Comments comments, Findings& findings)
      : text_(text), source_(source), cursor_(text, comments), findings_(findings) {}

  bool null() { return scalar(Node::Kind::kNull), true; }
  bool boolean(bool value) {
    scalar(Node::Kind::kBoolean).boolean = value;
    return true;
  }
  bool number_unsigned(std::uint64_t value) {
    scalar(Node::Kind::kUnsigned).number = value;
    return true;
  }
  bool number_integer(std::int64_t value) {
    if (value >= 0) return number_unsigned(static_cast<std::uint64_t>(value));  // "-0"
    scalar(Node::Kind::kNegative).text = std::to_string(value);
    return true;
  }
  bool number_float(double /*value*/, const std::string& raw) {
    Node& node = scalar(Node::Kind::kFloat);
    node.text = raw;
    // Without a point or exponent it was an integer that did not fit.
    if (raw.find_first_of(".eE") == std::string::npos) {
      report(node.place, "number out of range: " + in_quotes(raw) + " does not fit into 64 bits");
    }
    return true;
  }
  bool string(std::string& value) {
    Node& node = scalar(Node::Kind::kString);
    node.text = std::move(value);
    refuse_nul(node.place, node.text);
    return true;
  }
  bool binary(nlohmann::json::binary_t& /*value*/) { return false; }

  bool key(std::string& value) {
    const Place place = next_place();
    cursor_.pass_token();
    if (value.size() > kLongestKey) {
      report(place, "a key is longer than " + std::to_string(kLongestKey) + " bytes");
      return false;
    }
    refuse_nul(place, value);
    open_.back()->members.push_back({std::move(value), place, {}});
    return true;
  }
  bool start_object(std::size_t /*size*/) { return open(Node::Kind::kObject); }
  bool start_array(std::size_t /*size*/) { return open(Node::Kind::kArray); }
  bool end_object() {
    close_object(*open_.back());
    return end_array();
  }
  bool end_array() {
    (void)next_place();
    cursor_.pass_token();
    open_.pop_back();
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*last_token*/,
                   const nlohmann::json::exception& exception) {
    const SyntaxError error = explain_syntax_error(text_, cursor_, {position, exception.what()});
    TextCursor at(text_, Comments::kRefused);
    at.seek(error.offset);
    report(place_of(at), error.message);
    // From the inside out: sorting an object moves what is in it.
    for (auto node = open_.rbegin(); node != open_.rend(); ++node) close_object(**node);
    return false;
  }

  [[nodiscard]] Node take_root() { return std::move(root_); }

 private:
  [[nodiscard]] Place place_of(const TextCursor& cursor) const {
    return {source_, cursor.line(), cursor.column()};
  }
  [[nodiscard]] Place next_place() {
    cursor_.skip_to_token();
    return place_of(cursor_);
  }
  void report(const Place& place, std::string message) {
    findings_.push_back({place, {}, std::move(message)});
  }
  void refuse_nul(const Place& place, std::string_view value) {
    if (value.find('\0') != std::string_view::npos) {
      report(place, "a string must not hold NUL (\\u0000)");
    }
  }

  Node& slot() {
    if (open_.empty()) return root_;
    Node& parent = *open_.back();
    if (parent.kind == Node::Kind::kObject) return parent.members.back().value;
    return parent.elements.emplace_back();
  }
  Node& scalar(Node::Kind kind) {
    Node& node = slot();
    node.kind = kind;
    node.place = next_place();
    cursor_.pass_token();
    return node;
  }
  bool open(Node::Kind kind) {
    if (open_.size() == kDeepest) {
      report(next_place(), "nested deeper than " + std::to_string(kDeepest) + " levels");
      return false;
    }
    open_.push_back(&scalar(kind));
    return true;
  }
  void close_object(Node& node) {
    for (const DuplicateMember& duplicate : sort_members(node)) {
      report(duplicate.member.key_place, "duplicate key " + in_quotes(duplicate.member.key) +
                                             "; first at " + std::to_string(duplicate.first.line) +
                                             ":" + std::to_string(duplicate.first.column));
    }
  }

  std::string_view text_;
  int source_;
  TextCursor cursor_;
  Findings& findings_;
  Node root_;
  /// The containers around the current value. Each stays where it is while it is open, because only
  /// the innermost one grows.
  std::vector<Node*> open_;
};

bool by_key_and_place(const Member& left, const Member& right) {
  if (left.key != right.key) return left.key < right.key;
  if (left.key_place.line != right.key_place.line) {
    return left.key_place.line < right.key_place.line;
  }
  return left.key_place.column < right.key_place.column;
}

}  // namespace

const Member* Node::find(std::string_view key) const {
  const auto found =
      std::lower_bound(members.begin(), members.end(), key,
                       [](const Member& member, std::string_view k) { return member.key < k; });
  return found != members.end() && found->key == key ? &*found : nullptr;
}

Member* Node::find(std::string_view key) {
  return const_cast<Member*>(std::as_const(*this).find(key));
}

std::vector<DuplicateMember> sort_members(Node& object) {
  std::stable_sort(object.members.begin(), object.members.end(), by_key_and_place);
  std::vector<DuplicateMember> duplicates;
  std::vector<Member>& members = object.members;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (kept > 0 && members[kept - 1].key == members[i].key) {
      duplicates.push_back({std::move(members[i]), members[kept - 1].key_place});
    } else {
      if (kept != i) members[kept] = std::move(members[i]);
      ++kept;
    }
  }
  members.resize(kept);
  return duplicates;
}

std::optional<Node> parse_json(std::string_view text, int source, Comments comments,
                               Findings& findings) {
  if (text.size() > kLongestText) {
    findings.push_back({{source, 1, 1}, {}, "the text is larger than 1 MiB"});
    return std::nullopt;
  }
  TextCursor cursor(text, comments);
  // nlohmann takes a NUL byte for the end of the text and would ignore what follows.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    cursor.seek(nul);
    findings.push_back({{source, cursor.line(), cursor.column()}, {}, "a NUL byte in the text"});
    return std::nullopt;
  }
  cursor.skip_to_token();
  if (cursor.at_end()) {
    findings.push_back({{source, 1, 1}, {}, "the text is empty"});
    return std::nullopt;
  }
  TreeBuilder builder(text, source, comments, findings);
  const bool parsed = nlohmann::json::sax_parse(
      text.data(), text.data() + text.size(), &builder, nlohmann::json::input_format_t::json,
      /*strict=*/true, /*ignore_comments=*/comments == Comments::kAllowed);
  if (!parsed) return std::nullopt;
  return builder.take_root();
}

std::string found_text(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kNull:
      return "null";
    case Node::Kind::kBoolean:
      return node.boolean ? "true" : "false";
    case Node::Kind::kUnsigned:
      return "the number " + std::to_string(node.number);
    case Node::Kind::kNegative:
    case Node::Kind::kFloat:
      return "the number " + node.text.substr(0, 40);
    case Node::Kind::kString:
      return "the string " + in_quotes(node.text);
    case Node::Kind::kArray:
      return "an array";
    case Node::Kind::kObject:
      return "an object";
  }
  return {};
}

namespace {

void append_elements(std::string& out, const std::vector<Node>& elements) {
  out += '[';
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (i > 0) out += ',';
    append_json(out, elements[i]);
  }
  out += ']';
}

void append_members(std::string& out, const std::vector<Member>& members) {
  out += '{';
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i > 0) out += ',';
    append_json_string(out, members[i].key);
    out += ':';
    append_json(out, members[i].value);
  }
  out += '}';
}

}  // namespace

void append_json(std::string& out, const Node& node) {
  switch (node.kind) {
    case Node::Kind::kNull:
      out += "null";
      return;
    case Node::Kind::kBoolean:
      out += node.boolean ? "true" : "false";
      return;
    case Node::Kind::kUnsigned:
      out += std::to_string(node.number);
      return;
    case Node::Kind::kNegative:
    case Node::Kind::kFloat:
      out += node.text;
      return;
    case Node::Kind::kString:
      return append_json_string(out, node.text);
    case Node::Kind::kArray:
      return append_elements(out, node.elements);
    case Node::Kind::kObject:
      return append_members(out, node.members);
  }
}

}  // namespace belljar::policy
