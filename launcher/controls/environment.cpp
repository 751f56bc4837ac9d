#include <unistd.h>

#include <algorithm>

#include "launcher/controls/facts.hpp"
#include "policy/digest.hpp"

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

std::vector<std::string> entries_of(const std::map<std::string, std::string>& values) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : values) entries.push_back(name + "=" + value);
  return entries;
}

/// Values can be secrets, and a command line is everybody's to read.
std::string digest_of(std::vector<std::string> entries) {
  std::sort(entries.begin(), entries.end());
  std::string text;
  for (const std::string& entry : entries) text += entry + '\0';
  return policy::sha256_digest(text);
}

Seen look_at_environment(const std::string& expected) {
  std::vector<std::string> entries;
  std::string names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    entries.emplace_back(*entry);
    names += (names.empty() ? "" : ", ") + entries.back().substr(0, entries.back().find('='));
  }
  if (digest_of(std::move(entries)) == expected) return holds();
  return differs("there are " + names + ", and one is too much or has another value");
}

constexpr Fact kFacts[] = {
    {"variables", "the environment is not what the policy says", look_at_environment,
     [](const Made& made) {
       return std::vector<Fact::Expected>{
           {digest_of(entries_of(environment_of(made.policy, made.host))), "env"}};
     }},
};

Status plan(PlanBuilder& builder) {
  builder.environment = entries_of(environment_of(builder.policy, builder.host));
  return {};
}

}  // namespace

std::map<std::string, std::string> environment_of(const policy::Policy& policy, const Host& host) {
  const policy::Environment& env = policy.env;
  std::map<std::string, std::string> values;
  for (const auto& [name, value] : host.environment)
    if (any_matches(env.pass, name) && !any_matches(env.deny, name)) values[name] = value;
  // A command that is found by name needs a PATH; this is what POSIX systems default to.
  values.try_emplace("PATH", "/usr/local/bin:/usr/bin:/bin");
  if (std::string home = home_path(policy, host); !home.empty()) values["HOME"] = std::move(home);
  for (const auto& [name, value] : env.set) values[name] = value;
  return values;
}

const Control kEnvironment = {"environment",
                              "starts empty; what passes is named (exec takes it as it "
                              "is, so there is nothing to read back)",
                              nothing_required,
                              plan,
                              nullptr,
                              {},
                              no_remedy,
                              kFacts};

}  // namespace belljar::launcher
