// `final` and ceilings: what a policy may still change, and a model of what sandboxes can do that
// accepted changes are held against.
#include "policy/order.hpp"

#include <random>
#include <string>

#include "loading.hpp"

namespace belljar::policy {
namespace {

using testing::contains;
using testing::errors_of;
using testing::load_body;
using testing::policy_text;

/// The errors of `upper` over a text that says `lower` and makes `paths` final.
std::string over(std::string_view lower, std::string_view paths, std::string_view upper) {
  Layers layers;
  layers.add_text(policy_text("\"final\":[" + std::string(paths) + "]" +
                              (lower.empty() ? "" : ",") + std::string(lower)),
                  "low");
  layers.add_text(policy_text(upper), "up");
  return errors_of(layers);
}

std::string above(std::string_view policy, std::string_view ceiling) {
  std::string text;
  for (const Diagnostic& diagnostic : check_ceiling(load_body(policy), load_body(ceiling))) {
    text += diagnostic.path + "\n";
  }
  return text;
}

TEST_CASE("what is final can be tightened and not widened, and both places are named") {
  const std::string_view low = R"("network":{"mode":"private"},"limits":{"wall_time":"30s"})";
  CHECK(over(low, R"("network","limits.wall_time")", R"("network":{"mode":"none"})") == "");
  CHECK(over(low, R"("network")", R"("limits":{"wall_time":null})") == "");
  CHECK(over(low, R"("network")", R"("network":{"mode":"shared"})") ==
        "up:1:32: network.mode: \"shared\" is wider than \"private\" of low:1:52; it may only move "
        "from \"shared\" over \"private\" to \"none\" (final in low:1:23)");
  CHECK(over(low, R"("limits.wall_time")", R"("limits":{"wall_time":null})") ==
        "up:1:36: limits.wall_time: \"30s\" of low:1:94 is missing; a limit may only fall (final "
        "in low:1:23)");
  CHECK(contains(over("", R"("capabilities")", R"("capabilities":["NET_RAW"])"),
                 "up:1:29: capabilities: is wider than the default of "));
}

TEST_CASE("final speaks for its text and what that extends, not for its neighbours") {
  Layers layers;
  layers.add_text(policy_text(R"("network":{"mode":"shared"})"), "wide");
  layers.add_text(policy_text(R"("final":["network"])"), "low");
  CHECK(contains(errors_of(layers), "network.mode: \"shared\" is wider than the default of "));
}

TEST_CASE("settings and variables are held to what is final too") {
  Layers layers;
  layers.add_text(policy_text(R"("vars":{"w":{"type":"path","default":"/a"}},
      "final":["vars.w","io","filesystem.mask[\"${w}\"]"],"filesystem":{"mask":{"${w}":"x"}})"),
                  "low");
  CHECK(errors_of(layers) == "");
  Layers set = layers;
  set.add_setting("io.keep", "[3]", "--set io.keep=[3]");
  CHECK(contains(errors_of(set), "--set io.keep=[3]: io.keep: is wider than the default of "));
  Layers unmasked = layers;
  unmasked.add_setting("filesystem.mask[/a]", "null", "--set m");
  CHECK(contains(errors_of(unmasked), "--set m: filesystem.mask[\"/a\"]: \"x\" of low:"));
  Layers variable = layers;
  variable.add_variable("w", "/b", "--var w=/b");
  CHECK(errors_of(variable) == "--var w=/b: the variable \"w\" is final in low:2:16");
  Layers final = layers;
  final.add_setting("final", "[]", "--set final=[]");
  CHECK(contains(errors_of(final), "--set final=[]: final: belongs into a file"));
}

TEST_CASE("paths of final must be paths of a policy") {
  CHECK(over("", R"("netwrok")", R"("name":"x")") ==
        "low:1:23: final: \"netwrok\": there is no \"netwrok\"; did you mean \"network\"?");
  CHECK(contains(over("", R"("limits.wall_time.x")", R"("name":"x")"), "is below a value"));
  CHECK(contains(over("", R"("filesystem.mounts[")", R"("name":"x")"), "bracket"));
  CHECK(contains(over("", "5", R"("name":"x")"), "final[0]: expected a path"));
  CHECK(over("", R"("filesystem.mounts[\"/a\"].readonly","limits.rlimits.as","env.set.A")",
             R"("name":"x")") == "");
}

TEST_CASE("a namespace that is joined is neither within another nor within what is shared") {
  for (const char* other : {"/run/b", "shared", "private"}) {
    const std::string changed = R"("network":{"mode":")" + std::string(other) + "\"}";
    CHECK(above(changed, R"("network":{"mode":"/run/a"})") == "network.mode\n");
    CHECK(above(R"("network":{"mode":"/run/a"})", changed) == "network.mode\n");
  }
  CHECK(above(R"("network":{"mode":"/run/a"})", R"("network":{"mode":"/run/a"})").empty());
  CHECK(above(R"("namespaces":{"uts":"/run/a"})", R"("namespaces":{"uts":"shared"})") ==
        "namespaces.uts\n");
  CHECK(above(R"("namespaces":{"uts":"shared"})", R"("namespaces":{"uts":"/run/a"})") ==
        "namespaces.uts\n");
}

struct Change {
  std::string_view wide, narrow;
};

TEST_CASE("each kind of field has its order") {
  constexpr Change kChanges[] = {
      {R"("namespaces":{"ipc":"shared"})", R"("namespaces":{})"},
      {R"("namespaces":{"ipc":"/run/ipc"})", R"("namespaces":{})"},
      {R"("network":{"mode":"/run/netns/a"})", R"("network":{"mode":"none"})"},
      {R"("limits":{})", R"("limits":{"cpu_time":"1s"})"},
      {R"("limits":{"cpu_time":"2s"})", R"("limits":{"cpu_time":"1s"})"},
      {R"("identity":{"ids":100})", R"("identity":{"ids":10})"},
      {R"("identity":{"ids":1})", R"("identity":{})"},
      {R"("namespaces":{"nested_user":true})", R"("namespaces":{})"},
      {R"("identity":{"umask":"022"})", R"("identity":{"umask":"077"})"},
      {R"("identity":{"enforce":"prefer"})", R"("identity":{"enforce":"require"})"},
      {R"("filesystem":{"root":"host"})", R"("filesystem":{"root":"empty"})"},
      {R"("filesystem":{"toolchains":true})", R"("filesystem":{})"},
      {R"("filesystem":{"mask":{}})", R"("filesystem":{"mask":{"/a":"x"}})"},
      {R"("filesystem":{"hide":{}})", R"("filesystem":{"hide":{"/a":"x"}})"},
      {R"("filesystem":{"mounts":{"/a":{"type":"bind","source":"/a","readonly":false}}})",
       R"("filesystem":{"mounts":{"/a":{"type":"bind","source":"/a"}}})"},
      {R"("filesystem":{"mounts":{"/a":{"type":"bind","source":"/a"}}})", R"("filesystem":{})"},
      {R"("filesystem":{"mounts":{"/a":{"type":"bind","source":"/a","nosuid":false}}})",
       R"("filesystem":{"mounts":{"/a":{"type":"bind","source":"/a","noexec":true}}})"},
      {R"("filesystem":{"mounts":{"/a":{"type":"tmpfs"}}})",
       R"("filesystem":{"mounts":{"/a":{"type":"tmpfs","size":"1MiB","inodes":5}}})"},
      {R"("filesystem":{"mounts":{"/p":{"type":"proc","hidepid":"invisible"}}})",
       R"("filesystem":{"mounts":{"/p":{"type":"proc","hidepid":"ptraceable","subset":"pid"}}})"},
      {R"("filesystem":{"workspace":{"path":"/w"}})",
       R"("filesystem":{"workspace":{"path":"/w","readonly":true}})"},
      {R"("filesystem":{"workspace":{"path":"/w","idmap":"owner","enforce":"prefer"}})",
       R"("filesystem":{"workspace":{"path":"/w","idmap":"owner"}})"},
      {R"("filesystem":{"mounts":{"/o":{"type":"overlay","lower":["/a"]}}})",
       R"("filesystem":{"mounts":{"/o":{"type":"overlay","lower":["/a"],"size":"1MiB"}}})"},
      {R"("filesystem":{"mounts":{"/o":{"type":"overlay","lower":["/a"],"upper":"/u","work":"/w"}}})",
       R"("filesystem":{"mounts":{"/o":{"type":"overlay","lower":["/a"],"upper":"/u","work":"/w",
          "readonly":true}}})"},
      {R"("filesystem":{"mounts":{"/q":{"type":"mqueue"}}})", R"("filesystem":{})"},
      {R"("network":{"mode":"shared"})", R"("network":{"mode":"private"})"},
      {R"("syscalls":{"base":"none"})", R"("syscalls":{"base":"agent@1"})"},
      {R"("syscalls":{})", R"("syscalls":{"base":"strict@1","rules":{"mmap":"EPERM"}})"},
      {R"("syscalls":{"rules":{"read":"allow"}})", R"("syscalls":{"rules":{"read":"kill"}})"},
      {R"("capabilities":["NET_RAW","CHOWN"])", R"("capabilities":["CHOWN"])"},
      {R"("limits":{})", R"("limits":{"wall_time":"1s","rlimits":{"nofile":64}})"},
      {R"("limits":{"rlimits":{"nofile":65}})", R"("limits":{"rlimits":{"nofile":64}})"},
      {R"("env":{"pass":["A*"]})", R"("env":{"pass":["AB","A*"],"deny":["AC"]})"},
      {R"("io":{"keep":[3,4]})", R"("io":{"keep":[4],"stdin":"null"})"}};
  for (const Change& change : kChanges) {
    CAPTURE(change.wide);
    CHECK(above(change.narrow, change.wide) == "");
    CHECK(above(change.wide, change.wide) == "");
    CHECK(above(change.narrow, change.narrow) == "");
    CHECK(above(change.wide, change.narrow) != "");
  }
}

TEST_CASE("destinations can only be taken away, and what is denied can only grow") {
  const auto network = [](std::string_view members) {
    return R"("network":{"mode":"private",)" + std::string(members) + "}";
  };
  const auto one = [&](const char* list, const char* range, const char* ports = "") {
    return network("\"" + std::string(list) + "\":{\"" + range + "\":{" + ports +
                   "\"because\":\"x\"}}");
  };
  const std::string all = R"("network":{"mode":"private"})";
  const char* few = "\"ports\":[80],";
  const char* more = "\"ports\":[80,443],";
  CHECK(above(one("allow", "10.1.0.0/16"), one("allow", "10.0.0.0/8")) == "");
  CHECK(above(one("allow", "10.1.0.0/16", few), one("allow", "10.0.0.0/8", more)) == "");
  CHECK(above(one("allow", "10.0.0.0/8"), one("allow", "10.1.0.0/16")) ==
        "network.allow[\"10.0.0.0/8\"]\n");
  CHECK(above(one("allow", "10.1.0.0/16"), one("allow", "10.1.0.0/16", few)) ==
        "network.allow[\"10.1.0.0/16\"]\n");
  CHECK(above(one("allow", "10.1.0.0/16"), all) == "network.allow[\"10.1.0.0/16\"]\n");
  CHECK(above(one("only", "192.0.2.1"), all) == "");
  CHECK(above(all, one("only", "192.0.2.1")) == "network.only\n");
  CHECK(above(one("only", "192.0.2.0/24"), one("only", "192.0.2.1")) ==
        "network.only[\"192.0.2.0/24\"]\n");
  CHECK(above(one("deny", "192.0.2.1"), all) == "");
  CHECK(above(one("deny", "192.0.2.0/24"), one("deny", "192.0.2.1", few)) == "");
  CHECK(above(one("deny", "192.0.2.1", few), one("deny", "192.0.2.1")) ==
        "network.deny[\"192.0.2.1\"]\n");
  CHECK(above(all, one("deny", "192.0.2.1")) == "network.deny[\"192.0.2.1\"]\n");
}

TEST_CASE("what is published can only be taken away") {
  const auto publish = [](std::string_view members) {
    return R"("network":{"mode":"none","publish":{)" + std::string(members) + "}}";
  };
  const std::string one = publish(R"("127.0.0.1:8080":80)");
  CHECK(above(publish(""), one) == "");
  CHECK(above(one, one) == "");
  CHECK(above(one, publish("")) == "network.publish[\"127.0.0.1:8080\"]\n");
  CHECK(above(publish(R"("127.0.0.1:8080":81)"), one) == "network.publish[\"127.0.0.1:8080\"]\n");
  CHECK(above(publish(R"("/run/app.sock":80)"), one) == "network.publish[\"/run/app.sock\"]\n");
}

TEST_CASE("what cannot be ordered may not change at all") {
  constexpr Change kChanges[] = {
      {R"("identity":{"uid":5})", R"("identity":{"uid":6})"},
      {R"("identity":{"groups":[5]})", R"("identity":{"groups":[]})"},
      {R"("filesystem":{"home":"none"})", R"("filesystem":{"home":"private"})"},
      {R"("filesystem":{"workspace":{"path":"/w"}})", R"("filesystem":{})"},
      {R"("filesystem":{"workspace":{"path":"/w"}})",
       R"("filesystem":{"workspace":{"path":"/w","idmap":"owner"}})"},
      {R"("filesystem":{"mounts":{"/o":{"type":"overlay","lower":["/a","/b"]}}})",
       R"("filesystem":{"mounts":{"/o":{"type":"overlay","lower":["/b","/a"]}}})"},
      {R"("filesystem":{"mounts":{"/o":{"type":"overlay","lower":["/a"]}}})",
       R"("filesystem":{"mounts":{"/o":{"type":"overlay","lower":["/a"],"upper":"/u","work":"/w"}}})"},
      {R"("env":{"set":{"A":"1"}})", R"("env":{"set":{"A":"2"}})"},
      {R"("env":{"set":{"A":"1"}})", R"("env":{})"},
      {R"("filesystem":{"mounts":{"/a":{"type":"bind","source":"/a"}}})",
       R"("filesystem":{"mounts":{"/a":{"type":"tmpfs"}}})"},
      {R"("syscalls":{"base":"none","default":"EPERM","rules":{"read":"allow"}})",
       R"("syscalls":{"base":"agent@1"})"}};
  for (const Change& change : kChanges) {
    CAPTURE(change.wide);
    CHECK(above(change.narrow, change.wide) != "");
    CHECK(above(change.wide, change.narrow) != "");
  }
}

TEST_CASE("a mount can go only where nothing comes into view") {
  const std::string_view cover =
      R"("filesystem":{"root":"host","mounts":{"/a/b":{"type":"tmpfs"}}})";
  CHECK(above(R"("filesystem":{"root":"host"})", cover) == "filesystem.mounts[\"/a/b\"]\n");
  CHECK(above(R"("filesystem":{})", cover) == "");
  const std::string_view below =
      R"("filesystem":{"mounts":{"/a":{"type":"bind","source":"/a"},"/a/b":{"type":"tmpfs"}}})";
  CHECK(above(R"("filesystem":{"mounts":{"/a":{"type":"bind","source":"/a"}}})", below) ==
        "filesystem.mounts[\"/a/b\"]\n");
  CHECK(above(R"("filesystem":{})", below) == "");
  const std::string_view work =
      R"("filesystem":{"workspace":{"path":"."},"mounts":{"/a":{"type":"tmpfs"}}})";
  CHECK(above(R"("filesystem":{"workspace":{"path":"."}})", work) != "");
}

// The model: what a sandbox of a policy can do, told independently of the orders.

constexpr const char* kPlaces[] = {"/a", "/a/b", "/a/b/c", "/d", "/d/b"};

/// What is seen at a path: "host:/x" for the host's file there, "own" for what is made for it.
struct View {
  std::string content;
  bool writable = false, programs = false, devices = false, set_ids = false;
};

View view(const Policy& policy, const std::string& path) {
  for (const auto& entry : policy.filesystem.mask) {
    if (path == entry.first || path.starts_with(entry.first + "/")) return {"", false};
  }
  std::string best;
  for (const auto& entry : policy.filesystem.mounts) {
    const bool covers = path == entry.first || path.starts_with(entry.first + "/");
    if (covers && entry.first.size() > best.size()) best = entry.first;
  }
  if (!best.empty()) {
    const Mount& mount = policy.filesystem.mounts.at(best);
    const std::string rest = path.substr(best.size());
    if (mount.type != MountType::kBind) return {"own", !mount.readonly, !mount.noexec};
    return {"host:" + mount.source + rest, !mount.readonly, !mount.noexec, !mount.nodev,
            !mount.nosuid};
  }
  const std::string top = path.substr(0, path.find('/', 1));
  const bool host =
      policy.filesystem.root == RootKind::kHost && !policy.filesystem.hide.contains(top);
  return host ? View{"host:" + path, false, true} : View{"", false};
}

bool view_within(const View& inner, const View& outer) {
  if (inner.content.empty()) return true;
  if (inner.content != outer.content) return inner.content == "own" && !inner.writable;
  return (!inner.writable || outer.writable) && (!inner.programs || outer.programs) &&
         (!inner.devices || outer.devices) && (!inner.set_ids || outer.set_ids);
}

/// The verdict on a call when its condition holds or not: 2 allow, 1 refuse, 0 kill.
int verdict(const Policy& policy, const std::string& call, bool holds) {
  const auto number = [](const SyscallAction& action) {
    if (action.kind == SyscallAction::Kind::kAllow) return 2;
    return action.kind == SyscallAction::Kind::kErrno ? 1 : 0;
  };
  const auto rule = policy.syscalls.rules.find(call);
  if (rule != policy.syscalls.rules.end()) {
    const bool other = !rule->second.when.empty() && !holds;
    return number(other ? rule->second.otherwise : rule->second.action);
  }
  // In the model `read` is in both sets, `flock` in agent@1 alone, `exotic` in none.
  const bool base_allows =
      policy.syscalls.base == SyscallBase::kNone
          ? !policy.syscalls.default_action
          : call == "read" || (call == "flock" && policy.syscalls.base == SyscallBase::kAgent1);
  if (base_allows) return 2;
  const bool in_base = policy.syscalls.base != SyscallBase::kNone && call != "exotic";
  if (in_base || !policy.syscalls.default_action) return 1;
  return number(*policy.syscalls.default_action);
}

bool passes(const Policy& policy, const std::string& name) {
  const auto any = [&](const std::vector<std::string>& globs) {
    return std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) {
      return glob == "*" || glob == name || (glob == "A*" && name.front() == 'A');
    });
  };
  return any(policy.env.pass) && !any(policy.env.deny);
}

/// The first thing that `inner` can do and `outer` cannot.
std::string wider(const Policy& inner, const Policy& outer) {
  for (const char* path : kPlaces) {
    if (!view_within(view(inner, path), view(outer, path))) return path;
  }
  for (const char* call : {"read", "flock", "exotic"}) {
    for (const bool holds : {false, true}) {
      if (verdict(inner, call, holds) > verdict(outer, call, holds)) return call;
    }
  }
  for (const char* name : {"A", "AB", "B"}) {
    if (passes(inner, name) && !passes(outer, name)) return name;
  }
  if (inner.network.mode == NetworkMode::kShared && outer.network.mode != NetworkMode::kShared)
    return "shared network";
  if (inner.network.mode != NetworkMode::kNone && outer.network.mode == NetworkMode::kNone)
    return "network";
  if (outer.limits.wall_time &&
      (!inner.limits.wall_time || *inner.limits.wall_time > *outer.limits.wall_time))
    return "wall time";
  if (inner.namespaces.ipc == NamespaceMode::kShared && outer.namespaces.ipc == NamespaceMode::kNew)
    return "ipc";
  return {};
}

/// Bodies of random policies over few values, so that two of them are often comparable.
class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  std::string body() {
    std::string mounts;
    for (const char* place : kPlaces)
      add(mounts, place, {"", "", "", "", kBind, kWritable, kTmpfs});
    std::string mask, hide, rules;
    for (const char* place : kPlaces) add(mask, place, {"", "", "", "\"x\""});
    add(hide, "/a", {"", "\"x\""});
    add(hide, "/d", {"", "\"x\""});
    for (const char* call : {"read", "flock", "exotic"}) {
      add(rules, call, {"", "", "\"allow\"", "\"EPERM\"", "\"kill\"", kWhen, kUnless});
    }
    std::string text =
        "\"filesystem\":{\"root\":" + one({"\"host\"", "\"empty\""}) + ",\"mounts\":{" + mounts +
        "},\"mask\":{" + mask + "},\"hide\":{" + hide + "}},\"syscalls\":{\"base\":" +
        one({"\"none\"", "\"agent@1\"", "\"agent@1\"", "\"strict@1\""}) +
        one({"", "", ",\"default\":\"EPERM\"", ",\"default\":\"kill\""}) + ",\"rules\":{" + rules +
        "}},\"network\":{\"mode\":" + one({"\"none\"", "\"private\"", "\"shared\""}) +
        "},\"env\":{\"pass\":" + one({"[]", "[\"A\"]", "[\"A*\"]", "[\"A\",\"B\"]", "[\"*\"]"}) +
        ",\"deny\":" + one({"[]", "[\"A\"]", "[\"B\"]"}) + "},\"limits\":{" +
        one({"", "\"wall_time\":\"1s\"", "\"wall_time\":\"9s\""}) +
        "},\"namespaces\":{\"ipc\":" + one({"\"new\"", "\"shared\""}) + "}";
    return text;
  }

  /// What a layer above changes: a few members of another body.
  std::string change() {
    return one({R"("network":{"mode":"none"})",
                R"("network":{"mode":"shared"})",
                R"("filesystem":{"root":"empty"})",
                R"("filesystem":{"root":"host"})",
                R"("filesystem":{"mounts":{"/a":null}})",
                R"("filesystem":{"mounts":{"/a/b":null}})",
                R"("filesystem":{"mounts":{"/d":{"type":"bind","source":"/a","noexec":true}}})",
                R"("filesystem":{"mask":{"/a/b":"x"}})",
                R"("filesystem":{"mask":{"/a":null}})",
                R"("syscalls":{"rules":{"read":"EPERM"}})",
                R"("syscalls":{"rules":{"read":null}})",
                R"("syscalls":{"base":"strict@1"})",
                R"("syscalls":{"default":null})",
                R"("syscalls":{"rules":{"exotic":"kill"}})",
                R"("env":{"pass":["A"]})",
                R"("env":{"deny":["A","B"]})",
                R"("env":{"deny":[]})",
                R"("limits":{"wall_time":"1s"})",
                R"("limits":{"wall_time":null})",
                R"("namespaces":{"ipc":"new"})"});
  }

 private:
  static constexpr const char* kBind = R"({"type":"bind","source":"/a"})";
  static constexpr const char* kWritable =
      R"({"type":"bind","source":"/a","readonly":false,"nodev":false})";
  static constexpr const char* kTmpfs = R"({"type":"tmpfs"})";
  static constexpr const char* kWhen =
      R"({"action":"allow","when":[{"arg0":{"==":1}}],"otherwise":"EPERM"})";
  static constexpr const char* kUnless =
      R"({"action":"EPERM","when":[{"arg0":{"==":1}}],"otherwise":"allow"})";

  std::string one(std::initializer_list<std::string_view> choices) {
    return std::string(choices.begin()[random_() % choices.size()]);
  }
  void add(std::string& object, std::string_view key,
           std::initializer_list<std::string_view> choices) {
    const std::string value = one(choices);
    if (value.empty()) return;
    if (!object.empty()) object += ',';
    object += '"' + std::string(key) + "\":" + value;
  }

  std::mt19937 random_;
};

TEST_CASE("a policy that is accepted under a ceiling can do no more than it") {
  Generator generator(1);
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::string ceiling = generator.body();
    Layers layers;
    layers.add_text(policy_text(ceiling), "ceiling");
    for (int i = 0; i < 3; ++i) layers.add_text(policy_text(generator.change()), "up");
    const auto policy = layers.resolve();
    if (!policy) continue;
    const Policy outer = load_body(ceiling);
    if (!check_ceiling(*policy, outer).empty()) continue;
    ++accepted;
    CAPTURE(ceiling);
    CAPTURE(policy->canonical);
    CHECK(wider(*policy, outer) == "");
  }
  CHECK(accepted > 300);
}

TEST_CASE("layers that are accepted above a final text can do no more than it") {
  Generator generator(2);
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::string low = generator.body();
    Layers layers;
    layers.add_text(
        policy_text("\"final\":[\"filesystem\",\"syscalls\",\"network\",\"env\",\"limits\","
                    "\"namespaces\"]," +
                    low),
        "low");
    for (int i = 0; i < 3; ++i) layers.add_text(policy_text(generator.change()), "up");
    const auto policy = layers.resolve();
    if (!policy) continue;
    ++accepted;
    CAPTURE(low);
    CAPTURE(policy->canonical);
    CHECK(wider(*policy, load_body(low)) == "");
  }
  CHECK(accepted > 300);
}

TEST_CASE("the effective text of any policy is that policy") {
  Generator generator(4);
  for (int round = 0; round < 1000; ++round) {
    const Policy policy = load_body(generator.body());
    Layers layers;
    layers.add_text(policy.canonical, "shown");
    const Policy again = testing::load(layers);
    CHECK(again.digest == policy.digest);
    CHECK(excesses(again, policy).empty());
    CHECK(excesses(policy, again).empty());
  }
}

TEST_CASE("unrelated policies are ordered soundly") {
  Generator generator(3);
  std::vector<Policy> policies;
  for (int i = 0; i < 250; ++i) policies.push_back(load_body(generator.body()));
  for (const char* body : {"\"name\":\"a\"", R"("filesystem":{"root":"host"})",
                           R"("syscalls":{"base":"none"},"network":{"mode":"shared"})"}) {
    policies.push_back(load_body(body));
  }
  std::vector<std::vector<char>> within(policies.size(), std::vector<char>(policies.size()));
  for (std::size_t i = 0; i < policies.size(); ++i) {
    for (std::size_t j = 0; j < policies.size(); ++j) {
      within[i][j] = static_cast<char>(excesses(policies[i], policies[j]).empty());
      if (within[i][j] != 0) CHECK(wider(policies[i], policies[j]) == "");
    }
    CHECK(within[i][i] != 0);
  }
}

}  // namespace
}  // namespace belljar::policy
