#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "launcher/controls/control.hpp"
#include "launcher/controls/paths.hpp"
#include "launcher/controls/promises.hpp"
#include "launcher/controls/wanted.hpp"
#include "policy/units.hpp"

namespace belljar::launcher {
namespace {

using sys::CgroupParent;

/// One limit of the policy: its name there, the controller that serves it, and what is written.
struct Limit {
  std::string_view name;
  std::string_view controller;
  bool (*is_set)(const policy::Limits&);
  LimitCgroup (*lower)(const policy::Limits&, int version);  ///< Null: the cgroup only counts.
};

template <auto kMember>
bool is_set(const policy::Limits& limits) {
  return (limits.*kMember).has_value();
}

/// v1 has no limit of swap alone, but one of memory and swap together.
LimitCgroup::Write swap_write(const policy::Limits& limits, int version) {
  const std::uint64_t swap = limits.swap.value_or(0);
  // Not asked for by itself: a kernel without swap accounting has no such file.
  const bool if_there = !limits.swap.has_value();
  if (version == 2) return {"memory.swap.max", std::to_string(swap), if_there};
  return {"memory.memsw.limit_in_bytes", std::to_string(*limits.memory + swap), if_there};
}

LimitCgroup memory_limit(const policy::Limits& limits, int version) {
  LimitCgroup limit{"memory", policy::size_text(*limits.memory), {}, {}};
  const std::string bytes = std::to_string(*limits.memory);
  if (version == 1) {
    limit.writes = {{"memory.limit_in_bytes", bytes}};
  } else {
    // Without a group the kernel picks one process, and the rest goes on half broken.
    limit.writes = {{"memory.oom.group", "1"}, {"memory.max", bytes}};
  }
  if (!limits.swap) limit.writes.push_back(swap_write(limits, version));
  return limit;
}

LimitCgroup swap_limit(const policy::Limits& limits, int version) {
  return {"swap", policy::size_text(*limits.swap), {swap_write(limits, version)}, {}};
}

/// The sandbox's init, which is ours, comes on top.
LimitCgroup process_limit(const policy::Limits& limits, int) {
  return {"processes",
          std::to_string(*limits.processes),
          {{"pids.max", std::to_string(*limits.processes + 1)}},
          {}};
}

LimitCgroup processor_limit(const policy::Limits& limits, int version) {
  constexpr std::uint64_t kPeriodUs = 100'000;
  const std::string period = std::to_string(kPeriodUs);
  const std::string quota = std::to_string(*limits.cpus * (kPeriodUs / 1000));
  std::string fraction = std::to_string(1000 + *limits.cpus % 1000).substr(1);
  while (!fraction.empty() && fraction.back() == '0') fraction.pop_back();
  LimitCgroup limit{"cpus", std::to_string(*limits.cpus / 1000), {}, {}};
  if (!fraction.empty()) limit.text += "." + fraction;
  if (version == 2)
    limit.writes = {{"cpu.max", quota + " " + period}};
  else
    limit.writes = {{"cpu.cfs_period_us", period}, {"cpu.cfs_quota_us", quota}};
  return limit;
}

constexpr std::array<Limit, 5> kLimits = {
    {{"memory", "memory", is_set<&policy::Limits::memory>, memory_limit},
     {"swap", "memory", is_set<&policy::Limits::swap>, swap_limit},
     {"processes", "pids", is_set<&policy::Limits::processes>, process_limit},
     {"cpus", "cpu", is_set<&policy::Limits::cpus>, processor_limit},
     {"cpu_time", "cpuacct", is_set<&policy::Limits::cpu_time>, nullptr}}};

constexpr Probe kProbes[] = {
    {"leave-cgroup", "open a cgroup's list of processes for writing",
     [] {
       int refusal = ENOENT;
       for (const char* at : {"", "/memory", "/pids", "/cpu", "/unified"}) {
         const std::string path = std::string("/sys/fs/cgroup") + at + "/cgroup.procs";
         const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
         if (fd >= 0) {
           close(fd);
           return 0;
         }
         if (errno != ENOENT) refusal = errno;
       }
       return refusal;
     },
     [](const Made& made) -> const char* {
       const policy::Limits& limits = made.policy.limits;
       const bool prefers = limits.enforce == policy::Enforce::kPrefer;
       if (prefers ? !has_step<MakeCgroup>(made.plan) : cgroup_controllers(limits).empty())
         return nullptr;
       return "limits";
     }},
};

std::string where_of(const Limit& limit) { return "limits." + std::string(limit.name); }

std::string delegation(int error, const Host& host) {
  const std::string scope = host.uid == 0
                                ? "systemd-run --scope -p Delegate=yes belljar ..."
                                : "systemd-run --user --scope -p Delegate=yes belljar ...";
  if (error == EROFS)
    return "in a container, mount its cgroups writable: Docker 28, security_opt: "
           "[\"writable-cgroups=true\"]; Podman, -v /sys/fs/cgroup:/sys/fs/cgroup:rw. Or let the "
           "policy do without: limits.enforce \"prefer\"";
  return "give belljar a cgroup of its own: " + scope +
         "; on a host with cgroup v1, as root: mkdir /sys/fs/cgroup/CONTROLLER/NAME, chown -R it "
         "to the caller, and move the caller's shell there. Or let the policy do without: "
         "limits.enforce \"prefer\"";
}

Error not_enforceable(const Limit& limit, const Host& host) {
  const auto why = host.cgroups.missing.find(std::string(limit.controller));
  Error error{ErrorKind::kUnavailable,
              0,
              "limits." + std::string(limit.name) + " needs a cgroup, and none can be made",
              {},
              {}};
  if (why != host.cgroups.missing.end()) {
    error.sys_errno = why->second.sys_errno;
    error.what += ": " + why->second.what;
  }
  error.where = where_of(limit);
  error.remedy = delegation(error.sys_errno, host);
  return error;
}

/// A writable view of the cgroup file system lets the payload leave, or raise what binds it.
Status refuse_open_doors(const PlanBuilder& builder, const CgroupParent& parent,
                         const std::string& because) {
  const policy::Policy& policy = builder.policy;
  for (const auto& [target, mount] : policy.filesystem.mounts) {
    const bool shows =
        is_within(mount.source, parent.mount_point) || is_within(parent.mount_point, mount.source);
    if (mount.type == policy::MountType::kBind && !mount.readonly && shows)
      return fail({ErrorKind::kRefused, 0,
                   "the command could change its own limits in " + parent.mount_point + ", which " +
                       mount.source + " shows it writable",
                   policy::member_path("filesystem.mounts", target),
                   "make it \"readonly\": true, or remove " + because});
  }
  // Whoever may mount inside can mount the file system of its own cgroups, where the files of a
  // plain user's cgroup belong to the command's uid.
  const auto& names = policy.capabilities;
  const bool may_mount = std::find(names.begin(), names.end(), "CAP_SYS_ADMIN") != names.end() ||
                         policy.namespaces.nested_user;
  if (may_mount && !builder.host.privileged())
    return fail({ErrorKind::kRefused, 0,
                 "the command could mount its cgroup, which belongs to its own uid, and change "
                 "its limits",
                 because,
                 "remove CAP_SYS_ADMIN and namespaces.nested_user, or run belljar as root"});
  return {};
}

/// A process that ignores SIGCHLD has its children taken away by the kernel, and what they used
/// with them (man 2 getrusage).
constexpr const char* kCountedOtherwise =
    "; belljar looks at the processes instead, and misses what children use that nobody waits for";

Status plan_one(PlanBuilder& builder, const Limit& limit, const CgroupParent*& made) {
  const policy::Limits& limits = builder.policy.limits;
  const bool prefer = limits.enforce == policy::Enforce::kPrefer;
  const CgroupParent* parent = builder.host.cgroups.serving(limit.controller);
  if (parent == nullptr) {
    Error error = not_enforceable(limit, builder.host);
    if (!prefer) return fail(std::move(error));
    if (limit.lower == nullptr) error.what += kCountedOtherwise;
    builder.degrade(std::move(error.what));
    return {};
  }
  if (parent != made) {
    BELLJAR_CHECK(refuse_open_doors(builder, *parent, where_of(limit)));
    std::vector<std::string> controllers;
    for (const Limit& other : kLimits)
      if (other.is_set(limits) && builder.host.cgroups.serving(other.controller) == parent &&
          std::find(controllers.begin(), controllers.end(), other.controller) == controllers.end())
        controllers.emplace_back(other.controller);
    builder.add(Phase::kBefore, MakeCgroup{*parent, std::move(controllers), prefer},
                where_of(limit));
    made = parent;
  }
  if (limit.lower == nullptr) return {};
  LimitCgroup action = limit.lower(limits, parent->version);
  action.prefer = prefer;
  builder.add(Phase::kBefore, std::move(action), where_of(limit));
  return {};
}

/// By the place that serves them: the limits of one cgroup follow it.
Status plan(PlanBuilder& builder) {
  const policy::Limits& limits = builder.policy.limits;
  if (limits.swap && !limits.memory)
    return fail({ErrorKind::kRefused, 0, "a limit of swap alone does not hold: memory would grow",
                 "limits.swap", "set limits.memory too"});
  const CgroupParent* made = nullptr;
  std::array<bool, kLimits.size()> done{};
  for (std::size_t i = 0; i < kLimits.size(); ++i) {
    const CgroupParent* place = builder.host.cgroups.serving(kLimits[i].controller);
    for (std::size_t j = i; j < kLimits.size(); ++j) {
      const bool same = builder.host.cgroups.serving(kLimits[j].controller) == place;
      if (done[j] || !same || !kLimits[j].is_set(limits)) continue;
      done[j] = true;
      BELLJAR_CHECK(plan_one(builder, kLimits[j], made));
    }
  }
  return {};
}

std::vector<Requirement> require(const policy::Policy& policy, const Host&) {
  std::vector<Requirement> needed;
  for (const Limit& limit : kLimits)
    if (limit.is_set(policy.limits))
      needed.push_back(
          {"a cgroup that belljar may make, with the controller " + std::string(limit.controller),
           where_of(limit)});
  return needed;
}

std::string remedy(const FailedStep& failed, const policy::Policy&, const Host& host) {
  return delegation(failed.sys_errno, host);
}

}  // namespace

std::vector<std::string> cgroup_controllers(const policy::Limits& limits) {
  std::vector<std::string> needed;
  for (const Limit& limit : kLimits)
    if (limit.is_set(limits) &&
        std::find(needed.begin(), needed.end(), limit.controller) == needed.end())
      needed.emplace_back(limit.controller);
  return needed;
}

std::vector<std::string> limits_served_by(std::string_view controller,
                                          const policy::Limits& limits) {
  std::vector<std::string> found;
  for (const Limit& limit : kLimits)
    if (limit.is_set(limits) && limit.controller == controller) found.push_back(where_of(limit));
  return found;
}

std::vector<std::string> every_cgroup_controller() {
  std::vector<std::string> all;
  for (const Limit& limit : kLimits)
    if (std::find(all.begin(), all.end(), limit.controller) == all.end())
      all.emplace_back(limit.controller);
  return all;
}

const Control kCgroup = {"cgroup",
                         "memory, swap, processes, processors and processor time of the whole "
                         "sandbox, each limit read back as it is set, and the first process's "
                         "membership after the clone",
                         require,
                         plan,
                         nullptr,
                         kProbes,
                         remedy};

}  // namespace belljar::launcher
