#include "launcher/controls/control.hpp"

namespace belljar::launcher {
namespace {

Status plan(PlanBuilder& builder) {
  const policy::Io& io = builder.policy.io;
  if (!builder.policy.limits.output) return {};
  RelayOutput relay{*builder.policy.limits.output, {}};
  if (io.standard_output == policy::Stdio::kInherit) relay.descriptors.push_back(1);
  if (io.standard_error == policy::Stdio::kInherit) relay.descriptors.push_back(2);
  // What goes nowhere needs no limit.
  if (relay.descriptors.empty()) return {};
  builder.add(Phase::kBefore, std::move(relay), "limits.output");
  return {};
}

}  // namespace

// There is nothing to probe inside: the command sees a pipe, and is ended by belljar.
const Control kOutputRelay = {
    "output",
    "belljar counts what the command writes to 1 and 2, and ends it at the "
    "limit",
    nothing_required,
    plan,
    nullptr,
    {},
    no_remedy};

}  // namespace belljar::launcher
