#include "launcher/record.hpp"

#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>

#include "launcher/controls/control.hpp"

namespace belljar::launcher {
namespace {

using Json = nlohmann::ordered_json;

Json setup_json(const SetupFailure& setup) {
  Json json;
  if (!setup.step.empty()) json["step"] = setup.step;
  if (!setup.control.empty()) json["control"] = setup.control;
  if (!setup.error.empty()) json["errno"] = setup.error;
  json["reason"] = setup.reason;
  if (!setup.policy.empty()) json["policy"] = setup.policy;
  if (!setup.remedy.empty()) json["remedy"] = setup.remedy;
  return json;
}

Json usage_json(const Usage& usage) {
  Json json;
  json["wall_us"] = usage.wall.count();
  json["user_us"] = usage.user.count();
  json["system_us"] = usage.system.count();
  if (usage.cpu) json["cpu_us"] = usage.cpu->count();
  if (usage.peak_memory_kib)
    json["peak_memory_kib"] = *usage.peak_memory_kib;
  else
    json["max_rss_of_one_process_kib"] = usage.max_rss_of_one_process_kib;
  json["read_blocks"] = usage.read_blocks;
  json["written_blocks"] = usage.written_blocks;
  return json;
}

Json denials_json(const Denials& denials) {
  Json list = Json::array();
  for (const Denial& denial : denials.list) {
    Json json = {{"what", denial.what},
                 {"subject", denial.subject},
                 {"error", denial.error},
                 {"times", denial.times},
                 {"because", denial.because}};
    if (!denial.policy.empty()) json["policy"] = denial.policy;
    if (!denial.change.empty()) json["change"] = denial.change;
    if (denial.expected) json["expected"] = true;
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace

const char* cause_name(Cause cause) {
  switch (cause) {
    case Cause::kExited:
      return "exited";
    case Cause::kSignaled:
      return "signaled";
    case Cause::kWallTime:
      return "wall_time";
    case Cause::kCpuTime:
      return "cpu_time";
    case Cause::kFileSize:
      return "file_size";
    case Cause::kMemory:
      return "memory";
    case Cause::kOutput:
      return "output";
    case Cause::kDisk:
      return "disk";
    case Cause::kProcesses:
      return "processes";
    case Cause::kSyscall:
      return "syscall";
    case Cause::kSetup:
      return "setup";
    case Cause::kNetworkLost:
      return "network_lost";
    case Cause::kKilled:
      return "killed";
    case Cause::kLost:
      return "lost";
  }
  return "lost";
}

std::string signal_name(int number) {
  if (const char* name = sigabbrev_np(number)) return std::string("SIG") + name;
  return "SIG" + std::to_string(number);
}

std::string errno_name(int number) {
  if (const char* name = strerrorname_np(number)) return name;
  return "errno " + std::to_string(number);
}

std::string Record::json() const {
  Json json;
  json["cause"] = cause_name(cause);
  if (!killed_by.empty()) json["by"] = killed_by;
  if (exit_code) json["exit_code"] = *exit_code;
  if (signal) json["signal"] = signal_name(*signal);
  if (setup) json["setup"] = setup_json(*setup);
  json["limits"] = limits;
  json["usage"] = usage_json(usage);
  json["degraded"] = Json::array();
  for (const Degraded& item : degraded)
    json["degraded"].push_back({{"control", item.control}, {"what", item.what}});
  if (denials) {
    json["denials"] = denials_json(*denials);
    json["denials_not_kept"] = denials->not_kept;
    json["denials_notes"] = denials->notes;
  }
  if (network_error) json["network_error"] = *network_error;
  if (unreached) {
    json["unreached"] = Json::array();
    for (const network::Refusal& one : *unreached)
      json["unreached"].push_back(
          {{"to", one.to}, {"because", one.because}, {"packets", one.packets}});
  }
  json["sandbox"] = sandboxed ? "on" : "off";
  json["back_end"] = sandboxed ? back_end_name(back_end) : "none";
  json["policy"] = policy_name;
  json["policy_digest"] = policy_digest;
  json["timings"] = {{"plan_us", plan_time.count()}, {"setup_us", setup_time.count()}};
  // Paths come from outside and need not be UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string setup_text(const SetupFailure& failure) {
  return setup_json(failure).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<Cause> cause_of_signal(int number, std::chrono::microseconds used,
                                     const policy::Limits& limits, bool filtered) {
  if (number == SIGSYS && filtered) return Cause::kSyscall;
  if (number == SIGXFSZ && disk_limits_files(limits)) return Cause::kDisk;
  if (number == SIGXFSZ && limits.rlimits.contains("fsize")) return Cause::kFileSize;
  const auto cpu = limits.rlimits.find("cpu");
  if (cpu == limits.rlimits.end() || cpu->second.unlimited) return std::nullopt;
  // Soft and hard limit are the same, so the kernel sends KILL. It counts in ticks; on a busy
  // machine the precise time here has been seen 20 % short of them, so well over half has to do.
  const bool spent =
      static_cast<std::uint64_t>(used.count()) * 10 >= cpu->second.value * 1'000'000 * 6;
  if (number == SIGXCPU || (number == SIGKILL && spent)) return Cause::kCpuTime;
  return std::nullopt;
}

int Record::exit_status() const {
  if (cause == Cause::kWallTime) return 124;
  // Whether it was killed for it or had just ended by itself is chance.
  if (cause == Cause::kOutput || cause == Cause::kDisk) return 128 + SIGKILL;
  if (exit_code) return *exit_code;
  if (signal) return 128 + *signal;
  return 125;
}

}  // namespace belljar::launcher
