// The host: whether it works, what it is, what it can enforce, and how much of it is left.
#include <nlohmann/json.hpp>

#include "api/v1/body.hpp"
#include "api/v1/openapi.hpp"
#include "api/v1/operations.hpp"
#include "api/v1/shapes.hpp"
#include "api/v1/starting.hpp"

namespace belljar::api {
namespace {

using nlohmann::json;
using supervisor::Milliseconds;

Awaitable<Response> livez(const V1Context&, Request&) {
  co_return json_response(200, {{"status", "ok"}});
}

/// Whether sessions that there are can be served; with `admit`, whether a new one fits.
Awaitable<Response> readyz(const V1Context& context, Request& request) {
  Query query(request.query);
  const bool admit = query.boolean("admit").value_or(false);
  if (auto problem = query.finish()) co_return problem_response(request, *std::move(problem));
  if (!context.supervisor->healthy())
    co_return problem_response(request, Problem(503, "unavailable", "the launch service is gone"));
  const auto test = co_await context.self_test->ask();
  if (!test.ok) {
    Problem problem(503, "sandbox", "the sandbox does not work here");
    if (told_in_full(request)) problem.detail += ": " + test.sandbox;
    co_return problem_response(request, std::move(problem));
  }
  if (admit) {
    const auto fits = context.supervisor->admits(request.client);
    if (!fits) co_return problem_response(request, fits.error());
  }
  json body = {{"status", "ok"}, {"sandbox", test.sandbox}};
  body["tested_s_ago"] = test.age ? json(test.age->count()) : json();
  co_return json_response(200, body);
}

Awaitable<Response> version(const V1Context& context, Request&) {
  co_return json_response(200, {{"version", BELLJAR_VERSION},
                                {"commit", build_commit()},
                                {"api", "v1"},
                                {"launcher", context.supervisor->service().version}});
}

Awaitable<Response> policies(const V1Context& context, Request&) {
  json list = json::array();
  for (const auto& policy : context.supervisor->service().policies) {
    json one = {{"name", policy.name}, {"digest", policy.digest}, {"network", policy.network}};
    one["default"] = policy.name == context.supervisor->config().policy;
    one["wall_time"] = policy.wall_time ? json(duration_text(*policy.wall_time)) : json();
    one["output"] = policy.output ? json(*policy.output) : json();
    list.push_back(std::move(one));
  }
  co_return json_response(200, {{"policies", std::move(list)}});
}

/// What the host can enforce, and what of this interface is not there.
Awaitable<Response> capabilities(const V1Context& context, Request& request) {
  const auto test = co_await context.self_test->ask();
  const auto& service = context.supervisor->service();
  json sandbox = {{"enabled", service.sandboxed}, {"works", test.ok}};
  sandbox["tested_s_ago"] = test.age ? json(test.age->count()) : json();
  if (told_in_full(request)) {
    sandbox["back_end"] = service.back_end;
    sandbox["privileged"] = service.privileged;
    sandbox["missing"] = json::parse(test.missing, nullptr, false);
  }
  const json features = {{"die_with", true},
                         {"shell", true},
                         {"workspace", context.options.workspaces},
                         {"inline_policies", false}};
  co_return json_response(200, {{"sandbox", std::move(sandbox)}, {"features", features}});
}

json admission(const V1Context& context, Request& request) {
  const auto fits = context.supervisor->admits(request.client);
  if (fits) return {{"now", true}};
  return {{"now", false}, {"code", supervisor::code_name(fits.error().code)}};
}

/// What a client may ask for, and how much of it is left.
Awaitable<Response> limits(const V1Context& context, Request& request) {
  const auto& config = context.supervisor->config();
  const auto counts = context.supervisor->counts();
  const auto of_clients = [](std::uint64_t number) { return number == 0 ? json() : json(number); };
  json sessions = {{"most", context.supervisor->service().max_sessions},
                   {"live", counts.starting + counts.running + counts.ending},
                   {"free", counts.slots_free},
                   {"quarantined", counts.slots_quarantined},
                   {"of_a_client", of_clients(config.sessions_of_a_client)}};
  json times = {{"max_ttl", duration_text(config.max_ttl)},
                {"default_ttl", duration_text(config.default_ttl.value_or(config.max_ttl))},
                {"retention", duration_text(config.retention)},
                {"term_grace", duration_text(config.term_grace)}};
  co_return json_response(200, {{"admits", admission(context, request)},
                                {"sessions", std::move(sessions)},
                                {"runs", {{"most", config.max_runs}, {"live", counts.runs}}},
                                {"processes_of_a_session", config.processes_of_a_session},
                                {"starts_a_minute", of_clients(context.options.starts_a_minute)},
                                {"times", std::move(times)}});
}

Awaitable<Response> openapi(const V1Context&, Request&) {
  Response response;
  response.body = std::string(openapi_document());
  co_return response;
}

}  // namespace

void add_host_operations(Router& router, const V1Context& context) {
  Operation live("livez", "GET", "/livez");
  live.open = true;
  add_answer(router, context, std::move(live), livez);
  Operation ready("readyz", "GET", "/readyz");
  ready.takes_query = true;
  add_answer(router, context, std::move(ready), readyz);
  add_answer(router, context, Operation("getVersion", "GET", "/v1/version"), version);
  add_answer(router, context, Operation("listPolicies", "GET", "/v1/policies"), policies);
  add_answer(router, context, Operation("getCapabilities", "GET", "/v1/capabilities"),
             capabilities);
  add_answer(router, context, Operation("getLimits", "GET", "/v1/limits"), limits);
  add_answer(router, context, Operation("getOpenApi", "GET", "/v1/openapi.json"), openapi);
}

}  // namespace belljar::api
