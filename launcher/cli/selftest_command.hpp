// `belljar --selftest`, for the admin after a deploy.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "launcher/cli/settings_options.hpp"
#include "launcher/selftest.hpp"

namespace belljar::launcher {

class SelftestCommand {
 public:
  /// `asked`: with its options, which are many.
  void declare(CLI::App& app, bool asked);
  [[nodiscard]] bool parsed() const { return app_ != nullptr && app_->parsed(); }

  /// 0: everything is in force; 1: something is not; 2: usage, policy or settings; 3: it could not
  /// be found out.
  [[nodiscard]] int run() const;

 private:
  [[nodiscard]] SelftestReport test(policy::Policy policy, const policy::Settings& settings,
                                    std::optional<std::uint32_t> uid) const;
  [[nodiscard]] int print(const SelftestReport& report) const;

  CLI::App* app_ = nullptr;
  SettingsOptions settings_;
  std::string policy_;
  std::string uid_;
  bool json_ = false;
  bool verbose_ = false;
};

}  // namespace belljar::launcher
