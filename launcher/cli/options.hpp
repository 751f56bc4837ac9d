// What `run` and `explain` share: the policy that a command line describes.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "launcher/plan.hpp"
#include "policy/load.hpp"

namespace belljar::launcher {

/// The options that say under which policy a command runs.
struct PolicyOptions {
  std::string policy;
  std::vector<std::string> volumes;
  std::vector<std::string> environment;
  std::string directory;
  std::string workspace;
  std::string network;
  std::string timeout;
  std::vector<std::string> settings;
  std::vector<std::string> variables;
  std::vector<std::string> command;

  /// Adds them to a subcommand.
  void declare(CLI::App& app);

  /// The effective policy. Everything that is wrong with it is printed on stderr; nothing then.
  [[nodiscard]] std::optional<policy::Policy> resolve() const;
};

/// On stderr, a line each.
void print_diagnostics(const policy::Diagnostics& diagnostics);

/// 125: Belljar refused or failed, as opposed to the command.
inline constexpr int kBelljarFailed = 125;

/// What a run tells, and where.
struct ReportOptions {
  std::string record;
  int status_fd = -1;
  bool explain_denials = false;
};
int run_command(const PolicyOptions& options, const ReportOptions& report);
/// What `explain` is asked for beside the plan.
struct ExplainOptions {
  std::vector<std::string> questions;  ///< See launcher/can.hpp.
  bool exposure = false;               ///< See launcher/exposure.hpp.
  bool json = false;                   ///< Of the exposure.
};
int explain_command(const PolicyOptions& options, const ExplainOptions& asked);

/// What `belljar probe` does inside a sandbox.
struct ProbeOptions {
  std::vector<std::string> names;
  std::string attempt;             ///< Of launcher/attempts.hpp.
  std::vector<std::string> reach;  ///< Of launcher/network/reach.hpp, and the name servers.
  std::string exceed;              ///< The limit, of launcher/excess.hpp.
};
int probe_command(const ProbeOptions& options);

}  // namespace belljar::launcher
