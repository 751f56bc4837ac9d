// What belljar's own commands do with the daemon's settings; belljard has its own way to begin.
#include "launcher/cli/settings_options.hpp"

#include <cstdio>

#include "launcher/cli/options.hpp"

namespace belljar::launcher {

std::optional<policy::Settings> SettingsOptions::load() const {
  policy::SettingSources sources = this->sources();
  auto settings = policy::load_settings(sources);
  if (settings && settings->origin("simulator") == "the default" &&
      policy::mentions_simulator(sources.environment)) {
    std::fputs("belljar: note: AGENT_SIMULATOR_* is set, so its settings are tested\n", stderr);
    sources.flags.emplace_back("--simulator", "true");
    settings = policy::load_settings(sources);
  }
  if (settings) {
    for (const std::string& warning : settings->warnings)
      std::fprintf(stderr, "belljar: %s\n", warning.c_str());
    return std::move(*settings);
  }
  print_diagnostics(settings.error());
  return std::nullopt;
}

}  // namespace belljar::launcher
