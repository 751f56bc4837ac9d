// How texts, files, presets and settings become one policy.
#include <cstdlib>
#include <string>

#include "loading.hpp"
#include "policy/layer_stack.hpp"
#include "temporary_directory.hpp"

namespace belljar::policy {
namespace {

using testing::contains;
using testing::errors_of;
using testing::load;
using testing::policy_text;
using testing::TemporaryDirectory;
using testing::with_settings;

Layers two(std::string_view lower, std::string_view upper) {
  Layers layers;
  layers.add_text(policy_text(lower), "low.json");
  layers.add_text(policy_text(upper), "up.json");
  return layers;
}

TEST_CASE("objects merge by key, scalars and arrays are replaced, null removes") {
  const Policy policy = load(two(
      R"("env":{"pass":["A","B"],"set":{"X":"1","Y":"2"}},"limits":{"wall_time":"5s"},
         "identity":{"umask":"077"})",
      R"("env":{"pass":["C"],"set":{"Y":null,"Z":"3"}},"limits":{"wall_time":null,"rlimits":null},
         "identity":{"uid":5})"));
  CHECK(policy.env.pass == std::vector<std::string>{"C"});
  CHECK(policy.env.set == std::map<std::string, std::string>{{"X", "1"}, {"Z", "3"}});
  CHECK_FALSE(policy.limits.wall_time.has_value());
  CHECK(policy.identity.umask == 077U);
  CHECK(policy.identity.uid.number == 5U);
}

TEST_CASE("targets that mean the same merge") {
  const Policy policy =
      load(two(R"("filesystem":{"mounts":{"/tmp":{"type":"tmpfs","size":"1MiB"}}})",
               R"("filesystem":{"mounts":{"/tmp/":{"size":"2MiB"}}})"));
  CHECK(policy.filesystem.mounts.at("/tmp").size == 2097152U);
  CHECK(policy.where("filesystem.mounts[\"/tmp\"]") == "low.json:1:38");
  CHECK(policy.where("filesystem.mounts[\"/tmp\"].type") == "low.json:1:53");
  CHECK(policy.where("filesystem.mounts[\"/tmp\"].size") == "up.json:1:54");
}

TEST_CASE("a mount can be removed, and replaced by one of another type") {
  CHECK(load(two(R"("filesystem":{"mounts":{"/tmp":{"type":"tmpfs"}}})",
                 R"("filesystem":{"mounts":{"/tmp":null}})"))
            .filesystem.mounts.empty());
  CHECK(errors_of(two(R"("filesystem":{"mounts":{"/tmp":{"type":"tmpfs","size":"1MiB"}}})",
                      R"("filesystem":{"mounts":{"/tmp":{"type":"bind","source":"/t"}}})")) ==
        "low.json:1:61: filesystem.mounts[\"/tmp\"].size: \"size\" does not apply to a mount of "
        "type \"bind\", which it is since up.json:1:53; null removes the member there");
  CHECK(errors_of(
            two(R"("filesystem":{"mounts":{"/tmp":{"type":"tmpfs","size":"1MiB"}}})",
                R"("filesystem":{"mounts":{"/tmp":{"type":"bind","source":"/t","size":null}}})")) ==
        "");
}

TEST_CASE("errors of all layers come together, lowest layer first, each once") {
  CHECK(errors_of(two(R"("limits":{"wall_time":5},"nme":"x")",
                      R"("limits":{"wall_time":"5s"},"io":{"keep":[0]})")) ==
        "low.json:1:36: limits.wall_time: expected a duration such as \"30s\", got the number 5; "
        "write \"5s\" if seconds are meant\n"
        "low.json:1:39: nme: unknown key; did you mean \"name\"?\n"
        "up.json:1:56: io.keep[0]: expected a whole number from 3 to 1048575, got the number 0");
}

TEST_CASE("a mistake counts even when null would remove it") {
  CHECK(contains(errors_of(two(R"("limits":{})", R"("limitz":null)")),
                 "up.json:1:14: limitz: unknown key; did you mean \"limits\"?"));
}

TEST_CASE("a layer with a syntax error does not hide mistakes of the others, nor invent some") {
  Layers layers;
  layers.add_text("{", "low.json");
  layers.add_text(policy_text(R"("filesystem":{"mounts":{"/tmp":{"sizze":"1MiB"}}})"), "up.json");
  CHECK(errors_of(layers) ==
        "low.json:1:2: unexpected end of the text; expected a name in double quotes\n"
        "up.json:1:46: filesystem.mounts[\"/tmp\"].sizze: unknown key; did you mean \"size\"?");
}

TEST_CASE("every text needs its version") {
  Layers layers;
  layers.add_text(policy_text("\"name\":\"a\""), "low.json");
  layers.add_text("{\"name\":\"b\"}", "up.json");
  CHECK(errors_of(layers) == "up.json:1:1: \"version\" is required; this belljar reads version 1");
}

TEST_CASE("a load without any policy is refused") {
  Layers layers;
  CHECK(errors_of(layers) == "policy: no policy was given; name a file or a preset");
  layers.add_setting("limits.wall_time", "5s", "--set limits.wall_time=5s");
  CHECK(errors_of(layers) == "policy: no policy was given; name a file or a preset");
}

TEST_CASE("extends puts presets below the text") {
  Layers layers;
  layers.add_text(R"({"version":1,"extends":["builtin:strict@1"],"limits":{"wall_time":"5s"}})",
                  "p.json");
  const Policy policy = load(layers);
  CHECK(policy.limits.wall_time->count() == 5000);
  CHECK(policy.limits.rlimits.at("nproc").value == 32U);
  CHECK(policy.where("limits.wall_time") == "p.json:1:67");
  CHECK(policy.where("limits.rlimits.nproc") == "builtin:strict@1:31:49");
  CHECK_FALSE(contains(policy.canonical, "extends"));
}

TEST_CASE("extends takes an array of presets only") {
  const auto error = [](std::string_view extends) {
    return errors_of("{\"version\":1,\"extends\":" + std::string(extends) + "}");
  };
  CHECK(
      error(R"(["base.json"])") ==
      "p.json:1:25: extends[0]: only a policy that is a file can extend files; a preset is called "
      "\"builtin:NAME\", got the string \"base.json\"");
  CHECK(error(R"("builtin:agent@1")") ==
        "p.json:1:24: extends: expected an array such as [\"builtin:agent@1\"], got the string "
        "\"builtin:agent@1\"");
  CHECK(error("[5]") ==
        "p.json:1:25: extends[0]: expected a preset such as \"builtin:agent@1\" or a file such as "
        "\"base.json\", got the number 5");
  CHECK(error(R"(["builtin:agent"])") ==
        "p.json:1:25: extends[0]: there is no preset \"agent\"; did you mean \"builtin:agent@1\"?");
  std::string many = "[\"builtin:dev@1\"";
  for (int i = 0; i < 16; ++i) many += ",\"builtin:dev@1\"";
  CHECK(contains(error(many + "]"), "more than 16 policies"));
}

std::string_view looping_preset(std::string_view name) {
  if (name == "a") return R"({"version":1,"extends":["builtin:b"]})";
  if (name == "b") return R"({"version":1,"extends":["builtin:c"]})";
  if (name == "c") return R"({"version":1,"extends":["builtin:b"]})";
  return {};
}

TEST_CASE("a cycle of presets is named") {
  LayerStack stack(&looping_preset);
  stack.push_preset("a");
  const auto policy = std::move(stack).resolve();
  REQUIRE_FALSE(policy.has_value());
  REQUIRE(policy.error().size() == 1);
  CHECK(policy.error()[0].text() ==
        "builtin:c:1:25: extends[0]: extends itself: builtin:b -> builtin:c -> builtin:b");
}

std::string_view deep_preset(std::string_view name) {
  static std::string texts[16];
  const int level = std::atoi(std::string(name).c_str());
  std::string& text = texts[level];
  text = R"({"version":1,"extends":["builtin:)" + std::to_string(level + 1) + R"("]})";
  return level == 15 ? R"({"version":1})" : std::string_view(text);
}

TEST_CASE("presets that extend more than 8 levels deep are refused") {
  LayerStack stack(&deep_preset);
  stack.push_preset("7");
  CHECK(std::move(stack).resolve().error().at(0).message == "extends more than 8 levels deep");
  LayerStack shallow(&deep_preset);
  shallow.push_preset("8");
  CHECK(std::move(shallow).resolve().has_value());
}

TEST_CASE("presets that do not exist are refused with the nearest") {
  Layers layers;
  layers.add("builtin:agent");
  CHECK(errors_of(layers) ==
        "builtin:agent: there is no preset \"agent\"; did you mean \"builtin:agent@1\"?");
  Layers other;
  other.add("builtin:nothing");
  CHECK(errors_of(other) ==
        "builtin:nothing: there is no preset \"nothing\" (one of: agent@1, bwrap@1, dev@1, "
        "install@1, shell@1, strict@1, validator@1)");
}

TEST_CASE("files that cannot be read are refused with the system's reason") {
  const TemporaryDirectory directory;
  Layers layers;
  layers.add(directory.path() + "/none.json");
  layers.add(directory.path());
  layers.add("");
  CHECK(errors_of(layers) ==
        directory.path() +
            "/none.json: cannot read the policy: No such file or directory (ENOENT)\n" +
            directory.path() + ": cannot read the policy: Is a directory (EISDIR)\n" +
            "\"\": cannot read the policy: No such file or directory (ENOENT)");
}

TEST_CASE("files are read with their names, and comments by their extension") {
  TemporaryDirectory directory;
  const std::string text = "{\"version\":1} // done";
  const std::string plain = directory.write("a.json", text);
  const std::string commented = directory.write("b.jsonc", text);
  Layers layers;
  layers.add(commented);
  CHECK(load(layers).name == "b.jsonc");
  Layers refused;
  refused.add(plain);
  CHECK(errors_of(refused) == plain + ":1:15: comments are allowed in .jsonc files only");
}

TEST_CASE("reading a file is bounded") {
  Layers layers;
  layers.add("/dev/zero");
  CHECK(errors_of(layers) == "/dev/zero:1:1: the text is larger than 1 MiB");
}

TEST_CASE("settings are JSON, or text when they are none") {
  const Policy policy = load(
      with_settings(R"("filesystem":{"mounts":{"/w x":{"type":"bind","source":"/w"}}})",
                    {"limits.wall_time=5s", "identity.uid=20000", "identity.umask=027",
                     "namespaces.nested_user=true", "limits.rlimits.nofile=64", "env.pass=[\"A\"]",
                     "env.set.EMPTY=", "filesystem.mounts[\"/w x\"].readonly=false",
                     "filesystem.mounts[/t].type=tmpfs", "filesystem.mounts[/t/].size=1MiB",
                     "syscalls.base=agent@1", "network={\"mode\":\"shared\"}"}));
  CHECK(policy.limits.wall_time->count() == 5000);
  CHECK(policy.identity.uid.number == 20000U);
  CHECK(policy.identity.umask == 027U);
  CHECK(policy.namespaces.nested_user);
  CHECK(policy.limits.rlimits.at("nofile").value == 64U);
  CHECK(policy.env.pass == std::vector<std::string>{"A"});
  CHECK(policy.env.set.at("EMPTY").empty());
  CHECK_FALSE(policy.filesystem.mounts.at("/w x").readonly);
  CHECK(policy.filesystem.mounts.at("/t").size == 1048576U);
  CHECK(policy.network.mode == NetworkMode::kShared);
  CHECK(policy.where("limits.wall_time") == "--set limits.wall_time=5s");
}

TEST_CASE("a setting of null removes") {
  const Policy policy =
      load(with_settings(R"("limits":{"wall_time":"5s"})", {"limits.wall_time=null"}));
  CHECK_FALSE(policy.limits.wall_time.has_value());
}

TEST_CASE("mistakes in settings name the setting") {
  const auto error = [](const std::string& setting) {
    return errors_of(with_settings("\"name\":\"x\"", {setting}));
  };
  CHECK(error("limits.wal_time=5s") ==
        "--set limits.wal_time=5s: limits.wal_time: unknown key; did you mean \"wall_time\"?");
  CHECK(error("limits.wall_time=5") ==
        "--set limits.wall_time=5: limits.wall_time: expected a duration such as \"30s\", got the "
        "number 5; write \"5s\" if seconds are meant");
  CHECK(contains(
      error("vars.x=1"),
      "--set vars.x=1: vars.x: expected an object such as {\"type\": \"path\", \"default\": "
      "\"/srv/work\"}, got the number 1"));
  CHECK(contains(error("extends=[\"builtin:dev@1\"]"), "extends: belongs into a file"));
  CHECK(contains(error("version=2"), "version 2 is unknown; this belljar reads version 1"));
  CHECK(contains(error("x-a={\"b\":1,\"b\":2}"), "duplicate key \"b\""));
  CHECK(contains(error("env.set.A=\xff"), "invalid UTF-8"));
}

TEST_CASE("paths of settings that cannot be read are refused") {
  const auto error = [](std::string_view path) {
    Layers layers;
    layers.add_text(policy_text("\"name\":\"x\""), "p.json");
    layers.add_setting(path, "1", "--set");
    return errors_of(layers);
  };
  CHECK(error("") == "--set: the path \"\" has an empty name in it");
  CHECK(error("a..b") == "--set: the path \"a..b\" has an empty name in it");
  CHECK(error(".a") == "--set: the path \".a\" has an empty name in it");
  CHECK(error("a.") == "--set: the path \"a.\" has an empty name in it");
  CHECK(error("a[\"b") ==
        "--set: the path \"a[\\\"b\" has a bracket that is not [\"KEY\"] or [KEY]");
  for (const char* bad : {"a[", "a[]", "a[b", "a[\"b\"", "a[\"b\"x]", "a[\"\\q\"]"}) {
    CHECK(contains(error(bad), "has a bracket that is not [\"KEY\"] or [KEY]"));
  }
  CHECK(contains(error("a[\xff]"), "is no text: invalid UTF-8, NUL, or too long"));
  CHECK(contains(error(std::string_view("a[b\0]", 6)), "is no text"));
  CHECK(contains(error("env.set[\"\\u0000\"]"), "has a bracket that is not"));
  CHECK(contains(error("a[b]c"), "needs \".\" or \"[\" after a bracket"));
  std::string deep = "a";
  for (int i = 0; i < 40; ++i) deep += ".a";
  CHECK(contains(error(deep), "is too deep"));
}

TEST_CASE("a setting cannot go through a plain value") {
  CHECK(errors_of(with_settings(R"("syscalls":{"rules":{"ptrace":"EPERM"}})",
                                {"syscalls.rules.ptrace.action=allow"})) ==
        "--set syscalls.rules.ptrace.action=allow: syscalls.rules.ptrace: is the string \"EPERM\" "
        "(p.json:1:44), which has no members to set");
}

TEST_CASE("every value remembers its place, and what holds no value of its own its parent's") {
  Layers layers;
  layers.add_text(
      "{\"version\":1,\n \"env\":{\"pass\":[\"A\"]},\n \"filesystem\":{\n"
      "  \"mounts\":{\"/a.b\":{\"type\":\"bind\",\n   \"source\":\"/a\"}}}}",
      "p.json");
  const Policy policy = load(layers);
  CHECK(policy.where("env.pass") == "p.json:2:16");
  CHECK(policy.where("env.pass[0]") == "p.json:2:16");
  CHECK(policy.where("env") == "p.json:2:2");
  CHECK(policy.where("env.deny") == "p.json:2:2");
  CHECK(policy.where("filesystem.mounts[\"/a.b\"]") == "p.json:4:13");
  CHECK(policy.where("filesystem.mounts[\"/a.b\"].source") == "p.json:5:13");
  CHECK(policy.where("filesystem.mounts[\"/a.b\"].readonly") == "p.json:4:13");
  CHECK(policy.where("filesystem.mounts[\"/other\"].type") == "p.json:4:3");
  CHECK(policy.where("limits.wall_time") == "");
  CHECK(policy.where("") == "");
}

TEST_CASE("the order of keys, white space and comments do not change the digest") {
  const auto digest = [](std::string_view text) {
    Layers layers;
    layers.add_text(text, "p", /*comments_allowed=*/true);
    return load(layers).digest;
  };
  const std::string one =
      digest(R"({"version":1,"io":{"keep":[3]},"env":{"set":{"A":"1","B":"2"}}})");
  CHECK(one == digest(R"( {"env":{"set":{"B":"2","A":"1"}}, /* c */ "$schema":"s","x-a":5,
                           "io":{"keep":[3]},"version":1})"));
  CHECK(one != digest(R"({"version":1,"io":{"keep":[3]},"env":{"set":{"A":"1","B":"3"}}})"));
  CHECK(one.starts_with("sha256:"));
  CHECK(one.size() == 7 + 64);
}

TEST_CASE("the canonical text is the merged policy, and the digest is its SHA-256") {
  Layers layers;
  layers.add_text("{\"version\":1}", "p.json");
  const Policy policy = load(layers);
  CHECK(policy.canonical == "{\"version\":1}");
  CHECK(policy.digest == "sha256:2430f1a2ad2982d0067885488a4c89e21ad1d7c83b115ba8f1b20acc88dfaea8");
  CHECK(policy.name == "p.json");
}

}  // namespace
}  // namespace belljar::policy

TEST_CASE("a short name that is nothing like a known one gets the list, not a far guess") {
  belljar::policy::Layers layers;
  layers.add("builtin:agent@1");
  layers.add_setting("foo", "1", "--set foo=1");
  const auto policy = layers.resolve();
  REQUIRE_FALSE(policy.has_value());
  CHECK(policy.error().front().message.find("one of:") != std::string::npos);
}

TEST_CASE("what is built upon a preset does not keep its name") {
  belljar::policy::Layers layers;
  layers.add_text(R"({"version":1,"extends":["builtin:agent@1"]})", "mine.json");
  const auto policy = layers.resolve();
  REQUIRE(policy.has_value());
  CHECK(policy->name == "mine.json");
  CHECK(policy->description.empty());
}

TEST_CASE("a preset without its prefix is found by its name") {
  belljar::policy::Layers layers;
  layers.add("dev@1");
  const auto policy = layers.resolve();
  REQUIRE_FALSE(policy.has_value());
  CHECK(policy.error().front().message.find("builtin:dev@1") != std::string::npos);
}
