#include "launcher/cli/test_command.hpp"

#include <cstdio>

#include "launcher/failure.hpp"
#include "launcher/policy_tests.hpp"
#include "launcher/selftest.hpp"

namespace belljar::launcher {
namespace {

constexpr const char* kExamples = R"(
Runs, each in a sandbox of the policy: what `tests` in it says; every probe whose refusal
its controls promise; and a command that goes beyond each limit that ends one: wall_time,
cpu_time, rlimits.cpu, output, disk, memory, processes, lowered to what can be waited for.

Examples:
  belljar test --policy agent.json
  belljar test --policy agent.json --json | jq '.results[] | select(.held | not)'

Exit status: 0 everything held; 1 something did not; 2 usage or policy; 3 it could not be
found out.)";

}  // namespace

void TestCommand::add_to(CLI::App& app) {
  app.description("Try what a policy says must hold, for CI");
  app.add_option("-p,--policy", options_.policy,
                 "A policy file, or builtin:NAME. Default: builtin:dev@1")
      ->type_name("FILE|builtin:NAME");
  app.add_option("--workspace", options_.workspace, "The writable directory. Default: the policy's")
      ->type_name("DIR");
  app.add_option("--set", options_.settings, "Set any value of the policy")
      ->type_name("PATH=VALUE")
      ->allow_extra_args(false);
  app.add_option("--var", options_.variables, "Give a variable that the policy declares its value")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  app.add_flag("--json", json_, "One JSON object instead of lines");
  app.footer(kExamples);
}

int TestCommand::run() const {
  const std::optional<policy::Policy> policy = options_.resolve();
  if (!policy) return 2;
  const auto cannot = [&policy](const Error& error) {
    std::fputs(failure_text(describe_refusal(error, *policy)).c_str(), stderr);
    return 3;
  };
  const Result<Host> caller = observe_caller();
  if (!caller) return cannot(caller.error());
  const Result<SessionIds> ids = session_ids(policy->identity, *caller);
  if (!ids) return cannot(ids.error());
  Result<TestGround> ground = TestGround::make(default_sessions_root(*caller), *ids, *caller);
  if (!ground) return cannot(ground.error());
  const TestReport report = run_policy_tests(*policy, *ids, *caller, *ground);
  for (const Degraded& item : report.degraded)
    std::fprintf(stderr, "belljar: note: degraded, as the policy allows: %s: %s\n",
                 item.control.c_str(), item.what.c_str());
  if (json_) {
    std::printf("%s\n", report.json().c_str());
  } else {
    for (const TestResult& result : report.results) std::printf("%s\n", result.text().c_str());
    std::printf("%zu held, %zu failed\n", report.results.size() - report.failed(), report.failed());
  }
  return report.failed() == 0 ? 0 : 1;
}

}  // namespace belljar::launcher
