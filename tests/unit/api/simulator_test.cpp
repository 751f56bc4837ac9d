// The agent simulator's face without a socket: ids, paths, bodies, configurations and frames.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "api/simulator/agent_config.hpp"
#include "api/simulator/create_request.hpp"
#include "api/simulator/frames.hpp"
#include "api/simulator/uuid.hpp"

using namespace belljar::api;
using nlohmann::json;

namespace {

const std::string kUuid = "0b5a7d52-3c1e-4f7a-9a55-0123456789ab";

json body_of(const char* members) {
  json body = {{"session_id", kUuid}, {"agent_code", ""}, {"config_yaml", ""}};
  body.update(json::parse(members));
  return body;
}

std::string refusal_of(const json& body) {
  const auto parsed = parse_create_request("application/json", body.dump());
  return parsed ? "" : parsed.error();
}

}  // namespace

TEST_CASE("a session id is a UUID in any spelling that Python takes") {
  for (const char* spelling :
       {"0b5a7d52-3c1e-4f7a-9a55-0123456789ab", "0B5A7D52-3C1E-4F7A-9A55-0123456789AB",
        "{0b5a7d52-3c1e-4f7a-9a55-0123456789ab}", "urn:uuid:0b5a7d52-3c1e-4f7a-9a55-0123456789ab",
        "0b5a7d523c1e4f7a9a550123456789ab", "0b5a-7d523c1e4f7a9a550123456789ab"}) {
    CAPTURE(spelling);
    CHECK(parse_uuid(spelling) == kUuid);
  }
  for (const char* other :
       {"", "../../etc", "0b5a7d52-3c1e-4f7a-9a55-0123456789a",
        "0b5a7d52-3c1e-4f7a-9a55-0123456789abc", "0b5a7d52-3c1e-4f7a-9a55-0123456789ag",
        " 0b5a7d52-3c1e-4f7a-9a55-0123456789ab", "0b5a7d52/3c1e/4f7a/9a55/0123456789ab"}) {
    CAPTURE(other);
    CHECK_FALSE(parse_uuid(other));
  }
}

TEST_CASE("Windows and absolute support paths are normalised") {
  const auto path = [](std::string_view given) {
    return normalise_workspace_path(given).value_or("(none)");
  };
  CHECK(path("C:\\tools\\a.py") == "tools/a.py");
  CHECK(path("/abs/b.py") == "abs/b.py");
  CHECK(path("  a//./b/  ") == "a/b");
  CHECK(path("c:a") == "a");
  CHECK(path("...") == "...");
  CHECK(path("a..b") == "a..b");
}

TEST_CASE("paths that lead out of the workspace, or to nothing, are refused") {
  for (const std::string given :
       {"../escape.py", "a/../../b", "a\\..\\b", "..", "", "   ", "/", ".", "C:", "./.", "C:\\"})
    CHECK_FALSE(normalise_workspace_path(given));
  CHECK_FALSE(normalise_workspace_path(std::string_view("a\0b", 3)));
  CHECK_FALSE(normalise_workspace_path(std::string(256, 'a')));
  CHECK(normalise_workspace_path(std::string(255, 'a')));
  std::string deep;
  for (int i = 0; i < 2100; ++i) deep += "a/";
  CHECK_FALSE(normalise_workspace_path(deep));
}

TEST_CASE("a body is read as the simulator reads it, and what it does not know is ignored") {
  const json body = body_of(R"({"env_vars": {"OPENAI_API_KEY": "sk", "SMTP_PASSWORD": "no",
                                             "REPLICATE_API_TOKEN": ""},
                                "support_files": {"a.py": "x = 1"}, "workspace_paths": ["data"],
                                "event_list": ["e"], "whatever": {"a": [1]}})");
  const auto parsed = parse_create_request("application/json; charset=utf-8", body.dump());
  REQUIRE(parsed);
  CHECK(parsed->credentials == std::map<std::string, std::string>{{"OPENAI_API_KEY", "sk"}});
  CHECK(parsed->support_files.at("a.py") == "x = 1");
  CHECK(parsed->workspace_paths == std::vector<std::string>{"data"});
}

TEST_CASE("a body of the wrong shape is answered member by member, without what it holds") {
  const auto problem = [](const std::string& text) { return json::parse(text).at("detail").at(0); };
  json missing = body_of("{}");
  missing.erase("agent_code");
  CHECK(problem(refusal_of(missing)) ==
        json::parse(
            R"({"type": "missing", "loc": ["body", "agent_code"], "msg": "Field required"})"));
  const std::string secret = "sk-secret";
  for (const char* members :
       {R"({"session_id": 7})", R"({"agent_code": null})", R"({"env_vars": null})",
        R"({"env_vars": {"OPENAI_API_KEY": ["sk-secret"]}})", R"({"event_list": "sk-secret"})",
        R"({"event_list": [1]})", R"({"support_files": {"a": null}})",
        R"({"workspace_paths": {"a": "sk-secret"}})"}) {
    CAPTURE(members);
    const std::string refusal = refusal_of(body_of(members));
    CHECK_FALSE(refusal.empty());
    CHECK(refusal.find(secret) == std::string::npos);
    CHECK(problem(refusal).at("loc").at(0) == "body");
    CHECK_FALSE(problem(refusal).contains("input"));
  }
}

TEST_CASE("a body that is no JSON object is refused") {
  const auto refused = [](std::string_view type, std::string_view body) {
    return !parse_create_request(type, body).has_value();
  };
  const std::string good = body_of("{}").dump();
  CHECK_FALSE(refused("application/json", good));
  CHECK(refused("text/plain", good));
  CHECK(refused("", good));
  CHECK(refused("application/json", ""));
  CHECK(refused("application/json", "[]"));
  CHECK(refused("application/json", "{"));
  CHECK(refused("application/json", good + "x"));
  CHECK(refused("application/json", std::string(1000000, '[')));
  CHECK(refused("application/json", "{\"a\": \"\xff\"}"));
}

TEST_CASE("brackets count only outside of strings") {
  CHECK(nested_at_most(R"({"a": "[[[[\"[[[["})", 1));
  CHECK(nested_at_most("[[]]", 2));
  CHECK_FALSE(nested_at_most("[[[]]]", 2));
}

TEST_CASE("the configuration pins host and port and holds the user's key, and keeps the rest") {
  const auto config = agent_config(
      "agent: {name: a}\nplatforms:\n  websocket: {host: 0.0.0.0, port: 1, extra: yes}\n"
      "  streamlit: {port: 5000}\nnlp: {openai: {api_key: old, model: m}, huggingface: {token: "
      "t}}\n",
      7701, {{"OPENAI_API_KEY", "12345"}});
  REQUIRE(config);
  CHECK(config->find("host: 127.0.0.1") != std::string::npos);
  CHECK(config->find("port: 7701") != std::string::npos);
  CHECK(config->find("port: 5000") != std::string::npos);
  CHECK(config->find("extra: yes") != std::string::npos);
  CHECK(config->find("api_key: \"12345\"") != std::string::npos);
  CHECK(config->find("token: t") != std::string::npos);
  CHECK(config->find("old") == std::string::npos);
  CHECK(config->find("0.0.0.0") == std::string::npos);
}

TEST_CASE("an empty configuration becomes one that has the port") {
  for (const char* yaml : {"", "null", "# nothing", "{}"}) {
    CAPTURE(yaml);
    const auto config = agent_config(yaml, 7700, {});
    REQUIRE(config);
    CHECK(config->find("port: 7700") != std::string::npos);
  }
}

TEST_CASE("a scalar of a configuration stays what it was") {
  const auto config = agent_config(
      "a: \"123\"\nb: 123\nc: 'yes'\nd: yes\ne: ~\nf: \"null\"\ng: ''\nh: 1.0\ni: |\n  x\n  y\n"
      "j: \"a: b # c\"\nk: !!str 7\nl: 2024-01-01\nm: \"é\\n\"\n",
      7700, {});
  REQUIRE(config);
  for (const char* line :
       {"a: \"123\"", "b: 123", "c: \"yes\"", "d: yes", "e: ~", "f: \"null\"", "g: \"\"", "h: 1.0",
        "i: \"x\\ny\\n\"", "j: \"a: b # c\"", "k: \"7\"", "l: 2024-01-01"}) {
    CAPTURE(line);
    CAPTURE(*config);
    CHECK(("\n" + *config).find("\n" + std::string(line) + "\n") != std::string::npos);
  }
}

TEST_CASE("of keys that are there twice the last one is pinned") {
  const auto config = agent_config(
      "platforms: {websocket: {port: 1}}\nplatforms: {websocket: {port: 2, port: 3}}\n", 7700, {});
  REQUIRE(config);
  CHECK(config->find("port: 7700") != std::string::npos);
  for (const char* other : {"port: 1", "port: 2", "port: 3"})
    CHECK(config->find(other) == std::string::npos);
  CHECK(config->find("platforms") == config->rfind("platforms"));
}

TEST_CASE("a configuration that is no mapping where one is needed is refused, and YAML is named") {
  const auto refusal = [](const char* yaml) {
    const auto config = agent_config(yaml, 7700, {{"OPENAI_API_KEY", "k"}});
    return config ? std::string() : config.error();
  };
  for (const char* yaml : {"a: [", "\tb: 1", "a: 1\n---\nb: 2\n", "a: !!python/object:os.system x",
                           "a: *missing", "a: b: c"}) {
    CAPTURE(yaml);
    CHECK(refusal(yaml).find("YAML") != std::string::npos);
  }
  for (const char* yaml : {"[1]", "text", "platforms: null", "platforms: 1",
                           "platforms: {websocket: []}", "nlp: x", "nlp: {openai: 7}"}) {
    CAPTURE(yaml);
    CHECK(refusal(yaml).find("mapping") != std::string::npos);
  }
}

TEST_CASE("aliases cannot make a small configuration large") {
  std::string yaml = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 10; ++i) {
    const std::string before = std::to_string(i - 1), name = std::to_string(i);
    yaml += "a" + name + ": &a" + name + " [*a" + before;
    for (int j = 0; j < 9; ++j) yaml += ", *a" + before;
    yaml += "]\n";
  }
  CHECK_FALSE(agent_config(yaml, 7700, {}));
  CHECK(agent_config("a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}\n", 7700, {}));
}

TEST_CASE("what is shown of a configuration has no credentials in it") {
  const std::string shown = without_secrets(
      "nlp:\n  openai: {api_key: sk-1, model: m}\n  huggingface: {token: hf-1}\n"
      "  other: {client_secret: [s-1, {deep: s-2}], password: \"\"}\nagent: {name: a}\n");
  for (const char* secret : {"sk-1", "hf-1", "s-1", "s-2"})
    CHECK(shown.find(secret) == std::string::npos);
  for (const char* rest : {"model: m", "name: a", "[hidden]"})
    CHECK(shown.find(rest) != std::string::npos);
  CHECK(without_secrets("api_key: sk-1: [").find("sk-1") == std::string::npos);
  CHECK(without_secrets("- api_key: sk-1").find("sk-1") == std::string::npos);
}

TEST_CASE("a credential is hidden wherever it stands, and so is what looks like one") {
  const std::vector<std::string> own = {"sk-own-1", "k"};
  const std::string yaml =
      "a: sk-own-1\nb: [\"x sk-own-1 y\", {sk-own-1: c}]\nd: k\nauth: p-1\npwd: p-2\n"
      "headers: [\"Bearer p-3\"]\nurl: http://u:p-4@host/\nauthor: me\nlink: http://host/@x:y\n"
      "word: kept\n";
  const std::string shown = without_secrets(yaml, own);
  for (const char* secret : {"sk-own-1", "d: k\n", "p-1", "p-2", "p-3", "p-4"})
    CHECK_MESSAGE(shown.find(secret) == std::string::npos, secret);
  for (const char* rest : {"author: me", "http://host/@x:y", "word: kept"})
    CHECK_MESSAGE(shown.find(rest) != std::string::npos, rest);
  CHECK(without_secrets("a: sk-own-1\n").find("sk-own-1") != std::string::npos);  // The control.
}

TEST_CASE("a state is entered where a name in brackets is followed by Running body") {
  const auto state = [](std::string_view line) {
    return std::string(entered_state(line).value_or("(none)"));
  };
  CHECK(state("2024-01-01 - INFO - [greeting] Running body hello") == "greeting");
  CHECK(state("[a] [b]\t Running body") == "b");
  CHECK(state("[a [b] Running body x") == "a [b");
  CHECK(state("x][a] Running body.") == "a");
  CHECK(state("[two words] Running body f") == "two words");
  for (const char* none : {"[a] Running fallback body f", "[a]Running body", "[] Running body",
                           "a] Running body", "[a] Running bodyguard", "[a] running body", ""})
    CHECK(state(none) == "(none)");
  CHECK(state(std::string(1000000, '[') + std::string(1000000, ']')) == "(none)");
}

TEST_CASE("a change of state is told before the line that tells it") {
  const std::vector<std::string> frames = frames_of_line("[a] Running body f \xff\xc3\xa9");
  REQUIRE(frames.size() == 2);
  CHECK(frames[0] == R"({"type": "state_change", "state": "a", "_source": "log_state"})");
  CHECK(frames[1] == R"({"type": "stdout", "line": "[a] Running body f \ufffd\u00e9"})");
  CHECK(frames_of_line("x").size() == 1);
  CHECK(json::parse(error_frame("a\n\"b\"")) == json{{"type", "error"}, {"message", "a\n\"b\""}});
  CHECK(exit_frame("exited", 3, std::nullopt) ==
        R"({"type": "exit", "cause": "exited", "exit_code": 3, "signal": null})");
}

TEST_CASE("lines are cut wherever the bytes are, and long ones come in pieces") {
  const std::string text = "one\r\n\ntwo  \nthree";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    LineCutter cutter;
    std::vector<std::string> lines = cutter.add(text.substr(0, cut));
    for (std::string& line : cutter.add(text.substr(cut))) lines.push_back(std::move(line));
    CHECK(lines == std::vector<std::string>{"one", "", "two"});
    CHECK(cutter.rest() == "three");
    CHECK_FALSE(cutter.rest());
  }
  LineCutter cutter;
  const auto pieces = cutter.add(std::string(kMostLine * 2 + 10, 'a') + "\n");
  REQUIRE(pieces.size() == 3);
  CHECK(pieces[0].size() == kMostLine);
  CHECK(pieces[2].size() == 10);
  const std::string worst = stdout_frame(std::string(kMostLine, '\x01'));
  CHECK(worst.size() < kMostFrame);
}

TEST_CASE("bytes that are no UTF-8 are replaced, and the rest is kept") {
  CHECK(as_text("caf\xc3\xa9 \xff.") == "caf\xc3\xa9 \xef\xbf\xbd.");
}
