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
#include "launcher/service/further_command.hpp"
#include "policy/inline_policy.hpp"
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
      : settings_(settings), privileged_(privileged), complaints_(complaints) {
    for (const auto& [path, value] : settings_.limits())
      limits.push_back(
          {path, value, settings_.origin("rlimit_" + path.substr(path.rfind('.') + 1))});
  }

  void add(const std::string& name, const std::string& reference) {
    if (served.contains(name)) return;
    if (name == policy::kInlineName)
      return complain(name, "that is what policies of requests are called");
    const std::size_t told = name.size() + kToldOfEach;
    if (told_ + told > kMostToTell) {
      if (!full_ || name == settings_.policy)
        complain(name, "there are too many: " + std::to_string(served.size()) + " are served");
      full_ = true;
      return;
    }
    auto entry = read(name, reference);
    if (!entry) return;
    served.emplace(name, *std::move(entry));
    told_ += told;
  }

  std::optional<ServedPolicy> read(const std::string& name, const std::string& reference) {
    const bool file = !reference.starts_with(kBuiltin);
    if (file && privileged_ && !is_safe_from_others(reference)) {
      complain(name, reference + " or a directory above it is not root's alone to write");
      return std::nullopt;
    }
    ServedPolicy entry;
    entry.layers.add(reference);
    for (const ServedPolicies::Limit& limit : limits)
      entry.layers.add_setting(limit.path, limit.value, limit.label);
    if (name == settings_.policy)
      for (const auto& [path, value] : settings_.network_settings())
        entry.layers.add_setting(path, value, settings_.origin("network"));
    auto policy = entry.layers.resolve();
    using From = policy::Id::From;
    if (!policy) {
      complain(name, policy.error().front().text());
    } else if (policy->identity.uid.from == From::kNumber ||
               policy->identity.gid.from == From::kNumber) {
      complain(name, "identity: names an id of its own; sessions have those of the pool");
    } else {
      entry.policy = *std::move(policy);
      return entry;
    }
    return std::nullopt;
  }

  /// What policies that come with requests have to be within; whatever is wrong with it ends the
  /// start, since without it they could not be held against anything.
  Result<std::optional<ServedPolicy>> ceiling() {
    const std::string& name = settings_.inline_ceiling;
    if (name.empty()) return std::nullopt;
    if (const auto found = served.find(name); found != served.end()) return found->second;
    if (name.find('/') != std::string::npos)
      if (auto own = read(name, name)) return own;
    return fail({ErrorKind::kInvalid, 0, told_of(name, "the ceiling of clients' policies"),
                 "inline_ceiling",
                 "name another with --inline-ceiling or BELLJAR_INLINE_CEILING, or mend it"});
  }

  /// The complaint about the policy `name`, or that there is none.
  [[nodiscard]] std::string told_of(const std::string& name, const std::string& role) const {
    std::string why = role + ", " + name + ", is not served";
    for (const std::string& complaint : complaints_)
      if (complaint.starts_with("policy " + name + " ")) why = complaint;
    return why;
  }

  void add_directory(const std::string& directory) {
    for (const std::string& file : files_in(directory))
      if (const std::string name = name_of(file); !name.empty()) add(name, join(directory, file));
  }

  std::map<std::string, ServedPolicy> served;
  std::vector<ServedPolicies::Limit> limits;

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

/// What a launch goes by before the request's settings, which may only tighten it.
struct Base {
  policy::Layers layers;
  Policy policy;
};

tl::expected<Base, Diagnostics> served_base(const ServedPolicy& served, const Launch& launch) {
  Base base{served.layers, served.policy};
  if (launch.variables.empty()) return base;
  const auto now = served.layers.resolve();
  if (!now) return tl::unexpected<Diagnostics>(now.error());
  if (now->digest != served.policy.digest)
    return wrong("policy", "a file that it extends has changed since the service was started");
  for (const auto& [name, value] : launch.variables)
    base.layers.add_variable(name, value, "the request's variable " + name);
  auto policy = base.layers.resolve();
  if (!policy) return tl::unexpected<Diagnostics>(policy.error());
  base.policy = *std::move(policy);
  return base;
}

/// Where the text of the request says nothing about it, a limit of the operator's settings counts
/// as it does for each served policy; where it does, the ceiling has that limit.
tl::expected<Base, Diagnostics> inline_base(const ServedPolicies& policies, const Launch& launch) {
  auto read = policy::read_inline_policy(*launch.inline_policy, launch.variables);
  if (!read) return tl::unexpected<Diagnostics>(read.error());
  Base base{std::move(read->layers), std::move(read->policy)};
  for (const ServedPolicies::Limit& limit : policies.limits())
    if (!read->says(limit.path)) base.layers.add_setting(limit.path, limit.value, limit.label);
  if (policies.limits().empty()) return base;
  auto policy = base.layers.resolve();
  if (!policy) return tl::unexpected<Diagnostics>(policy.error());
  base.policy = *std::move(policy);
  return base;
}

tl::expected<Policy, Diagnostics> with_settings(const Launch& launch, Base base) {
  if (launch.settings.empty()) return std::move(base.policy);
  for (const std::string& setting : launch.settings) {
    const std::size_t equals = policy::end_of_setting_path(setting);
    base.layers.add_setting(setting.substr(0, equals), setting.substr(equals + 1),
                            "the request's " + setting.substr(0, 200));
  }
  auto policy = base.layers.resolve();
  if (!policy) return policy;
  Diagnostics wider = check_ceiling(*policy, base.policy);
  if (!wider.empty()) return tl::unexpected<Diagnostics>(std::move(wider));
  return policy;
}

void set_identity(Policy& policy, const SessionIdentity& identity) {
  policy.identity.uid = identity.uid;
  policy.identity.gid = identity.gid;
  if (policy.filesystem.workspace) policy.filesystem.workspace->path = identity.workspace;
}

/// As the session would be under each of the two: ids and workspace are the service's to set.
Diagnostics beyond_ceiling(const ServedPolicy& ceiling, Policy policy,
                           const SessionIdentity& identity) {
  Policy most = ceiling.policy;
  set_identity(policy, identity);
  set_identity(most, identity);
  return check_ceiling(policy, most);
}

tl::expected<Policy, NoPolicy> inline_policy_of(const ServedPolicies& policies,
                                                const Launch& launch,
                                                const SessionIdentity& identity) {
  constexpr const char* kCeiling = "ceiling";
  const ServedPolicy* ceiling = policies.ceiling();
  if (ceiling == nullptr)
    return tl::unexpected(NoPolicy{kCeiling, wrong("policy", "none may come along").value()});
  auto base = inline_base(policies, launch);
  if (!base) return tl::unexpected(NoPolicy{kCeiling, std::move(base.error())});
  if (Diagnostics wider = beyond_ceiling(*ceiling, base->policy, identity); !wider.empty())
    return tl::unexpected(NoPolicy{kCeiling, std::move(wider)});
  auto policy = with_settings(launch, *std::move(base));
  if (!policy) return tl::unexpected(NoPolicy{"policy", std::move(policy.error())});
  // No two orders prove a third one: what is launched is looked at itself.
  if (Diagnostics wider = beyond_ceiling(*ceiling, *policy, identity); !wider.empty())
    return tl::unexpected(NoPolicy{kCeiling, std::move(wider)});
  policy->name = policy::kInlineName;
  return *std::move(policy);
}

tl::expected<Policy, NoPolicy> served_policy_of(const ServedPolicies& policies,
                                                const Launch& launch) {
  const ServedPolicy* served = policies.find(launch.policy);
  if (served == nullptr)
    return tl::unexpected(NoPolicy{"policy", wrong("policy", "there is no such policy").value()});
  auto base = served_base(*served, launch);
  if (!base) return tl::unexpected(NoPolicy{"policy", std::move(base.error())});
  auto policy = with_settings(launch, *std::move(base));
  if (!policy) return tl::unexpected(NoPolicy{"policy", std::move(policy.error())});
  return *std::move(policy);
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
  all.ceiling_ = BELLJAR_TRY(loader.ceiling());
  all.limits_ = loader.limits;
  all.served_ = std::move(loader.served);
  // With the sandbox off a session is what the operator's policy says of environment, umask and
  // limits; the preset that holds nothing at all would pass the service's own environment on.
  if (const ServedPolicy* own = all.find(settings.policy);
      own != nullptr && settings.sandbox == "off")
    all.served_.insert_or_assign(std::string(kBuiltin) + std::string(policy::kOffPreset), *own);
  if (all.find(settings.policy) != nullptr) return all;
  return fail({ErrorKind::kInvalid, 0, loader.told_of(settings.policy, "the policy of sessions"),
               "policy", "name another with --session-policy or BELLJAR_POLICY, or mend it"});
}

const ServedPolicy* ServedPolicies::find(const std::string& name) const {
  const auto found = served_.find(name);
  return found == served_.end() ? nullptr : &found->second;
}

Outcome<void> check_setting(const std::string& setting) {
  const std::size_t equals = policy::end_of_setting_path(setting);
  if (equals == std::string::npos)
    return refuse(Code::kInvalid, "settings: expected path=value, got " + in_quotes(setting));
  const auto keys = policy::parse_setting_path(setting.substr(0, equals));
  if (!keys) return refuse(Code::kInvalid, "settings: " + keys.error());
  const bool of_a_text = keys->front() == "extends" || keys->front() == "vars";
  if (!of_a_text && !policy::is_kept_from_requests(*keys)) return {};
  return refuse(Code::kRefused,
                "settings: a session may not set " + in_quotes(setting.substr(0, equals)));
}

tl::expected<Policy, NoPolicy> policy_of_launch(const ServedPolicies& policies,
                                                const Launch& launch,
                                                const SessionIdentity& identity) {
  auto policy = launch.inline_policy ? inline_policy_of(policies, launch, identity)
                                     : served_policy_of(policies, launch);
  if (!policy) return policy;
  for (const auto& [name, value] : launch.environment) {
    const auto [found, added] = policy->env.set.emplace(name, value);
    if (!added && found->second != value)
      return tl::unexpected(NoPolicy{
          "policy", wrong("environment", name + " is set by the policy, " +
                                             policy->where(policy::member_path("env.set", name)))
                        .value()});
    if (added)
      policy->origins[policy::member_path("env.set", name)] = {launcher::kOfTheRequest, 0, 0};
  }
  set_identity(*policy, identity);
  return policy;
}

}  // namespace belljar::service
