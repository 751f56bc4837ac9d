// `belljar test`: whether a policy holds what it says, for CI.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "launcher/cli/options.hpp"

namespace belljar::launcher {

class TestCommand {
 public:
  void declare(CLI::App& app);
  [[nodiscard]] bool parsed() const { return app_ != nullptr && app_->parsed(); }

  /// 0: everything held; 1: something did not; 2: usage or policy; 3: it could not be found out.
  [[nodiscard]] int run() const;

 private:
  CLI::App* app_ = nullptr;
  PolicyOptions options_;
  bool json_ = false;
};

}  // namespace belljar::launcher
