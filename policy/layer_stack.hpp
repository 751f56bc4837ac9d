// The stack of layers of one load: read, checked one by one, merged, decoded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "policy/json_tree.hpp"
#include "policy/load.hpp"
#include "policy/reader.hpp"

namespace belljar::policy {

/// The text of a preset by its name; empty when there is none.
using PresetLookup = std::string_view (*)(std::string_view name);

/// Takes layers lowest first, and pushes what a text extends below it. A layer that cannot be read
/// leaves the effective policy unknown: then the others are still checked, one by one.
class LayerStack {
 public:
  explicit LayerStack(PresetLookup presets) : presets_(presets) {}

  void push_text(std::string_view text, std::string_view label, Comments comments);
  void push_preset(std::string_view name);
  void push_setting(std::string_view path, std::string_view value, std::string_view label);

  /// A layer that could not be read at all.
  void push_failure(std::string_view label, std::string_view message);

  [[nodiscard]] tl::expected<Policy, Diagnostics> resolve() &&;

 private:
  enum class Origin { kPreset, kOther };

  int add_source(std::string_view label);
  void report(const Place& place, std::string_view path, std::string message);
  void push_tree(Node tree, Origin origin);
  void read_text(std::string_view text, std::string_view label, Comments comments, Origin origin);
  [[nodiscard]] bool check_version(const Node& tree);
  void push_extended(const Node& extends);
  void push_extended_name(const Node& name, std::string_view path);
  [[nodiscard]] bool goes_through_scalar(const Node& setting, std::size_t depth);
  [[nodiscard]] std::string default_name() const;
  [[nodiscard]] Diagnostics take_diagnostics();

  PresetLookup presets_;
  Sources sources_;
  Findings findings_;
  Node merged_ = empty_object();
  bool complete_ = true;  ///< Every layer could be read, so that `merged_` is effective.
  int top_text_ = -1;     ///< The source of the highest layer that is no setting.
  int next_rank_ = 0;
  std::vector<std::string> chain_;  ///< The presets that are being extended.

  static Node empty_object();
};

}  // namespace belljar::policy
