// `belljar launch-service`: belljard's own, in no help.
#pragma once

#include "launcher/cli/settings_options.hpp"
#include "launcher/cli/subcommand.hpp"

namespace belljar::launcher {

class ServiceCommand final : public Subcommand {
 public:
  [[nodiscard]] const char* name() const override { return "launch-service"; }
  [[nodiscard]] int run() const override;

 private:
  void add_to(CLI::App& app) override;

  int socket_ = -1;
  SettingsOptions settings_;
};

}  // namespace belljar::launcher
