// `belljar --selftest`, for the admin after a deploy.
#pragma once

#include <string>

#include "launcher/cli/settings_options.hpp"
#include "launcher/cli/subcommand.hpp"
#include "launcher/network_selftest.hpp"
#include "launcher/selftest.hpp"

namespace belljar::launcher {

class SelftestCommand final : public Subcommand {
 public:
  [[nodiscard]] const char* name() const override { return "selftest"; }

  /// 0: everything is in force; 1: something is not; 2: usage, policy or settings; 3: it could not
  /// be found out.
  [[nodiscard]] int run() const override;

 private:
  void add_to(CLI::App& app) override;
  /// As whom and where; what is wrong already.
  [[nodiscard]] tl::expected<SessionSetting, NotInForce> setting_of(
      policy::Policy policy, const policy::Settings& settings,
      std::optional<std::uint32_t> uid) const;
  [[nodiscard]] SelftestReport test(policy::Policy policy, const policy::Settings& settings,
                                    std::optional<std::uint32_t> uid) const;
  [[nodiscard]] int print(const SelftestReport& report) const;
  [[nodiscard]] NetworkReport test_its_network(policy::Policy policy,
                                               const policy::Settings& settings,
                                               std::optional<std::uint32_t> uid) const;
  [[nodiscard]] int print(const NetworkReport& report) const;

  SettingsOptions settings_;
  std::string policy_;
  std::string uid_;
  bool network_ = false;
  bool json_ = false;
  bool verbose_ = false;
};

}  // namespace belljar::launcher
