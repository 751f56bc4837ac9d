// From text to Policy: layers of JSON are merged, checked against the table of fields, and decoded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "policy/base/result.hpp"
#include "policy/policy.hpp"

namespace belljar::policy {

/// One thing that is wrong, with its place. Printed as
/// `agent.json:14:9: filesystem.mounts["/work"].readony: unknown key; did you mean "readonly"?`
struct Diagnostic {
  Location where;
  std::string path;  ///< Empty for errors of the text itself.
  std::string message;

  [[nodiscard]] std::string text() const;
};

using Diagnostics = std::vector<Diagnostic>;

/// Names of the presets that a policy can be or extend, sorted.
[[nodiscard]] std::vector<std::string> preset_names();

/// The JSON text of a preset, or empty when there is none of that name ("agent@1").
[[nodiscard]] std::string_view preset_text(std::string_view name);

/// No sandbox: a preset for the daemon's start-up setting, out of reach of every policy, option and
/// request, since whoever could name it there would need no other way out.
inline constexpr std::string_view kOffPreset = "off@1";

/// A stack of policy texts, lowest first. What a text extends lies right below it. One rule merges
/// them: objects by key, scalars and arrays are replaced, null removes. Errors of all layers are
/// reported together.
class Layers {
 public:
  /// `reference` is "builtin:NAME" or a file name (".jsonc" may hold comments). Reading is bounded
  /// to 1 MiB. Every error is kept for `resolve`.
  void add(std::string_view reference);

  /// A policy from memory, `label` standing for the file name in messages.
  void add_text(std::string_view text, std::string_view label, bool comments_allowed = false);

  /// One value from the command line: `path` as in `limits.rlimits.nofile` or
  /// `filesystem.mounts["/work"].readonly`; `value` is JSON, or a string when it is no JSON.
  /// `label` is what messages name instead of a line ("--set limits.wall_time=5s").
  void add_setting(std::string_view path, std::string_view value, std::string_view label);

  /// The value of a variable that a policy declares under `vars`.
  void add_variable(std::string_view name, std::string_view value, std::string_view label);

  /// The effective policy, or everything that is wrong with it in the order of the layers.
  [[nodiscard]] tl::expected<Policy, Diagnostics> resolve() const;

 private:
  struct Layer {
    enum class Kind { kText, kFile, kPreset, kSetting, kVariable, kUnreadable };
    Kind kind = Kind::kText;
    std::string label;
    std::string text;          ///< kPreset: its name. kSetting: the value. kUnreadable: why.
    std::string setting_path;  ///< kSetting; kVariable: its name.
    bool comments_allowed = false;
  };
  std::vector<Layer> layers_;
};

}  // namespace belljar::policy
