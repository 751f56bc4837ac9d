#include <cstdio>

#include "launcher/cli/options.hpp"
#include "launcher/failure.hpp"

namespace belljar::launcher {

int explain_command(const PolicyOptions& options) {
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
  std::fputs(explain(*plan, *policy).c_str(), stdout);
  return 0;
}

}  // namespace belljar::launcher
