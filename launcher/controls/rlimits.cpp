#include <sys/resource.h>

#include <cerrno>

#include "launcher/controls/facts.hpp"
#include "launcher/controls/promises.hpp"
#include "launcher/record.hpp"

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

std::string limit_text(rlim_t value) {
  return value == RLIM_INFINITY ? "unlimited" : std::to_string(value);
}

Result<int> resource_of(const std::string& name) {
  for (const auto& [known, resource] : kNames)
    if (known == name) return resource;
  return fail({ErrorKind::kInvalid, 0, "unknown rlimit " + name, "limits.rlimits", {}});
}

std::vector<Fact::Expected> expected_limits(const Made& made) {
  std::vector<Fact::Expected> expected;
  for (const auto& [name, limit] : made.policy.limits.rlimits)
    if (name != "fsize" || !disk_limits_files(made.policy.limits))
      expected.push_back({name + " " + limit_text(limit.unlimited ? RLIM_INFINITY : limit.value),
                          policy::member_path("limits.rlimits", name)});
  return expected;
}

constexpr Fact kFacts[] = {
    {"rlimit", "a limit is not the policy's", look_at_limit, expected_limits},
};

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

Seen look_at_limit(const std::string& value) {
  const std::string name = value.substr(0, value.find(' '));
  const std::string expected = value.substr(name.size() + 1);
  const Result<int> resource = resource_of(name);
  rlimit limit{};
  if (!resource || getrlimit(static_cast<__rlimit_resource>(*resource), &limit) != 0)
    return unseen("getrlimit: " + errno_name(errno));
  Seen soft = compare(name, limit_text(limit.rlim_cur), expected);
  if (soft.verdict != Seen::Verdict::kHolds) return soft;
  return compare("the hard limit of " + name, limit_text(limit.rlim_max), expected);
}

const Control kRlimits = {"rlimits",
                          "per-process limits, soft and hard alike, each read back as it "
                          "is set",
                          nothing_required,
                          plan,
                          nullptr,
                          kProbes,
                          remedy,
                          kFacts};

}  // namespace belljar::launcher
