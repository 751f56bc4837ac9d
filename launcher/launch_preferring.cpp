// A launch that may do without a private network: apart from `launch`, which decides nothing.
#include "launcher/controls/control.hpp"
#include "launcher/failure.hpp"
#include "launcher/launch.hpp"

namespace belljar::launcher {
namespace {

/// Rules of what is reached hold in a private network alone, and ports are published into one that
/// is the sandbox's own: without it nothing starts.
bool may_share_instead(const Record& record, const policy::Policy& policy) {
  return policy.network.mode == policy::NetworkMode::kPrivate &&
         policy.network.enforce == policy::Enforce::kPrefer && !policy.network.has_rules() &&
         policy.network.publish.empty() && record.cause == Cause::kSetup && record.setup &&
         record.setup->control == kNetwork.name;
}

}  // namespace

Record launch_preferring(const Plan& plan, const policy::Policy& policy, const Host& host,
                         const Command& command, const Events& events, Attendant* attendant) {
  Record record = launch(plan, policy, host, events, attendant);
  if (!may_share_instead(record, policy)) return record;
  Host sharing = host;
  sharing.no_private_network =
      "the host's network in place of a private one: " + record.setup->reason;
  if (!record.setup->remedy.empty()) *sharing.no_private_network += "; " + record.setup->remedy;
  const Result<Plan> other = build_plan(policy, sharing, command);
  return other ? launch(*other, policy, sharing, events, attendant)
               : refused_record(policy, other.error());
}

}  // namespace belljar::launcher
