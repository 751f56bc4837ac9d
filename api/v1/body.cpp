#include "api/v1/body.hpp"

#include <algorithm>
#include <set>

#include "api/simulator/create_request.hpp"
#include "policy/quote.hpp"
#include "policy/suggest.hpp"
#include "policy/units.hpp"

namespace belljar::api {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

bool says_json(const Request& request) {
  const std::string_view field = request.headers.find("content-type").value_or("");
  const std::string_view type = trim(field.substr(0, field.find(';')));
  return same_name(type, "application/json") ||
         (request.method == "PATCH" && same_name(type, "application/merge-patch+json"));
}

/// RFC 6901, 3.
std::string escaped(std::string_view key) {
  std::string text;
  for (const char c : key) {
    if (c == '~')
      text += "~0";
    else if (c == '/')
      text += "~1";
    else
      text += c;
  }
  return text;
}

/// Parses, and finds keys that an object has twice: the library keeps the last one and says
/// nothing.
class Parse {
 public:
  explicit Parse(std::string_view text)
      : tree_(json::parse(
            text,
            [this](int, json::parse_event_t event, json& parsed) { return see(event, parsed); },
            false)) {}

  [[nodiscard]] const std::string& twice() const { return twice_; }
  [[nodiscard]] json& tree() { return tree_; }

 private:
  bool see(json::parse_event_t event, const json& parsed) {
    if (event == json::parse_event_t::object_start) {
      keys_.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      if (!keys_.empty()) keys_.pop_back();
    } else if (event == json::parse_event_t::key && !keys_.empty()) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second && twice_.empty()) twice_ = policy::in_quotes(key);
    }
    return true;
  }

  std::vector<std::set<std::string>> keys_;
  std::string twice_;
  json tree_;
};

const char* kind_of(const json& value) {
  if (value.is_string()) return "a string";
  if (value.is_number()) return "a number";
  if (value.is_boolean()) return "a boolean";
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  return "null";
}

}  // namespace

tl::expected<json, Problem> parse_body(const Request& request) {
  if (request.body.empty()) return json::object();
  if (!says_json(request))
    return tl::unexpected(Problem(415, "unsupported_media_type",
                                  "the body has to be JSON: content-type: application/json"));
  if (!nested_at_most(request.body, kDeepestBody))
    return tl::unexpected(
        Problem(400, "malformed",
                "the body is nested deeper than " + std::to_string(kDeepestBody) + " levels"));
  // The library passes over it; RFC 8259, 8.1, has nobody send it.
  if (request.body.starts_with("\xef\xbb\xbf"))
    return tl::unexpected(Problem(400, "malformed", "the body begins with a byte order mark"));
  Parse parse(request.body);
  if (parse.tree().is_discarded())
    return tl::unexpected(Problem(400, "malformed", "the body is no JSON"));
  if (!parse.twice().empty())
    return tl::unexpected(Problem(
        400, "malformed", "the body has an object with the key " + parse.twice() + " twice"));
  return std::move(parse.tree());
}

Members::Members(const json& tree, std::string pointer, std::vector<ProblemItem>& problems)
    : tree_(tree), pointer_(std::move(pointer)), problems_(problems) {
  if (!tree_.is_object())
    problems_.push_back({pointer_, std::string("expected an object, got ") + kind_of(tree_)});
}

const json* Members::find(std::string_view key) const {
  if (!tree_.is_object()) return nullptr;
  const auto found = tree_.find(key);
  return found == tree_.end() || found->is_null() ? nullptr : &*found;
}

const json* Members::take(const char* key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.emplace_back(key);
  return find(key);
}

std::string Members::pointer(std::string_view key) const { return pointer_ + '/' + escaped(key); }

void Members::wrong(std::string_view key, std::string what) {
  if (problems_.size() < kMostProblems) problems_.push_back({pointer(key), std::move(what)});
}

std::optional<std::string> Members::text(const char* key) {
  const json* value = take(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  wrong(key, std::string("expected a string, got ") + kind_of(*value));
  return std::nullopt;
}

std::string Members::required_text(const char* key) {
  auto value = text(key);
  if (!value && find(key) == nullptr) wrong(key, "is required");
  return value.value_or("");
}

std::optional<bool> Members::boolean(const char* key) {
  const json* value = take(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  wrong(key, std::string("expected true or false, got ") + kind_of(*value));
  return std::nullopt;
}

std::optional<std::uint64_t> Members::number(const char* key, std::uint64_t least,
                                             std::uint64_t most) {
  const json* value = take(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned())
    if (const auto found = value->get<std::uint64_t>(); found >= least && found <= most)
      return found;
  wrong(key,
        "expected a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  return std::nullopt;
}

std::optional<milliseconds> Members::duration(const char* key) {
  const auto written = text(key);
  if (!written) return std::nullopt;
  const auto parsed = policy::parse_duration(*written);
  if (parsed) return *parsed;
  wrong(key, parsed.error());
  return std::nullopt;
}

std::optional<std::uint64_t> Members::size(const char* key) {
  const json* value = take(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned()) return value->get<std::uint64_t>();
  if (!value->is_string()) {
    wrong(key,
          std::string("expected a size, \"512MiB\", or a number of bytes, got ") + kind_of(*value));
    return std::nullopt;
  }
  const auto parsed = policy::parse_size(value->get_ref<const std::string&>());
  if (parsed) return *parsed;
  wrong(key, parsed.error());
  return std::nullopt;
}

std::optional<std::vector<std::string>> Members::texts(const char* key) {
  const json* value = take(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) {
    wrong(key, std::string("expected an array of strings, got ") + kind_of(*value));
    return std::nullopt;
  }
  std::vector<std::string> found;
  for (const json& element : *value) {
    if (element.is_string())
      found.push_back(element.get<std::string>());
    else if (problems_.size() < kMostProblems)
      problems_.push_back({pointer(key) + '/' + std::to_string(found.size()),
                           std::string("expected a string, got ") + kind_of(element)});
  }
  return found;
}

std::map<std::string, std::string> Members::map(const char* key) {
  std::map<std::string, std::string> found;
  auto inner = object(key);
  if (!inner) return found;
  for (const auto& [name, value] : inner->tree_.items()) {
    if (value.is_string())
      found.emplace(name, value.get<std::string>());
    else
      inner->wrong(name, std::string("expected a string, got ") + kind_of(value));
  }
  return found;
}

std::optional<Members> Members::object(const char* key) {
  const json* value = take(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_object()) return Members(*value, pointer(key), problems_);
  wrong(key, std::string("expected an object, got ") + kind_of(*value));
  return std::nullopt;
}

const json* Members::any(const char* key) { return take(key); }

void Members::finish() {
  if (!tree_.is_object()) return;
  const std::vector<std::string_view> known(known_.begin(), known_.end());
  for (const auto& [key, value] : tree_.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      wrong(key, policy::with_suggestion("unknown member", key, known));
    else if (value.is_null() && !null_allowed_)
      wrong(key, "expected a value, got null: leave it out");
  }
}

Problem invalid_body(std::vector<ProblemItem> problems) {
  Problem problem(422, "invalid", "the request is not valid");
  if (problems.size() == 1) problem.detail = problems[0].pointer + ": " + problems[0].what;
  problem.errors = std::move(problems);
  return problem;
}

// --- query

Query::Query(std::string_view text) {
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t to = std::min(text.find('&', from), text.size());
    const std::string_view part = text.substr(from, to - from);
    from = to + 1;
    if (part.empty()) continue;
    const std::size_t equals = std::min(part.find('='), part.size());
    auto name = query_decoded(part.substr(0, equals));
    auto value = query_decoded(equals < part.size() ? part.substr(equals + 1) : "");
    if (!name || !value) {
      wrong(std::string(part), "has a broken escape");
      continue;
    }
    const bool twice = std::any_of(parameters_.begin(), parameters_.end(),
                                   [&](const Parameter& other) { return other.name == *name; });
    if (twice) wrong(*name, "is there twice");
    parameters_.push_back({*std::move(name), *std::move(value), false});
  }
}

void Query::wrong(const std::string& key, std::string what) {
  if (problems_.size() < kMostProblems) problems_.push_back({'?' + key, std::move(what)});
}

std::optional<std::string> Query::text(const char* key) {
  std::optional<std::string> found;
  for (Parameter& parameter : parameters_) {
    if (parameter.name != key) continue;
    parameter.known = true;
    if (!found) found = parameter.value;
  }
  return found;
}

std::optional<std::uint64_t> Query::number(const char* key, std::uint64_t least,
                                           std::uint64_t most) {
  const auto written = text(key);
  if (!written) return std::nullopt;
  const auto found = policy::parse_decimal(*written);
  if (found && *found >= least && *found <= most) return found;
  wrong(key,
        "expected a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  return std::nullopt;
}

std::optional<bool> Query::boolean(const char* key) {
  const auto written = text(key);
  if (!written) return std::nullopt;
  if (written->empty() || *written == "true" || *written == "1") return true;
  if (*written != "false" && *written != "0") wrong(key, "expected true or false");
  return false;
}

std::optional<milliseconds> Query::duration(const char* key) {
  const auto written = text(key);
  if (!written) return std::nullopt;
  const auto parsed = policy::parse_duration(*written);
  if (parsed) return *parsed;
  wrong(key, parsed.error());
  return std::nullopt;
}

std::map<std::string, std::string> Query::prefixed(std::string_view prefix) {
  std::map<std::string, std::string> found;
  for (Parameter& parameter : parameters_) {
    if (!parameter.name.starts_with(prefix) || parameter.name.size() == prefix.size()) continue;
    parameter.known = true;
    found.emplace(parameter.name.substr(prefix.size()), parameter.value);
  }
  return found;
}

std::optional<Problem> Query::finish() {
  for (const Parameter& parameter : parameters_)
    if (!parameter.known) wrong(parameter.name, "unknown parameter");
  if (problems_.empty()) return std::nullopt;
  return invalid_body(std::move(problems_));
}

}  // namespace belljar::api
