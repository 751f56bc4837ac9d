#include "launcher/denials.hpp"

#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "launcher/controls/paths.hpp"
#include "launcher/controls/promises.hpp"
#include "launcher/network/deciding.hpp"
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

/// A call that the kernel refuses whoever has not the capability, whatever its arguments are.
struct CapabilityCall {
  std::string_view name;
  const char* capability;
  bool in_sandbox = true;  ///< One over the sandbox's own namespaces is enough.
};
constexpr auto kCapabilityCalls = std::to_array<CapabilityCall>({
    {"mount", "CAP_SYS_ADMIN"},
    {"umount2", "CAP_SYS_ADMIN"},
    {"pivot_root", "CAP_SYS_ADMIN"},
    {"move_mount", "CAP_SYS_ADMIN"},
    {"mount_setattr", "CAP_SYS_ADMIN"},
    {"fsopen", "CAP_SYS_ADMIN"},
    {"fsmount", "CAP_SYS_ADMIN"},
    {"fspick", "CAP_SYS_ADMIN"},
    {"setns", "CAP_SYS_ADMIN"},
    {"unshare", "CAP_SYS_ADMIN"},
    {"clone", "CAP_SYS_ADMIN"},
    {"sethostname", "CAP_SYS_ADMIN"},
    {"setdomainname", "CAP_SYS_ADMIN"},
    {"chroot", "CAP_SYS_CHROOT"},
    {"reboot", "CAP_SYS_BOOT"},
    {"vhangup", "CAP_SYS_TTY_CONFIG"},
    {"open_by_handle_at", "CAP_DAC_READ_SEARCH", false},
    {"init_module", "CAP_SYS_MODULE", false},
    {"finit_module", "CAP_SYS_MODULE", false},
    {"delete_module", "CAP_SYS_MODULE", false},
    {"kexec_load", "CAP_SYS_BOOT", false},
    {"kexec_file_load", "CAP_SYS_BOOT", false},
    {"swapon", "CAP_SYS_ADMIN", false},
    {"swapoff", "CAP_SYS_ADMIN", false},
    {"acct", "CAP_SYS_PACCT", false},
    {"iopl", "CAP_SYS_RAWIO", false},
    {"ioperm", "CAP_SYS_RAWIO", false},
    {"clock_settime", "CAP_SYS_TIME", false},
    {"settimeofday", "CAP_SYS_TIME", false},
    {"quotactl", "CAP_SYS_ADMIN", false},
});

const CapabilityCall* find_capability_call(std::string_view name) {
  const auto* row = std::find_if(kCapabilityCalls.begin(), kCapabilityCalls.end(),
                                 [name](const CapabilityCall& it) { return it.name == name; });
  return row == kCapabilityCalls.end() ? nullptr : row;
}

/// What the policy, or the owner of a file, says no to: what is missing or of another kind is
/// refused nowhere, and a call that the filter refuses is told of as such.
bool is_refusal(Decision decision) {
  return decision != Decision::kAbsent && decision != Decision::kOtherKind &&
         decision != Decision::kFilter;
}

std::string allowing(const std::string& call) {
  return policy::member_path("syscalls.rules", call) + "=allow";
}

/// 0: it is there; otherwise the errno, EACCES where the session could not see it on the host
/// either.
int look_on_host(const std::string& path) {
  struct stat about {};
  return lstat(path.c_str(), &about) == 0 ? 0 : errno;
}

}  // namespace

bool makes_user_namespace(const seccomp_data& data) {
  return (data.nr == SYS_unshare || data.nr == SYS_clone) && (data.args[0] & CLONE_NEWUSER) != 0;
}

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

Denial DenialJudge::call(const seccomp_data& data, int error) const {
  const std::string known = syscall_name(data.nr);
  const std::string name = known.empty() ? "number " + std::to_string(data.nr) : known;
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
  Denial denial = of("system call", name, errno_name(error), path_of_call(policy_.syscalls, name),
                     known.empty() ? std::string() : allowing(name));
  denial.because = "refused by the filter, with these arguments";
  denial.expected = error == ENOSYS;
  if (!denial.expected) add_what_it_takes(denial, name, data);
  return denial;
}

/// A filter that allows the call is no help where the kernel refuses it for another reason: then no
/// line alone does it, and the clause says which do together.
void DenialJudge::add_what_it_takes(Denial& denial, const std::string& name,
                                    const seccomp_data& data) const {
  const bool makes_user = makes_user_namespace(data);
  if (makes_user && !policy_.namespaces.nested_user) {
    std::string options = as_option("namespaces.nested_user=true");
    for (const char* call : {"clone", "clone3", "unshare"})
      options += " " + as_option(allowing(call));
    denial.because += "; a user namespace takes all of " + options;
    denial.change.clear();
    return;
  }
  const CapabilityCall* row = find_capability_call(name);
  // In a user namespace of its own a program has them all.
  if (row == nullptr || makes_user || (row->in_sandbox && policy_.namespaces.nested_user)) return;
  if (!row->in_sandbox) {
    denial.because +=
        std::string("; it takes ") + row->capability + " over the host, which no sandbox has";
    denial.change.clear();
    return;
  }
  if (keeps(policy_, row->capability)) return;
  std::vector<std::string> capabilities = policy_.capabilities;
  capabilities.emplace_back(row->capability);
  denial.because += std::string("; it takes ") + row->capability + " too, together " +
                    as_option(setting_of_texts("capabilities", capabilities)) + " " +
                    as_option(denial.change);
  denial.change.clear();
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

bool DenialJudge::is_kernels(const std::string& path) const {
  const StepAction& action = view_.covering(path).action;
  return std::holds_alternative<MountProc>(action) || std::holds_alternative<MountDev>(action);
}

std::optional<Denial> DenialJudge::path(Verb verb, const std::string& path, int error) const {
  const Result<Answer> answer = can(verb, path, plan_, policy_, host_);
  if (!answer || answer->yes || !is_refusal(answer->decision)) return std::nullopt;
  const bool missing = error == ENOENT || error == ENOTDIR;
  // What the sandbox shows and does not have is missing, or was made and removed by the command.
  const bool hides = answer->decision == Decision::kHidden || answer->decision == Decision::kMasked;
  const std::string behind_it = behind(*answer, path);
  const int on_host = missing ? look_on_host(behind_it) : 0;
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
  const bool refused_anyway = by_owner    ? false
                              : read_only ? error == EACCES
                                          : !behind_it.empty() && !host_allows(verb, behind_it);
  if (refused_anyway) {
    denial.because += "; owner and mode on the host would not allow it either";
    denial.change.clear();
  }
  return denial;
}

std::string DenialJudge::behind(const Answer& answer, const std::string& path) const {
  if (answer.decision == Decision::kMasked) return view_.on_host_unmasked(path);
  return answer.decision == Decision::kHidden ? path : view_.on_host(path);
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
    case Decision::kNoDevice:
      if (!answer.policy.starts_with("filesystem.mounts")) return {};
      return answer.policy + (answer.decision == Decision::kNoExec ? ".noexec" : ".nodev") +
             "=false";
    case Decision::kAllowed:
    case Decision::kOwner:
    case Decision::kAbsent:
    case Decision::kOtherKind:
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
  if (by.empty()) return {};  // It is the host's own mount.
  const std::string on_host = view_.on_host(path);
  if (by.starts_with("filesystem.mounts"))
    return on_host.empty() && !std::holds_alternative<MountTmpfs>(view_.covering(path).action)
               ? std::string()
               : by + ".readonly=false";
  if (!on_host.empty()) return setting_that_binds(on_host, path, true);
  return path == "/" ? std::string()
                     : policy::member_path("filesystem.mounts", path) + "={\"type\":\"tmpfs\"}";
}

std::optional<Denial> DenialJudge::by_rules(const std::string& address, std::uint16_t port) const {
  const auto range = policy::parse_ipv4_range(address);
  const std::string to = address + ":" + std::to_string(port);
  if (!range) {
    Denial denial = of("connect", to, "ENETUNREACH", "network.mode", "network.mode=shared");
    denial.because = "a private network has IPv4 only, " + view_.origin("network.mode");
    return denial;
  }
  const Result<network::Rule> rule = network::deciding_rule(policy_.network, range->address, port);
  if (!rule || rule->accept) return std::nullopt;
  const auto found = policy_.network.deny.find(policy::text_of(rule->to));
  const bool by_deny =
      found != policy_.network.deny.end() && found->second.because == rule->because;
  const std::string denied = by_deny ? found->first : "";
  const bool left_out = rule->to.length == 0 && policy_.network.only;
  const std::string line = by_deny    ? policy::member_path("network.deny", denied)
                           : left_out ? "network.only"
                                      : "network.mode";
  Denial denial = of("connect", to, "ECONNREFUSED", line, opening(*range, port, denied));
  denial.because = "a private network does not reach it: " + rule->because;
  return denial;
}

std::string DenialJudge::opening(const policy::Ipv4Range& address, std::uint16_t port,
                                 const std::string& denied) const {
  policy::Network open = policy_.network;
  std::string change = denied.empty() ? "" : policy::member_path("network.deny", denied) + "=null";
  if (!denied.empty()) {
    open.deny.erase(denied);
  } else if (policy::is_private(address) || open.only) {
    const bool is_private = policy::is_private(address);
    const std::string name = policy::text_of(address);
    policy::Destination& entry = (is_private ? open.allow : *open.only)[name];
    const std::string path =
        policy::member_path(is_private ? "network.allow" : "network.only", name);
    change = entry.because.empty()
                 ? path + "={\"ports\":[" + std::to_string(port) + "],\"because\":\"why\"}"
                 : ports_with(path + ".ports", entry.ports, port);
    entry.ports.push_back(port);
  }
  const Result<network::Rule> rule = network::deciding_rule(open, address.address, port);
  return rule && rule->accept ? change : std::string();
}

std::optional<Denial> DenialJudge::connect(const std::string& address, std::uint16_t port,
                                           bool loopback, bool tcp) const {
  const std::string to = address + ":" + std::to_string(port);
  // The sandbox has a loopback of its own, where only its own programs listen.
  if (policy_.network.mode == policy::NetworkMode::kNone) {
    if (loopback) return std::nullopt;
    Denial denial = of("connect", to, "ENETUNREACH", "network.mode", "network.mode=shared");
    denial.because =
        "there is no network but the sandbox's own loopback, " + view_.origin("network.mode");
    return denial;
  }
  if (has_own_network(policy_, host_) && !loopback)
    if (std::optional<Denial> refused = by_rules(address, port)) return refused;
  if (!tcp || !landlock_refuses(plan_, port, sys::kLandlockConnectTcp)) return std::nullopt;
  Denial denial = of("connect", to, "EACCES", "landlock.connect_tcp",
                     ports_with("landlock.connect_tcp", policy_.landlock.connect_tcp, port));
  denial.because = "port " + std::to_string(port) + " is not among those of " +
                   view_.origin("landlock.connect_tcp");
  return denial;
}

std::optional<Denial> DenialJudge::bind(const std::string& address, std::uint16_t port,
                                        bool tcp) const {
  if (!tcp || !landlock_refuses(plan_, port, sys::kLandlockBindTcp)) return std::nullopt;
  Denial denial = of("bind", address + ":" + std::to_string(port), "EACCES", "landlock.bind_tcp",
                     ports_with("landlock.bind_tcp", policy_.landlock.bind_tcp, port));
  denial.because = "the port is not among those that may be bound";
  return denial;
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
