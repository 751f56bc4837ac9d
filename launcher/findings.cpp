#include "launcher/findings.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include "launcher/controls/control.hpp"
#include "launcher/controls/wanted.hpp"
#include "launcher/record.hpp"
#include "launcher/settings.hpp"
#include "policy/units.hpp"

namespace belljar::launcher {
namespace {

using policy::Enforce;

bool worked(Tried tried) { return tried == 0; }
bool is(Tried tried, int error) { return tried == error; }
bool refused(Tried tried) { return is(tried, EPERM) || is(tried, EACCES); }

std::string came_of(const char* what, Tried tried) {
  return std::string(what) + ": " +
         (!tried        ? "not tried"
          : *tried == 0 ? "works"
                        : errno_name(*tried));
}

std::string list_of(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

/// What the rules share.
struct Question {
  const Facts& facts;
  const policy::Policy& policy;

  [[nodiscard]] std::uint64_t sysctl(const char* name, std::uint64_t otherwise) const {
    const auto found = facts.sysctls.find(name);
    return found == facts.sysctls.end() ? otherwise : found->second;
  }
  /// A profile of AppArmor's that is not "unconfined".
  [[nodiscard]] bool confined() const {
    return !facts.apparmor.empty() && !facts.apparmor.starts_with("unconfined");
  }
  [[nodiscard]] bool mount_refused() const {
    return is(facts.tries.make_private, EACCES) || is(facts.tries.mount_tmpfs, EACCES);
  }
};

using Answers = std::vector<HostFinding>;

std::vector<std::string> sysctl_lines(const std::string& setting) {
  // A file each: another one's line must not be overwritten.
  const std::string file =
      "/etc/sysctl.d/60-belljar-" + setting.substr(0, setting.find('=')) + ".conf";
  return {"sysctl -w " + setting, "echo '" + setting + "' > " + file};
}

constexpr std::array<const char*, 7> kCounts = {
    "user.max_user_namespaces",  "user.max_mnt_namespaces", "user.max_pid_namespaces",
    "user.max_net_namespaces",   "user.max_ipc_namespaces", "user.max_uts_namespaces",
    "user.max_cgroup_namespaces"};

/// Which of them is used up the kernel does not say: all that are low are raised.
HostFinding namespaces_used_up(const Question& q) {
  constexpr std::uint64_t kPlenty = 15000;
  std::string settings;
  std::vector<std::string> fix;
  for (const char* name : kCounts) {
    if (q.sysctl(name, kPlenty) >= kPlenty) continue;
    const std::string setting = std::string(name) + "=" + std::to_string(kPlenty);
    settings += " " + setting;
    for (std::string& line : sysctl_lines(setting)) fix.push_back(std::move(line));
  }
  return {"namespaces-used-up",
          "namespaces",
          Weight::kMissing,
          "the namespaces that user.max_*_namespaces allow are in use (ENOSPC), here or in a user "
          "namespace above",
          settings.empty()
              ? "raise them where they are low: sysctl -w user.max_user_namespaces=15000"
              : "raise those that are low, as root: sysctl -w" + settings,
          std::move(fix)};
}

Answers user_namespaces_off(const Question& q) {
  const Tries& tries = q.facts.tries;
  if (!is(tries.unshare_user, ENOSPC) && !is(tries.unshare_rest, ENOSPC)) return {};
  Answers found;
  for (const char* name : kCounts) {
    if (q.sysctl(name, 1) != 0) continue;
    const std::string setting = std::string(name) + "=15000";
    found.push_back({"namespaces-off", "namespaces", Weight::kMissing,
                     std::string(name) + " is 0 here (ENOSPC)",
                     "as root, where that namespace count is kept: sysctl -w " + setting,
                     sysctl_lines(setting)});
  }
  if (!found.empty()) return found;
  return {namespaces_used_up(q)};
}

Answers debian_userns(const Question& q) {
  if (!is(q.facts.tries.unshare_user, EPERM) ||
      q.sysctl("kernel.unprivileged_userns_clone", 1) != 0)
    return {};
  return {{"debian-userns-off", "namespaces", Weight::kMissing,
           "kernel.unprivileged_userns_clone is 0 (unshare: EPERM)",
           "as root: sysctl -w kernel.unprivileged_userns_clone=1",
           sysctl_lines("kernel.unprivileged_userns_clone=1")}};
}

Answers kernel_without_userns(const Question& q) {
  if (!is(q.facts.tries.unshare_user, EINVAL)) return {};
  return {{"kernel-without-userns",
           "namespaces",
           Weight::kMissing,
           "the kernel does not know user namespaces (unshare: EINVAL)",
           "a kernel with CONFIG_USER_NS",
           {}}};
}

std::vector<std::string> apparmor_host_lines() {
  return {"cat > /etc/apparmor.d/belljar <<'END'",
          "abi <abi/4.0>,",
          "include <tunables/global>",
          "profile belljar /usr/{,local/}bin/belljar flags=(unconfined) {",
          "  userns,",
          "  include if exists <local/belljar>",
          "}",
          "END",
          "apparmor_parser -r /etc/apparmor.d/belljar"};
}

Answers ubuntu_apparmor(const Question& q) {
  const Tries& tries = q.facts.tries;
  // The namespace comes up without capabilities: the first use of one is refused.
  const bool felt =
      is(tries.unshare_user, EACCES) || refused(tries.map_ids) ||
      (worked(tries.map_ids) && (refused(tries.unshare_rest) || refused(tries.make_private)));
  if (q.sysctl("kernel.apparmor_restrict_unprivileged_userns", 0) == 0 || !felt) return {};
  return {{"ubuntu-apparmor", "namespaces", Weight::kMissing,
           "kernel.apparmor_restrict_unprivileged_userns is 1 and the profile here is " +
               (q.facts.apparmor.empty() ? "unconfined" : q.facts.apparmor),
           "load a profile that allows belljar user namespaces (`belljar doctor --fix-script` "
           "prints it), or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
           apparmor_host_lines()}};
}

/// A chroot into a mount point looks like none: there it is what is left when nothing else refuses.
bool is_chroot(const Question& q) {
  if (!is(q.facts.tries.unshare_user, EPERM) || !debian_userns(q).empty()) return false;
  const bool other_reason = q.facts.filtered || q.confined() || q.facts.selinux ||
                            q.sysctl("kernel.apparmor_restrict_unprivileged_userns", 0) != 0;
  return !q.facts.root_is_mount || !other_reason;
}

Answers chrooted(const Question& q) {
  if (!is_chroot(q)) return {};
  return {{"chroot",
           "namespaces",
           Weight::kMissing,
           "this is a chroot, as nothing else explains it, and there the kernel allows "
           "no user namespace (EPERM)",
           "enter it with pivot_root instead of chroot: unshare --mount, mount --bind DIR DIR, cd "
           "DIR, pivot_root . .; or with systemd-nspawn -D DIR, or as a container",
           {"# instead of `chroot DIR belljar ...`:",
            "# unshare --mount sh -c 'mount --rbind DIR DIR && cd DIR && pivot_root . . && umount "
            "-l . && exec belljar ...'"}}};
}

std::vector<std::string> container_lines(bool proc) {
  std::vector<std::string> lines = {
      "# The engine's default profile, and the calls of a launch. Podman's is in this",
      "# file; Docker's is profiles/seccomp/default.json of moby: save it, and name it.",
      "profile=${PROFILE:-/usr/share/containers/seccomp.json}",
      "jq '.syscalls += [" + seccomp_additions() + "]' \"$profile\" > seccomp.json",
      "# docker-compose.yml, at the service:",
      "#   security_opt:",
      "#     - no-new-privileges:true",
      "#     - seccomp:./seccomp.json",
      "# or: docker run --security-opt seccomp=./seccomp.json ..."};
  if (proc) lines.emplace_back("# Podman: --security-opt unmask=/proc/*");
  return lines;
}

Answers container_seccomp(const Question& q) {
  const Tries& tries = q.facts.tries;
  const auto by_filter = [](Tried tried) { return is(tried, EPERM) || is(tried, ENOSYS); };
  const std::array<std::pair<const char*, Tried>, 5> calls = {{{"unshare", tries.unshare_user},
                                                               {"unshare", tries.unshare_rest},
                                                               {"mount", tries.make_private},
                                                               {"mount", tries.mount_tmpfs},
                                                               {"pivot_root", tries.pivot_root}}};
  if (!q.facts.filtered || !q.facts.root_is_mount) return {};
  for (const auto& [call, tried] : calls) {
    if (!by_filter(tried)) continue;
    if (!debian_userns(q).empty() || !ubuntu_apparmor(q).empty()) return {};
    const char* control = std::string_view(call) == "unshare" ? "namespaces" : "filesystem";
    return {{"container-seccomp", control, Weight::kMissing,
             "a system call filter is on belljar, and " + came_of(call, tried),
             "in the container's seccomp profile add " + seccomp_additions() +
                 ", and start it with security_opt: [\"seccomp:./seccomp.json\"]",
             container_lines(false)}};
  }
  return {};
}

Answers uid_maps(const Question& q) {
  const Tried mapped = q.facts.tries.map_ids;
  if (!q.facts.proc_mounted)
    return {{"proc-missing",
             "namespaces",
             Weight::kMissing,
             "there is no /proc, where id maps are written and much is read back",
             "mount -t proc proc /proc",
             {"mount -t proc proc /proc"}}};
  if (is(mapped, EROFS))
    return {{"proc-read-only",
             "identity",
             Weight::kMissing,
             "/proc is read-only, and id maps are written there (EROFS)",
             "mount -o remount,rw /proc; in a container leave /proc as the engine mounts it",
             {"mount -o remount,rw /proc"}}};
  if (!refused(mapped) || !ubuntu_apparmor(q).empty()) return {};
  if (q.facts.session_uid == 0)
    return {{"map-root",
             "identity",
             Weight::kMissing,
             "uid 0 of the host cannot be mapped without CAP_SETFCAP (" +
                 came_of("uid_map", mapped) + ")",
             "run sandboxes as another uid: --set identity.uid=N",
             {}}};
  return {{"map-refused",
           "identity",
           Weight::kMissing,
           came_of("the id map is refused: uid_map", mapped),
           "a security module refuses it: look at the kernel's log (dmesg, ausearch -m avc)",
           {}}};
}

Answers other_uid(const Question& q) {
  if (q.facts.privileged || q.policy.identity.uid.from != policy::Id::From::kNumber ||
      q.policy.identity.uid.number == q.facts.caller_uid)
    return {};
  return {{"other-uid",
           "identity",
           Weight::kMissing,
           "identity.uid is " + std::to_string(q.policy.identity.uid.number) +
               ", which the caller, uid " + std::to_string(q.facts.caller_uid) + ", cannot take",
           "run belljar as root or with CAP_SETUID and CAP_SETGID, or write \"caller\"",
           {}}};
}

/// More ids than one: a privileged belljar maps them itself, but for the ranges.
/// A line of the script: behind every range that anybody has.
constexpr const char* kFreeRange =
    "first=$(cat /etc/subuid /etc/subgid 2>/dev/null | awk -F: "
    "'BEGIN { last = 100000 } $2 + $3 > last { last = $2 + $3 } END { print last }')";

Answers subordinate_ids(const Question& q) {
  if (!q.policy.identity.ids) return {};
  const bool helpers = q.facts.privileged || (q.facts.newuidmap && !q.facts.no_new_privs);
  if (helpers && q.facts.subuid_range) return {};
  const std::string uid = std::to_string(q.facts.session_uid);
  std::string evidence = "identity.ids asks for more ids than one, and ";
  evidence += !q.facts.subuid_range ? "uid " + uid + " has no range in /etc/subuid and /etc/subgid"
              : !q.facts.newuidmap  ? std::string("newuidmap and newgidmap are not there")
                                    : std::string("newuidmap is powerless under no_new_privs");
  return {{"no-subids",
           "identity",
           Weight::kMissing,
           evidence,
           "as root: apt-get install uidmap, and a line " + uid +
               ":FIRST:65536 in /etc/subuid and /etc/subgid whose range no other line has; run "
               "belljar without no_new_privs; or leave identity.ids out",
           {"apt-get install -y uidmap", "# the first numbers that nobody has in either file",
            kFreeRange, "echo " + uid + ":$first:65536 >> /etc/subuid",
            "echo " + uid + ":$first:65536 >> /etc/subgid"}}};
}

std::vector<std::string> apparmor_container_lines() {
  return {"cat > /etc/apparmor.d/belljar-container <<'END'",
          "abi <abi/3.0>,",
          "include <tunables/global>",
          "profile belljar-container flags=(attach_disconnected,mediate_deleted) {",
          "  include <abstractions/base>",
          "  capability, network, file, mount, umount, pivot_root,",
          "  signal (send,receive) peer=belljar-container,",
          "  signal (receive) peer=unconfined,",
          "  ptrace (read,readby,trace,tracedby) peer=belljar-container,",
          "  deny /proc/sysrq-trigger rwklx,",
          "  deny /proc/kcore rwklx,",
          "  deny /proc/sys/kernel/** w,",
          "  deny /proc/sys/vm/** w,",
          "  deny /sys/firmware/** rwklx,",
          "  deny /sys/kernel/security/** rwklx,",
          "}",
          "END",
          "apparmor_parser -r /etc/apparmor.d/belljar-container",
          "# docker-compose.yml, at the service, or docker run --security-opt:",
          "#   security_opt: [\"apparmor:belljar-container\"]"};
}

Answers mounts_denied(const Question& q) {
  if (!q.mount_refused() || !ubuntu_apparmor(q).empty()) return {};
  if (q.facts.selinux)
    return {{"selinux",
             "filesystem",
             Weight::kMissing,
             "SELinux is enforcing and refuses a mount (EACCES)",
             "see what it refused with `ausearch -m avc -ts recent`; in a container start it with "
             "--security-opt label=disable or a domain that may mount (udica makes one)",
             {}}};
  return {{"apparmor-mount", "filesystem", Weight::kMissing,
           "a security module refuses mounts (EACCES)" +
               (q.confined() ? "; the AppArmor profile is " + q.facts.apparmor : std::string()),
           "use a profile that allows mount, umount and pivot_root (`belljar doctor --fix-script` "
           "prints one): security_opt: [\"apparmor:belljar-container\"]",
           apparmor_container_lines()}};
}

Answers root_file_system(const Question& q) {
  if (!is(q.facts.tries.pivot_root, EINVAL)) return {};
  return {{"rootfs",
           "filesystem",
           Weight::kMissing,
           "the root is the kernel's first file system (" + q.facts.root_type +
               "), which nothing can be pivoted away from (pivot_root: EINVAL)",
           "start from a root of its own: switch_root to a tmpfs or a disk before belljar",
           {}}};
}

bool needs_proc(const policy::Policy& policy, Enforce enforce) {
  for (const auto& [target, mount] : policy.filesystem.mounts)
    if (mount.type == policy::MountType::kProc && mount.enforce == enforce) return true;
  return false;
}

Answers fresh_proc(const Question& q) {
  const Tries& tries = q.facts.tries;
  if (!tries.proc_full || worked(tries.proc_full)) return {};
  const bool must = needs_proc(q.policy, Enforce::kRequire);
  if (!must && !needs_proc(q.policy, Enforce::kPrefer)) return {};
  std::string evidence = came_of("the kernel refuses a fresh /proc", tries.proc_full);
  if (!q.facts.proc_masks.empty())
    evidence += ", because parts of this one are hidden: " + q.facts.proc_masks.front() +
                (q.facts.proc_masks.size() > 1
                     ? " and " + std::to_string(q.facts.proc_masks.size() - 1) + " more"
                     : "");
  std::string remedy =
      "mount the hidden helper of docs/hosts.md into the container, or write \"enforce\": "
      "\"prefer\" at the mount of /proc to accept a weaker one";
  if (worked(tries.proc_processes))
    remedy =
        "write \"subset\": \"pid\" at the mount of /proc, which this kernel allows all the same";
  else if (worked(tries.proc_read_only))
    remedy = "write \"readonly\": true at the mount of /proc, which the kernel allows here";
  return {{"proc-masked",
           "proc_and_dev",
           must ? Weight::kMissing : Weight::kWeaker,
           evidence,
           remedy,
           {"# docker-compose.yml, at the service (its image has the directory /hide/p):",
            "#   volumes:",
            "#     - {type: volume, source: belljar-proc, target: /hide/p, volume: {nocopy: true}}",
            "#   tmpfs: [\"/hide:ro,size=4k\"]   # covers it; the order is that of docs/hosts.md",
            "# and at the top level:", "#   volumes:", "#     belljar-proc:",
            "#       driver: local", "#       driver_opts: {type: proc, device: proc,",
            "#         o: \"nosuid,nodev,noexec,subset=pid,hidepid=ptraceable\"}",
            "# Podman: --security-opt unmask=/proc/*"}}};
}

Answers host_name(const Question& q) {
  if (!q.policy.identity.hostname || !refused(q.facts.tries.sethostname)) return {};
  return {{"sethostname", "identity", Weight::kMissing,
           came_of("sethostname in an own namespace", q.facts.tries.sethostname),
           "allow sethostname in the container's seccomp profile, or remove identity.hostname",
           container_lines(false)}};
}

Answers filters(const Question& q) {
  const Tried tried = q.facts.tries.seccomp;
  if (!has_filter(q.policy) || !tried || worked(tried) || is(tried, EFAULT)) return {};
  return {{"no-seccomp",
           "seccomp",
           Weight::kMissing,
           came_of("a filter cannot be installed", tried),
           "a kernel with CONFIG_SECCOMP_FILTER, or a container that allows prctl and seccomp",
           {}}};
}

Answers landlock(const Question& q) {
  if (!q.policy.landlock.asks_for_something() || q.facts.landlock_abi > 0) return {};
  const bool must = q.policy.landlock.enforce == Enforce::kRequire;
  const bool off = q.facts.landlock_abi == -EOPNOTSUPP;
  return {{"no-landlock",
           "landlock",
           must ? Weight::kMissing : Weight::kWeaker,
           "the kernel has no Landlock (" + errno_name(-q.facts.landlock_abi) + ")",
           off ? "add landlock to the kernel's lsm= parameter"
               : "Linux 5.13 with CONFIG_SECURITY_LANDLOCK, or a container profile that allows "
                 "landlock_*",
           {}}};
}

Answers old_landlock(const Question& q) {
  const int abi = q.facts.landlock_abi;
  if (abi < 1) return {};
  const policy::NetworkMode mode = q.policy.network.mode.mode;
  const bool own_network =
      mode == policy::NetworkMode::kNone || mode == policy::NetworkMode::kPrivate;
  const bool must = q.policy.landlock.enforce == Enforce::kRequire;
  Answers found;
  for (const LandlockLack& lack : landlock_lacks(q.policy.landlock, abi, own_network))
    found.push_back({"old-landlock",
                     "landlock",
                     must ? Weight::kMissing : Weight::kWeaker,
                     "this kernel's Landlock (ABI " + std::to_string(abi) + ") has no " +
                         std::string(lack.right) + ": " + std::string(lack.without),
                     "Linux " + std::string(lack.kernel) + " or later",
                     {}});
  return found;
}

/// How systemd names a limit: "LimitNOFILE".
std::string unit_name(std::string_view name) {
  std::string out = "Limit";
  for (const char letter : name) out += static_cast<char>(letter - 'a' + 'A');
  return out;
}

Answers hard_limits(const Question& q) {
  Answers found;
  for (const auto& [name, limit] : q.policy.limits.rlimits) {
    const auto hard = q.facts.hard_limits.find(name);
    if (q.facts.holds_resources || hard == q.facts.hard_limits.end()) continue;
    if (!limit.unlimited && limit.value <= hard->second) continue;
    const std::string wanted = limit.unlimited ? "unlimited" : std::to_string(limit.value);
    // Docker has no name for "as", and -1 for none.
    const std::string docker =
        name == "as" ? "" : "docker run --ulimit " + name + "=" + (limit.unlimited ? "-1" : wanted);
    found.push_back(
        {"hard-limit", "rlimits", Weight::kMissing,
         "limits.rlimits." + name + " is " + wanted + ", above the caller's hard limit, " +
             std::to_string(hard->second),
         "lower the policy's, or raise the caller's: " + (docker.empty() ? "" : docker + ", or ") +
             unit_name(name) + "= in the unit",
         docker.empty() ? std::vector<std::string>{} : std::vector{"# " + docker}});
  }
  return found;
}

/// Of belljard: what it has open before any session and for connections that come and go, and for a
/// session with a client on its relay (tests/daemon/test_load.py counts them).
constexpr std::uint64_t kDescriptorsOfTheDaemon = 64;
constexpr std::uint64_t kDescriptorsOfASession = 6;

Answers room_for_descriptors(const Question& q) {
  const auto hard = q.facts.hard_limits.find("nofile");
  const std::uint64_t all = kDescriptorsOfTheDaemon + q.facts.sessions * kDescriptorsOfASession;
  if (hard == q.facts.hard_limits.end() || all <= hard->second) return {};
  const std::string wanted = std::to_string(all);
  return {{"nofile-max",
           "rlimits",
           Weight::kNote,
           "for " + std::to_string(q.facts.sessions) + " sessions belljard has up to " + wanted +
               " files open, and its hard limit is " + std::to_string(hard->second),
           "LimitNOFILE=" + wanted + " in the unit, --ulimit nofile=" + wanted +
               " for docker run, or fewer sessions",
           {"# in the unit: LimitNOFILE=" + wanted,
            "# docker-compose.yml, at the service:", "#   ulimits: {nofile: " + wanted + "}"}}};
}

/// Sessions by what one may hold, against what all of them have.
Answers room_for_sessions(const Question& q) {
  Answers found;
  const auto nproc = q.policy.limits.rlimits.find("nproc");
  const std::optional<std::uint64_t> each =
      q.policy.limits.processes ? q.policy.limits.processes
      : nproc == q.policy.limits.rlimits.end() || nproc->second.unlimited
          ? std::nullopt
          : std::optional(nproc->second.value);
  if (each && q.facts.pids_max && *each * q.facts.sessions > *q.facts.pids_max) {
    const std::string wanted = std::to_string(*each * q.facts.sessions + 64);
    found.push_back({"pids-max",
                     "cgroup",
                     Weight::kNote,
                     std::to_string(q.facts.sessions) + " sessions of " + std::to_string(*each) +
                         " processes are more than pids.max, " + std::to_string(*q.facts.pids_max),
                     "pids_limit: " + wanted + " at the service, or fewer sessions",
                     {"# docker-compose.yml, at the service:", "#   pids_limit: " + wanted}});
  }
  const std::optional<std::uint64_t> memory = q.policy.limits.memory;
  if (memory && q.facts.memory_max && *memory * q.facts.sessions > *q.facts.memory_max)
    found.push_back({"memory-max",
                     "cgroup",
                     Weight::kNote,
                     std::to_string(q.facts.sessions) + " sessions of " +
                         policy::size_text(*memory) + " are more than memory.max, " +
                         policy::size_text(*q.facts.memory_max),
                     "mem_limit: " + std::to_string((*memory * q.facts.sessions) >> 20) +
                         "m at the service, or fewer sessions",
                     {}});
  return found;
}

/// Controllers for which no cgroup can be made, for the same reason.
struct NoPlace {
  int version = 0;  ///< Of the hierarchy; 0: it is not mounted.
  const Error* why = nullptr;
  std::vector<std::string> controllers;
  std::vector<std::string> directories;  ///< The caller's own.
  bool at_top = false;                   ///< Nothing above it is mounted.
  std::vector<std::string> limits;
};

void add_once(std::vector<std::string>& words, const std::string& word) {
  if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
}

std::vector<NoPlace> without_place(const Question& q) {
  std::vector<NoPlace> found;
  for (const std::string& controller : cgroup_controllers(q.policy.limits)) {
    const auto missing = q.facts.cgroup_places.missing.find(controller);
    if (missing == q.facts.cgroup_places.missing.end()) continue;
    const auto own = q.facts.own_cgroups.find(controller);
    const int version = own == q.facts.own_cgroups.end() ? 0 : own->second.version;
    auto same = std::find_if(found.begin(), found.end(), [&](const NoPlace& place) {
      return place.version == version && place.why->sys_errno == missing->second.sys_errno;
    });
    if (same == found.end())
      same = found.insert(same, {version, &missing->second, {}, {}, false, {}});
    add_once(same->controllers, controller);
    if (version != 0) {
      add_once(same->directories, own->second.directory);
      same->at_top = own->second.directory == own->second.mount_point;
    }
    for (const std::string& limit : limits_served_by(controller, q.policy.limits))
      add_once(same->limits, limit);
  }
  return found;
}

struct Remedy {
  std::string text;
  std::vector<std::string> fix;
};

/// v1: what belongs to nobody else is made for the caller, and the caller's shell is put there.
Remedy own_cgroup_of_v1(const NoPlace& place, const std::string& uid) {
  std::string directories;
  for (const std::string& directory : place.directories) directories += " " + shell_word(directory);
  const std::string name = "belljar-" + uid;
  return {"as root make a cgroup for uid " + uid + " below each of" + directories +
              ", and put the shell that runs belljar there (`belljar doctor --fix-script`)",
          {"# The process that is to run belljar. By default whoever runs this.",
           "shell=${BELLJAR_SHELL:-$PPID}", "for place in" + directories + "; do",
           "  mkdir -p \"$place/" + name + "\"", "  chown -R " + uid + " \"$place/" + name + "\"",
           "  echo \"$shell\" > \"$place/" + name + "/cgroup.procs\"", "done"}};
}

/// v2: the one above hands down what it has.
Remedy controllers_of_v2(const NoPlace& place) {
  if (place.at_top)
    return {"hand " + list_of(place.controllers) +
                " down from outside of the container, or take them off version 1: cgroup_no_v1=all "
                "on the kernel's command line",
            {}};
  std::string words;
  for (const std::string& controller : place.controllers)
    if (controller != sys::kCpuAccounting) words += (words.empty() ? "+" : " +") + controller;
  const std::string& own = place.directories.front();
  const std::string line = "echo '" + words + "' > " +
                           shell_word(own.substr(0, own.rfind('/')) + "/cgroup.subtree_control");
  return {"hand the controllers down, as root: " + line + "; for a unit of systemd's, Delegate=yes",
          {line}};
}

Remedy remedy_for(const NoPlace& place, uid_t caller) {
  const std::string scope = std::string("systemd-run ") + (caller == 0 ? "" : "--user ") +
                            "--scope -p Delegate=yes belljar ...";
  const int error = place.why->sys_errno;
  if (error == EROFS)
    return {
        "in a container, mount its cgroups writable: Docker 28, security_opt: "
        "[\"writable-cgroups=true\"]; Podman, -v /sys/fs/cgroup:/sys/fs/cgroup:rw",
        {"# docker-compose.yml, at the service (Docker 28):",
         "#   security_opt: [\"writable-cgroups=true\"]",
         "# Podman: -v /sys/fs/cgroup:/sys/fs/cgroup:rw"}};
  if (place.version == 0)
    return {
        "mount them, as root: mount -t cgroup2 cgroup2 /sys/fs/cgroup; or a kernel with "
        "CONFIG_MEMCG, CONFIG_CGROUP_PIDS and CONFIG_CFS_BANDWIDTH",
        {"mount -t cgroup2 cgroup2 /sys/fs/cgroup"}};
  if (place.version == 1) return own_cgroup_of_v1(place, std::to_string(caller));
  if (error == ENOENT) return controllers_of_v2(place);
  if (error == EBUSY)
    return {"give belljar a cgroup that it has for itself: " + scope +
                ", or Delegate=yes and DelegateSubgroup=main in its unit (systemd 254)",
            {"# start it so: " + scope, "# or in its unit, with systemd 254 or later:",
             "#   [Service]", "#   Delegate=yes", "#   DelegateSubgroup=main"}};
  return {"have a cgroup handed to belljar: " + scope, {"# start it so: " + scope}};
}

Answers no_cgroup(const Question& q) {
  Answers found;
  const bool must = q.policy.limits.enforce == Enforce::kRequire;
  for (const NoPlace& place : without_place(q)) {
    Remedy remedy = remedy_for(place, q.facts.caller_uid);
    if (must) remedy.text += "; or let the policy do without: limits.enforce \"prefer\"";
    const std::string version =
        place.version == 0 ? "" : ", version " + std::to_string(place.version);
    found.push_back({"no-cgroup", "cgroup", must ? Weight::kMissing : Weight::kWeaker,
                     "no cgroup can be made for " + list_of(place.limits) + ": " + place.why->what +
                         " (" + errno_name(place.why->sys_errno) + version + ")",
                     std::move(remedy.text), std::move(remedy.fix)});
  }
  return found;
}

/// Whether the policy gets along with the host's network in place of a private one.
Weight weight_of_network(const policy::Network& network) {
  const bool shares_instead =
      network.enforce == Enforce::kPrefer && !network.has_rules() && network.publish.empty();
  return shares_instead ? Weight::kWeaker : Weight::kMissing;
}

HostFinding tun_finding(const Question& q, Weight weight) {
  const Tried tun = q.facts.tries.tun;
  if (is(tun, EACCES) || is(tun, EPERM))
    return {"tun-closed",
            "network",
            weight,
            "uid " + std::to_string(q.facts.session_uid) + " cannot open /dev/net/tun (" +
                errno_name(*tun) + ")",
            "chmod 666 /dev/net/tun, udev's own mode",
            {"chmod 666 /dev/net/tun"}};
  return {
      "no-tun",
      "network",
      weight,
      came_of("/dev/net/tun", tun),
      "modprobe tun; in a container give it the device: devices: "
      "[\"/dev/net/tun:/dev/net/tun\"]",
      {"# docker-compose.yml, at the service:", "#   devices: [\"/dev/net/tun:/dev/net/tun\"]"}};
}

Answers private_network(const Question& q) {
  if (q.policy.network.mode != policy::NetworkMode::kPrivate) return {};
  const Weight weight = weight_of_network(q.policy.network);
  const Facts& facts = q.facts;
  Answers found;
  if (!facts.pasta)
    found.push_back({"no-pasta",
                     "network",
                     weight,
                     "pasta is not installed",
                     "apt-get install passt",
                     {"apt-get install -y passt"}});
  if (facts.pasta && !facts.pasta_lacks.empty())
    found.push_back({"old-pasta",
                     "network",
                     weight,
                     "pasta has no " + list_of(facts.pasta_lacks) + " in its help",
                     "a pasta of March 2023 or later, as Debian 12 has it; BELLJAR_PASTA names one "
                     "that is installed elsewhere",
                     {}});
  if (!worked(facts.tries.tun)) found.push_back(tun_finding(q, weight));
  if (facts.tries.nftables && !worked(facts.tries.nftables))
    found.push_back({"no-nftables",
                     "network",
                     weight,
                     came_of("the rules of a private network, in a namespace of their own",
                             facts.tries.nftables),
                     "modprobe nf_tables nft_reject_inet, or a kernel with CONFIG_NF_TABLES, "
                     "NF_TABLES_INET and NFT_REJECT_INET",
                     {"modprobe -a nf_tables nft_reject_inet"}});
  if (!facts.way_out)
    found.push_back({"no-way-out",
                     "network",
                     weight,
                     "the host has no default route (IPv4)",
                     "give the host, or its container, a network with a gateway",
                     {}});
  return found;
}

Answers workspace_root(const Question& q) {
  Answers found;
  const std::string& root = q.facts.workspace_root;
  const std::string let_pass = "chmod o+x " + shell_word(q.facts.root_blocked_by);
  if (!q.facts.root_blocked_by.empty())
    found.push_back({"workspace-unreachable",
                     "filesystem",
                     Weight::kMissing,
                     "uid " + std::to_string(q.facts.session_uid) + " cannot pass " +
                         q.facts.root_blocked_by + ", so it cannot reach its workspace in " + root,
                     let_pass + ", or another --sessions-root",
                     {let_pass}});
  if (q.facts.root_readonly)
    found.push_back({"workspace-read-only",
                     "filesystem",
                     Weight::kMissing,
                     root + " is on a read-only file system",
                     "mount something writable there, such as tmpfs: [\"" + root + ":mode=0711\"]",
                     {"mount -t tmpfs -o mode=0711 sessions " + shell_word(root)}});
  if (q.facts.root_noexec)
    found.push_back({"workspace-noexec",
                     "filesystem",
                     Weight::kNote,
                     root + " is on a file system with noexec, so nothing in a workspace can be "
                            "executed",
                     "mount it with exec: tmpfs: [\"" + root + ":exec,mode=0711\"]",
                     {"mount -o remount,exec " + shell_word(root)}});
  // No command gains anything by exec, wherever its program is.
  if (q.facts.root_nosuid)
    found.push_back({"workspace-nosuid",
                     "filesystem",
                     Weight::kNote,
                     root + " is on a file system with nosuid",
                     "none needed: setuid programs gain nothing in any sandbox (no_new_privs)",
                     {"# nothing to be done"}});
  return found;
}

Answers emulated_kernel(const Question& q) {
  const std::string& text = q.facts.kernel;
  const bool gvisor = text.find("gVisor") != std::string::npos ||
                      text.find("Sun Jan 10 15:06:54 PST 2016") != std::string::npos;
  const bool wsl1 = text.find("Microsoft") != std::string::npos &&
                    text.find("WSL2") == std::string::npos &&
                    text.find("microsoft-standard") == std::string::npos;
  if (!gvisor && !wsl1) return {};
  return {{"emulated-kernel",
           "host",
           Weight::kNote,
           std::string("the kernel is ") + (gvisor ? "gVisor's" : "that of WSL 1") +
               ", which emulates Linux and leaves parts out",
           gvisor ? "run belljar under runc, or rely on gVisor's own isolation"
                  : "use WSL 2, which has a Linux kernel",
           {}}};
}

constexpr std::array kRules = {user_namespaces_off,
                               debian_userns,
                               kernel_without_userns,
                               ubuntu_apparmor,
                               chrooted,
                               container_seccomp,
                               uid_maps,
                               other_uid,
                               subordinate_ids,
                               mounts_denied,
                               root_file_system,
                               fresh_proc,
                               host_name,
                               filters,
                               landlock,
                               old_landlock,
                               hard_limits,
                               no_cgroup,
                               room_for_sessions,
                               room_for_descriptors,
                               private_network,
                               workspace_root,
                               emulated_kernel};

}  // namespace

std::vector<HostFinding> find(const Facts& facts, const policy::Policy& policy) {
  const Question question{facts, policy};
  std::vector<HostFinding> found;
  for (const auto rule : kRules)
    for (HostFinding& finding : rule(question)) found.push_back(std::move(finding));
  return found;
}

std::vector<std::string_view> finding_ids() {
  return {"namespaces-off",
          "namespaces-used-up",
          "debian-userns-off",
          "kernel-without-userns",
          "ubuntu-apparmor",
          "chroot",
          "container-seccomp",
          "proc-missing",
          "proc-read-only",
          "map-root",
          "map-refused",
          "other-uid",
          "no-subids",
          "selinux",
          "apparmor-mount",
          "rootfs",
          "proc-masked",
          "sethostname",
          "no-seccomp",
          "no-landlock",
          "old-landlock",
          "hard-limit",
          "no-cgroup",
          "pids-max",
          "nofile-max",
          "memory-max",
          "no-pasta",
          "old-pasta",
          "no-tun",
          "tun-closed",
          "no-nftables",
          "no-way-out",
          "workspace-unreachable",
          "workspace-read-only",
          "workspace-noexec",
          "workspace-nosuid",
          "emulated-kernel"};
}

std::string back_end_text(const Facts& facts) {
  const Tries& tries = facts.tries;
  if (worked(tries.clone3) && (worked(tries.mount_tree) || !tries.mount_tree))
    return "modern: clone3 and the new mount API work";
  return "legacy: " + (worked(tries.clone3) ? came_of("open_tree", tries.mount_tree)
                                            : came_of("clone3", tries.clone3));
}

std::string seccomp_additions() {
  return R"({"names":["unshare","mount","umount2","pivot_root"],"action":"SCMP_ACT_ALLOW"})";
}

}  // namespace belljar::launcher
