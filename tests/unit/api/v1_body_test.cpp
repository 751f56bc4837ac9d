// What /v1 reads: bodies of a closed schema, queries, names of hosts.
#include <doctest/doctest.h>

#include <algorithm>

#include "api/hosts.hpp"
#include "api/v1/bodies.hpp"

using namespace belljar::api;
using belljar::supervisor::ProcessSpec;
using nlohmann::json;

namespace {

std::vector<std::string> pointers_of(const Problem& problem) {
  std::vector<std::string> pointers;
  for (const ProblemItem& item : problem.errors) pointers.push_back(item.pointer);
  std::sort(pointers.begin(), pointers.end());
  return pointers;
}

std::vector<std::string> wrong_in_session(const char* text) {
  const auto body = read_session(json::parse(text));
  return body ? std::vector<std::string>() : pointers_of(body.error());
}

using Pointers = std::vector<std::string>;

Request request_of(const std::string& body, const std::string& type = "application/json") {
  Request request;
  request.method = "POST";
  request.body = body;
  request.headers.add("content-type", type);
  return request;
}

}  // namespace

TEST_CASE("a body that is no JSON says why, and its bounds are kept") {
  CHECK(parse_body(request_of("{}")).has_value());
  CHECK(parse_body(request_of("")).value() == json::object());
  CHECK(parse_body(request_of("{}", "text/plain")).error().status == 415);
  CHECK(parse_body(request_of("{}", "application/merge-patch+json")).error().status == 415);
  Request patch = request_of("{}", "application/merge-patch+json; charset=utf-8");
  patch.method = "PATCH";
  CHECK(parse_body(patch).has_value());
  for (const char* text : {"{", "{} {}", "\xff", "{\"a\":1,\"a\":2}"})
    CHECK_MESSAGE(parse_body(request_of(text)).error().code == "malformed", text);
  const std::string deep(kDeepestBody + 1, '[');
  CHECK(parse_body(request_of(deep + std::string(kDeepestBody + 1, ']'))).error().status == 400);
}

TEST_CASE("a session's body is read into what is to be made") {
  const auto body = read_session(json::parse(R"({
    "policy": "p", "vars": {"v": "1"}, "env": {"A": "b"}, "labels": {"l": "m"}, "ttl": "1h",
    "idle": "5m", "network": "auto", "ready": {"port": 80, "timeout": "2s"},
    "files": {"a": "x", "b/c": {"base64": "AA==", "mode": "0755"}, "d": {"directory": true}},
    "limits": {"memory": 1048576, "swap": "0B", "cpus": 0.5, "processes": 9, "wall_time": "3s",
               "rlimits": {"nofile": 64, "as": 1024, "cpu": "9s"}},
    "command": {"shell": "true", "cpu_time": "4s", "stdin": "open", "tty": {"rows": 9}}})"));
  REQUIRE(body.has_value());
  const auto& spec = body->spec;
  CHECK(spec.settings ==
        std::vector<std::string>{"network.mode=private", "network.enforce=prefer",
                                 "limits.wall_time=3000ms", "limits.memory=1048576B",
                                 "limits.swap=0B", "limits.processes=9", "limits.cpus=0.5",
                                 "limits.rlimits.as=1024B", "limits.rlimits.cpu=9s",
                                 "limits.rlimits.nofile=64", "limits.cpu_time=4000ms"});
  REQUIRE(spec.files.size() == 3);
  CHECK(spec.files[1].content == std::string(1, '\0'));
  CHECK(spec.files[1].mode == 0755);
  CHECK(spec.files[2].directory);
  CHECK(spec.command->argv == std::vector<std::string>{"/bin/bash", "-c", "true"});
  CHECK(spec.command->stdin_mode == ProcessSpec::Stdin::kOpen);
  CHECK(spec.command->terminal->rows == 9);
  CHECK(body->wait_ready);
  CHECK(body->ready_port == 80);
  CHECK(body->ready_limit.count() == 2000);
}

TEST_CASE("paths that lead out of a workspace, or nowhere, are no files") {
  for (const char* path : {"", "/a", "../a", "a/..", "a//b", "./a", "a/", "a\\u0000b"}) {
    const std::string text = std::string(R"({"files": {")") + path + R"(": "x"}})";
    CHECK_MESSAGE(wrong_in_session(text.c_str()).size() == 1, path);
  }
  CHECK(wrong_in_session(R"({"files": {"a/..b/c..": "x"}})").empty());
}

TEST_CASE("a directory of the caller's is named by its path, and files are not for it") {
  CHECK(wrong_in_session(R"({"workspace": {"path": "/srv/a", "owner": "chown", "home": "beside",
                             "remove": false}})")
            .empty());
  CHECK(wrong_in_session(R"({"workspace": {}})") == Pointers{"/workspace/path"});
  CHECK(wrong_in_session(R"({"workspace": {"path": "/srv\u0000"}})") ==
        Pointers{"/workspace/path"});
  CHECK(wrong_in_session(
            R"({"workspace": {"path": "srv", "owner": "", "home": "", "remove": true}})") ==
        Pointers{"/workspace/home", "/workspace/owner", "/workspace/path", "/workspace/remove"});
  CHECK(wrong_in_session(R"({"workspace": {"path": "/srv"}, "files": {"a": "x"}})") ==
        Pointers{"/files"});
}

TEST_CASE("a file is one thing") {
  CHECK(wrong_in_session(R"({"files": {"a": {"text": "x", "base64": ""}}})") ==
        Pointers{"/files/a"});
  CHECK(wrong_in_session(R"({"files": {"a": {"text": "x", "mode": "0888"}}})") ==
        Pointers{"/files/a/mode"});
  CHECK(wrong_in_session(R"({"files": {"a": {"text": "x", "mode": "4755"}}})") ==
        Pointers{"/files/a/mode"});
  CHECK(wrong_in_session(R"({"files": {"a": 1}})") == Pointers{"/files/a"});
}

TEST_CASE("what is not offered is refused by name, and never ignored") {
  CHECK(wrong_in_session(R"({"die_with": "parent"})") == Pointers{"/die_with"});
  CHECK(wrong_in_session(R"({"policy": {"version": 1}})") == Pointers{"/policy"});
  CHECK(wrong_in_session(R"({"limits": {"memroy": 1}})") == Pointers{"/limits/memroy"});
  CHECK(wrong_in_session(R"({"limits": {"rlimits": {"a.b": 1}}})") ==
        Pointers{"/limits/rlimits/a.b"});
  CHECK(wrong_in_session(R"([])") == Pointers{""});
}

TEST_CASE("a process has a program, and nothing twice") {
  const auto wrong = [](const char* text) {
    const auto body = read_further(json::parse(text), FurtherUse::kProgram);
    return body ? Pointers() : pointers_of(body.error());
  };
  CHECK(wrong(R"({"argv": ["a"]})").empty());
  CHECK(wrong(R"({})") == Pointers{"/argv"});
  CHECK(wrong(R"({"argv": ["a"], "shell": "b"})") == Pointers{"/shell"});
  CHECK(wrong(R"({"argv": ["a"], "wall_time": "1s", "timeout": "1s"})") == Pointers{"/timeout"});
  CHECK(wrong(R"({"argv": ["a"], "wall_time": "0s"})") == Pointers{"/wall_time"});
  CHECK(wrong(R"({"argv": ["a"], "cpu_time": "1s"})") == Pointers{"/cpu_time"});
  CHECK(wrong(R"({"argv": ["a"], "env": {"A=": "x", "B": "\u0000"}})") ==
        Pointers{"/env/A=", "/env/B"});
  CHECK(wrong(R"({"argv": ["a"], "stdin": {}})") == Pointers{"/stdin"});
  CHECK(read_run(json::parse(R"({"argv": ["a"], "stdin": "open"})")).error().errors[0].pointer ==
        "/stdin");
}

TEST_CASE("a relative directory is below the workspace") {
  CHECK(directory_in("/w", "") == "");
  CHECK(directory_in("/w", "a/b") == "/w/a/b");
  CHECK(directory_in("/w", "/a") == "/a");
}

TEST_CASE("a query has each parameter once, and none that nobody knows") {
  Query query("a=1&label.x=y%20z&label.=q&a=2&b");
  CHECK(query.number("a", 0, 9) == 1);
  CHECK(query.prefixed("label.") == std::map<std::string, std::string>{{"x", "y z"}});
  const auto problem = query.finish();
  REQUIRE(problem.has_value());
  CHECK(pointers_of(*problem) == Pointers{"?a", "?b", "?label."});
}

TEST_CASE("over TCP a host is an address, localhost, or what the operator calls it") {
  const Hosts hosts({"box.example"}, {"unix:/run/x", "tcp:front.example:80", "tcp:[::]:81"});
  for (const char* good :
       {"127.0.0.1", "10.0.0.1:80", "[::1]", "[fe80::1]:9", "localhost", "LocalHost.:1",
        "a.localhost:2", "box.example", "BOX.example:443", "front.example"})
    CHECK_MESSAGE(hosts.take(good), good);
  for (const char* bad :
       {"", ":80", "evil.example", "127.0.0.1.evil.example", "evillocalhost", "localhost.evil",
        "[::1", "[::1]x", "[::1]:x", "a:b", "box.example.evil", "unix", "1.2.3"})
    CHECK_MESSAGE(!hosts.take(bad), bad);
  CHECK(!Hosts().take("box.example"));
}
