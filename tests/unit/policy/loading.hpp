// Short ways to load a policy in a test, and to look at what was refused.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/load.hpp"

namespace belljar::policy::testing {

/// The errors of a load as they are printed, a line each; empty when there was none.
inline std::string errors_of(const Layers& layers) {
  const auto policy = layers.resolve();
  if (policy) return {};
  std::string out;
  for (const Diagnostic& diagnostic : policy.error()) {
    if (!out.empty()) out += '\n';
    out += diagnostic.text();
  }
  return out;
}

/// The errors of a text that is loaded as "p.json".
inline std::string errors_of(std::string_view text) {
  Layers layers;
  layers.add_text(text, "p.json");
  return errors_of(layers);
}

/// `{"version":1,BODY}`: columns of errors begin at 14 in it.
inline std::string policy_text(std::string_view body) {
  return "{\"version\":1," + std::string(body) + "}";
}

inline std::string errors_in(std::string_view body) { return errors_of(policy_text(body)); }

/// The first error without its place and path.
inline std::string first_message(std::string_view body) {
  Layers layers;
  layers.add_text(policy_text(body), "p.json");
  const auto policy = layers.resolve();
  return policy ? std::string() : policy.error().front().message;
}

inline Policy load(const Layers& layers) {
  auto policy = layers.resolve();
  if (!policy) {
    INFO(errors_of(layers));
    REQUIRE(policy.has_value());
  }
  return std::move(*policy);
}

inline Policy load_body(std::string_view body) {
  Layers layers;
  layers.add_text(policy_text(body), "p.json");
  return load(layers);
}

/// `body` on top of which `settings` are made, "PATH=VALUE" each.
inline Layers with_settings(std::string_view body, const std::vector<std::string>& settings) {
  Layers layers;
  layers.add_text(policy_text(body), "p.json");
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.rfind('=');
    layers.add_setting(std::string_view(setting).substr(0, equals),
                       std::string_view(setting).substr(equals + 1), "--set " + setting);
  }
  return layers;
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace belljar::policy::testing
