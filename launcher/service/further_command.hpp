// Further commands in a sandbox that runs: the payload's half of the sandbox's plan, once more.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "launcher/host.hpp"
#include "launcher/plan.hpp"
#include "launcher/sys/terminal.hpp"

namespace belljar::launcher {

struct FurtherCommand {
  Command command;
  std::map<std::string, std::string> environment;  ///< Over what the policy sets.
  std::optional<sys::TerminalSize> terminal;       ///< Of its own, made in the sandbox.
};

/// Plans commands for one sandbox. Limits, filter and read-back are those of its own command; what
/// the policy says of streams is about that alone.
class FurtherCommands {
 public:
  /// The policy and the host that the sandbox was planned with. Both outlive this: a policy is the
  /// largest thing that a monitor has, so a copy lives only while a command is planned.
  FurtherCommands(const policy::Policy& policy, const Host& host) : policy_(policy), host_(host) {}
  FurtherCommands(const policy::Policy& policy, Host&& host) = delete;
  FurtherCommands(policy::Policy&& policy, const Host& host) = delete;

  /// Only steps of the payload, and the terminal's, which the command's keeper carries out.
  [[nodiscard]] Result<Plan> plan(const FurtherCommand& further) const;

  [[nodiscard]] const policy::Policy& policy() const { return policy_; }
  [[nodiscard]] const Host& host() const { return host_; }

 private:
  const policy::Policy& policy_;
  const Host& host_;
};

}  // namespace belljar::launcher
