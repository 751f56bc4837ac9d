#include "launcher/policy_tests.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "launcher/attempts.hpp"
#include "launcher/excess.hpp"
#include "launcher/failure.hpp"
#include "launcher/proof.hpp"

namespace belljar::launcher {
namespace {

using namespace std::chrono_literals;
using policy::Expectation;

/// How a run ended, for a line of text.
std::string end_text(const Record& record) {
  if (record.setup) {
    std::string text = "setup: " + record.setup->reason;
    if (!record.setup->error.empty()) text += " (" + record.setup->error + ")";
    return text;
  }
  std::string text = cause_name(record.cause);
  if (record.signal) text += ", " + signal_name(*record.signal);
  if (record.exit_code) text += ", exit code " + std::to_string(*record.exit_code);
  return text;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

Trial failed_trial(const Error& error, const policy::Policy& policy) {
  Trial failed;
  failed.record.cause = Cause::kSetup;
  failed.record.setup = describe_refusal(error, policy);
  return failed;
}

class PolicyTrial {
 public:
  PolicyTrial(const policy::Policy& policy, const SessionIds& ids, const Host& caller,
              TestGround& ground)
      : policy_(policy), ids_(ids), caller_(caller), ground_(ground) {}

  TestReport run() {
    try_probes();
    for (const Excess& excess : excesses())
      if (excess.is_set(policy_.limits)) go_beyond(excess);
    for (std::size_t i = 0; i < policy_.tests.size(); ++i) run_own(i);
    return std::move(report_);
  }

 private:
  void add(std::string what, bool held, std::string got, std::string wanted,
           const std::string& path) {
    report_.results.push_back(
        {std::move(what), held, std::move(got), std::move(wanted), origin_text(policy_, path)});
  }

  /// A trial under `policy`, or a failed result.
  Trial launch(const policy::Policy& policy, TrialKind kind, std::vector<std::string> words,
               bool belljar = true) {
    const Result<TrialPolicy> trial = TrialPolicy::make(policy, ids_, caller_, ground_, kind);
    if (!trial) return failed_trial(trial.error(), policy);
    return belljar ? trial->launch_belljar(std::move(words)) : trial->launch(words);
  }

  void try_probes() {
    const Result<TrialPolicy> trial =
        TrialPolicy::make(policy_, ids_, caller_, ground_, TrialKind::kProbes);
    if (!trial) return add("launch", false, trial.error().what, "a sandbox", trial.error().where);
    const ControlsReport controls = try_controls(*trial);
    report_.degraded = controls.degraded;
    for (const ProbeAnswer& answer : controls.probes) {
      if (answer.promised.empty() || answer.verdict.empty()) continue;
      const std::string value = answer.is_fact ? " " + answer.value : std::string();
      const std::string seen = answer.seen.empty() ? std::string() : ": " + answer.seen;
      report_.results.push_back({"probe " + answer.name + value,
                                 !answer.broken() && !answer.unknown(), answer.verdict + seen,
                                 answer.is_fact ? kHolds : "denied", answer.promised});
    }
    for (const auto* items : {&controls.missing, &controls.unknown})
      for (const NotInForce& item : *items)
        if (!item.by_probe)
          report_.results.push_back({item.control, false, item.what, "in force", item.policy});
  }

  /// Waits until the limit ends a command that goes beyond it.
  void go_beyond(const Excess& excess) {
    policy::Policy shorter = policy_;
    if (excess.cause != Cause::kWallTime) shorter.limits.wall_time.reset();
    excess.shorten(shorter);
    if (shorter.limits.disk) *shorter.limits.disk += ground_.held();
    const std::string limit(excess.limit);
    const Trial trial = launch(shorter, excess.kind, {"probe", "--exceed", limit});
    const Record& record = trial.record;
    const bool does_without =
        excess.by_cgroup && std::any_of(record.degraded.begin(), record.degraded.end(),
                                        [](const auto& d) { return d.control == kCgroup.name; });
    if (does_without) return;
    add(limit, record.cause == excess.cause, end_text(record), cause_name(excess.cause), limit);
  }

  void run_own(std::size_t index) {
    const policy::PolicyTest& test = policy_.tests[index];
    const std::string path = "tests[" + std::to_string(index) + "]";
    if (test.attempt.empty())
      run_command(test, path + ".run");
    else
      run_attempt(test, path + ".try");
  }

  void run_attempt(const policy::PolicyTest& test, const std::string& path) {
    const bool must = test.expect.kind == Expectation::Kind::kAllowed;
    const std::string what = "try " + test.attempt, wanted = must ? "allowed" : "denied";
    if (const std::string fault = fault_of_attempt(test.attempt); !fault.empty())
      return add(what, false, fault, wanted, path);
    const Result<TrialPolicy> made =
        TrialPolicy::make(policy_, ids_, caller_, ground_, TrialKind::kProbes);
    const Trial trial = made ? made->launch_belljar({"probe", "--try", test.attempt})
                             : failed_trial(made.error(), policy_);
    std::string verdict = trial.output.substr(0, trial.output.find('\n'));
    if (trial.record.cause == Cause::kSyscall) verdict = "SIGSYS";
    const bool answered = !verdict.empty() && trial.record.cause != Cause::kSetup &&
                          verdict != kUnanswered && verdict != "EINVAL";
    const bool allowed = verdict == kGranted;
    std::string got = answered || verdict == kUnanswered ? verdict : end_text(trial.record);
    bool held = answered && allowed == must;
    if (held && !must) {
      const std::string why = why_no_proof(test.attempt, verdict, *made);
      held = why.empty();
      if (!held) got += ", which proves nothing: " + why;
    }
    add(what, held, std::move(got), wanted, path);
  }

  void run_command(const policy::PolicyTest& test, const std::string& path) {
    const Trial trial = launch(policy_, TrialKind::kWhole, test.run, /*belljar=*/false);
    const Expectation& expect = test.expect;
    bool held = trial.record.cause != Cause::kSetup || expect.cause == "setup";
    std::string wanted;
    if (expect.exit_code) {
      held &= trial.record.exit_code == static_cast<int>(*expect.exit_code);
      wanted = "exit code " + std::to_string(*expect.exit_code);
    }
    if (expect.cause) {
      held &= *expect.cause == cause_name(trial.record.cause);
      wanted += (wanted.empty() ? "" : ", ") + *expect.cause;
    }
    std::string got = end_text(trial.record);
    const std::string& said = trial.output;
    if (!held && !said.empty())
      got += ": " + said.substr(0, std::min<std::size_t>(200, said.find('\n')));
    add("run " + joined(test.run), held, std::move(got), std::move(wanted), path);
  }

  const policy::Policy& policy_;
  const SessionIds ids_;
  const Host& caller_;
  TestGround& ground_;
  TestReport report_;
};

}  // namespace

std::string TestResult::text() const {
  std::string line =
      held ? "ok      " + what + ": " + got : "FAILED  " + what + ": " + got + ", not " + wanted;
  if (!policy.empty()) line += "  (" + policy + ")";
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

std::size_t TestReport::failed() const {
  return static_cast<std::size_t>(
      std::count_if(results.begin(), results.end(), [](const TestResult& r) { return !r.held; }));
}

std::string TestReport::json() const {
  using Json = nlohmann::ordered_json;
  Json out{{"ok", failed() == 0}, {"results", Json::array()}, {"degraded", Json::array()}};
  for (const TestResult& result : results)
    out["results"].push_back({{"test", result.what},
                              {"held", result.held},
                              {"got", result.got},
                              {"wanted", result.wanted},
                              {"policy", result.policy}});
  for (const Degraded& item : degraded)
    out["degraded"].push_back({{"control", item.control}, {"what", item.what}});
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

TestReport run_policy_tests(const policy::Policy& policy, const SessionIds& ids, const Host& caller,
                            TestGround& ground) {
  return PolicyTrial(policy, ids, caller, ground).run();
}

}  // namespace belljar::launcher
