// `belljar doctor`: what the host lacks, and how to mend it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "launcher/cli/settings_options.hpp"

namespace belljar::launcher {

class DoctorCommand {
 public:
  /// `asked`: with its options, which are many.
  void declare(CLI::App& app, bool asked);
  [[nodiscard]] bool parsed() const { return app_ != nullptr && app_->parsed(); }

  /// 0: nothing is missing; 1: something is; 2: usage, policy or settings; 3: it could not be found
  /// out.
  [[nodiscard]] int run() const;

 private:
  CLI::App* app_ = nullptr;
  SettingsOptions settings_;
  std::string policy_;
  bool json_ = false;
  bool script_ = false;
};

}  // namespace belljar::launcher
