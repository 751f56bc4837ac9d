#include "launcher/cli/selftest_command.hpp"

#include <cstdio>

#include "launcher/cli/options.hpp"
#include "launcher/controls/control.hpp"
#include "launcher/doctor.hpp"
#include "launcher/failure.hpp"
#include "policy/units.hpp"

namespace belljar::launcher {
namespace {

constexpr const char* kExamples = R"(
Launches a sandbox as a session of the daemon's would be, with the daemon's policy, as
the uid that is kept for this, in the real place for workspaces, and tries inside what
every control must refuse. Nothing is left behind, and nobody else is touched.

Standard output is `sandbox OK`, or a line for each control that is not in force, with
what to change. Everything else is on standard error.

Examples:
  belljar --selftest
  belljar --selftest --uid 20000
      As this uid; a session that has it is left alone.
  belljar --selftest --policy builtin:strict@1 -v
      Another policy, and every probe with its answer.
  belljar --selftest --network --session-network private
      Whether a session's network is its own: `private network`, or `SHARED network`
      and why, within three seconds.

Exit status: 0 everything is in force; 1 something is not; 2 usage, policy or settings;
3 it could not be found out.)";

void print_probes(const ControlsReport& controls) {
  for (const ProbeAnswer& answer : controls.probes) {
    const char* verdict = answer.verdict.empty() ? "not tried" : answer.verdict.c_str();
    const std::string why = answer.promised.empty() ? "the policy leaves it open" : answer.promised;
    const std::string name = answer.name + (answer.value.empty() ? "" : " " + answer.value);
    const std::string seen = answer.seen.empty() ? "" : " (" + answer.seen + ")";
    std::fprintf(stderr, "belljar: %-14s %-20s %-12s %s%s\n", answer.control.c_str(), name.c_str(),
                 verdict, why.c_str(), seen.c_str());
  }
}

}  // namespace

void SelftestCommand::add_to(CLI::App& app) {
  app.description("Try whether the sandbox holds on this host");
  app.add_option("-p,--policy", policy_, "Test this policy instead of the daemon's")
      ->type_name("FILE|builtin:NAME");
  app.add_option("--uid", uid_, "Test as this uid. Default: the one kept for self-tests")
      ->type_name("N");
  app.add_flag("--network", network_, "Test a session's private network, and nothing else");
  app.add_flag("--json", json_, "One JSON object instead of lines");
  app.add_flag("-v,--verbose", verbose_, "Say on standard error what was tried");
  settings_.declare(app);
  app.footer(kExamples);
}

int SelftestCommand::print(const SelftestReport& report) const {
  for (const ProbeAnswer& answer : report.controls.probes)
    if (answer.verdict == kDiffers && !answer.broken())
      std::fprintf(stderr, "belljar: note: %s\n", answer.text().c_str());
  for (const Degraded& item : report.controls.degraded)
    std::fprintf(stderr, "belljar: note: degraded, as the policy allows: %s: %s\n",
                 item.control.c_str(), item.what.c_str());
  if (json_)
    std::printf("%s\n", report.json().c_str());
  else if (report.ok())
    std::puts("sandbox OK");
  for (const auto* lines : {&report.controls.missing, &report.controls.unknown})
    for (const NotInForce& item : *lines)
      if (!json_) std::printf("%s\n", item.text().c_str());
  if (report.ok()) return 0;
  return report.controls.missing.empty() ? 3 : 1;
}

tl::expected<SessionSetting, NotInForce> SelftestCommand::setting_of(
    policy::Policy policy, const policy::Settings& settings,
    std::optional<std::uint32_t> uid) const {
  if (policy_.empty() && settings.sandbox == "off")
    return tl::unexpected<NotInForce>(
        {"sandbox",
         "off by " + settings.origin("sandbox") + ", so sessions run UNSANDBOXED",
         {},
         "remove it"});
  if (uid) policy.origins["identity.uid"] = {"--uid " + uid_, 0, 0};
  const policy::Policy named = policy;
  Result<SessionSetting> setting = session_setting(std::move(policy), settings, uid);
  if (!setting) {
    SetupFailure failure = describe_refusal(setting.error(), named);
    failure.control = "identity";
    return tl::unexpected(not_in_force(failure));
  }
  for (const std::string& note : setting->notes)
    std::fprintf(stderr, "belljar: note: %s\n", note.c_str());
  if (verbose_)
    std::fprintf(stderr, "belljar: policy %s, uid %u, workspaces in %s\n", named.name.c_str(),
                 setting->ids.uid, setting->workspace_root.c_str());
  return std::move(*setting);
}

SelftestReport SelftestCommand::test(policy::Policy policy, const policy::Settings& settings,
                                     std::optional<std::uint32_t> uid) const {
  SelftestReport report;
  report.policy_name = policy.name;
  report.policy_digest = policy.digest;
  const auto setting = setting_of(std::move(policy), settings, uid);
  if (!setting) {
    report.controls.missing.push_back(setting.error());
    return report;
  }
  report = selftest(*setting);
  // Looking at the host costs time that only a failure is worth.
  if (!report.controls.missing.empty())
    explain_with_host(report, diagnose(*setting, settings, report));
  if (verbose_) print_probes(report.controls);
  return report;
}

NetworkReport SelftestCommand::test_its_network(policy::Policy policy,
                                                const policy::Settings& settings,
                                                std::optional<std::uint32_t> uid) const {
  const std::string asked_for = origin_text(policy, "network.mode");
  const bool shared = policy.network.mode == policy::NetworkMode::kShared;
  const auto setting = setting_of(std::move(policy), settings, uid);
  if (!setting) return {{setting.error()}};
  if (!shared) return test_network(*setting);
  return {{{std::string(kNetwork.name), "sessions have the host's network", asked_for,
            "set BELLJAR_NETWORK or --session-network to private"}}};
}

int SelftestCommand::print(const NetworkReport& report) const {
  if (json_)
    std::printf("%s\n", report.json().c_str());
  else if (report.is_private())
    std::puts("private network");
  else
    std::printf("SHARED network: %s\n", report.text().c_str());
  return report.is_private() ? 0 : 1;
}

int SelftestCommand::run() const {
  std::optional<std::uint32_t> uid;
  if (!uid_.empty()) {
    const auto number = policy::parse_decimal(uid_);
    if (!number || *number > 4294967294) {
      std::fprintf(stderr, "belljar: --uid %s: expected a number\n", uid_.c_str());
      return 2;
    }
    uid = static_cast<std::uint32_t>(*number);
  }
  const std::optional<policy::Settings> settings = settings_.load();
  if (!settings) return 2;
  auto policy = session_policy(policy_.empty() ? settings->policy : policy_, *settings);
  if (!policy) {
    print_diagnostics(policy.error());
    return 2;
  }
  if (!network_) return print(test(std::move(*policy), *settings, uid));
  const auto& mode = policy->network.mode;
  if (mode == policy::NetworkMode::kPrivate || mode == policy::NetworkMode::kShared)
    return print(test_its_network(std::move(*policy), *settings, uid));
  std::fprintf(stderr,
               "belljar: --network: there is nothing to test: the network is neither private nor "
               "shared (%s)\n",
               origin_text(*policy, "network.mode").c_str());
  return 2;
}

}  // namespace belljar::launcher
