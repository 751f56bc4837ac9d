// The table of controls: every confinement mechanism answers the same five questions.
//
// `run`, `explain` and the self-tests walk this one table, so a new mechanism is one new file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/host.hpp"
#include "launcher/plan.hpp"
#include "policy/base/result.hpp"
#include "policy/policy.hpp"

namespace belljar::launcher {

/// Where in a launch a step belongs. Steps are ordered by this, and within it by when they were
/// added, so that a control states *when* without knowing the others.
enum class Phase {
  kBefore,          ///< In the launcher.
  kIds,             ///< Init takes its ids.
  kGuard,           ///< Init ties itself to the launcher.
  kNetwork,         ///< Init still holds NET_ADMIN in its own namespace.
  kRoot,            ///< The new root is attached.
  kMounts,          ///< Pieces are moved into it.
  kMasks,           ///< Pieces of them are hidden.
  kSeal,            ///< Nothing more will be attached.
  kPivot,           ///< The host's tree is gone.
  kTerminal,        ///< The sandbox's /dev is in place.
  kLandlock,        ///< Nothing can be mounted any more.
  kInitPrivileges,  ///< Init gives up what it has.
  kForget,          ///< Init unmaps what came from the launcher.
  kStart,           ///< The payload's process begins.
  kDescriptors,
  kDirectory,
  kLimits,  ///< After the last descriptor is opened: nofile may be low.
  kPrivileges,
  kFilter,
  kReadBack,  ///< Read-back (b).
  kExec,
};

/// Collects steps while the table is walked.
class PlanBuilder {
 public:
  PlanBuilder(const policy::Policy& policy_in, const Host& host_in, const Command& command_in,
              SessionIds ids_in)
      : policy(policy_in), host(host_in), command(command_in), ids(ids_in) {}

  /// Adds a step of the control being walked; `because` is the policy path that asked for it.
  void add(Phase phase, StepAction action, std::string because = {});
  void degrade(std::string what) { degraded.push_back({std::string(control), std::move(what)}); }

  /// What the controls walked so far have planned, in the order in which they did.
  template <class Visitor>
  void visit_planned(Visitor&& visitor) const {
    for (const Placed& placed : steps_) std::visit(visitor, placed.step.action);
  }

  /// The plan, its steps in order of their phases.
  [[nodiscard]] Plan finish() &&;

  const policy::Policy& policy;
  const Host& host;
  const Command& command;
  const SessionIds ids;
  std::string_view control;  ///< The one whose turn it is.
  std::vector<Degraded> degraded;
  std::vector<std::string> notes;
  std::vector<std::string> argv;
  std::vector<std::string> environment;
  std::string directory = "/";

 private:
  struct Placed {
    Phase phase;
    Step step;
  };
  std::vector<Placed> steps_;
};

/// Something that the kernel or the caller must offer, in words for `doctor` and refusals.
struct Requirement {
  std::string what;
  std::string because;  ///< Policy path.
};

/// What a trial has set out beside the sandbox, for its probes to look for: where a host has
/// nothing to be kept from, a door that stands open would look like a shut one.
struct Lures {
  std::string abstract_socket;             ///< Somebody listens there. Empty: could not be made.
  std::optional<std::int32_t> keyring;     ///< The session keyring that belljar is in.
  std::optional<int> landlock_domains;     ///< So many more could belljar itself enter.
  std::optional<std::string> second_work;  ///< A directory of the session's, beside the workspace.
};

/// A sandbox as it was planned, for judging what it must refuse. What is promised follows from the
/// policy: a step that is missing in the plan is what the probes are for.
struct Made {
  const policy::Policy& policy;
  const Host& host;
  const Plan& plan;
  const SessionIds& ids;
  const Lures& lures;
};

/// A harmless try, run inside the sandbox, of what the control must refuse.
struct Probe {
  std::string_view name;     ///< "unshare-user"
  std::string_view attempt;  ///< "create a user namespace"
  int (*attempt_it)();       ///< 0 when the door is open, otherwise the errno of the refusal.
  /// The policy path that promises the refusal; null where the policy leaves the door open.
  const char* (*promised)(const Made&);
};

/// What a look from inside the sandbox came to.
struct Seen {
  enum class Verdict {
    kHolds,
    kDiffers,  ///< It is not as the policy has it.
    kUnseen,   ///< From inside it cannot be told.
  };
  Verdict verdict = Verdict::kHolds;
  std::string what;  ///< "nofile is 1048576, not 256"
};

/// What must be so inside, as the policy has it. Where a probe tries a door, this looks at the
/// wall: a door can be shut for other reasons.
struct Fact {
  /// What to look for, and the policy path that says so; empty: nothing promises it.
  struct Expected {
    std::string value;
    std::string because;
    /// Where it cannot be told, that is no news: the policy may go without, or shows too little.
    bool may_be_unseen = false;
  };
  std::string_view name;   ///< "rlimit"
  std::string_view fault;  ///< What is wrong when it is not so: "a limit is not the policy's"
  Seen (*look)(const std::string& value);
  std::vector<Expected> (*expected)(const Made&);
};

/// What `belljar probe` says of a probe before it begins; its verdict comes after.
inline constexpr const char* kTrying = "trying";
/// The verdict on a door that stands open; any other is why it does not.
inline constexpr const char* kDoorOpen = "open";
/// The verdicts of a Fact.
inline constexpr const char* kHolds = "holds";
inline constexpr const char* kDiffers = "differs";
inline constexpr const char* kUnseen = "unseen";

/// A step that failed, as the child reported it.
struct FailedStep {
  const Step* step = nullptr;
  int sys_errno = 0;
  std::string subject;  ///< What exactly: a path or a name, when the child could say.
};

struct Control {
  std::string_view name;
  std::string_view purpose;
  /// *require*: what this host must offer for this policy.
  std::vector<Requirement> (*require)(const policy::Policy&, const Host&);
  /// *plan*: which steps, on which side, when. Errors name the policy path and the remedy.
  Status (*plan)(PlanBuilder&);
  /// *read back*: the steps that ask the kernel what is in force, before exec. Null where another
  /// control's read-back step covers it; `purpose` says which.
  Status (*read_back)(PlanBuilder&);
  /// *probe*: what must fail inside.
  std::span<const Probe> probes;
  /// *remedy*: what a person should change when one of its steps failed. Empty: nothing to add.
  std::string (*remedy)(const FailedStep&, const policy::Policy&, const Host&);
  /// *probe*, too: what must be so inside.
  std::span<const Fact> facts = {};
};

/// The answers of a control that asks nothing of the host, and of one that has nothing to add to
/// what a failed step says by itself.
[[nodiscard]] std::vector<Requirement> nothing_required(const policy::Policy& policy,
                                                        const Host& host);
[[nodiscard]] std::string no_remedy(const FailedStep& failed, const policy::Policy& policy,
                                    const Host& host);

/// All controls, in the order in which they are planned and printed.
[[nodiscard]] std::span<const Control* const> controls();

/// The control of that name, or null.
[[nodiscard]] const Control* find_control(std::string_view name);

extern const Control kCgroup;
extern const Control kDiskMeter;
extern const Control kOutputRelay;
extern const Control kNamespaces;
extern const Control kIdentity;
extern const Control kFilesystem;
extern const Control kProcAndDev;
extern const Control kNetwork;
extern const Control kLandlock;
extern const Control kCapabilities;
extern const Control kNoNewPrivileges;
extern const Control kSeccomp;
extern const Control kRlimits;
extern const Control kEnvironment;
extern const Control kStdio;
extern const Control kTimeLimits;
extern const Control kCommand;

// What more than one control needs to know of a policy.

/// HOME inside the sandbox, or empty when the policy leaves it to `env`.
[[nodiscard]] std::string home_path(const policy::Policy& policy, const Host& host);

/// The variables that the command starts with, by name.
[[nodiscard]] std::map<std::string, std::string> environment_of(const policy::Policy& policy,
                                                                const Host& host);

/// The workspace with "." replaced; empty when there is none.
[[nodiscard]] std::string workspace_path(const policy::Policy& policy, const Host& host);

/// Whether the host's network is seen: as asked for, or in place of a private one.
[[nodiscard]] bool shares_network(const policy::Policy& policy, const Host& host);

/// Why the owner of the workspace cannot be mapped to the session; `what` is empty when nothing
/// speaks against it, or there is nothing to map.
struct Obstacle {
  std::string what;
  std::string remedy;
};
[[nodiscard]] Obstacle obstacle_to_mapping(const Host& host, const SessionIds& session);

/// The CLONE_NEW* flags that the policy asks for.
[[nodiscard]] std::uint64_t namespace_flags(const policy::Policy& policy, const Host& host);

/// The cgroup controllers that the policy's limits need.
[[nodiscard]] std::vector<std::string> cgroup_controllers(const policy::Limits& limits);

/// Whether the payload gets a system call filter.
[[nodiscard]] bool has_filter(const policy::Policy& policy);

/// Whether limits.disk is what limits the size of a single file.
[[nodiscard]] bool disk_limits_files(const policy::Limits& limits);

/// The rlimits by the policy's names, and their RLIMIT_*.
[[nodiscard]] std::span<const std::pair<std::string_view, int>> rlimit_numbers();

/// Bits of the policy's capabilities by kernel number (policy/names.hpp).
[[nodiscard]] std::uint64_t capability_bits(const policy::Policy& policy);

}  // namespace belljar::launcher
