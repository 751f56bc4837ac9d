// `belljar policy init|check|show|diff|schema`.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/subcommand.hpp"

namespace belljar::launcher {

/// The subcommands that speak about policies and run nothing.
class PolicyCommand final : public Subcommand {
 public:
  [[nodiscard]] const char* name() const override { return "policy"; }

  /// Exit status: 0 yes, 1 no, 2 usage or a policy that cannot be judged.
  [[nodiscard]] int run() const override;

 private:
  void add_to(CLI::App& app) override;
  [[nodiscard]] int init() const;
  [[nodiscard]] int check() const;
  [[nodiscard]] int show() const;
  [[nodiscard]] int diff() const;

  CLI::App* init_ = nullptr;
  CLI::App* check_ = nullptr;
  CLI::App* show_ = nullptr;
  CLI::App* diff_ = nullptr;
  CLI::App* schema_ = nullptr;
  std::vector<std::string> files_;
  std::vector<std::string> settings_;
  std::vector<std::string> variables_;
  std::string ceiling_;
  bool origin_ = false;
  bool json_ = false;
};

}  // namespace belljar::launcher
