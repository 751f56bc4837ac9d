// The operations of /v1, each with its method and the pattern of its path.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/http/server.hpp"

namespace belljar::api {

/// One operation. `pattern` is "/v1/sessions/{session}/files/{path...}": a part in braces stands
/// for any part of a path, one with dots for all that follow, of which there may be none. What they
/// stood for is in `Request::captured`, in their order; with dots, joined by "/".
struct Operation {
  Operation() = default;
  Operation(std::string name, std::string verb, std::string where)
      : id(std::move(name)), method(std::move(verb)), pattern(std::move(where)) {}
  std::string id;      ///< operationId in the OpenAPI document.
  std::string method;  ///< "GET" answers HEAD too; "*" stands for any.
  std::string pattern;
  std::size_t body_limit = 0;
  bool open = false;  ///< Answered without a token.
  /// It has parameters, and refuses those that it does not know; others have none at all.
  bool takes_query = false;
  // One of three.
  std::function<Awaitable<Response>(Request&)> answer;
  std::function<Awaitable<void>(Exchange&)> stream;
  std::function<Awaitable<void>(const Request&, WebSocket&)> upgrade;
  // Of an upgrade.
  std::function<std::optional<Response>(Request&)> check;  ///< Refuses it with an answer.
  std::size_t most_message = 0;
  std::string protocol;
};

class Router {
 public:
  void add(Operation operation);
  /// Nothing where no pattern fits its path. 405 with Allow where only the method does not fit, 422
  /// where there is a query and the operation takes none, 426 where an operation is a WebSocket and
  /// `head` asks for none.
  [[nodiscard]] std::optional<Verdict> route(Request& head) const;
  [[nodiscard]] bool open(const Request& head) const;
  [[nodiscard]] const std::vector<Operation>& operations() const { return operations_; }

 private:
  [[nodiscard]] const Operation* find(Request& head, std::string& allowed) const;

  std::vector<Operation> operations_;
};

/// Whether `pattern` fits; then with what its parts in braces stand for.
[[nodiscard]] std::optional<std::vector<std::string>> match_path(
    std::string_view pattern, const std::vector<std::string>& path);

}  // namespace belljar::api
