// Facts: what was seen of this machine, and what came of trying. A plain value, so that what they
// mean (launcher/findings.hpp) can be tested for machines that are not here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/host.hpp"

namespace belljar::launcher {

/// What came of trying: 0, an errno, or nothing where something before it failed.
using Tried = std::optional<int>;

/// The steps of a launch, tried one after the other by a process with the session's ids.
struct Tries {
  Tried clone3, unshare_user, map_ids, unshare_rest, make_private, mount_tree, mount_tmpfs;
  Tried proc_full, proc_read_only, proc_processes, sethostname, pivot_root;
  Tried seccomp;  ///< EFAULT where filters can be installed.
  Tried tun;
  Tried nftables;  ///< The rules of a private network, in a namespace of their own.
};

struct Facts {
  Tries tries;
  uid_t session_uid = 0, caller_uid = 0;
  bool privileged = false;
  bool holds_resources = false;  ///< CAP_SYS_RESOURCE: hard limits can be raised.
  int landlock_abi = 0;          ///< As sys::landlock_abi says.

  bool proc_mounted = true;
  bool proc_read_only = false;
  std::vector<std::string> proc_masks;           ///< Mounts below /proc.
  std::map<std::string, std::uint64_t> sysctls;  ///< "user.max_user_namespaces", those there are.
  std::string apparmor;                          ///< "docker-default (enforce)"; empty: none.
  bool selinux = false;                          ///< Enforcing.
  bool filtered = false;                         ///< A system call filter is on the caller.
  bool no_new_privs = false;
  bool root_is_mount = true;  ///< "/" is where a file system is mounted: no chroot.
  std::string root_type;      ///< "overlay", "rootfs"
  std::string kernel;         ///< /proc/version
  std::string container;      ///< "docker", "podman", or empty.
  bool newuidmap = false;
  bool subuid_range = false;

  std::map<std::string, sys::OwnCgroup> own_cgroups;  ///< By controller, where one is mounted.
  sys::CgroupPlaces cgroup_places;                    ///< Of every controller that a limit needs.
  std::optional<std::uint64_t> pids_max, memory_max;  ///< Of the cgroup that the caller is in.
  std::map<std::string, std::uint64_t> hard_limits;  ///< By the policy's names; unlimited ones not.

  bool pasta = true;                     ///< It is installed,
  std::vector<std::string> pasta_lacks;  ///< but for these options, which are used of it.
  bool way_out = true;                   ///< A default route (IPv4).

  std::string workspace_root;
  bool root_noexec = false, root_nosuid = false, root_readonly = false;
  std::string root_blocked_by;  ///< The directory that keeps the session from it.
  std::uint64_t sessions = 1;
};

/// Looks and tries. `ids` are a session's, `caller` is as observe_caller has it.
[[nodiscard]] Facts observe_facts(const SessionIds& ids, const Host& caller,
                                  const std::string& workspace_root);

/// Tries what a launch needs, in a process that ends.
[[nodiscard]] Tries try_steps(const SessionIds& ids, const Host& caller);

}  // namespace belljar::launcher
