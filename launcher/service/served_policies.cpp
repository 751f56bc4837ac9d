#include "launcher/service/served_policies.hpp"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <utility>

#include "launcher/controls/paths.hpp"
#include "policy/order.hpp"
#include "policy/quote.hpp"
#include "policy/setting.hpp"

namespace belljar::service {
namespace {

using launcher::join;
using policy::Diagnostics;
using policy::in_quotes;
using policy::Policy;

constexpr std::string_view kBuiltin = "builtin:";
/// `hello` tells of all of them in one message, of which the rest needs little.
constexpr std::size_t kMostToTell = kLargestMessage - (std::size_t{8} << 10);
/// Of one in `hello`, beside its name.
constexpr std::size_t kToldOfEach = 240;

/// Whether nobody but root and the service itself can change what `path` is, or leads to.
bool is_safe_from_others(std::string path) {
  for (bool leaf = true;; leaf = false) {
    struct stat about {};
    if (stat(path.c_str(), &about) != 0) return false;
    const bool ours = about.st_uid == 0 || about.st_uid == geteuid();
    // In a sticky directory nobody can replace what is root's.
    const bool sticky = !leaf && (about.st_mode & S_ISVTX) != 0;
    if (!ours || ((about.st_mode & 022) != 0 && !sticky)) return false;
    if (path == "/") return true;
    path = launcher::parent_of(path);
  }
}

/// "job" of "job.json"; empty for what is no policy.
std::string name_of(const std::string& file) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-@.";
  for (const std::string_view suffix : {".json", ".jsonc"})
    if (file.size() > suffix.size() && file.ends_with(suffix) && file.front() != '.' &&
        file.find_first_not_of(kLetters) == std::string::npos)
      return file.substr(0, file.size() - suffix.size());
  return {};
}

std::vector<std::string> files_in(const std::string& directory) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> list(
      opendir(directory.c_str()), [](DIR* open) { return open == nullptr ? 0 : closedir(open); });
  while (const dirent* entry = list ? readdir(list.get()) : nullptr)
    names.emplace_back(static_cast<const char*>(entry->d_name));
  std::sort(names.begin(), names.end());
  return names;
}

class Loader {
 public:
  Loader(const policy::Settings& settings, bool privileged, std::vector<std::string>& complaints)
      : settings_(settings), privileged_(privileged), complaints_(complaints) {}

  void add(const std::string& name, const std::string& reference) {
    if (served.contains(name)) return;
    const std::size_t told = name.size() + kToldOfEach;
    if (told_ + told > kMostToTell) {
      if (!full_ || name == settings_.policy)
        complain(name, "there are too many: " + std::to_string(served.size()) + " are served");
      full_ = true;
      return;
    }
    const bool file = !reference.starts_with(kBuiltin);
    if (file && privileged_ && !is_safe_from_others(reference))
      return complain(name, reference + " or a directory above it is not root's alone to write");
    ServedPolicy entry;
    entry.layers.add(reference);
    for (const auto& [path, value] : settings_.limits())
      entry.layers.add_setting(path, value,
                               settings_.origin("rlimit_" + path.substr(path.rfind('.') + 1)));
    if (name == settings_.policy)
      for (const auto& [path, value] : settings_.network_settings())
        entry.layers.add_setting(path, value, settings_.origin("network"));
    auto policy = entry.layers.resolve();
    if (!policy) return complain(name, policy.error().front().text());
    using From = policy::Id::From;
    if (policy->identity.uid.from == From::kNumber || policy->identity.gid.from == From::kNumber)
      return complain(name, "identity: names an id of its own; sessions have those of the pool");
    entry.policy = *std::move(policy);
    served.emplace(name, std::move(entry));
    told_ += told;
  }

  void add_directory(const std::string& directory) {
    for (const std::string& file : files_in(directory))
      if (const std::string name = name_of(file); !name.empty()) add(name, join(directory, file));
  }

  std::map<std::string, ServedPolicy> served;

 private:
  void complain(const std::string& name, const std::string& why) {
    complaints_.push_back("policy " + name + " is not served: " + why);
  }

  const policy::Settings& settings_;
  bool privileged_;
  std::vector<std::string>& complaints_;
  std::size_t told_ = 0;  ///< Bytes, at most, that `hello` needs for them.
  bool full_ = false;
};

tl::unexpected<Diagnostics> wrong(std::string path, std::string what) {
  return tl::unexpected<Diagnostics>(
      Diagnostics{{{"the request", 0, 0}, std::move(path), std::move(what)}});
}

/// The policy before the request's settings: what they may only tighten.
tl::expected<Policy, Diagnostics> base_of(const ServedPolicy& served, const Launch& launch) {
  if (launch.variables.empty()) return served.policy;
  const auto now = served.layers.resolve();
  if (!now) return tl::unexpected<Diagnostics>(now.error());
  if (now->digest != served.policy.digest)
    return wrong("policy", "a file that it extends has changed since the service was started");
  policy::Layers layers = served.layers;
  for (const auto& [name, value] : launch.variables)
    layers.add_variable(name, value, "the request's variable " + name);
  return layers.resolve();
}

tl::expected<Policy, Diagnostics> with_settings(const ServedPolicy& served, const Launch& launch,
                                                Policy base) {
  if (launch.settings.empty()) return base;
  policy::Layers layers = served.layers;
  for (const auto& [name, value] : launch.variables)
    layers.add_variable(name, value, "the request's variable " + name);
  for (const std::string& setting : launch.settings) {
    const std::size_t equals = policy::end_of_setting_path(setting);
    layers.add_setting(setting.substr(0, equals), setting.substr(equals + 1),
                       "the request's " + setting.substr(0, 200));
  }
  auto policy = layers.resolve();
  if (!policy) return policy;
  Diagnostics wider = check_ceiling(*policy, base);
  if (!wider.empty()) return tl::unexpected<Diagnostics>(std::move(wider));
  return policy;
}

}  // namespace

Result<ServedPolicies> ServedPolicies::load(const policy::Settings& settings, bool privileged,
                                            std::vector<std::string>& complaints) {
  Loader loader(settings, privileged, complaints);
  for (const std::string& name : policy::preset_names())
    loader.add(std::string(kBuiltin) + name, std::string(kBuiltin) + name);
  for (const std::string& directory : settings.policy_dirs) loader.add_directory(directory);
  if (settings.policy.find('/') != std::string::npos) loader.add(settings.policy, settings.policy);
  ServedPolicies all;
  all.served_ = std::move(loader.served);
  // With the sandbox off a session is what the operator's policy says of environment, umask and
  // limits; the preset that holds nothing at all would pass the service's own environment on.
  if (const ServedPolicy* own = all.find(settings.policy);
      own != nullptr && settings.sandbox == "off")
    all.served_.insert_or_assign(std::string(kBuiltin) + std::string(policy::kOffPreset), *own);
  if (all.find(settings.policy) != nullptr) return all;
  std::string why = "the policy of sessions, " + settings.policy + ", is not served";
  for (const std::string& complaint : complaints)
    if (complaint.starts_with("policy " + settings.policy + " ")) why = complaint;
  return fail({ErrorKind::kInvalid, 0, why, "policy",
               "name another with --session-policy or BELLJAR_POLICY, or mend it"});
}

const ServedPolicy* ServedPolicies::find(const std::string& name) const {
  const auto found = served_.find(name);
  return found == served_.end() ? nullptr : &found->second;
}

Outcome<void> check_setting(const std::string& setting) {
  constexpr std::array<std::string_view, 9> kKept = {"identity", "namespaces", "capabilities",
                                                     "io",       "extends",    "final",
                                                     "report",   "tests",      "vars"};
  const std::size_t equals = policy::end_of_setting_path(setting);
  if (equals == std::string::npos)
    return refuse(Code::kInvalid, "settings: expected path=value, got " + in_quotes(setting));
  const auto keys = policy::parse_setting_path(setting.substr(0, equals));
  if (!keys) return refuse(Code::kInvalid, "settings: " + keys.error());
  const bool workspace =
      keys->size() > 1 && keys->front() == "filesystem" && (*keys)[1] == "workspace";
  if (!workspace && std::find(kKept.begin(), kKept.end(), keys->front()) == kKept.end()) return {};
  return refuse(Code::kRefused,
                "settings: a session may not set " + in_quotes(setting.substr(0, equals)));
}

tl::expected<Policy, Diagnostics> policy_of_launch(const ServedPolicy& served, const Launch& launch,
                                                   const policy::Id& uid, const policy::Id& gid,
                                                   const std::string& workspace) {
  auto base = base_of(served, launch);
  if (!base) return base;
  auto policy = with_settings(served, launch, *std::move(base));
  if (!policy) return policy;
  for (const auto& [name, value] : launch.environment) {
    const auto [found, added] = policy->env.set.emplace(name, value);
    if (!added && found->second != value)
      return wrong("environment", name + " is set by the policy, " +
                                      policy->where(policy::member_path("env.set", name)));
    if (added)
      policy->origins[policy::member_path("env.set", name)] = {"the request's environment", 0, 0};
  }
  policy->identity.uid = uid;
  policy->identity.gid = gid;
  if (policy->filesystem.workspace) policy->filesystem.workspace->path = workspace;
  return policy;
}

}  // namespace belljar::service
