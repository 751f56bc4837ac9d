// Findings: what a machine lacks for a policy, how that was seen, and what to change.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/facts.hpp"
#include "policy/policy.hpp"

namespace belljar::launcher {

enum class Weight {
  kMissing,  ///< Sandboxes of this policy are refused.
  kWeaker,   ///< They run, without something that the policy prefers.
  kNote,     ///< They run; a person should know.
};

struct HostFinding {
  std::string_view id;       ///< "container-seccomp", as docs/doctor.md has it.
  std::string_view control;  ///< Of the table of controls, or "host".
  Weight weight = Weight::kNote;
  std::string evidence;
  std::string remedy;
  std::vector<std::string> fix;  ///< Lines of a shell script. Empty: nothing that a script can do.
};

/// Everything that `facts` lack for `policy`, in the order in which a launch would meet it.
[[nodiscard]] std::vector<HostFinding> find(const Facts& facts, const policy::Policy& policy);

/// Every id that there is, for the documentation and its test.
[[nodiscard]] std::vector<std::string_view> finding_ids();

/// "modern: ..." or "legacy: clone3: ENOSYS".
[[nodiscard]] std::string back_end_text(const Facts& facts);

/// The calls that a launch makes and Docker's default profile refuses.
[[nodiscard]] std::string seccomp_additions();

}  // namespace belljar::launcher
