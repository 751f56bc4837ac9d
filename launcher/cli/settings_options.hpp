// The daemon's flags, for the commands that test what they say.
#pragma once

#include <optional>

#include "policy/settings_options.hpp"

namespace belljar::launcher {

class SettingsOptions : public policy::SettingsOptions {
 public:
  /// The settings. Where nothing says whether the agent simulator is meant and its variables are
  /// set, it is, and stderr says so. Everything that is wrong is printed; nothing then.
  [[nodiscard]] std::optional<policy::Settings> load() const;
};

}  // namespace belljar::launcher
