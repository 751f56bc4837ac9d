#include "launcher/cpu_meter.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/sys/proc.hpp"
#include "launcher/sys/read_file.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::launcher {
namespace {

constexpr std::chrono::milliseconds kShortest{10};
/// Looking must not become what the machine is busy with: at most one part in so many of the time.
constexpr int kShare = 20;

std::string read_proc(const std::string& path) {
  return sys::read_file(sys::proc_directory(), path);
}

std::vector<std::int64_t> numbers(std::string_view text) {
  std::vector<std::int64_t> found;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    std::int64_t number = 0;
    if (!word.empty()) std::from_chars(word.data(), word.data() + word.size(), number);
    if (!word.empty()) found.push_back(number);
  }
  return found;
}

struct Process {
  pid_t parent = 0;
  std::chrono::microseconds used{};  ///< By itself and by the children that it has waited for.
};

std::optional<Process> look_at(pid_t pid) {
  const std::string text = read_proc(std::to_string(pid) + "/stat");
  // The name, in parentheses, is the command's to choose (man 5 proc).
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  const std::vector<std::int64_t> fields =
      numbers(std::string_view(text).substr(std::min(name_end + 2, text.size())));
  constexpr std::size_t kParent = 1, kFirstTime = 11, kTimes = 4;
  if (fields.size() < kFirstTime + kTimes) return std::nullopt;
  std::int64_t ticks = 0;
  for (std::size_t i = 0; i < kTimes; ++i) ticks += fields[kFirstTime + i];
  static const std::int64_t kTickUs = 1'000'000 / sysconf(_SC_CLK_TCK);
  return Process{static_cast<pid_t>(fields[kParent]), std::chrono::microseconds(ticks * kTickUs)};
}

/// Each thread has the children that it made.
std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> found;
  const std::string tasks = std::to_string(pid) + "/task";
  sys::UniqueFd fd(
      openat(sys::proc_directory(), tasks.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* list = fd.valid() ? fdopendir(fd.get()) : nullptr;
  if (list == nullptr) return found;
  (void)fd.release();
  while (const dirent* entry = readdir(list)) {
    if (entry->d_name[0] == '.') continue;
    for (const std::int64_t child : numbers(read_proc(tasks + "/" + entry->d_name + "/children")))
      found.push_back(static_cast<pid_t>(child));
  }
  closedir(list);
  return found;
}

}  // namespace

/// Parents are looked at before their children: what a child has used when its parent waits for it
/// meanwhile is then missing once, and never counted twice.
std::chrono::microseconds cpu_time_of_tree(pid_t init) {
  std::chrono::microseconds sum{};
  std::set<pid_t> seen;
  std::vector<pid_t> waiting{init};
  while (!waiting.empty()) {
    const pid_t pid = waiting.back();
    waiting.pop_back();
    const std::optional<Process> process = look_at(pid);
    // Its number may be somebody else's by now.
    if (!process || (pid != init && !seen.contains(process->parent))) continue;
    if (!seen.insert(pid).second) continue;
    sum += process->used;
    for (const pid_t child : children_of(pid)) waiting.push_back(child);
  }
  return sum;
}

CpuMeter::CpuMeter(const Plan& plan, const Cgroups& cgroups) : cgroups_(cgroups) {
  for (const Step& step : plan.steps)
    if (const auto* meter = std::get_if<MeterCpuTime>(&step.action)) limit_ = meter->limit;
}

void CpuMeter::begin(pid_t init) {
  if (!limit_) return;
  init_ = init;
  const Result<Time> before = read();
  if (!before) return fail_with(before.error());
  before_ = *before;
  look();
}

Result<CpuMeter::Time> CpuMeter::read() const {
  if (const auto counted = cgroups_.cpu_time()) return *counted;
  return cpu_time_of_tree(init_);
}

/// It is looked for at once.
void CpuMeter::fail_with(Error error) {
  failure_ = std::move(error);
  failure_->what = "could not " + failure_->what;
  failure_->where = "limits.cpu_time";
  failure_->remedy =
      "leave the cgroup that belljar has made alone while the command runs, and its processes in "
      "it";
  next_ = Clock::now();
}

bool CpuMeter::work() {
  if (failure_ || !next_ || Clock::now() < *next_) return false;
  look();
  return used_ >= *limit_;
}

void CpuMeter::look() {
  const Clock::time_point now = Clock::now();
  const Result<Time> all = read();
  if (!all) return fail_with(all.error());
  used_ = std::max(used_, *all - before_);
  static const long kProcessors = std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
  const Clock::time_point looked = Clock::now();
  next_ = looked + std::max<Clock::duration>(
                       {kShortest, (looked - now) * kShare, (*limit_ - used_) / kProcessors});
}

std::optional<CpuMeter::Time> CpuMeter::end(Time all) {
  if (!limit_ || init_ == 0) return std::nullopt;
  next_.reset();
  if (const auto counted = cgroups_.cpu_time()) {
    if (failure_ || !*counted) return std::nullopt;
    all = **counted;
  }
  used_ = std::max(used_, all - before_);
  return used_;
}

}  // namespace belljar::launcher
