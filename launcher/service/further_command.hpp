// Further commands in a sandbox that runs: the payload's half of the sandbox's plan, once more.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "launcher/host.hpp"
#include "launcher/plan.hpp"
#include "launcher/record.hpp"
#include "launcher/sys/terminal.hpp"

namespace belljar::launcher {

/// Where `origins` say that a variable comes from which the session's request has named, as
/// policy_of_launch puts it: each command may have another value for it.
inline constexpr const char* kOfTheRequest = "the request's environment";

struct FurtherCommand {
  Command command;
  std::map<std::string, std::string> environment;  ///< Nothing that the policy sets.
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
  /// kRefused where it would change a variable that the policy itself sets.
  [[nodiscard]] Result<Plan> plan(const FurtherCommand& further) const;

  /// What the policy itself sets, whatever a command asks for.
  [[nodiscard]] std::map<std::string, std::string> fixed_variables() const;

  [[nodiscard]] const policy::Policy& policy() const { return policy_; }
  [[nodiscard]] const Host& host() const { return host_; }

 private:
  const policy::Policy& policy_;
  const Host& host_;
};

/// Of a command that was not planned, for its answer: as `describe_refusal`, and with the control
/// where the request asks for what the policy does not allow.
[[nodiscard]] SetupFailure further_refusal(const Error& error, const policy::Policy& policy);

}  // namespace belljar::launcher
