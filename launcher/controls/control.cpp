#include "launcher/controls/control.hpp"

#include <algorithm>
#include <array>

namespace belljar::launcher {
namespace {

Side side_of(Phase phase) {
  if (phase == Phase::kBefore) return Side::kLauncher;
  return phase < Phase::kStart ? Side::kInit : Side::kPayload;
}

}  // namespace

std::vector<Requirement> nothing_required(const policy::Policy&, const Host&) { return {}; }

std::string no_remedy(const FailedStep&, const policy::Policy&, const Host&) { return {}; }

std::span<const Control* const> controls() {
  static constexpr std::array<const Control*, 17> kTable = {
      &kCgroup,     &kOutputRelay, &kDiskMeter, &kNamespaces,   &kIdentity,        &kFilesystem,
      &kProcAndDev, &kNetwork,     &kLandlock,  &kCapabilities, &kNoNewPrivileges, &kSeccomp,
      &kRlimits,    &kEnvironment, &kStdio,     &kTimeLimits,   &kCommand,
  };
  return kTable;
}

const Control* find_control(std::string_view name) {
  for (const Control* control : controls())
    if (control->name == name) return control;
  return nullptr;
}

void PlanBuilder::add(Phase phase, StepAction action, std::string because) {
  steps_.push_back(
      {phase, Step{side_of(phase), std::move(action), std::string(control), std::move(because)}});
}

Plan PlanBuilder::finish() && {
  std::stable_sort(steps_.begin(), steps_.end(),
                   [](const Placed& a, const Placed& b) { return a.phase < b.phase; });
  Plan plan;
  plan.steps.reserve(steps_.size());
  for (Placed& placed : steps_) plan.steps.push_back(std::move(placed.step));
  plan.argv = std::move(argv);
  plan.environment = std::move(environment);
  plan.directory = std::move(directory);
  plan.uid = ids.uid;
  plan.gid = ids.gid;
  plan.degraded = std::move(degraded);
  plan.notes = std::move(notes);
  return plan;
}

}  // namespace belljar::launcher
