// What the operations that start something have in common: how often, and once for each key.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "api/v1/context.hpp"
#include "api/v1/router.hpp"

namespace belljar::api {

using Start = Awaitable<Response> (*)(const V1Context& context, Request& request);

/// Adds an operation that `answer` answers.
void add_answer(Router& router, const V1Context& context, Operation operation, Start answer);

/// The same of one that starts something: within the client's rate, and, for requests with the same
/// Idempotency-Key, once.
void add_start(Router& router, const V1Context& context, Operation operation, Start start);

/// Whether nobody will ever hear what `request` came to: its client has hung up, and has no key to
/// ask again with.
[[nodiscard]] bool is_abandoned(const Request& request);
/// The answer that nobody hears, for the log.
[[nodiscard]] Response abandoned(Request& request);

/// Why something did not start. What is the request's own fault, such as a program that is not
/// there or more than its policy allows, is no fault of the host.
[[nodiscard]] Response start_failed(Request& request, const supervisor::Failure& failure);

/// 201, with where it is.
[[nodiscard]] Response created(const std::string& path, const nlohmann::json& body);

}  // namespace belljar::api
