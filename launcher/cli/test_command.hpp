// `belljar test`: whether a policy holds what it says, for CI.
#pragma once

#include <string>

#include "launcher/cli/options.hpp"
#include "launcher/cli/subcommand.hpp"

namespace belljar::launcher {

class TestCommand final : public Subcommand {
 public:
  [[nodiscard]] const char* name() const override { return "test"; }

  /// 0: everything held; 1: something did not; 2: usage or policy; 3: it could not be found out.
  [[nodiscard]] int run() const override;

 private:
  void add_to(CLI::App& app) override;
  PolicyOptions options_;
  bool json_ = false;
};

}  // namespace belljar::launcher
