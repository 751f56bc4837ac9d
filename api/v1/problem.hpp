// Problems: every answer of /v1 that is not 2xx (RFC 9457), each with a stable code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/http/message.hpp"
#include "supervisor/failure.hpp"

namespace belljar::api {

/// What is wrong with one member of a request.
struct ProblemItem {
  std::string pointer;  ///< RFC 6901, into the body: "/files/a.py"; or "?offset", of the query.
  std::string what;
};

/// `code` is snake_case, never changes, and is explained in docs/problems.md.
struct Problem {
  Problem() = default;
  Problem(int number, std::string name, std::string said)
      : status(number), code(std::move(name)), detail(std::move(said)) {}
  int status = 500;
  std::string code;
  std::string detail;
  std::string remedy;  ///< Only where the client may know of the host.
  std::vector<ProblemItem> errors;
  std::optional<std::uint64_t> limit;
  std::optional<std::int64_t> retry_after_s;
  std::string session;
  std::string setup;  ///< The record's `setup` as JSON text; cut on TCP.
  std::optional<int> exit_code;
};

/// The answer. A 429 and a 503 say when to come back, whatever `problem` does. Clients on TCP are
/// told of the host's state in brief: the rest is left in `request.failure`, for the log.
[[nodiscard]] Response problem_response(Request& request, Problem problem);
/// What a call of the supervisor failed with.
[[nodiscard]] Response problem_response(Request& request, const supervisor::Failure& failure);
/// 404 of a resource: "there is no session \"x\"".
[[nodiscard]] Response no_such(Request& request, std::string_view kind, std::string_view name);

/// Whether this client may know what the host lacks and how a sandbox is built.
[[nodiscard]] inline bool told_in_full(const Request& request) { return request.peer.local; }

/// A record as JSON text, as this client may see it: without `setup` and `degraded` on TCP.
[[nodiscard]] std::string shown_record(const Request& request, const std::string& record);

}  // namespace belljar::api
