// What the launcher reads from the child over the socket, whatever it is: either it is dropped, or
// words and a record come of it that can be shown.
#include <cstring>
#include <nlohmann/json.hpp>

#include "launcher/failure.hpp"
#include "launcher/record.hpp"
#include "policy/load.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace belljar::launcher;

struct Stage {
  belljar::policy::Policy policy;
  Host host;
  Plan plan;
};

const Stage& stage() {
  static const Stage kStage = [] {
    Stage made;
    belljar::policy::Layers layers;
    layers.add("builtin:agent@1");
    layers.add_setting("identity.uid", "1000", "--set");
    layers.add_setting("identity.gid", "1000", "--set");
    auto policy = layers.resolve();
    FUZZ_CHECK(policy.has_value(), policy ? "" : policy.error().front().text());
    made.policy = *std::move(policy);
    made.host.uid = made.host.gid = 1000;
    made.host.landlock_abi = 7;
    made.host.home = "/home/ada";
    made.host.current_directory = "/home/ada/project";
    made.host.environment = {{"PATH", "/usr/bin:/bin"}};
    auto plan = build_plan(made.policy, made.host, {{"true"}, ""});
    FUZZ_CHECK(plan.has_value(), plan ? "" : plan.error().what);
    made.plan = *std::move(plan);
    return made;
  }();
  return kStage;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Message message;
  // As recv leaves it: what has not come keeps its value, and launch takes nothing else than whole
  // ones; here shorter inputs are tried too.
  std::memcpy(static_cast<void*>(&message), data, std::min(size, sizeof message));
  const auto& [policy, host, plan] = stage();
  if (!makes_sense(message, plan)) return 0;
  Record record;
  record.cause = Cause::kSetup;
  record.exit_code = exit_code_of(plan, message);
  record.setup = describe_failure(plan, policy, host, message);
  FUZZ_CHECK(*record.exit_code == 125 || *record.exit_code == 126 || *record.exit_code == 127);
  FUZZ_CHECK(!record.setup->reason.empty());
  FUZZ_CHECK(failure_text(*record.setup).starts_with("belljar: "));
  FUZZ_CHECK(nlohmann::json::accept(record.json()), record.json());
  return 0;
}
