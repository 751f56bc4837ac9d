// The stack of layers of one load: read, checked one by one, merged, decoded.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policy/json_tree.hpp"
#include "policy/load.hpp"
#include "policy/policy_file.hpp"
#include "policy/reader.hpp"
#include "policy/variables.hpp"

namespace belljar::policy {

/// The text of a preset by its name; empty when there is none.
using PresetLookup = std::string_view (*)(std::string_view name);

/// Takes layers lowest first, and pushes what a text extends below it. Nothing is judged before all
/// are there. A layer that cannot be read leaves the effective policy unknown: then the others are
/// still checked, one by one.
class LayerStack {
 public:
  explicit LayerStack(PresetLookup presets) : presets_(presets) {}

  /// A text from memory, which can extend presets, but no files: it lies beside none.
  void push_text(std::string_view text, std::string_view label, Comments comments);
  /// A text that was read from `label`, to which the files that it extends are relative.
  void push_file(const PolicyFile& file, std::string_view label);
  void push_preset(std::string_view name);
  void push_setting(std::string_view path, std::string_view value, std::string_view label);

  void push_variable(std::string_view name, std::string_view value, std::string_view label);

  /// A layer that could not be read at all.
  void push_failure(std::string_view label, std::string_view message);

  [[nodiscard]] tl::expected<Policy, Diagnostics> resolve() &&;

 private:
  enum class Origin { kPreset, kText, kSetting };

  struct Layer {
    Node tree;
    Origin origin = Origin::kText;
    std::size_t depth = 0;  ///< kSetting: how many keys lead to the value.
    bool extended = false;  ///< By the text of a later layer.
    std::size_t first = 0;  ///< The lowest of the layers that it extends; itself if none.
  };

  /// A path that the layers above `layer` may only tighten.
  struct Final {
    std::string path;
    Place place;
    std::size_t layer = 0;
  };

  /// A text whose extended ones are being read.
  struct Link {
    std::string label;
    std::optional<FileId> file;  ///< Absent: a preset, or a text from memory. FileId{}: not looked
                                 ///< at yet.
  };

  int add_source(std::string_view label);
  void report(const Place& place, std::string_view path, std::string message);
  void read_text(std::string_view text, Link link, Comments comments, Origin origin);
  [[nodiscard]] bool check_version(const Node& tree);
  void push_extended(const Node& extends);
  void push_extended_name(const Node& name, std::string_view path);
  [[nodiscard]] std::string extend_preset(std::string_view name);
  [[nodiscard]] std::string extend_file(std::string_view name);
  [[nodiscard]] std::string cycle_to(const Link& link) const;
  void replace_variables();
  [[nodiscard]] std::vector<Final> take_finals();
  void check_final_path(Final& final, Variables& variables);
  void check_finals(const std::vector<Layer>& layers, const Policy& policy);
  void check_final(const std::vector<Layer>& layers, std::size_t top, const Policy& policy);
  [[nodiscard]] Place place_of_change(const std::vector<Layer>& layers, std::size_t top,
                                      std::string_view path) const;
  void merge_layer(Layer layer);
  [[nodiscard]] bool goes_through_scalar(const Node& setting, std::size_t depth);
  [[nodiscard]] std::string default_name() const;
  [[nodiscard]] Diagnostics take_diagnostics();

  PresetLookup presets_;
  Sources sources_;
  Findings findings_;
  std::vector<Layer> layers_;
  std::vector<Final> finals_;
  std::vector<GivenVariable> given_;
  Node merged_ = empty_object();
  bool complete_ = true;  ///< Every layer could be read, so that `merged_` is effective.
  int top_text_ = -1;     ///< The source of the highest layer that is no setting.
  int next_rank_ = 0;
  std::vector<Link> chain_;
  std::size_t texts_ = 0;

  static Node empty_object();
};

}  // namespace belljar::policy
