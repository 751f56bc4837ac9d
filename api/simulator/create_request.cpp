#include "api/simulator/create_request.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/http/message.hpp"
#include "policy/quote.hpp"

namespace belljar::api {
namespace {

using nlohmann::json;

constexpr int kDepth = 32;
constexpr std::size_t kMostPath = 4095, kMostName = 255;

/// One line of a 422, in the words of the library that clients know. The offending input is left
/// out: it can hold credentials, and callers log these bodies.
json problem(const char* type, json where, const char* message) {
  return {{"type", type}, {"loc", std::move(where)}, {"msg", message}};
}

std::string details(json problems) { return json{{"detail", std::move(problems)}}.dump(); }

/// Reads members of the body; what is wrong is collected.
class Members {
 public:
  explicit Members(const json& body) : body_(body) {}

  std::string text(const char* name) {
    const auto found = body_.find(name);
    if (found == body_.end()) {
      problems_.push_back(problem("missing", {"body", name}, "Field required"));
      return {};
    }
    return text_of(*found, {"body", name});
  }

  std::map<std::string, std::string> map(const char* name) {
    std::map<std::string, std::string> values;
    const auto found = body_.find(name);
    if (found == body_.end()) return values;
    if (!found->is_object()) {
      problems_.push_back(
          problem("dict_type", {"body", name}, "Input should be a valid dictionary"));
      return values;
    }
    for (const auto& [key, value] : found->items())
      values.emplace(key, text_of(value, {"body", name, key}));
    return values;
  }

  std::vector<std::string> list(const char* name) {
    std::vector<std::string> values;
    const auto found = body_.find(name);
    if (found == body_.end()) return values;
    if (!found->is_array()) {
      problems_.push_back(problem("list_type", {"body", name}, "Input should be a valid list"));
      return values;
    }
    for (const json& value : *found)
      values.push_back(text_of(value, {"body", name, values.size()}));
    return values;
  }

  [[nodiscard]] const json& problems() const { return problems_; }

 private:
  std::string text_of(const json& value, json where) {
    if (value.is_string()) return value.get<std::string>();
    // Enough to see what is meant; a body can hold millions.
    if (problems_.size() < 100)
      problems_.push_back(
          problem("string_type", std::move(where), "Input should be a valid string"));
    return {};
  }

  const json& body_;
  json problems_ = json::array();
};

bool says_json(std::string_view content_type) {
  const std::string_view type = trim(content_type.substr(0, content_type.find(';')));
  return same_name(type, "application/json") ||
         (type.starts_with("application/") && type.ends_with("+json"));
}

}  // namespace

bool nested_at_most(std::string_view text, int most) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > most) return false;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return true;
}

tl::expected<CreateRequest, std::string> parse_create_request(std::string_view content_type,
                                                              std::string_view body) {
  if (body.empty())
    return tl::unexpected(details({problem("missing", {"body"}, "Field required")}));
  if (!says_json(content_type))
    return tl::unexpected(details({problem("model_attributes_type", {"body"},
                                           "Input should be a JSON object: application/json")}));
  const json tree = nested_at_most(body, kDepth) ? json::parse(body, nullptr, false)
                                                 : json(json::value_t::discarded);
  if (tree.is_discarded())
    return tl::unexpected(details({problem("json_invalid", {"body"}, "JSON decode error")}));
  if (!tree.is_object())
    return tl::unexpected(
        details({problem("model_attributes_type", {"body"},
                         "Input should be a valid dictionary or object to extract fields from")}));
  Members members(tree);
  CreateRequest request;
  request.session_id = members.text("session_id");
  request.agent_code = members.text("agent_code");
  request.config_yaml = members.text("config_yaml");
  std::map<std::string, std::string> variables = members.map("env_vars");
  (void)members.list("event_list");  // Its form is checked; nobody has ever used it.
  request.support_files = members.map("support_files");
  request.workspace_paths = members.list("workspace_paths");
  if (!members.problems().empty()) return tl::unexpected(details(members.problems()));
  for (const std::string_view name : kCredentials)
    if (auto& value = variables[std::string(name)]; !value.empty())
      request.credentials.emplace(name, std::move(value));
  return request;
}

policy::Parsed<std::string> normalise_workspace_path(std::string_view given) {
  constexpr std::string_view kBlanks = " \t\r\n\v\f";
  std::string path(given);
  path.erase(0, std::min(path.find_first_not_of(kBlanks), path.size()));
  path.erase(path.find_last_not_of(kBlanks) + 1);
  std::replace(path.begin(), path.end(), '\\', '/');
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (path.size() >= 2 && path[1] == ':' && is_letter(path[0])) path.erase(0, 2);
  if (path.find('\0') != std::string::npos)
    return tl::unexpected<std::string>("a path must not hold a NUL");
  std::string normal;
  for (std::size_t from = 0; from <= path.size();) {
    const std::size_t to = std::min(path.find('/', from), path.size());
    const std::string part = path.substr(from, to - from);
    from = to + 1;
    if (part.empty() || part == ".") continue;
    if (part == "..")
      return tl::unexpected("the path " + policy::in_quotes(given) + " leads out of the workspace");
    if (part.size() > kMostName) return tl::unexpected<std::string>("a name in a path is too long");
    normal += (normal.empty() ? "" : "/") + part;
  }
  if (normal.empty())
    return tl::unexpected("the path " + policy::in_quotes(given) + " names nothing");
  if (normal.size() > kMostPath) return tl::unexpected<std::string>("a path is too long");
  return normal;
}

}  // namespace belljar::api
