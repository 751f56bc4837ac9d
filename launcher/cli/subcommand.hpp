// One subcommand of the program.
#pragma once

#include <CLI/CLI.hpp>

namespace belljar::launcher {

/// Only the command that was typed declares itself: CLI11 takes more time for the options of all of
/// them than a launch takes to plan.
class Subcommand {
 public:
  virtual ~Subcommand() = default;

  [[nodiscard]] virtual const char* name() const = 0;

  /// Adds the subcommand with its options.
  void declare(CLI::App& program) { add_to(*(app_ = program.add_subcommand(name()))); }
  [[nodiscard]] bool parsed() const { return app_ != nullptr && app_->parsed(); }

  /// Does it, after parsing; returns the exit status.
  [[nodiscard]] virtual int run() const = 0;

 protected:
  Subcommand() = default;
  Subcommand(const Subcommand&) = default;
  Subcommand& operator=(const Subcommand&) = default;

 private:
  virtual void add_to(CLI::App& app) = 0;

  CLI::App* app_ = nullptr;
};

}  // namespace belljar::launcher
