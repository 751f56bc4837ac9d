// Variables: what they may be, where they may stand, and what they can never do.
#include <random>
#include <string>

#include "loading.hpp"

namespace belljar::policy {
namespace {

using testing::contains;
using testing::errors_in;
using testing::errors_of;
using testing::load;
using testing::load_body;
using testing::policy_text;

Layers given(std::string_view body,
             const std::vector<std::pair<std::string, std::string>>& values) {
  Layers layers;
  layers.add_text(policy_text(body), "p.json");
  for (const auto& [name, value] : values) layers.add_variable(name, value, "--var " + name);
  return layers;
}

/// A policy whose variable `v`, declared so, is a variable of the environment.
Layers one(std::string_view declaration, std::string_view value) {
  return given("\"vars\":{\"v\":" + std::string(declaration) + R"(},"env":{"set":{"V":"${v}"}})",
               {{"v", std::string(value)}});
}

std::string value_of(std::string_view declaration, std::string_view value) {
  return load(one(declaration, value)).env.set.at("V");
}

TEST_CASE("variables stand in strings, in keys of path maps, and for whole numbers") {
  const Policy policy = load(given(
      R"("vars":{"work":{"type":"path"},"room":{"type":"size","default":"8MiB"},
                 "files":{"type":"int","default":64},"time":{"type":"duration","default":"5s"},
                 "mode":{"type":"enum","values":["none","shared"],"default":"none"}},
         "filesystem":{"mounts":{"${work}/src":{"type":"bind","source":"${work}/source"},
                                 "/tmp":{"type":"tmpfs","size":"${room}","inodes":"${files}"}},
                       "mask":{"${work}/key":"a key"}},
         "limits":{"wall_time":"${time}","rlimits":{"nofile":"${files}","as":"${room}"}},
         "network":{"mode":"${mode}"},"env":{"set":{"N":"${files}","D":"<${work}>"}})",
      {{"work", "/srv//w/"}}));
  CHECK(policy.filesystem.mounts.at("/srv/w/src").source == "/srv/w/source");
  CHECK(policy.filesystem.mounts.at("/tmp").size == 8388608U);
  CHECK(policy.filesystem.mounts.at("/tmp").inodes == 64U);
  CHECK(policy.filesystem.mask.contains("/srv/w/key"));
  CHECK(policy.limits.wall_time->count() == 5000);
  CHECK(policy.limits.rlimits.at("nofile").value == 64U);
  CHECK(policy.network.mode == NetworkMode::kNone);
  CHECK(policy.env.set.at("N") == "64");
  CHECK(policy.env.set.at("D") == "</srv/w>");
  CHECK_FALSE(contains(policy.canonical, "vars"));
  CHECK_FALSE(contains(policy.canonical, "${"));
}

TEST_CASE("each type takes what it says and refuses the rest") {
  CHECK(value_of(R"({"type":"path"})", "/a/./b") == "/a/b");
  CHECK(value_of(R"({"type":"int"})", "007") == "7");
  CHECK(value_of(R"({"type":"string"})", "\"},{$\n") == "\"},{$\n");
  const auto error = [](std::string_view declaration, std::string_view value) {
    return errors_of(one(declaration, value));
  };
  CHECK(contains(error(R"({"type":"path"})", "work"), "--var v: "));
  CHECK(contains(error(R"({"type":"path"})", "/a/../b"), "--var v: "));
  CHECK(contains(error(R"({"type":"path"})", ""), "--var v: "));
  CHECK(contains(error(R"({"type":"size"})", "5"), "--var v: "));
  CHECK(contains(error(R"({"type":"duration"})", "5"), "--var v: "));
  CHECK(error(R"({"type":"int"})", "0x10") ==
        "--var v: expected a whole number of at least 0, got \"0x10\"");
  CHECK(error(R"({"type":"int","max":9})", "10") == "--var v: \"10\" is above the largest, \"9\"");
  CHECK(error(R"({"type":"size","min":"1MiB"})", "1KiB") ==
        "--var v: \"1KiB\" is below the smallest, \"1MiB\"");
  CHECK(error(R"({"type":"duration","max":"1m"})", "61s") ==
        "--var v: \"61s\" is above the largest, \"1m\"");
  CHECK(error(R"({"type":"enum","values":["debug","release"]})", "relase") ==
        "--var v: \"relase\" is none of its values; did you mean \"release\"?");
  CHECK(contains(error(R"({"type":"string"})", std::string_view("a\0b", 3)), "is no text"));
}

TEST_CASE("a variable without a value is an error that says how to give it one") {
  CHECK(errors_in(R"("vars":{"v":{"type":"size"}},"filesystem":{"mounts":{"/t":{"type":"tmpfs",
                     "size":"${v}"}}})") ==
        "p.json:1:22: vars.v: has no value; it is a size such as \"512MiB\": give one with --var "
        "v=..., or a \"default\" here");
  CHECK(contains(errors_in(R"("vars":{"v":{"type":"enum","values":["a","b"]}},"name":"${v}")"),
                 "it is one of \"a\" \"b\""));
}

TEST_CASE("variables that are not declared, and those that are not used, are errors") {
  CHECK(errors_in(R"("vars":{"work":{"type":"path","default":"/w"}},"name":"${work}${workk}")") ==
        "p.json:1:68: name: there is no variable \"workk\"; did you mean \"work\"?");
  CHECK(errors_in(R"("name":"${work}")") ==
        "p.json:1:21: name: there is no variable \"work\"; declare it under \"vars\", or write "
        "\"$${\" for the characters \"${\"");
  CHECK(errors_in(R"("vars":{"work":{"type":"path","default":"/w"}})") ==
        "p.json:1:22: vars.work: is not used; write ${work} where its value goes, or remove it");
  CHECK(errors_of(given("\"vars\":{\"work\":{\"type\":\"path\"}},\"name\":\"${work}\"",
                        {{"work", "/w"}, {"workk", "/w"}})) ==
        "--var workk: there is no variable \"workk\"; did you mean \"work\"?");
  CHECK(errors_of(given("\"name\":\"x\"", {{"work", "/w"}})) ==
        "--var work: the policy declares no variables");
}

TEST_CASE("what is not a reference is refused, and can be escaped") {
  CHECK(load_body(R"("name":"$${HOME} $HOME $ $$")").name == "${HOME} $HOME $ $$");
  for (const char* bad : {"${", "${}", "${a", "${a b}", "${a-b}", "x${${a}}"}) {
    CAPTURE(bad);
    CHECK(contains(errors_in("\"name\":\"" + std::string(bad) + "\""),
                   "\"${\" begins a variable such as \"${work}\"; write \"$${\""));
  }
}

TEST_CASE("a value is not expanded again, and can be no structure") {
  CHECK(load(given(R"("vars":{"a":{"type":"string"},"b":{"type":"string","default":"x"}},
                      "env":{"set":{"A":"${a}","B":"${b}"}})",
                   {{"a", "${b}"}}))
            .env.set.at("A") == "${b}");
  CHECK(contains(errors_in(R"("vars":{"a":{"type":"string","default":"${b}"}},"name":"${a}")"),
                 "vars.a.default: a variable's value is not expanded"));
  // A key of the policy, an object and a list cannot come from a variable.
  CHECK(contains(errors_of(given(R"("vars":{"k":{"type":"string"}},"${k}":{},"name":"${k}")",
                                 {{"k", "network"}})),
                 "unknown key"));
  CHECK(contains(errors_of(given(R"("vars":{"k":{"type":"string"}},"network":"${k}")",
                                 {{"k", "{\"mode\":\"shared\"}"}})),
                 "expected an object"));
  CHECK(contains(errors_of(given(R"("vars":{"k":{"type":"string"}},"env":{"pass":["${k}"]})",
                                 {{"k", "A\",\"B"}})),
                 "expected a name of letters"));
  CHECK(contains(errors_of(given(R"("vars":{"k":{"type":"string"}},
                                    "filesystem":{"mask":{"/w/${k}":"x"}})",
                                 {{"k", "../etc"}})),
                 "\"..\""));
}

TEST_CASE("a value is judged at its place too, once") {
  CHECK(errors_of(given(R"("vars":{"t":{"type":"string"}},"limits":{"wall_time":"${t}"})",
                        {{"t", "5"}})) ==
        "p.json:1:67: limits.wall_time: expected a duration such as \"30s\", got the string "
        "\"5\"; write \"5s\" if seconds are meant");
}

TEST_CASE("keys that become the same are the same target twice") {
  CHECK(contains(errors_of(given(R"("vars":{"w":{"type":"path"}},"filesystem":{"mask":{
                                    "${w}":"a","/srv":"b"}})",
                                 {{"w", "/srv"}})),
                 "the same target twice"));
}

TEST_CASE("an extending policy sets the default, and nothing else of a declaration") {
  Layers layers;
  layers.add_text(policy_text(R"("vars":{"v":{"type":"path"}},"env":{"set":{"V":"${v}"}})"), "low");
  layers.add_text(policy_text(R"("vars":{"v":{"default":"/up"}})"), "up");
  CHECK(load(layers).env.set.at("V") == "/up");
  layers.add_variable("v", "/given", "--var v");
  CHECK(load(layers).env.set.at("V") == "/given");
  layers.add_text(policy_text(R"("vars":{"v":{"type":"string"}})"), "top");
  CHECK(errors_of(layers) ==
        "top:1:27: vars.v.type: was decided by low:1:22; a policy that extends it sets the default "
        "only");
}

TEST_CASE("declarations are checked as the rest of a policy is") {
  const auto error = [](std::string_view declaration) {
    return errors_in("\"vars\":{\"v\":" + std::string(declaration) + "},\"name\":\"${v}\"");
  };
  CHECK(contains(error(R"({"default":"x"})"), "vars.v: \"type\" is required"));
  CHECK(contains(error(R"({"type":"pth"})"), "did you mean \"path\"?"));
  CHECK(contains(error(R"({"type":"path","default":"x"})"), "vars.v.default: "));
  CHECK(contains(error(R"({"type":"path","default":"/x","max":"5"})"),
                 "\"max\" does not apply to a variable of type \"path\""));
  CHECK(contains(error(R"({"type":"enum","default":"x"})"),
                 "\"values\" is required for a variable of type \"enum\""));
  CHECK(contains(error(R"({"type":"int","min":"x","default":1})"), "vars.v.min: "));
  CHECK(contains(error(R"({"type":"int","min":5,"max":4,"default":5})"), "vars.v.m"));
  CHECK(contains(errors_in(R"("vars":{"a-b":{"type":"int"}})"), "expected a name of 1 to 64"));
  CHECK(contains(errors_in(R"("vars":[])"), "vars: expected an object"));
}

TEST_CASE("a variable's name brings no control characters into a message") {
  const std::string vars = R"("vars":{"w\u001b[31mk":{"type":"path","default":"/w"}})";
  const std::string unused = errors_in(vars);
  CHECK(contains(unused, "expected a name of 1 to 64 letters"));
  CHECK_FALSE(contains(unused, "\x1b"));
  CHECK_FALSE(contains(errors_in(vars + R"(,"name":"${wk}")"), "\x1b"));
  CHECK_FALSE(contains(errors_of(given(vars, {{"wk", "/w"}})), "\x1b"));
}

TEST_CASE("what is typed on a command line is taken as it is typed") {
  Layers layers = given("\"name\":\"x\"", {});
  layers.add_setting("env.set.PROMPT", "\"${debian_chroot} ${\"", "-e PROMPT");
  CHECK(load(layers).env.set.at("PROMPT") == "${debian_chroot} ${");
}

TEST_CASE("the canonical text means the same when it is loaded, whatever the strings hold") {
  std::mt19937 random(20);
  constexpr std::string_view kPieces[] = {"$", "{", "}", "$${", "${", "a", "/", "\\", "\"", "é"};
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = 0; i < 8; ++i) text += kPieces[random() % std::size(kPieces)];
    Layers layers =
        given(R"("vars":{"v":{"type":"string"}},"env":{"set":{"V":"<${v}>"}})", {{"v", text}});
    layers.add_setting("env.set.W", "\"\"", "W");
    layers.add_setting(member_path("filesystem.mask", "/" + text), "why", "--set");
    const Policy first = load(layers);
    Layers again;
    again.add_text(first.canonical, "p.json");
    const Policy second = load(again);
    CHECK(second.digest == first.digest);
    CHECK(second.env.set.at("V") == "<" + text + ">");
    CHECK(second.filesystem.mask == first.filesystem.mask);
  }
}

}  // namespace
}  // namespace belljar::policy
