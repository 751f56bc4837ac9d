#include <sys/resource.h>

#include <cerrno>

#include "launcher/controls/control.hpp"
#include "launcher/controls/promises.hpp"

namespace belljar::launcher {
namespace {

/// The kernel's rlimits (man 2 getrlimit); the names are the policy's.
constexpr std::pair<std::string_view, int> kNames[] = {
    {"as", RLIMIT_AS},           {"core", RLIMIT_CORE},         {"cpu", RLIMIT_CPU},
    {"data", RLIMIT_DATA},       {"fsize", RLIMIT_FSIZE},       {"locks", RLIMIT_LOCKS},
    {"memlock", RLIMIT_MEMLOCK}, {"msgqueue", RLIMIT_MSGQUEUE}, {"nice", RLIMIT_NICE},
    {"nofile", RLIMIT_NOFILE},   {"nproc", RLIMIT_NPROC},       {"rss", RLIMIT_RSS},
    {"rtprio", RLIMIT_RTPRIO},   {"rttime", RLIMIT_RTTIME},     {"sigpending", RLIMIT_SIGPENDING},
    {"stack", RLIMIT_STACK},
};

constexpr Probe kProbes[] = {
    {"raise-nofile", "raise the hard limit of open files",
     [] {
       rlimit limit{};
       if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return errno;
       limit.rlim_max += 1;
       return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? 0 : errno;
     },
     [](const Made&) -> const char* { return "limits.rlimits.nofile"; }},
};

Result<int> resource_of(const std::string& name) {
  for (const auto& [known, resource] : kNames)
    if (known == name) return resource;
  return fail({ErrorKind::kInvalid, 0, "unknown rlimit " + name, "limits.rlimits", {}});
}

Status plan(PlanBuilder& builder) {
  for (const auto& [name, limit] : builder.policy.limits.rlimits) {
    const std::string where = policy::member_path("limits.rlimits", name);
    // limits.disk is lower and sets it.
    if (name == "fsize" && disk_limits_files(builder.policy.limits)) continue;
    // The kernel exempts uid 0 of the host from RLIMIT_NPROC, whatever its capabilities.
    if (name == "nproc" && builder.ids.uid == 0)
      return fail({ErrorKind::kRefused, 0, "rlimit nproc does not bind uid 0 of the host", where,
                   "run as another uid: --set identity.uid=N; or remove the limit"});
    builder.add(Phase::kLimits,
                SetLimit{name, BELLJAR_TRY(resource_of(name)),
                         limit.unlimited ? RLIM_INFINITY : limit.value},
                where);
  }
  return {};
}

std::string remedy(const FailedStep& failed, const policy::Policy&, const Host&) {
  if (failed.sys_errno == EPERM)
    return "the caller's own hard limit is lower: lower the policy's, or raise the caller's with "
           "ulimit -H or in the service's unit";
  return {};
}

}  // namespace

std::span<const std::pair<std::string_view, int>> rlimit_numbers() { return kNames; }

const Control kRlimits = {"rlimits",
                          "per-process limits, soft and hard alike, each read back as it "
                          "is set",
                          nothing_required,
                          plan,
                          nullptr,
                          kProbes,
                          remedy};

}  // namespace belljar::launcher
