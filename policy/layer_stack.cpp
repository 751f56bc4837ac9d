#include "policy/layer_stack.hpp"

#include <algorithm>
#include <tuple>

#include "policy/decode.hpp"
#include "policy/digest.hpp"
#include "policy/merge.hpp"
#include "policy/order.hpp"
#include "policy/quote.hpp"
#include "policy/setting.hpp"
#include "policy/suggest.hpp"

namespace belljar::policy {
namespace {

constexpr std::string_view kBuiltin = "builtin:";
constexpr std::uint64_t kVersion = 1;
constexpr std::size_t kDeepestExtends = 8;
constexpr std::size_t kMostExtends = 16;
constexpr std::size_t kMostTexts = 64;  // Without it, 16 to the power of 8.

/// Why the preset `name` cannot be had.
std::string unknown_preset(std::string_view name) {
  if (name == kOffPreset) {
    return "\"builtin:off@1\" is no sandbox; only an operator's start-up setting of the daemon can "
           "choose it, no policy and no option";
  }
  const std::vector<std::string> names = preset_names();
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string what = "there is no preset " + in_quotes(name);
  if (const std::string_view near = nearest(name, known); !near.empty()) {
    return what + "; did you mean \"builtin:" + std::string(near) + "\"?";
  }
  return with_suggestion(what, name, known);
}

/// The effective tree without what speaks about its text only.
Node effective(Node tree) {
  std::erase_if(tree.members, [](const Member& member) {
    return member.key == "$schema" || member.key == "extends" || member.key == "final" ||
           member.key.starts_with("x-");
  });
  return tree;
}

}  // namespace

Node LayerStack::empty_object() {
  Node node;
  node.kind = Node::Kind::kObject;
  return node;
}

int LayerStack::add_source(std::string_view label) {
  sources_.push_back({std::string(label), 0});
  return static_cast<int>(sources_.size()) - 1;
}

void LayerStack::report(const Place& place, std::string_view path, std::string message) {
  findings_.push_back({place, std::string(path), std::move(message)});
}

void LayerStack::push_failure(std::string_view label, std::string_view message) {
  const int source = add_source(label);
  sources_.back().rank = next_rank_++;
  top_text_ = source;
  complete_ = false;
  report({source, 0, 0}, {}, std::string(message));
}

void LayerStack::push_text(std::string_view text, std::string_view label, Comments comments) {
  read_text(text, {std::string(label), std::nullopt}, comments, Origin::kText);
}

void LayerStack::push_file(const PolicyFile& file, std::string_view label) {
  read_text(file.text, {std::string(label), file.id}, comments_of(label), Origin::kText);
}

void LayerStack::push_preset(std::string_view name) {
  const std::string label = std::string(kBuiltin) + std::string(name);
  const std::string_view text = presets_(name);
  if (text.empty() || name == kOffPreset) return push_failure(label, unknown_preset(name));
  read_text(text, {label, std::nullopt}, Comments::kRefused, Origin::kPreset);
}

void LayerStack::read_text(std::string_view text, Link link, Comments comments, Origin origin) {
  const int source = add_source(link.label);
  ++texts_;
  std::optional<Node> tree = parse_json(text, source, comments, findings_);
  if (tree && tree->kind != Node::Kind::kObject) {
    report(tree->place, {},
           "expected an object such as {\"version\": 1}, got " + found_text(*tree));
    tree.reset();
  }
  if (tree && !check_version(*tree)) tree.reset();
  const Member* extends = tree ? tree->find("extends") : nullptr;
  const std::size_t first = layers_.size();
  chain_.push_back(std::move(link));
  if (extends != nullptr) push_extended(extends->value);
  chain_.pop_back();
  sources_[static_cast<std::size_t>(source)].rank = next_rank_++;
  top_text_ = source;
  if (tree) {
    layers_.push_back({.tree = std::move(*tree), .origin = origin, .first = first});
  } else {
    complete_ = false;
  }
}

/// False when the text is written for another version, whose keys would be judged wrongly.
bool LayerStack::check_version(const Node& tree) {
  const Member* version = tree.find("version");
  const std::string reads = "this belljar reads version " + std::to_string(kVersion);
  if (version == nullptr || version->value.kind == Node::Kind::kNull) {
    report(tree.place, {}, "\"version\" is required; " + reads);
    return true;
  }
  const Node& value = version->value;
  if (value.kind != Node::Kind::kUnsigned) {
    report(value.place, "version", "expected the number 1, got " + found_text(value));
    return true;
  }
  if (value.number == kVersion) return true;
  report(value.place, "version",
         "version " + std::to_string(value.number) + " is unknown; " + reads);
  return false;
}

void LayerStack::push_extended(const Node& extends) {
  if (extends.kind == Node::Kind::kNull) return;
  if (extends.kind != Node::Kind::kArray) {
    return report(extends.place, "extends",
                  "expected an array such as [\"builtin:agent@1\"], got " + found_text(extends));
  }
  if (extends.elements.size() > kMostExtends) {
    return report(extends.place, "extends",
                  "more than " + std::to_string(kMostExtends) + " policies");
  }
  for (std::size_t i = 0; i < extends.elements.size(); ++i) {
    push_extended_name(extends.elements[i], "extends[" + std::to_string(i) + "]");
  }
}

void LayerStack::push_extended_name(const Node& name, std::string_view path) {
  const std::size_t first = layers_.size();
  std::string refusal;
  if (name.kind != Node::Kind::kString || name.text.empty()) {
    refusal =
        "expected a preset such as \"builtin:agent@1\" or a file such as \"base.json\", got " +
        found_text(name);
  } else if (chain_.size() == kDeepestExtends) {
    refusal = "extends more than " + std::to_string(kDeepestExtends) + " levels deep";
  } else if (texts_ == kMostTexts) {
    refusal = "more than " + std::to_string(kMostTexts) + " policies in all";
  } else if (name.text.starts_with(kBuiltin)) {
    refusal = extend_preset(std::string_view(name.text).substr(kBuiltin.size()));
  } else {
    refusal = extend_file(name.text);
  }
  for (std::size_t i = first; i < layers_.size(); ++i) layers_[i].extended = true;
  if (refusal.empty()) return;
  complete_ = false;
  report(name.place, path, std::move(refusal));
}

/// Empty, or why not; as extend_file.
std::string LayerStack::extend_preset(std::string_view name) {
  if (presets_(name).empty() || name == kOffPreset) return unknown_preset(name);
  std::string cycle = cycle_to({std::string(kBuiltin) + std::string(name), std::nullopt});
  if (cycle.empty()) push_preset(name);
  return cycle;
}

std::string LayerStack::extend_file(std::string_view name) {
  const Link& from = chain_.back();
  if (!from.file) {
    return "only a policy that is a file can extend files; a preset is called \"builtin:NAME\", "
           "got the string " +
           in_quotes(name);
  }
  const std::string label = beside(from.label, name);
  const Parsed<PolicyFile> file = read_policy_file(label, FileKinds::kRegular);
  if (!file) {
    const bool preset = !presets_(name).empty();
    return in_quotes(label) + ": " + file.error() +
           (preset ? "; the preset is called \"builtin:" + std::string(name) + "\"" : "");
  }
  // The file that the caller named is looked at only now: most policies extend no file.
  Link& lowest = chain_.front();
  if (lowest.file == FileId{}) lowest.file = file_id(lowest.label);
  std::string cycle = cycle_to({label, file->id});
  if (cycle.empty()) push_file(*file, label);
  return cycle;
}

/// "extends itself: a.json -> b.json -> a.json" when `link` is being read already.
std::string LayerStack::cycle_to(const Link& link) const {
  const auto same = [&link](const Link& other) {
    return link.file ? link.file == other.file : !other.file && link.label == other.label;
  };
  const auto begin = std::find_if(chain_.begin(), chain_.end(), same);
  if (begin == chain_.end()) return {};
  std::string cycle = "extends itself: ";
  for (auto step = begin; step != chain_.end(); ++step) cycle += step->label + " -> ";
  return cycle + link.label;
}

/// Takes the `final` of each text out of its layer. None of them can be taken back by a layer
/// above.
std::vector<LayerStack::Final> LayerStack::take_finals() {
  std::vector<Final> finals;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Member* final = layers_[i].tree.find("final");
    if (final == nullptr || final->value.kind == Node::Kind::kNull) continue;
    if (final->value.kind != Node::Kind::kArray) {
      report(final->value.place, "final",
             "expected an array of paths such as [\"network\"], got " + found_text(final->value));
      continue;
    }
    for (std::size_t j = 0; j < final->value.elements.size(); ++j) {
      const Node& path = final->value.elements[j];
      if (path.kind == Node::Kind::kString) {
        finals.push_back({path.text, path.place, i});
      } else {
        report(path.place, "final[" + std::to_string(j) + "]",
               "expected a path such as \"network.mode\", got " + found_text(path));
      }
    }
  }
  return finals;
}

/// Writes the path of `final` as excesses are written, its variables replaced.
void LayerStack::check_final_path(Final& final, Variables& variables) {
  const Parsed<std::vector<std::string>> keys = parse_setting_path(final.path);
  std::string problem = keys ? unknown_path(*keys) : keys.error();
  if (!problem.empty()) return report(final.place, "final", in_quotes(final.path) + ": " + problem);
  std::string path;
  for (const std::string& key : *keys) {
    const std::optional<std::string> replaced =
        variables.replace_in_text(key, final.place, "final");
    if (!replaced) return;
    // Targets of mounts and masks are compared in their normal form.
    const Parsed<std::string> target = normalise_path(*replaced);
    append_member(path, target ? *target : *replaced);
  }
  final.path = std::move(path);
}

/// Nothing of the layers is judged before: what a variable stands for decides whether it fits.
void LayerStack::replace_variables() {
  finals_ = take_finals();
  Variables variables(sources_, findings_);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i].origin != Origin::kPreset) variables.take(layers_[i].tree);
    for (const Final& final : finals_) {
      if (final.layer == i) variables.freeze(final.path, final.place);
    }
  }
  variables.give(given_, complete_);
  // Presets refer to none, and what is typed on a command line is taken as it is typed: an
  // environment variable that -e passes may hold anything.
  for (Layer& layer : layers_) {
    if (layer.origin == Origin::kText) variables.replace_in(layer.tree);
  }
  for (Final& final : finals_) check_final_path(final, variables);
  if (complete_) variables.report_unused();
}

/// What the text at `top` says with all that it extends is what `final` protects, however it came
/// to be among other layers.
void LayerStack::check_final(const std::vector<Layer>& layers, std::size_t top,
                             const Policy& policy) {
  Node tree = empty_object();
  for (std::size_t i = layers[top].first; i <= top; ++i) merge(tree, layers[i].tree);
  tree = effective(std::move(tree));
  Policy baseline = decode(tree, Pass::kMerged, sources_, findings_);
  append_json(baseline.canonical, tree);
  if (baseline.name.empty()) baseline.name = locate(sources_, layers[top].tree.place).file;
  for (const Excess& excess : excesses(policy, baseline)) {
    const auto covers = [&](const Final& final) {
      return final.layer == top && paths_meet(final.path, excess.path);
    };
    const auto final = std::find_if(finals_.begin(), finals_.end(), covers);
    if (final == finals_.end()) continue;
    report(place_of_change(layers, top, excess.path), excess.path,
           excess_text(excess, policy, baseline) + " (final in " +
               locate(sources_, final->place).text() + ")");
  }
}

/// Where the layers above `top` set or removed the value at `path`, or what holds it; the highest
/// counts.
Place LayerStack::place_of_change(const std::vector<Layer>& layers, std::size_t top,
                                  std::string_view path) const {
  const Parsed<std::vector<std::string>> keys = parse_setting_path(path);
  Place best = finals_.front().place;
  std::size_t deepest = 0;
  for (std::size_t i = top + 1; keys && i < layers.size(); ++i) {
    const Node* node = &layers[i].tree;
    std::size_t depth = 0;
    Place place;
    for (const std::string& key : *keys) {
      const Member* member = node->find(key);
      if (member == nullptr) break;
      node = &member->value;
      place = node->kind == Node::Kind::kObject ? member->key_place : node->place;
      ++depth;
    }
    if (depth == 0 || depth < deepest) continue;
    deepest = depth;
    best = place;
  }
  return best;
}

void LayerStack::check_finals(const std::vector<Layer>& layers, const Policy& policy) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool any = std::any_of(finals_.begin(), finals_.end(),
                                 [i](const Final& final) { return final.layer == i; });
    if (any) check_final(layers, i, policy);
  }
}

void LayerStack::merge_layer(Layer layer) {
  if (layer.tree.members.empty()) return;
  if (layer.origin == Origin::kSetting && goes_through_scalar(layer.tree, layer.depth)) return;
  // The presets are checked by tests, not at every launch.
  if (layer.origin != Origin::kPreset) (void)decode(layer.tree, Pass::kLayer, sources_, findings_);
  // What is built upon a policy is no longer that policy: records must not call it so.
  if (layer.extended) {
    std::erase_if(layer.tree.members, [](const Member& member) {
      return member.key == "name" || member.key == "description";
    });
  }
  merge(merged_, std::move(layer.tree));
}

void LayerStack::push_setting(std::string_view path, std::string_view value,
                              std::string_view label) {
  const int source = add_source(label);
  sources_.back().rank = next_rank_++;
  const Place place{source, 0, 0};
  const Parsed<std::vector<std::string>> keys = parse_setting_path(path);
  if (!keys) return report(place, {}, keys.error());
  if (keys->front() == "extends" || keys->front() == "final") {
    return report(place, keys->front(), "belongs into a file; name another policy instead");
  }
  std::optional<Node> node = parse_setting_value(value, source, findings_);
  if (!node) return;
  Node tree = wrap_setting(*keys, std::move(*node));
  if (const Member* version = tree.find("version")) {
    if (version->value.kind != Node::Kind::kNull && !check_version(tree)) return;
  }
  layers_.push_back({.tree = std::move(tree), .origin = Origin::kSetting, .depth = keys->size()});
}

void LayerStack::push_variable(std::string_view name, std::string_view value,
                               std::string_view label) {
  const int source = add_source(label);
  sources_.back().rank = next_rank_++;
  if (!is_text(value)) {
    return report({source, 0, 0}, {}, "the value is no text: invalid UTF-8, NUL, or too long");
  }
  given_.push_back({std::string(name), std::string(value), {source, 0, 0}});
}

/// A setting adds to objects. Where its path meets a plain value it would have to throw that away.
bool LayerStack::goes_through_scalar(const Node& setting, std::size_t depth) {
  const Node* below = &merged_;
  const Node* over = &setting;
  std::string path;
  for (std::size_t i = 0; i + 1 < depth; ++i) {
    const Member& step = over->members.front();
    const Member* member = below->find(step.key);
    append_member(path, step.key);
    if (member == nullptr) return false;
    if (member->value.kind != Node::Kind::kObject) {
      report(step.key_place, path,
             "is " + found_text(member->value) + " (" +
                 locate(sources_, member->value.place).text() + "), which has no members to set");
      return true;
    }
    below = &member->value;
    over = &step.value;
  }
  return false;
}

/// The name of the highest file or preset, without directories.
std::string LayerStack::default_name() const {
  if (top_text_ < 0) return {};
  const std::string& label = sources_[static_cast<std::size_t>(top_text_)].label;
  if (label.starts_with(kBuiltin)) return label.substr(kBuiltin.size());
  const std::size_t slash = label.rfind('/');
  return slash == std::string::npos ? label : label.substr(slash + 1);
}

Diagnostics LayerStack::take_diagnostics() {
  const auto order = [this](const Finding& finding) {
    const int rank = sources_[static_cast<std::size_t>(finding.place.source)].rank;
    return std::tuple(rank, finding.place.line, finding.place.column);
  };
  std::stable_sort(findings_.begin(), findings_.end(), [&](const Finding& a, const Finding& b) {
    return std::tuple_cat(order(a), std::tie(a.path, a.message)) <
           std::tuple_cat(order(b), std::tie(b.path, b.message));
  });
  const bool cut = findings_.size() >= kMostFindings;
  // A layer's mistake is found again in the effective policy.
  findings_.erase(std::unique(findings_.begin(), findings_.end()), findings_.end());
  Diagnostics diagnostics;
  for (Finding& finding : findings_) {
    diagnostics.push_back(
        {locate(sources_, finding.place), std::move(finding.path), std::move(finding.message)});
  }
  if (cut)
    diagnostics.push_back({diagnostics.back().where, {}, "too many errors; there may be more"});
  return diagnostics;
}

tl::expected<Policy, Diagnostics> LayerStack::resolve() && {
  if (top_text_ < 0) push_failure("policy", "no policy was given; name a file or a preset");
  const std::size_t before = findings_.size();
  replace_variables();
  // What such a variable would have filled is missing, which is no further mistake.
  if (findings_.size() != before) complete_ = false;
  for (Layer& layer : layers_) normalise_targets(layer.tree, sources_, findings_);
  std::vector<Layer> originals;
  if (!finals_.empty()) originals = layers_;
  for (Layer& layer : layers_) merge_layer(std::move(layer));
  Node tree = effective(std::move(merged_));
  Policy policy;
  if (complete_) policy = decode(tree, Pass::kMerged, sources_, findings_);
  if (complete_ && findings_.empty() && !finals_.empty()) {
    append_json(policy.canonical, tree);  // Messages quote from it.
    check_finals(originals, policy);
    policy.canonical.clear();
  }
  if (!findings_.empty()) return tl::unexpected(take_diagnostics());
  if (policy.name.empty()) policy.name = default_name();
  escape_references(tree);
  append_json(policy.canonical, tree);
  policy.digest = sha256_digest(policy.canonical);
  return policy;
}

}  // namespace belljar::policy
