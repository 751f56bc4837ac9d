#include "api/v1/router.hpp"

#include "api/v1/body.hpp"
#include "api/v1/problem.hpp"

namespace belljar::api {
namespace {

std::string joined(const std::vector<std::string>& path, std::size_t from) {
  std::string text;
  for (std::size_t i = from; i < path.size(); ++i) text += (i > from ? "/" : "") + path[i];
  return text;
}

bool fits_method(const Operation& operation, const Request& head) {
  return operation.method == "*" || operation.method == head.method ||
         (operation.method == "GET" && head.method == "HEAD");
}

}  // namespace

std::optional<std::vector<std::string>> match_path(std::string_view pattern,
                                                   const std::vector<std::string>& path) {
  std::vector<std::string> captured;
  std::size_t at = 0;
  pattern.remove_prefix(1);
  for (std::size_t from = 0; from <= pattern.size();) {
    const std::size_t to = std::min(pattern.find('/', from), pattern.size());
    const std::string_view part = pattern.substr(from, to - from);
    from = to + 1;
    if (part.ends_with("...}")) {
      captured.push_back(joined(path, at));
      return captured;
    }
    if (at == path.size()) return std::nullopt;
    if (part.starts_with('{'))
      captured.push_back(path[at]);
    else if (part != path[at])
      return std::nullopt;
    ++at;
  }
  if (at < path.size()) return std::nullopt;
  return captured;
}

void Router::add(Operation operation) { operations_.push_back(std::move(operation)); }

/// The operation, or which methods the path has.
const Operation* Router::find(Request& head, std::string& allowed) const {
  for (const Operation& operation : operations_) {
    auto captured = match_path(operation.pattern, head.path);
    if (!captured) continue;
    if (fits_method(operation, head)) {
      head.captured = *std::move(captured);
      return &operation;
    }
    allowed += (allowed.empty() ? "" : ", ") + operation.method;
  }
  return nullptr;
}

bool Router::open(const Request& head) const {
  for (const Operation& operation : operations_)
    if (operation.open && fits_method(operation, head) && match_path(operation.pattern, head.path))
      return true;
  return false;
}

std::optional<Verdict> Router::route(Request& head) const {
  Verdict verdict;
  std::string allowed;
  const Operation* operation = find(head, allowed);
  if (operation == nullptr) {
    if (allowed.empty()) return std::nullopt;
    verdict.refuse = problem_response(
        head, Problem(405, "method_not_allowed", "this resource has the methods " + allowed));
    verdict.refuse->headers.add("allow", allowed);
    return verdict;
  }
  if (!operation->takes_query) {
    if (auto problem = Query(head.query).finish()) {
      verdict.refuse = problem_response(head, *std::move(problem));
      return verdict;
    }
  }
  verdict.body_limit = operation->body_limit;
  verdict.answer = operation->answer;
  verdict.stream = operation->stream;
  if (!operation->upgrade) return verdict;
  if (!head.upgrade) {
    verdict.refuse =
        problem_response(head, Problem(426, "upgrade_required", "this resource is a WebSocket"));
    verdict.refuse->headers.add("upgrade", "websocket");
    return verdict;
  }
  if (operation->check) verdict.refuse = operation->check(head);
  verdict.upgrade = operation->upgrade;
  verdict.most_message = operation->most_message;
  verdict.protocol = operation->protocol;
  return verdict;
}

}  // namespace belljar::api
