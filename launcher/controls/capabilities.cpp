#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/controls/control.hpp"
#include "launcher/controls/promises.hpp"
#include "policy/names.hpp"

namespace belljar::launcher {
namespace {

constexpr Probe kProbes[] = {
    {"mount-tmpfs", "mount a tmpfs on /tmp",
     [] { return mount("tmpfs", "/tmp", "tmpfs", 0, nullptr) == 0 ? 0 : errno; },
     [](const Made& made) -> const char* {
       return refused_without(made.policy, "CAP_SYS_ADMIN", "mount");
     }},
    {"chroot", "change the root directory", [] { return chroot("/") == 0 ? 0 : errno; },
     [](const Made& made) -> const char* {
       return refused_without(made.policy, "CAP_SYS_CHROOT", "chroot");
     }},
    {"sethostname", "change the host's name",
     [] { return sethostname("belljar-probe", 13) == 0 ? 0 : errno; },
     [](const Made& made) -> const char* {
       return refused_without(made.policy, "CAP_SYS_ADMIN", "sethostname");
     }},
};

Status plan(PlanBuilder& builder) {
  builder.add(Phase::kInitPrivileges, DropCapabilities{capability_bits(builder.policy)},
              "capabilities");
  return {};
}

}  // namespace

std::uint64_t capability_bits(const policy::Policy& policy) {
  std::uint64_t bits = 0;
  for (const std::string& name : policy.capabilities) {
    const policy::NamedNumber* known = policy::find_name(policy::capability_names(), name);
    if (known != nullptr) bits |= std::uint64_t{1} << known->number;
  }
  return bits;
}

const Control kCapabilities = {
    "capabilities",
    "init and payload have just those that the policy names, in all five sets (read "
    "back with the identity)",
    nothing_required,
    plan,
    nullptr,
    kProbes,
    no_remedy};

}  // namespace belljar::launcher
