#include "launcher/service/message.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "launcher/record.hpp"
#include "launcher/service/base64.hpp"
#include "policy/json_tree.hpp"
#include "policy/quote.hpp"
#include "policy/units.hpp"

namespace belljar::service {
namespace {

using policy::in_quotes;
using policy::Member;
using policy::Node;
using Kind = Node::Kind;

constexpr std::uint64_t kHighestId = 4294967294;

/// One object of a closed schema. The first thing that is wrong is kept; what is asked for after it
/// is empty.
class Object {
 public:
  Object(const Node& node, std::string name) : node_(node), name_(std::move(name)) {}

  std::string text(const char* key, bool required = true) {
    const Node* node = find(key, required);
    if (node == nullptr) return {};
    if (node->kind == Kind::kString) return node->text;
    wrong(key, "expected a string");
    return {};
  }

  std::uint64_t number(const char* key, std::uint64_t least, std::uint64_t most) {
    const Node* node = find(key, true);
    if (node == nullptr) return least;
    if (node->kind == Kind::kUnsigned && node->number >= least && node->number <= most)
      return node->number;
    wrong(key, "expected a number from " + std::to_string(least) + " to " + std::to_string(most));
    return least;
  }

  bool boolean(const char* key) {
    const Node* node = find(key, true);
    if (node == nullptr) return false;
    if (node->kind != Kind::kBoolean) wrong(key, "expected true or false");
    return node->boolean;
  }

  std::optional<std::vector<std::string>> texts(const char* key, bool required) {
    const Node* node = find(key, required);
    if (node == nullptr) return std::nullopt;
    std::vector<std::string> found;
    for (const Node& element : node->elements)
      if (element.kind == Kind::kString) found.push_back(element.text);
    if (node->kind != Kind::kArray || found.size() != node->elements.size())
      wrong(key, "expected an array of strings");
    return found;
  }

  uid_t uid(const char* key) { return static_cast<uid_t>(number(key, 0, kHighestId)); }

  std::string workspace() {
    std::string name = text("workspace");
    if (!fault_ && !is_workspace_name(name))
      wrong("workspace",
            "expected 1 to 64 of A-Z, a-z, 0-9, _ and -, got " + std::string(in_quotes(name)));
    return name;
  }

  /// `path`, or `path_base64` for a name that is no UTF-8. The workspace itself is "".
  std::string path(bool may_be_empty) {
    const bool encoded = node_.find("path_base64") != nullptr;
    std::string found = text(encoded ? "path_base64" : "path");
    if (encoded) {
      const std::optional<std::string> bytes = decode_base64(found);
      if (!bytes) wrong("path_base64", "is no base64");
      found = bytes.value_or("");
    }
    const bool good = found.empty() ? may_be_empty : is_inner_path(found);
    if (!fault_ && !good)
      wrong("path",
            "expected a relative path of at most 4095 bytes without empty, \".\" and \"..\" parts, "
            "got " +
                std::string(in_quotes(found)));
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
    if (node_.kind != Kind::kObject) wrong("", "expected an object");
    for (const Member& member : node_.members)
      if (std::find(known_.begin(), known_.end(), member.key) == known_.end())
        wrong(in_quotes(member.key), "unknown member");
    if (fault_) return tl::unexpected<Fault>(*fault_);
    return {};
  }

  void know(const char* key) { known_.emplace_back(key); }

 private:
  const Node* find(const char* key, bool required) {
    known_.emplace_back(key);
    const Member* member = node_.find(key);
    if (member != nullptr) return &member->value;
    if (required) wrong(key, "is missing");
    return nullptr;
  }

  const Node& node_;
  std::string name_;
  std::vector<std::string> known_;
  std::optional<Fault> fault_;
};

Demand read_hello(Object&) { return Hello{}; }

Demand read_prepare(Object& object) { return Prepare{object.workspace(), object.uid("uid")}; }

Demand read_remove(Object& object) { return Remove{object.workspace()}; }

Demand read_list(Object& object) {
  List list;
  list.workspace = object.workspace();
  list.path = object.path(/*may_be_empty=*/true);
  list.depth = object.number("depth", 1, 64);
  list.content = object.number("content", 0, kMostContents);
  list.total = object.number("total", 0, kMostContents);
  list.skip = object.texts("skip", true).value_or(std::vector<std::string>{});
  return list;
}

Demand read_open(Object& object) {
  std::string workspace = object.workspace();
  return Open{std::move(workspace), object.path(false)};
}

Demand read_write(Object& object) {
  Write write;
  write.workspace = object.workspace();
  write.path = object.path(false);
  write.mode = object.mode("mode");
  write.if_match = object.text("if_match", false);
  write.parents = object.boolean("parents");
  return write;
}

Demand read_delete(Object& object) {
  Delete order;
  order.workspace = object.workspace();
  order.path = object.path(false);
  order.recursive = object.boolean("recursive");
  return order;
}

Demand read_sweep(Object& object) { return Sweep{object.uid("uid")}; }

Demand read_selftest(Object&) { return Selftest{}; }

struct Kinds {
  std::string_view name;
  Demand (*read)(Object&);
};

constexpr Kinds kDemands[] = {
    {"hello", read_hello},   {"prepare", read_prepare}, {"remove", read_remove},
    {"list", read_list},     {"open", read_open},       {"write", read_write},
    {"delete", read_delete}, {"sweep", read_sweep},     {"selftest", read_selftest}};

}  // namespace

bool is_workspace_name(std::string_view name) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
  return !name.empty() && name.size() <= 64 &&
         name.find_first_not_of(kLetters) == std::string_view::npos;
}

bool is_inner_path(std::string_view path) {
  if (path.empty() || path.size() > 4095 || path.find('\0') != std::string_view::npos) return false;
  for (std::size_t from = 0; from <= path.size();) {
    const std::size_t to = std::min(path.find('/', from), path.size());
    const std::string_view part = path.substr(from, to - from);
    if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
    from = to + 1;
  }
  return true;
}

tl::expected<Request, Unread> read_request(std::string_view text) {
  const auto unread = [](std::optional<std::uint64_t> id, std::string what) {
    return tl::unexpected<Unread>(Unread{id, Fault{Code::kInvalid, std::move(what), 0}});
  };
  if (text.size() > kLargestMessage) return unread({}, "the message is too long");
  policy::Findings findings;
  const std::optional<Node> tree = parse_json(text, 0, policy::Comments::kRefused, findings);
  if (!tree || tree->kind != Kind::kObject) return unread({}, "the message is no JSON object");
  const Member* id = tree->find("id");
  if (id == nullptr || id->value.kind != Kind::kUnsigned)
    return unread({}, "the message has no id");
  Request request;
  request.id = id->value.number;
  if (!findings.empty()) return unread(request.id, findings.front().message);
  Object object(*tree, "");
  object.know("id");
  const std::string name = object.text("do");
  const auto* kind = std::find_if(std::begin(kDemands), std::end(kDemands),
                                  [&name](const Kinds& known) { return known.name == name; });
  if (kind == std::end(kDemands)) return unread(request.id, "do: there is no " + in_quotes(name));
  request.demand = kind->read(object);
  if (const Outcome<void> whole = object.finish(); !whole)
    return tl::unexpected<Unread>(Unread{request.id, whole.error()});
  return request;
}

std::size_t descriptors_of(const Demand& demand) {
  const bool one = std::holds_alternative<Prepare>(demand) || std::holds_alternative<Write>(demand);
  return one ? 1 : 0;
}

std::string answer_text(std::uint64_t id, std::string_view body) {
  return "{\"id\":" + std::to_string(id) + "," + std::string(body.substr(1));
}

std::string error_body(const Fault& fault) {
  using Json = nlohmann::ordered_json;
  // What was typed may be 64 KiB long, and so may a message about it: an answer has its bound too.
  constexpr std::size_t kLongest = 4096;
  Json error{{"code", code_name(fault.code)}, {"message", fault.message.substr(0, kLongest)}};
  if (fault.sys_errno != 0) error["errno"] = launcher::errno_name(fault.sys_errno);
  return Json{{"error", std::move(error)}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace belljar::service
