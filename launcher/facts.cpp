#include "launcher/facts.hpp"

#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <linux/stat.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

#include "launcher/controls/control.hpp"
#include "launcher/controls/paths.hpp"
#include "launcher/controls/wanted.hpp"
#include "launcher/network/host_addresses.hpp"
#include "launcher/network/pasta.hpp"
#include "launcher/sys/id_ranges.hpp"
#include "launcher/sys/landlock.hpp"

namespace belljar::launcher {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  std::string out = text.str();
  while (out.ends_with('\n') || out.ends_with('\0')) out.pop_back();
  return out;
}

std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

void look_at_sysctls(Facts& facts) {
  for (const char* name :
       {"user.max_user_namespaces", "user.max_mnt_namespaces", "user.max_pid_namespaces",
        "user.max_net_namespaces", "user.max_ipc_namespaces", "user.max_uts_namespaces",
        "user.max_cgroup_namespaces", "kernel.unprivileged_userns_clone",
        "kernel.apparmor_restrict_unprivileged_userns"}) {
    std::string path = std::string("/proc/sys/") + name;
    std::replace(path.begin(), path.end(), '.', '/');
    if (const auto value = number_in(path)) facts.sysctls[name] = *value;
  }
}

/// One line of mountinfo: mount point, options, type (man 5 proc).
struct MountLine {
  std::string point, options, type;
};

std::vector<MountLine> mounts() {
  std::vector<MountLine> found;
  std::ifstream file("/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string skip, word;
    MountLine mount;
    words >> skip >> skip >> skip >> skip >> mount.point >> mount.options;
    while (words >> word && word != "-") {
    }
    words >> mount.type;
    found.push_back(std::move(mount));
  }
  return found;
}

void look_at_proc(Facts& facts) {
  facts.proc_mounted = access("/proc/self/ns/user", F_OK) == 0;
  for (const MountLine& mount : mounts()) {
    if (mount.point == "/") facts.root_type = mount.type;
    if (mount.point == "/proc") facts.proc_read_only = mount.options.starts_with("ro");
    const bool is_mask =
        mount.point.starts_with("/proc/") && mount.type != "binfmt_misc" && mount.type != "autofs";
    if (is_mask) facts.proc_masks.push_back(mount.point);
  }
  // STATX_ATTR_MOUNT_ROOT, Linux 5.8. What the kernel does not say is taken for a mount.
  struct statx about {};
  constexpr std::uint64_t kMountRoot = 0x2000;
  if (statx(AT_FDCWD, "/", 0, STATX_BASIC_STATS, &about) == 0 &&
      (about.stx_attributes_mask & kMountRoot) != 0)
    facts.root_is_mount = (about.stx_attributes & kMountRoot) != 0;
}

void look_at_security(Facts& facts) {
  const std::string profile = text_of("/proc/self/attr/apparmor/current");
  facts.apparmor = profile.empty() && access("/sys/module/apparmor", F_OK) == 0
                       ? text_of("/proc/self/attr/current")
                       : profile;
  facts.selinux = number_in("/sys/fs/selinux/enforce").value_or(0) == 1;
  std::ifstream status("/proc/self/status");
  for (std::string key, value; status >> key && std::getline(status, value);) {
    if (key == "Seccomp:") facts.filtered = value.find('2') != std::string::npos;
    if (key == "NoNewPrivs:") facts.no_new_privs = value.find('1') != std::string::npos;
  }
  facts.kernel = text_of("/proc/version");
  facts.landlock_abi = sys::landlock_abi();
}

std::string container_kind() {
  if (access("/.dockerenv", F_OK) == 0) return "docker";
  if (access("/run/.containerenv", F_OK) == 0) return "podman";
  return {};
}

/// As the launch will (launcher/host.cpp).
void look_at_ids(Facts& facts) {
  facts.newuidmap = sys::open_id_helper("newuidmap") && sys::open_id_helper("newgidmap");
  const auto owners = sys::owner_names(text_of("/etc/passwd"), facts.session_uid);
  facts.subuid_range = !sys::ranges_of(text_of("/etc/subuid"), owners).empty() &&
                       !sys::ranges_of(text_of("/etc/subgid"), owners).empty();
}

/// The cgroups that the caller is in and their limits; above them there may be lower ones, unseen.
void look_at_cgroups(Facts& facts) {
  const std::string membership = text_of("/proc/self/cgroup");
  const std::string mount_text = text_of("/proc/self/mountinfo");
  const std::vector<std::string> controllers = every_cgroup_controller();
  for (const std::string& controller : controllers)
    if (const auto own = sys::find_own_cgroup(membership, mount_text, controller); own)
      facts.own_cgroups[controller] = *own;
  facts.cgroup_places = sys::find_cgroup_places(controllers);
  const auto limit = [&](const char* controller, const char* file_v1,
                         const char* file_v2) -> std::optional<std::uint64_t> {
    const auto own = facts.own_cgroups.find(controller);
    if (own == facts.own_cgroups.end()) return std::nullopt;
    const bool v1 = own->second.version == 1;
    const auto value = number_in(join(own->second.directory, v1 ? file_v1 : file_v2));
    // v1 writes "no limit" as the largest number of pages.
    constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62;
    return value && *value < kNoLimit ? value : std::nullopt;
  };
  facts.pids_max = limit("pids", "pids.max", "pids.max");
  facts.memory_max = limit("memory", "memory.limit_in_bytes", "memory.max");
}

void look_at_limits(Facts& facts) {
  for (const auto& [name, resource] : rlimit_numbers()) {
    rlimit limit{};
    if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) == 0 &&
        limit.rlim_max != RLIM_INFINITY)
      facts.hard_limits[std::string(name)] = limit.rlim_max;
  }
}

void look_at_workspace_root(Facts& facts, const SessionIds& ids, const Host& caller) {
  // What is not there yet will be made, on the file system of what is.
  std::string there = facts.workspace_root;
  while (there.size() > 1 && access(there.c_str(), F_OK) != 0) there = parent_of(there);
  struct statvfs about {};
  if (statvfs(there.c_str(), &about) == 0) {
    facts.root_noexec = (about.f_flag & ST_NOEXEC) != 0;
    facts.root_nosuid = (about.f_flag & ST_NOSUID) != 0;
    facts.root_readonly = (about.f_flag & ST_RDONLY) != 0;
  }
  for (std::size_t end = there.find('/', 1);; end = there.find('/', end + 1)) {
    const std::string part = there.substr(0, end);
    const Result<Access> access = access_as(ids, caller, part, X_OK);
    if (access && *access == Access::kNone) facts.root_blocked_by = part;
    if (end == std::string::npos || !facts.root_blocked_by.empty()) break;
  }
}

void look_at_network(Facts& facts) {
  const Result<std::string> pasta = network::find_pasta();
  facts.pasta = pasta.has_value();
  if (pasta) facts.pasta_lacks = network::options_lacking(*pasta);
  const auto route = network::Socket::open(NETLINK_ROUTE);
  const Result<bool> way_out = route ? network::has_way_out(*route) : Result<bool>(true);
  facts.way_out = !way_out || *way_out;
}

}  // namespace

Facts observe_facts(const SessionIds& ids, const Host& caller, const std::string& workspace_root) {
  constexpr std::uint64_t kSysResource = 1U << 24;
  Facts facts;
  facts.session_uid = ids.uid;
  facts.caller_uid = caller.uid;
  facts.privileged = caller.privileged();
  facts.holds_resources = (caller.capabilities & kSysResource) != 0;
  facts.workspace_root = workspace_root;
  look_at_proc(facts);
  look_at_sysctls(facts);
  look_at_security(facts);
  facts.container = container_kind();
  look_at_ids(facts);
  look_at_cgroups(facts);
  look_at_limits(facts);
  look_at_workspace_root(facts, ids, caller);
  look_at_network(facts);
  facts.tries = try_steps(ids, caller);
  return facts;
}

}  // namespace belljar::launcher
