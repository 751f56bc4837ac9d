// `belljar convert`: between bwrap's arguments and policies.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/subcommand.hpp"

namespace belljar::launcher {

class ConvertCommand final : public Subcommand {
 public:
  [[nodiscard]] const char* name() const override { return "convert"; }
  [[nodiscard]] int run() const override;

 private:
  void add_to(CLI::App& app) override;

  std::string from_;
  std::string to_;
  std::vector<std::string> what_;
};

}  // namespace belljar::launcher
