#include <linux/capability.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include "launcher/controls/facts.hpp"
#include "launcher/controls/promises.hpp"
#include "launcher/record.hpp"
#include "launcher/sys/raw.hpp"
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

std::string hex(std::uint64_t bits) {
  std::ostringstream text;
  text << std::hex << bits;
  return text.str();
}

std::uint64_t both_halves(const __user_cap_data_struct (&data)[2],
                          __u32 __user_cap_data_struct::*set) {
  return std::uint64_t{data[1].*set} << 32 | data[0].*set;
}

Seen look_at_sets(const std::string& expected) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (const long got = sys::raw(SYS_capget, &header, data); got < 0)
    return unseen("capget: " + errno_name(static_cast<int>(-got)));
  std::uint64_t bounding = 0;
  for (int number = 0; number < 64; ++number) {
    const int held = prctl(PR_CAPBSET_READ, number, 0, 0, 0);
    if (held < 0 && errno != EINVAL) return unseen("PR_CAPBSET_READ: " + errno_name(errno));
    if (held == 1) bounding |= std::uint64_t{1} << number;
  }
  const std::pair<const char*, std::uint64_t> sets[] = {
      {"the permitted set", both_halves(data, &__user_cap_data_struct::permitted)},
      {"the effective set", both_halves(data, &__user_cap_data_struct::effective)},
      {"the bounding set", bounding}};
  for (const auto& [name, bits] : sets)
    if (Seen seen = compare(name, hex(bits), expected); seen.verdict != Seen::Verdict::kHolds)
      return seen;
  return holds();
}

constexpr Fact kFacts[] = {
    {"capability-sets", "the capabilities are not the policy's", look_at_sets,
     [](const Made& made) {
       return std::vector<Fact::Expected>{{hex(capability_bits(made.policy)), "capabilities"}};
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
    no_remedy,
    kFacts};

}  // namespace belljar::launcher
