// The presets load, and hold what their contracts promise.
#include <algorithm>
#include <chrono>
#include <string>

#include "loading.hpp"
#include "policy/order.hpp"

namespace belljar::policy {
namespace {

using testing::load;

Policy preset(std::string_view name) {
  Layers layers;
  layers.add("builtin:" + std::string(name));
  return load(layers);
}

TEST_CASE("the presets are named in order") {
  CHECK(preset_names() == std::vector<std::string>{"agent@1", "bwrap@1", "dev@1", "install@1",
                                                   "shell@1", "strict@1", "validator@1"});
  CHECK(preset_text("agent@2").empty());
}

TEST_CASE("every preset loads, by itself and as a file that is checked as a layer") {
  for (const std::string& name : preset_names()) {
    CAPTURE(name);
    CHECK(preset(name).name == name);
    Layers layers;
    layers.add_text(preset_text(name), name);
    CHECK(testing::errors_of(layers) == "");
    CHECK(load(layers).digest == preset(name).digest);
  }
}

TEST_CASE("agent@1 has the limits of its contract") {
  const Policy policy = preset("agent@1");
  CHECK(policy.identity.umask == 077U);
  CHECK(policy.identity.enforce == Enforce::kPrefer);
  CHECK(policy.network.mode == NetworkMode::kShared);
  CHECK(policy.syscalls.base == SyscallBase::kAgent1);
  CHECK(policy.capabilities.empty());
  CHECK(policy.limits.rlimits.at("as").value == std::uint64_t{4} << 30);
  CHECK(policy.limits.rlimits.at("cpu").value == 120U);
  CHECK(policy.limits.rlimits.at("nproc").value == 64U);
  CHECK(policy.filesystem.root == RootKind::kHost);
  CHECK(policy.filesystem.hide.contains("@workspace"));
  CHECK(policy.filesystem.mask.contains("/etc/shadow"));
  CHECK(policy.filesystem.mounts.at("/tmp").mode == 01777U);
  CHECK(policy.filesystem.home.kind == HomeKind::kWorkspace);
  CHECK(policy.where("limits.rlimits.cpu").starts_with("builtin:agent@1:"));
}

TEST_CASE("dev@1 has no network and a private home") {
  const Policy policy = preset("dev@1");
  CHECK(policy.network.mode == NetworkMode::kNone);
  CHECK(policy.filesystem.home.kind == HomeKind::kPrivate);
  CHECK(policy.filesystem.toolchains);
  CHECK(policy.filesystem.workspace->path == ".");
}

TEST_CASE("strict@1 writes nothing but /tmp") {
  const Policy policy = preset("strict@1");
  CHECK(policy.filesystem.root == RootKind::kEmpty);
  CHECK(policy.filesystem.workspace->readonly);
  CHECK(policy.identity.enforce == Enforce::kRequire);
  CHECK(policy.limits.wall_time == std::chrono::seconds(60));
  for (const auto& entry : policy.filesystem.mounts) {
    const Mount& mount = entry.second;
    CAPTURE(entry.first);
    if (mount.type == MountType::kBind) CHECK(mount.readonly);
    if (mount.type == MountType::kTmpfs) CHECK(mount.noexec);
  }
}

TEST_CASE("the presets of shell sessions differ in their networks alone") {
  CHECK(preset("shell@1").network.mode == NetworkMode::kPrivate);
  CHECK(preset("shell@1").network.enforce == Enforce::kPrefer);
  CHECK(preset("install@1").network.mode == NetworkMode::kPrivate);
  CHECK(preset("install@1").network.enforce == Enforce::kRequire);
  CHECK(preset("validator@1").network.mode == NetworkMode::kNone);
  for (const char* name : {"install@1", "validator@1"}) {
    CHECK(check_ceiling(preset(name), preset("shell@1")).empty());
    CHECK(preset(name).identity.umask == 022U);
  }
}

TEST_CASE("bwrap@1 has mounts and processes of its own, and the rest of the caller") {
  const Policy policy = preset("bwrap@1");
  CHECK(policy.filesystem.root == RootKind::kEmpty);
  CHECK(policy.filesystem.mounts.empty());
  CHECK(policy.namespaces.ipc == NamespaceMode::kShared);
  CHECK(policy.network.mode == NetworkMode::kShared);
  CHECK(policy.syscalls.base == SyscallBase::kNone);
  CHECK(policy.env.pass == std::vector<std::string>{"*"});
}

TEST_CASE("off@1 is out of reach, and loads from its text alone") {
  const std::string_view refusal =
      "\"builtin:off@1\" is no sandbox; only an operator's start-up setting of the daemon can "
      "choose "
      "it, no policy and no option";
  Layers named;
  named.add("builtin:off@1");
  CHECK(testing::errors_of(named) == "builtin:off@1: " + std::string(refusal));
  CHECK(testing::errors_of(R"({"version":1,"extends":["builtin:off@1"]})") ==
        "p.json:1:25: extends[0]: " + std::string(refusal));
  Layers text;
  text.add_text(preset_text("off@1"), "off@1");
  CHECK(load(text).namespaces.mount == NamespaceMode::kShared);
}

TEST_CASE("presets hold no variables, which are not looked for in them") {
  for (const std::string& name : preset_names()) {
    CHECK(preset_text(name).find("${") == std::string_view::npos);
  }
}

}  // namespace
}  // namespace belljar::policy
