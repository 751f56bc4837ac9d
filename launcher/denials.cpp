#include "launcher/denials.hpp"

#include <sys/stat.h>

#include <cerrno>

#include "launcher/controls/paths.hpp"
#include "launcher/record.hpp"
#include "launcher/seccomp/names.hpp"
#include "launcher/seccomp/seccomp.hpp"
#include "launcher/settings.hpp"
#include "launcher/sys/landlock.hpp"

namespace belljar::launcher {
namespace {

const char* verb_name(Verb verb) {
  switch (verb) {
    case Verb::kRead:
      return "read";
    case Verb::kWrite:
      return "write";
    case Verb::kExec:
      return "exec";
  }
  return "read";
}

std::string ports_with(const std::string& path,
                       const std::optional<std::vector<std::uint16_t>>& ports, std::uint16_t port) {
  std::string list;
  if (ports)
    for (const std::uint16_t other : *ports) list += std::to_string(other) + ",";
  return path + "=[" + list + std::to_string(port) + "]";
}

/// 0: it is there; otherwise the errno, EACCES where the session could not see it on the host
/// either.
int look_on_host(const std::string& path) {
  struct stat about {};
  return lstat(path.c_str(), &about) == 0 ? 0 : errno;
}

}  // namespace

Denial DenialJudge::of(std::string what, std::string subject, std::string error,
                       const std::string& policy_path, std::string change) const {
  Denial denial;
  denial.what = std::move(what);
  denial.subject = std::move(subject);
  denial.error = std::move(error);
  if (!policy_path.empty()) denial.policy = view_.origin(policy_path);
  denial.change = std::move(change);
  return denial;
}

std::string DenialJudge::rule_of(const std::string& name) const {
  if (policy_.syscalls.rules.contains(name)) return policy::member_path("syscalls.rules", name);
  return policy_.syscalls.default_action ? "syscalls.default" : "syscalls.base";
}

Denial DenialJudge::call(int number, int error) const {
  const std::string known = syscall_name(number);
  const std::string name = known.empty() ? "number " + std::to_string(number) : known;
  // Landlock's TCP rules need some calls refused that the policy itself may allow.
  const bool for_tcp = (error == EPROTONOSUPPORT && name == "socket") ||
                       (error == EOPNOTSUPP && name.starts_with("send"));
  if (for_tcp && (policy_.landlock.connect_tcp || policy_.landlock.bind_tcp)) {
    const std::string by =
        policy_.landlock.connect_tcp ? "landlock.connect_tcp" : "landlock.bind_tcp";
    Denial denial = of("system call", name, errno_name(error), by, by + "=null");
    denial.because = "Landlock's rules on TCP ports do not reach this kind of socket or call";
    return denial;
  }
  const std::string change =
      known.empty() ? std::string() : policy::member_path("syscalls.rules", name) + "=allow";
  Denial denial = of("system call", name, errno_name(error), rule_of(name), change);
  denial.because = "refused by the filter, with these arguments";
  denial.expected = error == ENOSYS;
  return denial;
}

Denial DenialJudge::kill() const {
  std::string names, rule = "syscalls";
  std::size_t count = 0;
  for (const auto& [name, action] : policy_.syscalls.rules) {
    using Kind = policy::SyscallAction::Kind;
    if (action.action.kind != Kind::kKill &&
        (action.when.empty() || action.otherwise.kind != Kind::kKill))
      continue;
    names += (count++ == 0 ? "" : ", ") + name;
    rule = policy::member_path("syscalls.rules", name);
  }
  const bool others = policy_.syscalls.default_action &&
                      policy_.syscalls.default_action->kind == policy::SyscallAction::Kind::kKill;
  const bool certain = count == 1 && !others;
  Denial denial = of("system call", names.empty() ? "unknown" : names, "SIGSYS",
                     certain ? rule : "syscalls", certain ? rule + "=allow" : std::string());
  denial.because =
      certain ? "the only call that the policy kills for; or one of another architecture"
              : "one of these, or one without a rule: a kill leaves no word of the call. Give them "
                "an errno to see which";
  return denial;
}

bool DenialJudge::is_masked(const std::string& path) const {
  return std::holds_alternative<MaskPath>(view_.covering(path).action);
}

bool DenialJudge::is_kernels(const std::string& path) const {
  const StepAction& action = view_.covering(path).action;
  return std::holds_alternative<MountProc>(action) || std::holds_alternative<MountDev>(action);
}

std::optional<Denial> DenialJudge::path(Verb verb, const std::string& path, int error) const {
  const Result<Answer> answer = can(verb, path, plan_, policy_, host_);
  if (!answer || answer->yes || answer->decision == Decision::kAbsent) return std::nullopt;
  const bool missing = error == ENOENT || error == ENOTDIR;
  // What the sandbox shows and does not have is missing, or was made and removed by the command.
  const bool hides = answer->decision == Decision::kHidden || answer->decision == Decision::kMasked;
  const bool masked = answer->decision == Decision::kMasked;
  const int on_host = missing ? look_on_host(masked ? view_.on_host_unmasked(path) : path) : 0;
  if (missing && (!hides || (on_host != 0 && on_host != EACCES))) return std::nullopt;
  if (!missing && answer->decision == Decision::kHidden) return std::nullopt;
  const bool read_only = answer->decision == Decision::kReadOnly;
  const bool by_owner = answer->decision == Decision::kOwner;
  // Who cannot see on the host what would be there hears of the directory alone, once.
  const bool is_own = std::holds_alternative<AttachRoot>(view_.covering(path).action);
  const std::string subject = on_host == EACCES && is_own ? std::string(top_level_of(path)) : path;
  Denial denial = of(verb_name(verb), subject, read_only ? "EROFS" : errno_name(error),
                     by_owner ? std::string() : answer->policy, change_of(*answer, verb, path));
  denial.because = answer->because;
  // access(2) looks at owner and mode before it looks at the mount.
  if (on_host == EACCES || (read_only && error == EACCES)) {
    denial.because += "; owner and mode on the host would not allow it either";
    denial.change.clear();
  }
  return denial;
}

std::string DenialJudge::change_of(const Answer& answer, Verb verb, const std::string& path) const {
  switch (answer.decision) {
    case Decision::kMasked:
      return answer.policy.starts_with("filesystem.mask") ? answer.policy + "=null" : std::string();
    case Decision::kHidden:
      return setting_that_binds(path, path, verb == Verb::kWrite);
    case Decision::kReadOnly:
      return change_of_read_only(answer.policy, path);
    case Decision::kNoExec:
      return answer.policy + ".noexec=false";
    case Decision::kAllowed:
    case Decision::kOwner:
    case Decision::kAbsent:
    case Decision::kNoNetwork:
    case Decision::kFilter:
    case Decision::kPort:
      break;
  }
  return {};
}

std::string DenialJudge::change_of_read_only(const std::string& by, const std::string& path) const {
  if (by == "filesystem.workspace.path")
    return policy_.filesystem.workspace && policy_.filesystem.workspace->readonly
               ? "filesystem.workspace.readonly=false"
               : std::string();
  const std::string on_host = view_.on_host(path);
  if (by.starts_with("filesystem.mounts"))
    return on_host.empty() && !std::holds_alternative<MountTmpfs>(view_.covering(path).action)
               ? std::string()
               : by + ".readonly=false";
  if (!on_host.empty()) return setting_that_binds(on_host, path, true);
  return path == "/" ? std::string()
                     : policy::member_path("filesystem.mounts", path) + "={\"type\":\"tmpfs\"}";
}

std::optional<Denial> DenialJudge::connect(const std::string& address, std::uint16_t port,
                                           bool loopback, bool tcp) const {
  const std::string to = address + ":" + std::to_string(port);
  const Result<Answer> answer = can("connect:" + to, plan_, policy_, host_);
  if (!answer || answer->yes) return std::nullopt;
  if (answer->decision == Decision::kPort) {
    if (!tcp) return std::nullopt;
    Denial denial = of("connect", to, "EACCES", answer->policy,
                       ports_with("landlock.connect_tcp", policy_.landlock.connect_tcp, port));
    denial.because = answer->because;
    return denial;
  }
  // The sandbox has a loopback of its own, where only its own programs listen.
  if (answer->decision != Decision::kNoNetwork || loopback) return std::nullopt;
  Denial denial = of("connect", to, "ENETUNREACH", answer->policy, "network.mode=shared");
  denial.because = answer->because;
  return denial;
}

std::optional<Denial> DenialJudge::bind(const std::string& address, std::uint16_t port,
                                        bool tcp) const {
  for (const Step& step : plan_.steps) {
    const auto* domain = std::get_if<TakeLandlock>(&step.action);
    if (!tcp || domain == nullptr || (domain->tcp & sys::kLandlockBindTcp) == 0) continue;
    for (const LandlockPort& rule : domain->ports)
      if (rule.port == port && (rule.access & sys::kLandlockBindTcp) != 0) return std::nullopt;
    Denial denial = of("bind", address + ":" + std::to_string(port), "EACCES", "landlock.bind_tcp",
                       ports_with("landlock.bind_tcp", policy_.landlock.bind_tcp, port));
    denial.because = "the port is not among those that may be bound";
    return denial;
  }
  return std::nullopt;
}

std::string denials_text(const Denials& denials) {
  std::string text, expected;
  for (const Denial& denial : denials.list) {
    if (denial.expected) {
      expected += (expected.empty() ? "" : ", ") + denial.subject;
      continue;
    }
    text += "belljar: denied: " + denial.what + " " + denial.subject + " (" + denial.error + ")" +
            (denial.times > 1 ? ", " + std::to_string(denial.times) + " times" : "") + "\n";
    text += "belljar:   why: " + denial.because + "\n";
    if (!denial.policy.empty()) text += "belljar:   policy: " + denial.policy + "\n";
    text += denial.change.empty() ? "belljar:   no line of the policy alone would allow it\n"
                                  : "belljar:   allow it: " + as_option(denial.change) + "\n";
  }
  if (text.empty()) text = "belljar: denied: nothing that belljar can see\n";
  if (denials.not_kept != 0)
    text += "belljar: denied: " + std::to_string(denials.not_kept) + " others, not listed\n";
  if (!expected.empty())
    text += "belljar: note: refused as by a kernel without them (ENOSYS), which programs expect: " +
            expected + "\n";
  for (const std::string& note : denials.notes) text += "belljar: note: " + note + "\n";
  return text;
}

}  // namespace belljar::launcher
