// Plans for hosts that are not this one.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "launcher/plan.hpp"
#include "policy/load.hpp"

namespace belljar::launcher::test {

inline policy::Policy policy_of(std::string_view json) {
  policy::Layers layers;
  layers.add_text(json, "test.json");
  auto policy = layers.resolve();
  if (!policy) FAIL(policy.error().front().text());
  return *policy;
}

inline policy::Policy preset(std::string_view name) {
  policy::Layers layers;
  layers.add("builtin:" + std::string(name));
  auto policy = layers.resolve();
  if (!policy) FAIL(policy.error().front().text());
  return *policy;
}

/// A plain user's merged-/usr machine.
inline Host plain_host() {
  Host host;
  host.uid = 1000;
  host.gid = 1000;
  host.landlock_abi = 7;
  host.home = "/home/ada";
  host.home_exists = true;
  host.current_directory = "/home/ada/project";
  host.environment = {{"PATH", "/usr/bin:/bin"}, {"API_KEY", "secret"}, {"LANG", "C.UTF-8"}};
  for (const char* name : {"/boot", "/etc", "/home", "/opt", "/proc", "/root", "/run", "/srv",
                           "/sys", "/tmp", "/usr", "/var"})
    host.top_level.push_back({name, std::nullopt});
  host.top_level.push_back({"/bin", "usr/bin"});
  return host;
}

/// Root in a container with the five capabilities.
inline Host root_host() {
  Host host = plain_host();
  host.uid = 0;
  host.gid = 0;
  host.capabilities = 1U << 0 | 1U << 1 | 1U << 5 | 1U << 6 | 1U << 7;
  return host;
}

inline Plan plan_of(const policy::Policy& policy, const Host& host) {
  auto plan = build_plan(policy, host, {{"true"}, ""});
  if (!plan) FAIL(plan.error().what);
  return *plan;
}

inline Error refusal_of(const policy::Policy& policy, const Host& host) {
  auto plan = build_plan(policy, host, {{"true"}, ""});
  REQUIRE_FALSE(plan.has_value());
  return plan.error();
}

/// The texts of a plan's steps, one a line.
inline std::string texts(const Plan& plan) {
  std::string all;
  for (const Step& step : plan.steps) all += step.text() + "\n";
  return all;
}

inline bool has_step(const Plan& plan, std::string_view text) {
  return ("\n" + texts(plan)).find("\n" + std::string(text) + "\n") != std::string::npos;
}

template <class T>
const T* find(const Plan& plan) {
  for (const Step& step : plan.steps)
    if (const auto* action = std::get_if<T>(&step.action)) return action;
  return nullptr;
}

}  // namespace belljar::launcher::test
