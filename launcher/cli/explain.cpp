#include <algorithm>
#include <cstdio>

#include "launcher/can.hpp"
#include "launcher/cli/options.hpp"
#include "launcher/exposure.hpp"
#include "launcher/failure.hpp"

namespace belljar::launcher {

namespace {

/// 0: yes to all; 1: no to one; 2: one is no question; 3: one that only a run can answer.
int answer(const std::vector<std::string>& questions, const Plan& plan,
           const policy::Policy& policy, const Host& host) {
  int status = 0;
  for (const std::string& question : questions) {
    const Result<Answer> found = can(question, plan, policy, host);
    if (found) {
      std::printf("%s: %s: %s\n", question.c_str(), found->yes ? "yes" : "no",
                  found->because.c_str());
      status = std::max(status, found->yes ? 0 : 1);
      continue;
    }
    std::fprintf(stderr, "belljar: --can %s: %s\n", question.c_str(), found.error().what.c_str());
    status = std::max(status, found.error().kind == ErrorKind::kInvalid ? 2 : 3);
  }
  return status;
}

/// 0: all was looked at; 3: not all of it.
int expose(const Plan& plan, const policy::Policy& policy, const Host& host, bool json) {
  const Result<Exposure> found = find_exposure(plan, policy, host);
  if (!found) {
    std::fprintf(stderr, "belljar: --exposure: %s\n", found.error().what.c_str());
    return 3;
  }
  const std::string text =
      json ? exposure_json(*found, plan, policy) + "\n" : exposure_text(*found, plan, policy);
  std::fputs(text.c_str(), stdout);
  return found->not_looked_at.empty() ? 0 : 3;
}

}  // namespace

int explain_command(const PolicyOptions& options, const ExplainOptions& asked) {
  const std::optional<policy::Policy> policy = options.resolve();
  if (!policy) return 2;
  Result<Host> host = observe_host(*policy);
  // Without a command the plan is that of a shell: what leads up to it is the same.
  Command command{options.command, options.directory};
  if (command.argv.empty()) command.argv = {"/bin/sh"};
  Result<Plan> plan = host ? build_plan(*policy, *host, command) : fail(host.error());
  if (!plan) {
    std::fputs(failure_text(describe_refusal(plan.error(), *policy)).c_str(), stderr);
    return 1;
  }
  if (!asked.questions.empty()) return answer(asked.questions, *plan, *policy, *host);
  if (asked.exposure) return expose(*plan, *policy, *host, asked.json);
  std::fputs(explain(*plan, *policy).c_str(), stdout);
  return 0;
}

}  // namespace belljar::launcher
