// `belljar policy init|check|show|diff|schema`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace belljar::launcher {

/// The subcommands that speak about policies and run nothing.
class PolicyCommand {
 public:
  void declare(CLI::App& app);
  [[nodiscard]] bool parsed() const { return app_ != nullptr && app_->parsed(); }

  /// Exit status: 0 yes, 1 no, 2 usage or a policy that cannot be judged.
  [[nodiscard]] int run() const;

 private:
  [[nodiscard]] int init() const;
  [[nodiscard]] int check() const;
  [[nodiscard]] int show() const;
  [[nodiscard]] int diff() const;

  CLI::App* app_ = nullptr;
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
