// What a policy's Landlock becomes on kernels of each version.
#include "launcher/sys/landlock.hpp"

#include <algorithm>
#include <cerrno>
#include <string>

#include "planning.hpp"

using namespace belljar::launcher;
namespace sys = belljar::sys;

namespace {

constexpr const char* kAll =
    R"({"version": 1, "network": {"mode": "shared"}, "filesystem": {"root": "empty", "mounts": {
        "/usr": {"type": "bind", "source": "/usr"},
        "/work": {"type": "bind", "source": "/work", "readonly": false, "noexec": true},
        "/tmp": {"type": "tmpfs"}, "/dev": {"type": "dev"}, "/proc": {"type": "proc"},
        "/over": {"type": "overlay", "lower": ["/a"], "noexec": true},
        "/both": {"type": "overlay", "lower": ["/a", "/b"], "readonly": true},
        "/queues": {"type": "mqueue"},
        "/etc/hosts": {"type": "file", "content": ""}}},
      "landlock": {"filesystem": true, "scopes": ["signal", "abstract_unix_socket"],
        "bind_tcp": [0, 80], "connect_tcp": [], "enforce": "prefer"}})";

Host host_with(int abi) {
  Host host = test::plain_host();
  host.landlock_abi = abi;
  return host;
}

TakeLandlock step_with(int abi) {
  const Plan plan = test::plan_of(test::policy_of(kAll), host_with(abi));
  const auto* step = test::find<TakeLandlock>(plan);
  REQUIRE((step != nullptr));
  return *step;
}

std::uint64_t access_of(const TakeLandlock& step, std::string_view path) {
  for (const LandlockPath& rule : step.paths)
    if (rule.path == path) return rule.access;
  return 0;
}

}  // namespace

TEST_CASE("a policy without a word about Landlock has no step of it") {
  const auto policy = test::policy_of(R"({"version": 1})");
  CHECK((test::find<TakeLandlock>(test::plan_of(policy, host_with(7))) == nullptr));
  CHECK(test::plan_of(policy, host_with(0)).degraded.empty());
}

TEST_CASE("rules say what the mounts say") {
  const TakeLandlock step = step_with(7);
  constexpr std::uint64_t kRead = sys::kLandlockReadFile | sys::kLandlockReadDir;
  CHECK(access_of(step, "/") == sys::kLandlockReadDir);
  CHECK(access_of(step, "/usr") == (kRead | sys::kLandlockExecute));
  CHECK(access_of(step, "/etc/hosts") == sys::kLandlockReadFile);
  CHECK((access_of(step, "/work") & sys::kLandlockWriteFile) != 0);
  CHECK((access_of(step, "/work") & sys::kLandlockExecute) == 0);
  CHECK((access_of(step, "/tmp") & sys::kLandlockExecute) != 0);
  CHECK((access_of(step, "/proc") & sys::kLandlockMakeReg) == 0);
  CHECK((access_of(step, "/dev") & sys::kLandlockIoctlDev) != 0);
  CHECK((access_of(step, "/over") & sys::kLandlockMakeReg) != 0);
  CHECK((access_of(step, "/over") & sys::kLandlockExecute) == 0);
  CHECK(access_of(step, "/both") == (kRead | sys::kLandlockExecute));
  CHECK((access_of(step, "/queues") & sys::kLandlockMakeReg) != 0);
  CHECK((access_of(step, "/queues") & (sys::kLandlockExecute | sys::kLandlockMakeDir)) == 0);
  for (const LandlockPath& rule : step.paths)
    CHECK_MESSAGE((rule.access & (sys::kLandlockMakeChar | sys::kLandlockMakeBlock)) == 0,
                  rule.path);
}

TEST_CASE("no kernel is asked for what its version does not have") {
  constexpr std::uint64_t kOfVersion[] = {0x1FFF, 0x3FFF, 0x7FFF, 0x7FFF, 0xFFFF, 0xFFFF, 0xFFFF};
  for (int abi = 1; abi <= 7; ++abi) {
    const TakeLandlock step = step_with(abi);
    CAPTURE(abi);
    CHECK(step.files == kOfVersion[abi - 1]);
    CHECK(step.tcp == (abi >= 4 ? 3U : 0U));
    CHECK(step.scopes == (abi >= 6 ? 3U : 0U));
    CHECK(step.ports.size() == (abi >= 4 ? 2U : 0U));
  }
}

TEST_CASE("what a version lacks is listed, or refused with the kernel that has it") {
  const auto prefer = test::policy_of(kAll);
  auto require = prefer;
  require.landlock.enforce = belljar::policy::Enforce::kRequire;
  constexpr std::size_t kLacking[] = {6, 5, 4, 2, 1, 0, 0};
  for (int abi = 1; abi <= 7; ++abi) {
    const Plan plan = test::plan_of(prefer, host_with(abi));
    CAPTURE(abi);
    CHECK(plan.degraded.size() == kLacking[abi - 1]);
    for (const Degraded& item : plan.degraded)
      CHECK_MESSAGE(item.what.find("before Linux ") != std::string::npos, item.what);
    if (abi >= 6) continue;
    const belljar::Error refused = test::refusal_of(require, host_with(abi));
    CHECK(refused.what.find("ABI " + std::to_string(abi)) != std::string::npos);
    CHECK(refused.remedy.find("use Linux ") == 0);
  }
  CHECK(test::refusal_of(require, host_with(-EOPNOTSUPP)).remedy.find("lsm=") != std::string::npos);
  CHECK(test::refusal_of(require, host_with(-ENOSYS)).remedy.find("Docker") != std::string::npos);
}

TEST_CASE("the domain is taken after the pivot and before capabilities go") {
  const Plan plan = test::plan_of(test::policy_of(kAll), host_with(7));
  const std::string texts = test::texts(plan);
  const auto at = [&texts](const char* text) { return texts.find(text); };
  CHECK(at("make it the root") < at("take a Landlock domain"));
  CHECK(at("take a Landlock domain") < at("drop every capability"));
  Plan late = plan;
  std::rotate(late.steps.begin(), late.steps.begin() + 1, late.steps.end());
  CHECK_FALSE(validate(late).has_value());
}
