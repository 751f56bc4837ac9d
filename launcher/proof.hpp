// Whether a refusal that a policy's own test met says anything about the policy.
#pragma once

#include <string>

#include "launcher/trial.hpp"

namespace belljar::launcher {

/// What makes "connect ADDRESS:PORT" or "read /PATH" an attempt that cannot be made; empty:
/// nothing.
[[nodiscard]] std::string fault_of_attempt(const std::string& attempt);

/// Why `verdict` on `attempt` ("ENOENT") is no proof that the sandbox denies it: what is nowhere,
/// cannot be executed by anybody, or cannot be reached from the host either, would have failed
/// without it. Empty: it is the sandbox that denies it.
[[nodiscard]] std::string why_no_proof(const std::string& attempt, const std::string& verdict,
                                       const TrialPolicy& trial);

}  // namespace belljar::launcher
