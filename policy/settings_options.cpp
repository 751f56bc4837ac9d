#include "policy/settings_options.hpp"

#include <unistd.h>

#include <cstring>

namespace belljar::policy {
namespace {

constexpr const char* kGroup = "Settings of the daemon (flag, then variable, then file)";

const char* type_name(SettingRow::Form form) {
  using Form = SettingRow::Form;
  switch (form) {
    case Form::kPath:
      return "PATH";
    case Form::kAddress:
      return "ADDRESS";
    case Form::kCount:
      return "N";
    case Form::kSize:
      return "SIZE";
    case Form::kDuration:
      return "DURATION";
    case Form::kSandbox:
      return "auto|off";
    case Form::kNetwork:
      return "auto|private|none|shared";
    case Form::kLog:
      return "text|json";
    case Form::kText:
    case Form::kSwitch:
      break;
  }
  return "NAME";
}

/// A default, as a person would write it; what has none is empty.
struct DefaultText {
  const Settings& settings;

  std::string operator()(std::string Settings::*member) const { return settings.*member; }
  std::string operator()(std::vector<std::string> Settings::*member) const {
    std::string text;
    for (const std::string& one : settings.*member) text += (text.empty() ? "" : ", ") + one;
    return text;
  }
  std::string operator()(bool Settings::*member) const {
    return settings.*member ? "true" : "false";
  }
  std::string operator()(std::uint64_t Settings::*member) const {
    return std::to_string(settings.*member);
  }
  template <class Value>
  std::string operator()(std::optional<Value> Settings::*) const {
    return {};
  }
};

std::string code(std::string_view text) {
  return text.empty() ? std::string() : '`' + std::string(text) + '`';
}

}  // namespace

std::string settings_table() {
  const Settings defaults;
  std::string table =
      "| in the file | flag | variable | the simulator's | default | "
      "|\n|---|---|---|---|---|---|\n";
  for (const SettingRow& row : setting_rows())
    table += "| " + code(row.name) + " | " + code(row.flag) + " | " + code(row.variable) + " | " +
             code(row.simulator) + " | " + code(std::visit(DefaultText{defaults}, row.member)) +
             " | " + std::string(row.description) + " |\n";
  return table;
}

void SettingsOptions::declare(CLI::App& app) {
  app.add_option("--config", config_, std::string("The file. Default: ") + kSettingsFile)
      ->type_name("FILE")
      ->group(kGroup);
  for (const SettingRow& row : setting_rows()) {
    if (row.flag.empty()) continue;
    const std::string flag(row.flag), description(row.description);
    if (row.form == SettingRow::Form::kSwitch)
      app.add_flag(flag, switches_[flag], description)->group(kGroup);
    else
      app.add_option(flag, values_[flag], description)
          ->type_name(type_name(row.form))
          ->allow_extra_args(false)
          ->group(kGroup);
  }
}

SettingSources SettingsOptions::sources() const {
  SettingSources sources;
  sources.config = config_;
  for (const auto& [flag, on] : switches_)
    if (on) sources.flags.emplace_back(flag, "true");
  for (const auto& [flag, values] : values_)
    for (const std::string& value : values) sources.flags.emplace_back(flag, value);
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    if (const char* equals = std::strchr(*entry, '='))
      sources.environment.try_emplace(std::string(static_cast<const char*>(*entry), equals),
                                      equals + 1);
  return sources;
}

}  // namespace belljar::policy
