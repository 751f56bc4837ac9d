#include "launcher/cgroups.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <sstream>

#include "launcher/sys/proc.hpp"
#include "launcher/sys/read_file.hpp"

namespace belljar::launcher {
namespace {

Status set_limit(sys::Cgroup& cgroup, const LimitCgroup& limit) {
  for (const LimitCgroup::Write& write : limit.writes) {
    Status set = cgroup.set(write.file, write.value);
    const bool absent = !set && set.error().sys_errno == ENOENT;
    if (!set && !(absent && write.if_there)) return set;
  }
  return {};
}

/// v2 tells of events in memory.events, v1 in memory.oom_control.
bool killed_for_memory(const sys::Cgroup& cgroup) {
  const char* file = cgroup.version() == 2 ? "memory.events" : "memory.oom_control";
  return cgroup.number(file, "oom_kill").value_or(0) > 0;
}

/// v1 shows whoever is on the way out at the root of its hierarchies, for a while before the end
/// can be waited for (kernel/cgroup/cgroup.c, proc_cgroup_show). It has started nothing by then, or
/// takes that with it.
bool is_exiting(pid_t pid) {
  constexpr unsigned long kExiting = 4;  // PF_EXITING
  const std::string text = sys::read_file(sys::proc_directory(), std::to_string(pid) + "/stat");
  std::istringstream fields(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::string skipped;
  for (int i = 0; i < 6; ++i) fields >> skipped;
  unsigned long flags = 0;
  return fields >> flags && (flags & kExiting) != 0;
}

Result<std::chrono::microseconds> cpu_time_in(const sys::Cgroup& cgroup) {
  if (cgroup.version() == 2)
    return std::chrono::microseconds(BELLJAR_TRY(cgroup.counter("cpu.stat", "usage_usec")));
  return std::chrono::microseconds(BELLJAR_TRY(cgroup.counter("cpuacct.usage")) / 1000);
}

bool counts_cpu_time(const MakeCgroup& make) {
  const auto& had = make.controllers;
  return std::find(had.begin(), had.end(), sys::kCpuAccounting) != had.end();
}

}  // namespace

std::optional<StepFailure> Cgroups::set_up(const Plan& plan, std::vector<Degraded>& degraded) {
  std::string name;     // The same in each hierarchy.
  bool absent = false;  // The cgroup that the next limits are for was not to be had.
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    if (step.side != Side::kLauncher) break;
    const auto* make = std::get_if<MakeCgroup>(&step.action);
    const auto* limit = std::get_if<LimitCgroup>(&step.action);
    if (make == nullptr && limit == nullptr) continue;
    Status done;
    if (make != nullptr) {
      if (name.empty()) name = sys::cgroup_name();
      Result<sys::Cgroup> cgroup = sys::Cgroup::make(make->parent, name, make->controllers);
      absent = !cgroup;
      done = cgroup ? add(std::move(*cgroup), *make, step, degraded) : fail(cgroup.error());
    } else if (!absent) {
      done = set_limit(made_.back().cgroup, *limit);
      if (done) limits_.push_back(limit->limit);
      made_.back().memory |= limit->limit == "memory";
      if (limit->limit == "processes") made_.back().processes = limit->writes.front().value;
    }
    if (done) continue;
    const bool prefer = make != nullptr ? make->prefer : limit->prefer;
    if (!prefer) return StepFailure{static_cast<int>(i), done.error()};
    degraded.push_back({step.control, "cannot " + step.text() + ": " + done.error().what});
  }
  for (const Made& made : made_)
    if (made.memory) memory_event_ = made.cgroup.watch_memory();
  return std::nullopt;
}

/// One that cannot be read would let the command run for ever.
Status Cgroups::add(sys::Cgroup cgroup, const MakeCgroup& make, const Step& step,
                    std::vector<Degraded>& degraded) {
  made_.push_back({std::move(cgroup), false, counts_cpu_time(make), {}});
  if (!made_.back().cpu_time) return {};
  const Result<std::chrono::microseconds> now = cpu_time_in(made_.back().cgroup);
  if (now) return {};
  if (!make.prefer) return fail(now.error());
  made_.back().cpu_time = false;
  degraded.push_back({step.control, "cannot " + now.error().what +
                                        ", so belljar looks at the processes instead, and misses "
                                        "what children use that nobody waits for"});
  return {};
}

Status Cgroups::make_room() {
  for (Made& made : made_)
    if (!made.processes.empty())
      BELLJAR_CHECK(made.cgroup.set("pids.max", std::to_string(std::stoull(made.processes) + 2)));
  return {};
}

Status Cgroups::take_room_back() {
  for (Made& made : made_)
    if (!made.processes.empty()) BELLJAR_CHECK(made.cgroup.set("pids.max", made.processes));
  return {};
}

Status Cgroups::enter() {
  for (Made& made : made_) BELLJAR_CHECK(made.cgroup.enter());
  return {};
}

Status Cgroups::leave() {
  Status left;
  for (Made& made : made_)
    if (Status one = made.cgroup.leave(); !one) left = one;
  return left;
}

Status Cgroups::check(pid_t pid) const {
  if (made_.empty()) return {};
  const std::string text = sys::read_file(sys::proc_directory(), std::to_string(pid) + "/cgroup");
  for (const Made& made : made_)
    if (!made.cgroup.holds(text) && !is_exiting(pid))
      return fail({ErrorKind::kRefused,
                   0,
                   "the sandbox's first process is not in the cgroup " + made.cgroup.name() +
                       " that was made for it",
                   "limits",
                   {}});
  return {};
}

void Cgroups::kill() const {
  for (const Made& made : made_) made.cgroup.kill();
}

bool Cgroups::has_killed_for_memory() const {
  // The event comes just before the kill, and sometimes memory is found after all.
  constexpr int kTries = 50, kPauseMs = 2;
  for (int i = 0; i < kTries; ++i) {
    for (const Made& made : made_)
      if (made.memory && killed_for_memory(made.cgroup)) return true;
    poll(nullptr, 0, kPauseMs);
  }
  return false;
}

std::optional<Result<std::chrono::microseconds>> Cgroups::cpu_time() const {
  for (const Made& made : made_)
    if (made.cpu_time) return cpu_time_in(made.cgroup);
  return std::nullopt;
}

CgroupEvidence Cgroups::evidence() const {
  CgroupEvidence evidence;
  for (const Made& made : made_) {
    if (!made.processes.empty())
      evidence.forks_refused = made.cgroup.number("pids.events", "max").value_or(0) > 0;
    if (!made.memory) continue;
    evidence.out_of_memory = killed_for_memory(made.cgroup);
    evidence.peak_memory = made.cgroup.number(
        made.cgroup.version() == 2 ? "memory.peak" : "memory.max_usage_in_bytes");
  }
  return evidence;
}

}  // namespace belljar::launcher
