// The daemon's flags, for every program that has them.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "policy/settings.hpp"

namespace belljar::policy {

/// Options made from the one table of settings. Not in the room's library: only the mains of
/// programs have a command line.
class SettingsOptions {
 public:
  void declare(CLI::App& app);

  /// What was given, and the environment of this process.
  [[nodiscard]] SettingSources sources() const;

 private:
  std::string config_;
  std::map<std::string, std::vector<std::string>> values_;
  std::map<std::string, bool> switches_;
};

/// The settings as the table of docs/configuration.md.
[[nodiscard]] std::string settings_table();

}  // namespace belljar::policy
