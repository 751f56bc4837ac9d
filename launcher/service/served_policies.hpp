// The policies that sessions can have: those built in and those in the operator's directories, read
// once, by the service itself.
//
// Whoever has taken belljard over gets what these allow and no more: a launch may only tighten the
// policy that it names, and one that it brings along has to be within the operator's ceiling.
#pragma once

#include <map>
#include <optional>
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

  /// Of policies that come with a request; null: none may. It need not be served itself.
  [[nodiscard]] const ServedPolicy* ceiling() const { return ceiling_ ? &*ceiling_ : nullptr; }

  /// A setting's limit, as it is put over each policy.
  struct Limit {
    std::string path, value, label;
  };
  [[nodiscard]] const std::vector<Limit>& limits() const { return limits_; }

 private:
  std::map<std::string, ServedPolicy> served_;
  std::optional<ServedPolicy> ceiling_;
  std::vector<Limit> limits_;
};

/// Whether a launch may set what `setting` ("path=value") sets at all.
[[nodiscard]] Outcome<void> check_setting(const std::string& setting);

/// What a session is whatever its policy says.
struct SessionIdentity {
  policy::Id uid, gid;
  std::string workspace;
};

/// Why a launch has no policy. `control` is what the record names: "policy", or "ceiling" where the
/// policy that came along is not within the operator's.
struct NoPolicy {
  const char* control = "policy";
  policy::Diagnostics wrong;
};

/// The policy of a launch: the served one, or the one that came along, with what the request adds,
/// which may take away and name environment variables, and nothing else.
[[nodiscard]] tl::expected<policy::Policy, NoPolicy> policy_of_launch(
    const ServedPolicies& policies, const Launch& launch, const SessionIdentity& identity);

}  // namespace belljar::service
