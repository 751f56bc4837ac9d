#include <nlohmann/json.hpp>

#include "api/v1/operations.hpp"

namespace belljar::api {
namespace {

using nlohmann::json;

Awaitable<Response> livez(Request&) {
  Response response;
  response.body = "{\"status\":\"ok\"}";
  co_return response;
}

}  // namespace

void add_host_operations(Router& router, const V1Context&) {
  Operation operation("livez", "GET", "/livez");
  operation.open = true;
  operation.answer = livez;
  router.add(std::move(operation));
}

}  // namespace belljar::api
