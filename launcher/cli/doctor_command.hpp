// `belljar doctor`: what the host lacks, and how to mend it.
#pragma once

#include <string>

#include "launcher/cli/settings_options.hpp"
#include "launcher/cli/subcommand.hpp"

namespace belljar::launcher {

class DoctorCommand final : public Subcommand {
 public:
  [[nodiscard]] const char* name() const override { return "doctor"; }

  /// 0: nothing is missing; 1: something is; 2: usage, policy or settings; 3: it could not be found
  /// out.
  [[nodiscard]] int run() const override;

 private:
  void add_to(CLI::App& app) override;
  SettingsOptions settings_;
  std::string policy_;
  bool json_ = false;
  bool script_ = false;
};

}  // namespace belljar::launcher
