#include <algorithm>

#include "launcher/controls/control.hpp"

namespace belljar::launcher {
namespace {

/// Shell-style match of `*` and `?`, without brackets.
bool matches(std::string_view glob, std::string_view name) {
  std::size_t g = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (g < glob.size() && (glob[g] == '?' || glob[g] == name[n])) {
      ++g, ++n;
    } else if (g < glob.size() && glob[g] == '*') {
      star = g++;
      resume = n;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

bool any_matches(const std::vector<std::string>& globs, std::string_view name) {
  return std::any_of(globs.begin(), globs.end(),
                     [name](const std::string& glob) { return matches(glob, name); });
}

Status plan(PlanBuilder& builder) {
  const policy::Environment& env = builder.policy.env;
  std::map<std::string, std::string> values;
  for (const auto& [name, value] : builder.host.environment)
    if (any_matches(env.pass, name) && !any_matches(env.deny, name)) values[name] = value;
  // A command that is found by name needs a PATH; this is what POSIX systems default to.
  values.try_emplace("PATH", "/usr/local/bin:/usr/bin:/bin");
  if (std::string home = home_path(builder.policy, builder.host); !home.empty())
    values["HOME"] = std::move(home);
  for (const auto& [name, value] : env.set) values[name] = value;
  for (const auto& [name, value] : values) builder.environment.push_back(name + "=" + value);
  return {};
}

}  // namespace

const Control kEnvironment = {"environment",
                              "starts empty; what passes is named (exec takes it as it "
                              "is, so there is nothing to read back)",
                              nothing_required,
                              plan,
                              nullptr,
                              {},
                              no_remedy};

}  // namespace belljar::launcher
