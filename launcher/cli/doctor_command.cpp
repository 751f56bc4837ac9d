#include "launcher/cli/doctor_command.hpp"

#include <cstdio>

#include "launcher/cli/options.hpp"
#include "launcher/doctor.hpp"
#include "launcher/failure.hpp"

namespace belljar::launcher {
namespace {

constexpr const char* kExamples = R"(
Launches a sandbox of the policy, tries each step by itself, and looks at what usually
stands in the way. Each finding has an id (docs/doctor.md), what was seen, and the remedy.

Examples:
  belljar doctor
      For the daemon's policy, as a session's uid.
  belljar doctor --policy agent.json --json
  belljar doctor --fix-script > fix.sh
      The remedies as a script, to be read. It is not run.

Exit status: 0 nothing is missing; 1 something is; 2 usage, policy or settings; 3 it
could not be found out.)";

}  // namespace

void DoctorCommand::add_to(CLI::App& app) {
  app.description("Say what this host lacks for a policy, and the remedy");
  app.add_option("-p,--policy", policy_, "For this policy. Default: the daemon's")
      ->type_name("FILE|builtin:NAME");
  app.add_flag("--json", json_, "One JSON object instead of lines");
  app.add_flag("--fix-script", script_, "Print the remedies as a script; nothing runs it")
      ->excludes("--json");
  settings_.declare(app);
  app.footer(kExamples);
}

int DoctorCommand::run() const {
  const std::optional<policy::Settings> settings = settings_.load();
  if (!settings) return 2;
  auto policy = session_policy(policy_.empty() ? settings->policy : policy_, *settings);
  if (!policy) {
    print_diagnostics(policy.error());
    return 2;
  }
  const policy::Policy named = *policy;
  Result<SessionSetting> setting = session_setting(std::move(*policy), *settings, std::nullopt);
  if (!setting) {
    std::fputs(failure_text(describe_refusal(setting.error(), named)).c_str(), stderr);
    return 1;
  }
  const Diagnosis diagnosis = diagnose(*setting, *settings);
  const std::string out = script_ ? diagnosis.fix_script()
                          : json_ ? diagnosis.json() + "\n"
                                  : diagnosis.text();
  std::fputs(out.c_str(), stdout);
  if (!diagnosis.good()) return 1;
  return diagnosis.not_found_out.empty() ? 0 : 3;
}

}  // namespace belljar::launcher
