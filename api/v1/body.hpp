// Reading a JSON body of a closed schema: everything that is wrong is said at once, each with its
// JSON pointer.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/http/message.hpp"
#include "api/v1/problem.hpp"

namespace belljar::api {

inline constexpr int kDeepestBody = 32;
inline constexpr std::size_t kMostProblems = 100;  ///< That one answer lists.

/// The body as a tree: UTF-8, no deeper than kDeepestBody, no key twice in an object, nothing
/// behind it, and of the media type application/json. An empty body is an empty object.
[[nodiscard]] tl::expected<nlohmann::json, Problem> parse_body(const Request& request);

/// One object. What it is asked for and does not have, or has in another shape, is a problem, and
/// so is a member that nobody asked for. After a problem values are empty, so that reading goes on.
class Members {
 public:
  /// `problems` outlives it.
  Members(const nlohmann::json& tree, std::string pointer, std::vector<ProblemItem>& problems);

  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }

  std::optional<std::string> text(const char* key);
  std::string required_text(const char* key);
  std::optional<bool> boolean(const char* key);
  std::optional<std::uint64_t> number(const char* key, std::uint64_t least, std::uint64_t most);
  /// "30s"
  std::optional<std::chrono::milliseconds> duration(const char* key);
  /// "512MiB", or a number of bytes.
  std::optional<std::uint64_t> size(const char* key);
  std::optional<std::vector<std::string>> texts(const char* key);
  std::map<std::string, std::string> map(const char* key);
  /// An object of its own; nothing where there is none.
  std::optional<Members> object(const char* key);
  /// Any value, for who looks at it himself: null where there is none.
  const nlohmann::json* any(const char* key);

  /// Says that something is wrong: with a member, or with what is below it ("env/PATH").
  void wrong(std::string_view key, std::string what);
  [[nodiscard]] std::string pointer(std::string_view key) const;
  /// null says something, as in a merge patch; otherwise it is a problem, as any wrong value.
  void allow_null() { null_allowed_ = true; }
  /// To be called last: members that are not known are problems.
  void finish();

 private:
  [[nodiscard]] const nlohmann::json* find(std::string_view key) const;
  const nlohmann::json* take(const char* key);

  const nlohmann::json& tree_;
  std::string pointer_;
  std::vector<ProblemItem>& problems_;
  std::vector<std::string> known_;
  bool null_allowed_ = false;
};

/// 422, with all that is wrong.
[[nodiscard]] Problem invalid_body(std::vector<ProblemItem> problems);

/// The parameters of a query, each at most once; what nobody asks for is a problem too.
class Query {
 public:
  /// Names and values, percent-decoded; "+" is a blank.
  explicit Query(std::string_view text);

  std::optional<std::string> text(const char* key);
  std::optional<std::uint64_t> number(const char* key, std::uint64_t least, std::uint64_t most);
  std::optional<bool> boolean(const char* key);
  std::optional<std::chrono::milliseconds> duration(const char* key);
  /// All whose name starts so, without it: "label." gives those of "label.KEY=".
  std::map<std::string, std::string> prefixed(std::string_view prefix);

  /// Nothing, or what is wrong with it.
  [[nodiscard]] std::optional<Problem> finish();

 private:
  struct Parameter {
    std::string name, value;
    bool known = false;
  };
  void wrong(const std::string& key, std::string what);

  std::vector<Parameter> parameters_;
  std::vector<ProblemItem> problems_;
};

}  // namespace belljar::api
