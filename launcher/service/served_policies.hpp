// The policies that sessions can have: those built in and those in the operator's directories, read
// once, by the service itself.
//
// Whoever has taken belljard over gets what these allow and no more: a launch may only tighten the
// policy that it names.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/service/message.hpp"
#include "policy/load.hpp"
#include "policy/settings.hpp"

namespace belljar::service {

struct ServedPolicy {
  policy::Layers layers;  ///< With the settings' limits on top.
  policy::Policy policy;  ///< What they come to by themselves.
};

class ServedPolicies {
 public:
  /// What cannot be served is left out, and `complaints` has a line about each; the settings' own
  /// policy must be there. `trusted_owner`: only files that nobody else can write count, and
  /// directories likewise; nothing is asked where the service has no privileges to lose.
  [[nodiscard]] static Result<ServedPolicies> load(const policy::Settings& settings,
                                                   bool privileged,
                                                   std::vector<std::string>& complaints);

  [[nodiscard]] const ServedPolicy* find(const std::string& name) const;
  [[nodiscard]] const std::map<std::string, ServedPolicy>& all() const { return served_; }

 private:
  std::map<std::string, ServedPolicy> served_;
};

/// Whether a launch may set what `setting` ("path=value") sets at all.
[[nodiscard]] Outcome<void> check_setting(const std::string& setting);

/// The policy of a launch: the served one with what the request adds, which may take away and name
/// environment variables, and nothing else. Its identity and workspace are those given.
[[nodiscard]] tl::expected<policy::Policy, policy::Diagnostics> policy_of_launch(
    const ServedPolicy& served, const Launch& launch, const policy::Id& uid, const policy::Id& gid,
    const std::string& workspace);

}  // namespace belljar::service
