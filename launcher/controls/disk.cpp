#include <sys/resource.h>

#include "launcher/controls/facts.hpp"

namespace belljar::launcher {
namespace {

/// Without project quotas, which few hosts have, a directory of the host has no limit of the
/// kernel's: it is measured. No single file outgrows it in between: RLIMIT_FSIZE, the kernel's own.
Status plan(PlanBuilder& builder) {
  const policy::Limits& limits = builder.policy.limits;
  if (!limits.disk) return {};
  builder.add(Phase::kBefore, MeasureDisk{*limits.disk}, "limits.disk");
  if (disk_limits_files(limits))
    builder.add(Phase::kLimits, SetLimit{"fsize", RLIMIT_FSIZE, *limits.disk}, "limits.disk");
  return {};
}

constexpr Fact kFacts[] = {
    {"file-size", "the limit of a single file is not the policy's", look_at_limit,
     [](const Made& made) {
       std::vector<Fact::Expected> expected;
       if (disk_limits_files(made.policy.limits))
         expected.push_back({"fsize " + std::to_string(*made.policy.limits.disk), "limits.disk"});
       return expected;
     }},
};

}  // namespace

bool disk_limits_files(const policy::Limits& limits) {
  const auto files = limits.rlimits.find("fsize");
  return limits.disk && (files == limits.rlimits.end() || files->second.unlimited ||
                         files->second.value > *limits.disk);
}

// There is nothing to probe inside: the command may write, and is ended by belljar.
const Control kDiskMeter = {
    "disk",
    "belljar measures what the command can write, and ends it above the limit; "
    "the limit of a single file is read back as it is set",
    nothing_required,
    plan,
    nullptr,
    {},
    no_remedy,
    kFacts};

}  // namespace belljar::launcher
