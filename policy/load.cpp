#include "policy/load.hpp"

#include <utility>

#include "policy/layer_stack.hpp"
#include "policy/policy_file.hpp"
#include "policy/quote.hpp"

namespace belljar::policy {
namespace {

constexpr std::string_view kBuiltin = "builtin:";

}  // namespace

std::string Diagnostic::text() const {
  std::string out = where.text();
  out += ": ";
  if (!path.empty()) out += path + ": ";
  return out + message;
}

void Layers::add(std::string_view reference) {
  Layer layer;
  layer.label = reference.empty() ? "\"\"" : reference;
  if (reference.starts_with(kBuiltin)) {
    layer.kind = Layer::Kind::kPreset;
    layer.text = reference.substr(kBuiltin.size());
  } else if (Parsed<PolicyFile> file = read_policy_file(std::string(reference), FileKinds::kAny)) {
    layer.kind = Layer::Kind::kFile;
    layer.text = std::move(file->text);
  } else {
    layer.kind = Layer::Kind::kUnreadable;
    layer.text = file.error();
    if (!preset_text(reference).empty())
      layer.text += "; the preset is called \"builtin:" + std::string(reference) + "\"";
  }
  layers_.push_back(std::move(layer));
}

void Layers::add_text(std::string_view text, std::string_view label, bool comments_allowed) {
  Layer layer;
  layer.label = label;
  layer.text = text;
  layer.comments_allowed = comments_allowed;
  layers_.push_back(std::move(layer));
}

void Layers::add_setting(std::string_view path, std::string_view value, std::string_view label) {
  Layer layer;
  layer.kind = Layer::Kind::kSetting;
  layer.label = label;
  layer.text = value;
  layer.setting_path = path;
  layers_.push_back(std::move(layer));
}

void Layers::add_variable(std::string_view name, std::string_view value, std::string_view label) {
  Layer layer;
  layer.kind = Layer::Kind::kVariable;
  layer.label = label;
  layer.text = value;
  layer.setting_path = name;
  layers_.push_back(std::move(layer));
}

tl::expected<Policy, Diagnostics> Layers::resolve() const {
  LayerStack stack(&preset_text);
  for (const Layer& layer : layers_) {
    switch (layer.kind) {
      case Layer::Kind::kText:
        stack.push_text(layer.text, layer.label,
                        layer.comments_allowed ? Comments::kAllowed : Comments::kRefused);
        break;
      case Layer::Kind::kFile:
        stack.push_file({layer.text, {}}, layer.label);
        break;
      case Layer::Kind::kPreset:
        stack.push_preset(layer.text);
        break;
      case Layer::Kind::kSetting:
        stack.push_setting(layer.setting_path, layer.text, layer.label);
        break;
      case Layer::Kind::kVariable:
        stack.push_variable(layer.setting_path, layer.text, layer.label);
        break;
      case Layer::Kind::kUnreadable:
        stack.push_failure(layer.label, layer.text);
        break;
    }
  }
  return std::move(stack).resolve();
}

}  // namespace belljar::policy
