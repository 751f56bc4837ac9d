// `belljar doctor`: what this host lacks for a policy, found by doing, and the remedies.
#pragma once

#include <string>
#include <vector>

#include "launcher/findings.hpp"
#include "launcher/selftest.hpp"

namespace belljar::launcher {

struct Diagnosis {
  std::vector<HostFinding> findings;
  std::string back_end;  ///< Which, and why.
  std::string policy_name;
  std::vector<std::string> not_found_out;  ///< "control: why", of what the launch could not tell.

  /// Whether sandboxes of the policy can be had.
  [[nodiscard]] bool good() const;
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::string json() const;
  /// The remedies as a script that a person reads first. Nothing runs it.
  [[nodiscard]] std::string fix_script() const;
};

/// Looks, tries step by step, and launches. What stops the launch and no finding explains is one of
/// its own, "launch".
[[nodiscard]] Diagnosis diagnose(const SessionSetting& setting, const policy::Settings& settings);

/// The same for a launch that has been tried already.
[[nodiscard]] Diagnosis diagnose(const SessionSetting& setting, const policy::Settings& settings,
                                 const SelftestReport& report);

/// The self-test's lines with the remedies that looking at the host gives; what else it lacks comes
/// behind them.
void explain_with_host(SelftestReport& report, const Diagnosis& diagnosis);

}  // namespace belljar::launcher
