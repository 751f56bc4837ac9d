// The daemon's flags, for the commands that test what they say.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "policy/settings.hpp"

namespace belljar::launcher {

/// Options made from the one table of settings.
class SettingsOptions {
 public:
  void declare(CLI::App& app);

  /// The settings. Where nothing says whether the agent simulator is meant and its variables are
  /// set, it is, and stderr says so. Everything that is wrong is printed; nothing then.
  [[nodiscard]] std::optional<policy::Settings> load() const;

 private:
  std::string config_;
  std::map<std::string, std::vector<std::string>> values_;
  std::map<std::string, bool> switches_;
};

}  // namespace belljar::launcher
