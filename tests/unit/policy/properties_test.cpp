// What holds for any policy that the table of fields can say: layers merge as RFC 7396 merges, the
// effective text is the policy, and what is final or under a ceiling allows no more.
#include <doctest/doctest.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "loading.hpp"
#include "policy/order.hpp"
#include "random_policy.hpp"

namespace belljar::policy {
namespace {

using nlohmann::json;
using testing::RandomPolicy;

Layers layered(std::initializer_list<json> texts) {
  Layers layers;
  for (const json& text : texts) layers.add_text(text.dump(), "p.json");
  return layers;
}

std::set<std::string> keys_of(const json& tree, const std::string& prefix = {}) {
  std::set<std::string> found;
  if (!tree.is_object()) return found;
  for (const auto& [key, value] : tree.items()) {
    found.insert(prefix + key);
    found.merge(keys_of(value, prefix + key + "."));
  }
  return found;
}

TEST_CASE("layers merge as RFC 7396 says") {
  RandomPolicy random(11);
  int valid = 0;
  for (int round = 0; round < 4000; ++round) {
    const json low = random.policy(4), middle = random.change(), top = random.change();
    json merged = json::object();
    for (const json& layer : {low, middle, top}) merged.merge_patch(layer);
    const auto by_layers = layered({low, middle, top}).resolve();
    const auto at_once = layered({merged}).resolve();
    CAPTURE(low.dump());
    CAPTURE(middle.dump());
    CAPTURE(top.dump());
    REQUIRE(by_layers.has_value() == at_once.has_value());
    if (!by_layers) continue;
    ++valid;
    CHECK(by_layers->canonical == at_once->canonical);
    CHECK(by_layers->digest == at_once->digest);
  }
  CHECK(valid > 400);
}

TEST_CASE("the effective text of any policy is that policy, and each field is in one of them") {
  RandomPolicy random(12);
  std::set<std::string> seen;
  for (int round = 0; round < 3000; ++round) {
    const json text = random.policy(4);
    const auto policy = layered({text}).resolve();
    if (!policy) continue;
    seen.merge(keys_of(text));
    Layers shown;
    shown.add_text(policy->canonical, "p.json");
    const Policy again = testing::load(shown);
    CAPTURE(text.dump());
    CHECK(again.canonical == policy->canonical);
    CHECK(excesses(again, *policy).empty());
    CHECK(excesses(*policy, again).empty());
  }
  for (const char* path : {"landlock.bind_tcp", "limits.swap", "identity.umask", "io.keep",
                           "filesystem.workspace.idmap", "filesystem.mounts./a.upper",
                           "network.only", "network.publish", "tests", "capabilities"})
    CHECK_MESSAGE(seen.contains(path), path);
}

// The model: what a policy allows, told again without the table of orders.

class Beyond {
 public:
  Beyond(const Policy& inner, const Policy& outer) : in_(inner), out_(outer) {
    look_at_limits();
    look_at_identity();
    look_at_landlock();
    look_at_network();
    look_at_files();
    look_at_the_rest();
  }
  std::vector<std::string> found;

 private:
  void unless(bool within, const std::string& path) {
    if (!within) found.push_back(path);
  }
  template <class T>
  void limit(const std::optional<T>& in, const std::optional<T>& out, const char* path) {
    unless(!out || (in && *in <= *out), path);
  }
  void enforce(Enforce in, Enforce out, const std::string& path) {
    unless(in == Enforce::kRequire || out == Enforce::kPrefer, path);
  }
  template <class T>
  void part(const std::vector<T>& in, const std::vector<T>& out, const char* path) {
    for (const T& one : in) unless(std::count(out.begin(), out.end(), one) > 0, path);
  }

  void look_at_limits() {
    const Limits &in = in_.limits, &out = out_.limits;
    limit(in.wall_time, out.wall_time, "limits.wall_time");
    limit(in.cpu_time, out.cpu_time, "limits.cpu_time");
    limit(in.output, out.output, "limits.output");
    limit(in.disk, out.disk, "limits.disk");
    limit(in.memory, out.memory, "limits.memory");
    limit(in.processes, out.processes, "limits.processes");
    limit(in.cpus, out.cpus, "limits.cpus");
    unless(in.swap.value_or(0) <= out.swap.value_or(0), "limits.swap");
    enforce(in.enforce, out.enforce, "limits.enforce");
    for (const auto& [name, most] : out.rlimits) {
      const auto held = in.rlimits.find(name);
      const bool tighter =
          held != in.rlimits.end() && !held->second.unlimited && held->second.value <= most.value;
      unless(most.unlimited || tighter, "limits.rlimits." + name);
    }
  }

  void look_at_identity() {
    const Identity &in = in_.identity, &out = out_.identity;
    unless(in.uid.from == out.uid.from && in.uid.number == out.uid.number, "identity.uid");
    unless(in.gid.from == out.gid.from && in.gid.number == out.gid.number, "identity.gid");
    unless(in.inside_uid == out.inside_uid, "identity.inside_uid");
    unless(in.inside_gid == out.inside_gid, "identity.inside_gid");
    unless(in.groups == out.groups, "identity.groups");
    unless(in.ids.value_or(0) <= out.ids.value_or(0), "identity.ids");
    unless((in.umask & out.umask) == out.umask, "identity.umask");
    enforce(in.enforce, out.enforce, "identity.enforce");
    part(in_.capabilities, out_.capabilities, "capabilities");
  }

  void look_at_landlock() {
    const Landlock &in = in_.landlock, &out = out_.landlock;
    unless(in.filesystem || !out.filesystem, "landlock.filesystem");
    part(out.scopes, in.scopes, "landlock.scopes");
    for (const int port : {80, 443, 8080, 1}) {
      const auto may = [port](const std::optional<std::vector<std::uint16_t>>& ports) {
        return !ports || std::count(ports->begin(), ports->end(), port) > 0;
      };
      unless(!may(in.bind_tcp) || may(out.bind_tcp), "landlock.bind_tcp");
      unless(!may(in.connect_tcp) || may(out.connect_tcp), "landlock.connect_tcp");
    }
    enforce(in.enforce, out.enforce, "landlock.enforce");
  }

  static bool covers(const Destinations& destinations, std::string_view address, int port) {
    return std::any_of(destinations.begin(), destinations.end(), [&](const auto& entry) {
      const std::string& range = entry.first;
      const bool inside = range == address ||
                          (range.ends_with("/24") && address.starts_with("203.0.113.")) ||
                          (range.ends_with("/16") && address.starts_with("10.1.")) ||
                          (range.ends_with("/8") && address.starts_with("10."));
      const auto& ports = entry.second.ports;
      return inside && (ports.empty() || std::count(ports.begin(), ports.end(), port) > 0);
    });
  }
  /// Of a private network's.
  static bool reaches(const Network& network, std::string_view address, int port) {
    if (covers(network.deny, address, port)) return false;
    if (address.starts_with("10.")) return covers(network.allow, address, port);
    return !network.only || covers(*network.only, address, port);
  }

  void look_at_network() {
    const Network &in = in_.network, &out = out_.network;
    const auto width = [](NetworkMode mode) {
      return mode == NetworkMode::kNone ? 0 : mode == NetworkMode::kPrivate ? 1 : 2;
    };
    unless(width(in.mode.mode) <= width(out.mode.mode), "network.mode");
    if (in.mode == NetworkMode::kJoin) unless(in.mode == out.mode, "network.mode");
    enforce(in.enforce, out.enforce, "network.enforce");
    for (const char* address : {"10.0.0.1", "10.1.0.1", "203.0.113.7", "203.0.113.8", "8.8.8.8"})
      for (const int port : {80, 443, 53})
        unless(!reaches(in, address, port) || reaches(out, address, port), "network");
    for (const auto& [outside, port] : in.publish) {
      const auto known = out.publish.find(outside);
      unless(known != out.publish.end() && known->second == port, "network.publish");
    }
  }

  void look_at_files() {
    const Filesystem &in = in_.filesystem, &out = out_.filesystem;
    unless(in.root == RootKind::kEmpty || out.root == RootKind::kHost, "filesystem.root");
    unless(!in.toolchains || out.toolchains, "filesystem.toolchains");
    for (const auto& [path, why] : out.mask) unless(in.mask.contains(path), "filesystem.mask");
    for (const auto& [path, why] : out.hide) unless(in.hide.contains(path), "filesystem.hide");
    unless(in.home.kind == out.home.kind && in.home.path == out.home.path, "filesystem.home");
    unless(in.workspace.has_value() == out.workspace.has_value(), "filesystem.workspace");
    if (in.workspace && out.workspace) look_at_workspace(*in.workspace, *out.workspace);
    for (const auto& [target, mount] : in.mounts) {
      const std::string path = member_path("filesystem.mounts", target);
      const auto known = out.mounts.find(target);
      unless(known != out.mounts.end(), path);
      if (known != out.mounts.end()) look_at_mount(mount, known->second, path);
    }
  }

  void look_at_workspace(const Workspace& in, const Workspace& out) {
    const char* path = "filesystem.workspace";
    unless(in.path == out.path && in.idmap == out.idmap, path);
    unless(in.readonly || !out.readonly, path);
    enforce(in.enforce, out.enforce, path);
  }

  void look_at_mount(const Mount& in, const Mount& out, const std::string& path) {
    unless(in.type == out.type && in.source == out.source && in.content == out.content &&
               in.lower == out.lower && in.upper == out.upper && in.work == out.work &&
               in.mode == out.mode,
           path);
    unless((in.readonly || !out.readonly) && (in.nosuid || !out.nosuid) &&
               (in.nodev || !out.nodev) && (in.noexec || !out.noexec) &&
               (!in.optional || out.optional),
           path);
    limit(in.size, out.size, path.c_str());
    limit(in.inodes, out.inodes, path.c_str());
    unless(in.subset == ProcSubset::kPid || out.subset == ProcSubset::kAll, path);
    unless(in.hidepid >= out.hidepid, path);
    enforce(in.enforce, out.enforce, path);
  }

  void look_at_the_rest() {
    const auto other = [&](const Namespace& in, const Namespace& out, const char* path) {
      unless(in == NamespaceMode::kNew || in == out, path);
    };
    other(in_.namespaces.ipc, out_.namespaces.ipc, "namespaces.ipc");
    other(in_.namespaces.uts, out_.namespaces.uts, "namespaces.uts");
    other(in_.namespaces.cgroup, out_.namespaces.cgroup, "namespaces.cgroup");
    other(in_.namespaces.time, out_.namespaces.time, "namespaces.time");
    unless(!in_.namespaces.nested_user || out_.namespaces.nested_user, "namespaces.nested_user");
    const auto stream = [&](Stdio in, Stdio out, const char* path) {
      unless(in == Stdio::kNull || out == Stdio::kInherit, path);
    };
    stream(in_.io.standard_input, out_.io.standard_input, "io.stdin");
    stream(in_.io.standard_output, out_.io.standard_output, "io.stdout");
    stream(in_.io.standard_error, out_.io.standard_error, "io.stderr");
    unless(in_.io.tty == out_.io.tty, "io.tty");
    part(in_.io.keep, out_.io.keep, "io.keep");
    unless(in_.env.set == out_.env.set, "env.set");
    part(out_.env.deny, in_.env.deny, "env.deny");
    unless(in_.syscalls.mode == SyscallMode::kEnforce || out_.syscalls.mode == SyscallMode::kLog,
           "syscalls.mode");
    unless(in_.syscalls.base >= out_.syscalls.base, "syscalls.base");
  }

  const Policy &in_, &out_;
};

std::string beyond(const Policy& inner, const Policy& outer) {
  const Beyond both(inner, outer);
  return both.found.empty() ? std::string() : both.found.front();
}

TEST_CASE("what any policy is accepted under, it does not go beyond") {
  RandomPolicy random(13);
  int accepted = 0, refused = 0;
  for (int round = 0; round < 12000; ++round) {
    const json low = random.policy(4);
    const auto outer = layered({low}).resolve();
    const json change = random.once_in(2) ? random.change() : random.variation(low);
    const auto inner = outer ? layered({low, change}).resolve() : outer;
    if (!outer || !inner) continue;
    const bool within = check_ceiling(*inner, *outer).empty();
    ++(within ? accepted : refused);
    if (!within) continue;
    CAPTURE(outer->canonical);
    CAPTURE(inner->canonical);
    CHECK(beyond(*inner, *outer) == "");
    CHECK(beyond(*outer, *outer) == "");
  }
  CHECK(accepted > 200);
  CHECK(refused > 200);
}

/// The paths of the fields that are set in a policy: sections too, and what is in maps.
std::vector<std::string> paths_of(const json& tree, const std::string& prefix = {}) {
  std::vector<std::string> found;
  for (const auto& [key, value] : tree.items()) {
    found.push_back(member_path(prefix, key));
    const bool rule = prefix == "syscalls.rules";  // Is one value, however it is written.
    if (!value.is_object() || rule) continue;
    for (std::string& path : paths_of(value, found.back())) found.push_back(std::move(path));
  }
  return found;
}

TEST_CASE("one path alone can be final, whichever it is, and the others are free") {
  RandomPolicy random(14);
  int held = 0, free = 0;
  for (int round = 0; round < 12000; ++round) {
    const json plain = random.policy(4);
    const json change = random.once_in(2) ? random.change() : random.variation(plain);
    std::vector<std::string> paths = paths_of(plain);
    std::erase(paths, "version");
    std::erase_if(paths, [](const std::string& path) { return path.starts_with("tests"); });
    if (paths.empty()) continue;
    const std::string path = paths[random.below(paths.size())];
    json low = plain;
    low["final"] = json::array({path});
    const auto outer = layered({plain}).resolve();
    const auto open = layered({plain, change}).resolve();
    if (!outer || !open) continue;
    const auto inner = layered({low, change}).resolve();
    CAPTURE(low.dump());
    CAPTURE(change.dump());
    if (!inner) {
      const auto found = excesses(*open, *outer);
      CHECK(std::any_of(found.begin(), found.end(),
                        [&](const Excess& one) { return paths_meet(one.path, path); }));
      ++held;
      continue;
    }
    CHECK(inner->canonical == open->canonical);
    for (const std::string& wider : Beyond(*inner, *outer).found) {
      // A whole is beyond where only a part of it is final.
      CAPTURE(wider);
      CHECK_FALSE(
          (wider == path || wider.starts_with(path + ".") || wider.starts_with(path + "[")));
    }
    ++free;
  }
  CHECK(held > 50);
  CHECK(free > 200);
}

// Variables of every type.

std::optional<long long> measured(std::string_view text, std::string_view unit) {
  long long number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || std::string_view(end, text.data() + text.size()) != unit)
    return std::nullopt;
  return number;
}

struct Typed {
  const char* type;
  const char* unit;                ///< What a value of the type ends with.
  const char* field;               ///< A field that takes one: {"limits": {"output": V}}.
  std::vector<const char*> never;  ///< No value of the type, whatever its bounds.
};

TEST_CASE(
    "a variable takes what its type and bounds say, and what it gives is the policy's value") {
  const Typed kTypes[] = {
      {"int", "", R"({"limits":{"rlimits":{"nofile":"${v}"}}})", {"", "x", "1.5", "5MiB", "0x20"}},
      {"size",
       "MiB",
       R"({"limits":{"output":"${v}"}})",
       {"", "5", "5 MiB", "MiB", "5mib", "1e3MiB"}},
      {"duration", "s", R"({"limits":{"wall_time":"${v}"}})", {"", "5", "5 s", "s", "5S", "1e3s"}}};
  RandomPolicy random(15);
  for (const Typed& kind : kTypes) {
    for (int round = 0; round < 500; ++round) {
      const auto number = [&] { return static_cast<long long>(40 + random.below(40)); };
      const auto text = [&](long long value) { return std::to_string(value) + kind.unit; };
      const long long least = number(), most = least + static_cast<long long>(random.below(20));
      json policy = json::parse(kind.field);
      policy["version"] = 1;
      json& variable = policy["vars"]["v"] = {{"type", kind.type}};
      if (random.once_in(2)) variable["min"] = text(least);
      if (random.once_in(2)) variable["max"] = text(most);
      const bool strange = random.once_in(4);
      const std::string value =
          strange ? kind.never[random.below(kind.never.size())] : text(number());
      const auto found = measured(value, kind.unit);
      const bool sound = !strange && found && (!variable.contains("min") || *found >= least) &&
                         (!variable.contains("max") || *found <= most);
      Layers layers = layered({policy});
      layers.add_variable("v", value, "--var v");
      const auto given = layers.resolve();
      CAPTURE(policy.dump());
      CAPTURE(value);
      REQUIRE(given.has_value() == sound);
      if (!given) continue;
      json written = policy;
      written.erase("vars");
      const std::string whole = written.dump();
      const std::size_t at = whole.find("\"${v}\"");
      Layers plain;
      plain.add_text(whole.substr(0, at) + (*kind.unit == 0 ? value : '"' + value + '"') +
                         whole.substr(at + 6),
                     "p.json");
      CHECK(testing::load(plain).canonical == given->canonical);
    }
  }
}

TEST_CASE("texts, words and paths come through as they are, and mean the same when loaded again") {
  constexpr std::string_view kPieces[] = {"$", "{", "}",  "${v}", "/", "..",
                                          "a", " ", "\n", "\"",   "é"};
  RandomPolicy random(16);
  int sound = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = random.once_in(2) ? "/" : "";
    for (std::size_t i = 0, count = random.below(5); i < count; ++i)
      text += kPieces[random.below(std::size(kPieces))];
    for (const char* type : {"string", "enum", "path"}) {
      json policy = {{"version", 1}, {"env", {{"set", {{"V", "<${v}>"}}}}}};
      policy["vars"]["v"] = {{"type", type}};
      if (type == std::string_view("enum")) policy["vars"]["v"]["values"] = {"x", text, "y" + text};
      Layers layers = layered({policy});
      layers.add_variable("v", text, "--var v");
      const auto given = layers.resolve();
      CAPTURE(text);
      CAPTURE(type);
      if (type == std::string_view("path")) {
        const bool up = ("/" + text + "/").find("/../") != std::string::npos;
        if (given) CHECK(text.starts_with("/"));
        if (given) CHECK_FALSE(up);
        if (given) CHECK(given->env.set.at("V").find("//") == std::string::npos);
      }
      if (!given) continue;
      ++sound;
      if (type != std::string_view("path")) CHECK(given->env.set.at("V") == "<" + text + ">");
      Layers again;
      again.add_text(given->canonical, "p.json");
      CHECK(testing::load(again).digest == given->digest);
    }
  }
  CHECK(sound > 2000);
}

}  // namespace
}  // namespace belljar::policy
