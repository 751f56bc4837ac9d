// Turning what the child reported into something that a person can act on.
#pragma once

#include <string>

#include "launcher/child/image.hpp"
#include "launcher/plan.hpp"
#include "launcher/record.hpp"

namespace belljar::launcher {

/// A step of belljar's own that failed, by its index.
struct StepFailure {
  int step = -1;
  Error error;
};

/// Whether a message is one that the child of this plan sends: its numbers are indices here, and a
/// process to be killed. The child is ours, and no payload has its socket; were one to get there,
/// it would gain no more than an end.
[[nodiscard]] bool makes_sense(const Message& message, const Plan& plan);

/// The step, its operands, the errno, the policy line and the remedy of a failed launch.
[[nodiscard]] SetupFailure describe_failure(const Plan& plan, const policy::Policy& policy,
                                            const Host& host, const Message& message);

/// A refusal that came before there was a plan.
[[nodiscard]] SetupFailure describe_refusal(const Error& error, const policy::Policy& policy);

/// The record of a launch that was refused so.
[[nodiscard]] Record refused_record(const policy::Policy& policy, const Error& error);

/// "agent.json:14:9 filesystem.mounts["/data"]"; an option alone says it all; a default says so.
[[nodiscard]] std::string origin_text(const policy::Policy& policy, const std::string& because);

/// The policy path that keeps `path` of the host out of the sandbox.
[[nodiscard]] std::string hidden_by(const Plan& plan, const policy::Policy& policy,
                                    const Host& host, const std::string& path);

/// 127 when the command was not found, 126 when it cannot be executed, 125 for any other step.
[[nodiscard]] int exit_code_of(const Plan& plan, const Message& message);

/// The failure as `belljar run` prints it, several lines, each beginning with "belljar: ".
[[nodiscard]] std::string failure_text(const SetupFailure& failure);

}  // namespace belljar::launcher
