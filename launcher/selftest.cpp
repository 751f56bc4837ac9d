#include "launcher/selftest.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "launcher/controls/paths.hpp"
#include "launcher/failure.hpp"
#include "launcher/faults_json.hpp"
#include "launcher/sys/proc.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::launcher {
namespace {

/// Where a served policy is, or the name as it is.
std::string find_policy(const std::string& name, const policy::Settings& settings) {
  if (name.starts_with("builtin:") || name.find('/') != std::string::npos) return name;
  for (const std::string& directory : settings.policy_dirs)
    for (const char* suffix : {"", ".json", ".jsonc"})
      if (const std::string path = join(directory, name + suffix); access(path.c_str(), F_OK) == 0)
        return path;
  return name;
}

/// The real uid in the text of a /proc/PID/status; -1 for one that has ended.
long uid_in(const char* status) {
  if (std::strstr(status, "\nState:\tZ") != nullptr) return -1;
  const char* line = std::strstr(status, "\nUid:\t");
  return line == nullptr ? -1 : std::strtol(line + 6, nullptr, 10);
}

/// A process of that uid, or 0.
int process_of(uid_t uid) {
  const sys::UniqueFd proc(openat(sys::proc_directory(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* list = proc.valid() ? fdopendir(dup(proc.get())) : nullptr;
  if (list == nullptr) return 0;
  int found = 0;
  while (const dirent* entry = readdir(list)) {
    const int pid = std::atoi(entry->d_name);
    if (pid <= 0 || pid == getpid()) continue;
    const std::string path = std::to_string(pid) + "/status";
    const sys::UniqueFd file(openat(proc.get(), path.c_str(), O_RDONLY | O_CLOEXEC));
    std::array<char, 1024> text{};
    if (!file.valid() || read(file.get(), text.data(), text.size() - 1) <= 0) continue;
    if (uid_in(text.data()) != static_cast<long>(uid)) continue;
    found = pid;
    break;
  }
  closedir(list);
  return found;
}

}  // namespace

Result<Host> observe_caller() {
  policy::Policy nothing;
  nothing.identity.uid = {policy::Id::From::kNumber, 0};
  return observe_host(nothing);
}

tl::expected<policy::Policy, policy::Diagnostics> session_policy(const std::string& name,
                                                                 const policy::Settings& settings) {
  policy::Layers layers;
  layers.add(find_policy(name, settings));
  for (const auto& [path, value] : settings.limits())
    layers.add_setting(path, value, settings.origin("rlimit_" + path.substr(path.rfind('.') + 1)));
  if (name == settings.policy)
    for (const auto& [path, value] : settings.network_settings())
      layers.add_setting(path, value, settings.origin("network"));
  return layers.resolve();
}

Result<SessionSetting> session_setting(policy::Policy policy, const policy::Settings& settings,
                                       std::optional<std::uint32_t> uid) {
  using From = policy::Id::From;
  SessionSetting setting;
  setting.caller = BELLJAR_TRY(observe_caller());
  policy::Identity& identity = policy.identity;
  const bool own = identity.uid.from == From::kNumber;
  if (!uid && !own && setting.caller.privileged())
    uid = static_cast<std::uint32_t>(settings.self_test_uid());
  if (uid) identity.uid = identity.gid = {From::kNumber, *uid};
  if (identity.uid.from == From::kPool) identity.uid = {};
  if (identity.gid.from == From::kPool) identity.gid = {};
  setting.ids = BELLJAR_TRY(session_ids(identity, setting.caller));
  if (setting.ids.uid != setting.caller.uid)
    if (const int pid = process_of(setting.ids.uid); pid != 0)
      setting.notes.push_back("uid " + std::to_string(setting.ids.uid) +
                              " is that of a live session (process " + std::to_string(pid) +
                              "); the test runs beside it and leaves it alone");
  setting.workspace_root = settings.sessions_root.empty() ? default_sessions_root(setting.caller)
                                                          : settings.sessions_root;
  setting.policy = std::move(policy);
  return setting;
}

SelftestReport selftest(const SessionSetting& setting) {
  SelftestReport report;
  report.policy_name = setting.policy.name;
  report.policy_digest = setting.policy.digest;
  report.uid = setting.ids.uid;
  report.workspace_root = setting.workspace_root;
  const auto refuse = [&](const Error& error, const char* control) {
    SetupFailure failure = describe_refusal(error, setting.policy);
    failure.control = control;
    report.controls.missing.push_back(not_in_force(failure));
    return report;
  };
  Result<TestGround> ground = TestGround::make(setting.workspace_root, setting.ids, setting.caller);
  if (!ground) return refuse(ground.error(), "filesystem");
  const Result<TrialPolicy> trial =
      TrialPolicy::make(setting.policy, setting.ids, setting.caller, *ground, TrialKind::kSession);
  if (!trial) return refuse(trial.error(), "filesystem");
  report.controls = try_controls(*trial);
  return report;
}

std::string SelftestReport::json() const {
  using Json = nlohmann::ordered_json;
  const char* verdict = ok() ? "OK" : controls.missing.empty() ? "unknown" : "failed";
  Json out{{"sandbox", verdict},
           {"policy", policy_name},
           {"policy_digest", policy_digest},
           {"uid", uid},
           {"workspace_root", workspace_root},
           {"back_end", controls.back_end.empty() ? Json() : Json(controls.back_end)},
           {"not_in_force", json_of(controls.missing)},
           {"not_found_out", json_of(controls.unknown)},
           {"degraded", Json::array()},
           {"probes", Json::array()}};
  for (const Degraded& item : controls.degraded)
    out["degraded"].push_back({{"control", item.control}, {"what", item.what}});
  for (const ProbeAnswer& answer : controls.probes)
    out["probes"].push_back({{"control", answer.control},
                             {"name", answer.name},
                             {"value", answer.is_fact ? Json(answer.value) : Json()},
                             {"verdict", answer.verdict.empty() ? Json() : Json(answer.verdict)},
                             {"seen", answer.seen},
                             {"promised", answer.promised}});
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace belljar::launcher
