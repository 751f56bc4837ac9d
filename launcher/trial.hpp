// A trial: belljar's own program as the command of a real launch, to try inside what must hold.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/controls/control.hpp"
#include "launcher/launch.hpp"
#include "launcher/record.hpp"
#include "launcher/test_ground.hpp"

namespace belljar::launcher {

/// A control that is not in force, and what a person should change.
struct NotInForce {
  std::string control;
  std::string what;
  std::string policy;  ///< "agent.json:14:9 namespaces.nested_user"
  std::string remedy;
  bool by_probe = false;  ///< A probe's answer says so.

  /// "namespaces: create a user namespace worked (asked for by ...); remedy: ..."
  [[nodiscard]] std::string text() const;
};

/// What came of one probe.
struct ProbeAnswer {
  std::string control;
  std::string name;
  std::string attempt;
  std::string value;     ///< Of a fact: what it looks for.
  std::string verdict;   ///< "open", or the refusal: "EPERM", "SIGSYS". Of a fact: "holds", ...
  std::string seen;      ///< Of a fact: "nofile is 1048576, not 256"
  std::string promised;  ///< Which line promises the refusal; empty: none does.
  bool is_fact = false;
  bool may_be_unseen = false;

  [[nodiscard]] bool faulty() const { return verdict == kDoorOpen || verdict == kDiffers; }
  [[nodiscard]] bool broken() const { return faulty() && !promised.empty(); }
  [[nodiscard]] bool unknown() const {
    return verdict == kUnseen && !promised.empty() && !may_be_unseen;
  }
  [[nodiscard]] std::string text() const;  ///< "open a raw IPv4 socket: worked"
};

/// One launch, and what its command wrote.
struct Trial {
  Record record;
  bool begun = true;   ///< False: belljar lacked something for the trial itself.
  std::string output;  ///< Its beginning.
  Watched watched;
};

enum class TrialKind {
  kSession,  ///< The workspace "." is the ground, another one is shown beside it, and there is
             ///< time and room for the probes.
  kProbes,   ///< The workspace is the policy's; there is time and room for the probes.
  kWhole,    ///< All is the policy's.
};

/// Prepares a policy for launches: belljar is shown at a path of its own, output comes back. All
/// else stays as the policy has it, but for what `kind` says.
class TrialPolicy {
 public:
  /// `ground` outlives the result. Errors name what to change.
  [[nodiscard]] static Result<TrialPolicy> make(policy::Policy policy, const SessionIds& ids,
                                                const Host& host, TestGround& ground,
                                                TrialKind kind);

  [[nodiscard]] const policy::Policy& policy() const { return policy_; }

  /// Launches `belljar WORDS...` inside, or, with an empty `program`, WORDS. Standard input is
  /// empty; standard output and error are the trial's output. Everything that fails is in the
  /// record.
  [[nodiscard]] Trial launch_belljar(std::vector<std::string> words) const;
  [[nodiscard]] Trial launch(const std::vector<std::string>& words) const;

  /// Of every launch from now on.
  void adjust_network(std::function<void(AttachNetwork&)> adjust) { adjust_ = std::move(adjust); }

  /// The plan and the host of such a launch.
  [[nodiscard]] const Result<Host>& host() const { return host_; }
  [[nodiscard]] Result<Plan> plan() const;

  /// Where the ground is seen when it is not the workspace.
  [[nodiscard]] const std::optional<std::string>& second_work() const { return second_work_; }

 private:
  void find_out_about_network();

  policy::Policy policy_;
  std::string program_;  ///< Where belljar is, inside.
  std::optional<std::string> second_work_;
  std::function<void(AttachNetwork&)> adjust_;
  Result<Host> host_;
};

/// What the controls promise and a real launch shows.
struct ControlsReport {
  std::vector<ProbeAnswer> probes;
  std::vector<NotInForce> missing;
  std::vector<NotInForce> unknown;  ///< Of which nothing could be found out, and why.
  std::vector<Degraded> degraded;
  std::string back_end;  ///< Empty when nothing was launched.

  [[nodiscard]] bool holds() const { return missing.empty() && unknown.empty(); }
};

/// Launches, runs every control's probes inside, and compares.
[[nodiscard]] ControlsReport try_controls(const TrialPolicy& policy);

/// The failed step of a launch as a control that is not in force.
[[nodiscard]] NotInForce not_in_force(const SetupFailure& failure);

}  // namespace belljar::launcher
