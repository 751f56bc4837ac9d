// Host: what the launcher saw of this machine before it made a plan. A plain value, so that plans
// can be made and tested for hosts that are not this one.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/sys/cgroup.hpp"
#include "launcher/sys/id_ranges.hpp"
#include "launcher/sys/terminal.hpp"
#include "policy/base/result.hpp"
#include "policy/policy.hpp"

namespace belljar::launcher {

/// A directory or a link at the top level of the host's file tree. Plain files are not listed.
struct TopLevel {
  std::string name;                 ///< "/usr"
  std::optional<std::string> link;  ///< What the symbolic link says.
};

/// What the session's uid may do with a directory, by its owner and mode.
enum class Access { kNone, kRead, kWrite };

/// The ids that the sandbox will have on the host.
struct SessionIds {
  uid_t uid = 0;
  gid_t gid = 0;
};

/// A directory that an overlay writes to.
struct WrittenDirectory {
  bool exists = false;
  Access access = Access::kNone;  ///< As the session's uid; kNone for what is no directory.
  dev_t device = 0;
};

struct Host {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;        ///< Supplementary, without `gid`.
  std::uint64_t capabilities = 0;   ///< Effective.
  std::vector<TopLevel> top_level;  ///< Sorted by name.
  std::string current_directory;    ///< Empty when it cannot be named.
  std::string home;                 ///< $HOME, empty when unset or not absolute.
  bool home_exists = false;
  std::map<std::string, std::string> environment;
  std::map<std::string, std::string> sources;  ///< Of mounts that lead through links of root's.
  std::map<std::string, WrittenDirectory> written;  ///< Upper and work directories of overlays.
  std::vector<int> directory_descriptors;  ///< Of 0, 1, 2 and io.keep: a door to the host's tree.
  std::vector<int> absent_descriptors;     ///< Those of io.keep that the caller did not leave open.
  std::vector<int> terminals;              ///< Of 0, 1, 2; looked at only when the policy asks.
  std::optional<sys::TerminalSettings> terminal_settings;  ///< Of the first of them.
  std::optional<sys::TerminalSize> terminal_size;
  int landlock_abi = 0;                      ///< As sys::landlock_abi says; 0: not looked at.
  Access workspace_access = Access::kWrite;  ///< As the session's uid.
  std::string workspace_blocked_by;          ///< The first directory on the way that keeps it out.
  /// Looked at only when it is out of reach.
  enum class PathKind { kDirectory, kAbsent, kOther } workspace_kind = PathKind::kDirectory;
  std::optional<SessionIds> workspace_owner;  ///< Looked at only when it is to be mapped.
  sys::CgroupPlaces cgroups;                  ///< Of the controllers that the policy's limits need.
  std::vector<sys::IdRange> subordinate_uids;  ///< Of the session's uid; only for `identity.ids`.
  std::vector<sys::IdRange> subordinate_gids;
  std::optional<Error> id_helpers_refused;  ///< Why newuidmap or newgidmap cannot be used.

  /// What of /etc/resolv.conf holds inside a private network, too: "search example.org"; only then.
  std::string resolver_options;
  std::string resolver_file;  ///< Where it is when root's links are followed; empty: nowhere.
  /// What is said of a private network that the policy prefers and that could not be had.
  std::optional<std::string> no_private_network;

  /// Whether the launcher can act as another uid: CAP_SETUID and CAP_SETGID are effective.
  [[nodiscard]] bool privileged() const;
};

/// What the session's ids may do with `path`, by its owner and mode: without the capabilities of
/// their namespace, which do not reach the host's files. The groups are the caller's: whoever has a
/// plan looks with `look_as_session`.
/// `least` is what Access::kRead takes, as access(2) has it.
[[nodiscard]] Result<Access> access_as(const SessionIds& ids, const Host& host,
                                       const std::string& path, int least = R_OK | X_OK);

/// The uid that root's own launches map when the policy names none: `nobody`, which owns nothing.
inline constexpr uid_t kNobody = 65534;

/// Works the outside ids out; errors name `identity.uid` and what to change.
[[nodiscard]] Result<SessionIds> session_ids(const policy::Identity& identity, const Host& host);

/// Looks at this machine, reading only what `policy` needs. To be called before the launcher opens
/// descriptors of its own besides sys::proc_directory(): they could not be told from the caller's.
[[nodiscard]] Result<Host> observe_host(const policy::Policy& policy);

}  // namespace belljar::launcher
