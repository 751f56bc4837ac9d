// Reading messages of a closed schema: what is not asked for is an error.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/service/fault.hpp"
#include "launcher/service/message.hpp"
#include "launcher/sys/terminal.hpp"
#include "policy/base64.hpp"
#include "policy/json_tree.hpp"
#include "policy/quote.hpp"
#include "policy/units.hpp"

namespace belljar::service {

/// One object of a closed schema. The first thing that is wrong is kept; what is asked for after it
/// is empty.
class ClosedObject {
 public:
  ClosedObject(const policy::Node& node, std::string name) : node_(node), name_(std::move(name)) {}

  std::string text(const char* key, bool required = true) {
    const policy::Node* node = find(key, required);
    if (node == nullptr) return {};
    if (node->kind == policy::Node::Kind::kString) return node->text;
    wrong(key, "expected a string");
    return {};
  }

  std::uint64_t number(const char* key, std::uint64_t least, std::uint64_t most) {
    const policy::Node* node = find(key, true);
    if (node == nullptr) return least;
    if (node->kind == policy::Node::Kind::kUnsigned && node->number >= least &&
        node->number <= most)
      return node->number;
    wrong(key, "expected a number from " + std::to_string(least) + " to " + std::to_string(most));
    return least;
  }

  bool boolean(const char* key) {
    const policy::Node* node = find(key, true);
    if (node == nullptr) return false;
    if (node->kind != policy::Node::Kind::kBoolean) wrong(key, "expected true or false");
    return node->boolean;
  }

  std::optional<std::vector<std::string>> texts(const char* key, bool required) {
    const policy::Node* node = find(key, required);
    if (node == nullptr) return std::nullopt;
    std::vector<std::string> found;
    for (const policy::Node& element : node->elements)
      if (element.kind == policy::Node::Kind::kString) found.push_back(element.text);
    if (node->kind != policy::Node::Kind::kArray || found.size() != node->elements.size())
      wrong(key, "expected an array of strings");
    return found;
  }

  uid_t uid(const char* key) {
    return static_cast<uid_t>(number(key, 0, std::uint64_t{4294967294}));
  }

  std::string workspace() {
    std::string name = text("workspace");
    if (!fault_ && !is_workspace_name(name))
      wrong("workspace", "expected 1 to 64 of A-Z, a-z, 0-9, _ and -, got " +
                             std::string(policy::in_quotes(name)));
    return name;
  }

  /// `path`, or `path_base64` for a name that is no UTF-8. The workspace itself is "".
  std::string path(bool may_be_empty) {
    const bool encoded = node_.find("path_base64") != nullptr;
    std::string found = text(encoded ? "path_base64" : "path");
    if (encoded) {
      const std::optional<std::string> bytes = policy::decode_base64(found);
      if (!bytes) wrong("path_base64", "is no base64");
      found = bytes.value_or("");
    }
    const bool good = found.empty() ? may_be_empty : is_inner_path(found);
    if (!fault_ && !good)
      wrong("path",
            "expected a relative path of at most 4095 bytes without empty, \".\" and \"..\" parts, "
            "got " +
                std::string(policy::in_quotes(found)));
    return found;
  }

  mode_t mode(const char* key) {
    const std::string written = text(key);
    const std::optional<std::uint32_t> found = policy::parse_octal(written, 0777);
    if (!fault_ && !found) wrong(key, "expected an octal mode of at most \"0777\"");
    return found.value_or(0);
  }

  void wrong(const std::string& key, const std::string& what) {
    if (!fault_) fault_ = Fault{Code::kInvalid, name_ + key + ": " + what, 0};
  }

  /// The first thing that was wrong; a member that nobody asked for is, too.
  [[nodiscard]] Outcome<void> finish() {
    if (node_.kind != policy::Node::Kind::kObject) wrong("", "expected an object");
    for (const policy::Member& member : node_.members)
      if (std::find(known_.begin(), known_.end(), member.key) == known_.end())
        wrong(policy::in_quotes(member.key), "unknown member");
    if (fault_) return tl::unexpected<Fault>(*fault_);
    return {};
  }

  void know(const char* key) { known_.emplace_back(key); }

  [[nodiscard]] bool has(const char* key) const { return node_.find(key) != nullptr; }

  std::map<std::string, std::string> map(const char* key) {
    std::map<std::string, std::string> found;
    const policy::Node* node = find(key, true);
    if (node == nullptr) return found;
    for (const policy::Member& member : node->members)
      if (member.value.kind == policy::Node::Kind::kString)
        found.emplace(member.key, member.value.text);
    if (node->kind != policy::Node::Kind::kObject || found.size() != node->members.size())
      wrong(key, "expected an object of strings");
    return found;
  }

  std::optional<sys::TerminalSize> terminal(const char* key) {
    const policy::Node* node = find(key, false);
    if (node == nullptr) return std::nullopt;
    ClosedObject size(*node, std::string(key) + ".");
    sys::TerminalSize found;
    found.columns = static_cast<std::uint16_t>(size.number("columns", 1, 65535));
    found.rows = static_cast<std::uint16_t>(size.number("rows", 1, 65535));
    if (const Outcome<void> whole = size.finish(); !whole && !fault_) fault_ = whole.error();
    return found;
  }

  std::map<std::string, std::string> environment() {
    std::map<std::string, std::string> found = map("environment");
    for (const auto& [name, value] : found)
      if (name.empty() || name.find('=') != std::string::npos)
        wrong("environment", policy::in_quotes(name) + " is no name of a variable");
    return found;
  }

  /// Where a command starts; empty for the default.
  std::string directory() {
    std::string found = text("directory", false);
    if (!found.empty() && !found.starts_with("/")) wrong("directory", "expected an absolute path");
    return found;
  }

 private:
  const policy::Node* find(const char* key, bool required) {
    known_.emplace_back(key);
    const policy::Member* member = node_.find(key);
    if (member != nullptr) return &member->value;
    if (required) wrong(key, "is missing");
    return nullptr;
  }

  const policy::Node& node_;
  std::string name_;
  std::vector<std::string> known_;
  std::optional<Fault> fault_;
};

/// A verb of a socket, and what reads the rest of its request.
template <class Demand>
struct DemandKind {
  std::string_view name;
  Demand (*read)(ClosedObject&);
};

template <class Request, class Demand>
[[nodiscard]] tl::expected<Request, Unread> read_demand(std::string_view text,
                                                        std::span<const DemandKind<Demand>> kinds) {
  const auto unread = [](std::optional<std::uint64_t> id, std::string what) {
    return tl::unexpected<Unread>(Unread{id, Fault{Code::kInvalid, std::move(what), 0}});
  };
  if (text.size() > kLargestMessage) return unread({}, "the message is too long");
  policy::Findings findings;
  const std::optional<policy::Node> tree =
      policy::parse_json(text, 0, policy::Comments::kRefused, findings);
  if (!tree || tree->kind != policy::Node::Kind::kObject)
    return unread({}, "the message is no JSON object");
  const policy::Member* id = tree->find("id");
  if (id == nullptr || id->value.kind != policy::Node::Kind::kUnsigned)
    return unread({}, "the message has no id");
  Request request;
  request.id = id->value.number;
  if (!findings.empty()) return unread(request.id, findings.front().message);
  ClosedObject object(*tree, "");
  object.know("id");
  const std::string name = object.text("do");
  const auto kind = std::find_if(kinds.begin(), kinds.end(),
                                 [&name](const auto& known) { return known.name == name; });
  if (kind == kinds.end())
    object.wrong("do", "there is no " + policy::in_quotes(name));
  else
    request.demand = kind->read(object);
  if (const Outcome<void> whole = object.finish(); !whole)
    return tl::unexpected<Unread>(Unread{request.id, whole.error()});
  return request;
}

}  // namespace belljar::service
