// `belljar test`: what a policy says must hold, and what its controls imply.
#pragma once

#include <string>
#include <vector>

#include "launcher/trial.hpp"

namespace belljar::launcher {

struct TestResult {
  std::string what;  ///< "try write /usr/x", "probe keyctl", "limits.wall_time"
  bool held = false;
  std::string got;     ///< "EROFS", "exited, exit code 1"
  std::string wanted;  ///< "denied"
  std::string policy;  ///< The line.

  [[nodiscard]] std::string text() const;
};

struct TestReport {
  std::vector<TestResult> results;
  std::vector<Degraded> degraded;

  [[nodiscard]] std::size_t failed() const;
  [[nodiscard]] std::string json() const;
};

/// Every probe that the policy's controls promise, each limit that ends a command by going beyond
/// it (lowered to what can be waited for), and its own tests, each in a sandbox.
[[nodiscard]] TestReport run_policy_tests(const policy::Policy& policy, const SessionIds& ids,
                                          const Host& caller, TestGround& ground);

}  // namespace belljar::launcher
