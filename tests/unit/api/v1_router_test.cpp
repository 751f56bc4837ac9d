// The operations of /v1: found by method and path, described by the OpenAPI document, within a
// rate.
#include <doctest/doctest.h>

#include <boost/asio/io_context.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "api/v1/openapi.hpp"
#include "api/v1/operations.hpp"
#include "api/v1/rate.hpp"

using namespace belljar;
using namespace belljar::api;
using nlohmann::json;

namespace {

Request request_of(const std::string& method, const std::string& target) {
  Request request;
  request.method = method;
  request.target = target;
  CHECK(split_target(target, request));
  return request;
}

struct AllOperations {
  AllOperations() { add_all_operations(router, context); }
  V1Context context;
  Router router;
};

/// "/v1/files/{path...}" as the document has it.
std::string documented(std::string pattern) {
  for (std::size_t at = pattern.find("...}"); at != std::string::npos; at = pattern.find("...}"))
    pattern.erase(at, 3);
  return pattern;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(c));
  return text;
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(c));
  return text;
}

}  // namespace

TEST_CASE("a pattern stands for the parts of a path, and takes no part of another") {
  const auto match = [](const char* pattern, const char* target) {
    return match_path(pattern, request_of("GET", target).path);
  };
  using Captured = std::vector<std::string>;
  CHECK(match("/a/{x}", "/a/b") == Captured{"b"});
  CHECK(match("/a/{x}", "/a/b%2Fc") == Captured{"b/c"});
  CHECK(!match("/a/{x}", "/a"));
  CHECK(!match("/a/{x}", "/a/b/c"));
  CHECK(match("/a/{x}/f/{path...}", "/a/1/f/b/c") == Captured{"1", "b/c"});
  CHECK(match("/a/{x}/f/{path...}", "/a/1/f") == Captured{"1", ""});
  CHECK(!match("/a", "/"));
}

TEST_CASE("another method says which there are, and another path nothing") {
  const AllOperations all;
  Request wrong = request_of("PUT", "/v1/sessions");
  const auto verdict = all.router.route(wrong);
  REQUIRE(verdict.has_value());
  CHECK(verdict->refuse->status == 405);
  CHECK(verdict->refuse->headers.find("allow") == "POST, GET");
  Request nowhere = request_of("GET", "/v1/session");
  CHECK(!all.router.route(nowhere));
  Request head = request_of("HEAD", "/v1/sessions/x");
  CHECK(all.router.route(head)->answer);
  CHECK(head.captured == std::vector<std::string>{"x"});
}

TEST_CASE("only livez is answered to who shows no token") {
  const AllOperations all;
  for (const Operation& operation : all.router.operations())
    CHECK_MESSAGE(operation.open == (operation.id == "livez"), operation.id);
  CHECK(all.router.open(request_of("GET", "/livez")));
  CHECK(!all.router.open(request_of("POST", "/livez")));
  CHECK(!all.router.open(request_of("GET", "/livez/x")));
}

TEST_CASE("the document has every operation of the router, and no other") {
  const json document = json::parse(openapi_document());
  std::set<std::string> described;
  for (const auto& [path, methods] : document["paths"].items())
    for (const auto& [method, operation] : methods.items())
      described.insert(upper(method) + ' ' + path);
  const AllOperations all;
  std::set<std::string> known;
  for (const Operation& operation : all.router.operations()) {
    const std::string path = documented(operation.pattern);
    const auto any = document["paths"].find(path);
    REQUIRE_MESSAGE(any != document["paths"].end(), path);
    if (operation.method != "*") {
      known.insert(operation.method + ' ' + path);
      CHECK_MESSAGE(
          any->value(lower(operation.method), json::object())["operationId"] == operation.id,
          operation.id);
      continue;
    }
    for (const auto& [method, described_one] : any->items())
      known.insert(upper(method) + ' ' + path);
  }
  CHECK(described == known);
}

TEST_CASE("an operation takes a query where the document has parameters of one, and only there") {
  const json document = json::parse(openapi_document());
  const AllOperations all;
  for (const Operation& operation : all.router.operations()) {
    if (operation.method == "*") continue;
    const json& path = document["paths"][documented(operation.pattern)];
    bool described = false;
    for (const json& place : {path, path[lower(operation.method)]})
      for (json parameter : place.value("parameters", json::array())) {
        if (parameter.contains("$ref"))
          parameter =
              document.at(json::json_pointer(parameter["$ref"].get<std::string>().substr(1)));
        described |= parameter["in"] == "query";
      }
    CHECK_MESSAGE(operation.takes_query == described, operation.id);
  }
}

TEST_CASE("a client starts a minute's worth at once, and then as time brings them") {
  boost::asio::io_context loop;
  supervisor::TestClock clock(loop);
  StartRate rate(clock, 6);
  for (int i = 0; i < 6; ++i) CHECK(!rate.take("a"));
  CHECK(rate.take("a") == std::chrono::seconds(10));
  CHECK(!rate.take("b"));
  clock.advance(std::chrono::seconds(4));
  CHECK(rate.take("a") == std::chrono::seconds(6));
  clock.advance(std::chrono::seconds(6));
  CHECK(!rate.take("a"));
  CHECK(rate.take("a"));
  clock.advance(std::chrono::hours(1));
  for (int i = 0; i < 6; ++i) CHECK(!rate.take("a"));
  CHECK(rate.take("a"));
  StartRate none(clock, 0);
  for (int i = 0; i < 100; ++i) CHECK(!none.take("a"));
}
