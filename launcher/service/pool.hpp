// The uids that sessions have, and whether anybody else has them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "policy/base/result.hpp"

namespace belljar::service {

/// Whose the sessions are: `count` uids from `first`, or, without privileges, the service's own.
struct Pool {
  bool privileged = false;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  uid_t own_uid = 0;
  gid_t own_gid = 0;

  [[nodiscard]] bool holds(std::uint64_t uid) const;
  /// The group of a session: one of its own, with its uid's number.
  [[nodiscard]] gid_t group_of(uid_t uid) const { return privileged ? uid : own_gid; }
  /// "20000-20004"
  [[nodiscard]] std::string text() const;
};

/// What may have a uid of the pool, as texts, so that hosts that are not here can be tested.
struct Neighbours {
  std::string passwd, group;   ///< /etc/passwd, /etc/group
  std::string subuid, subgid;  ///< /etc/subuid, /etc/subgid
  struct Process {
    int pid = 0;
    std::string name;
    std::vector<std::uint64_t> uids;
  };
  std::vector<Process> processes;  ///< That run, without the service itself.
};

[[nodiscard]] Neighbours look_around();

/// Refuses a pool of which somebody else has a uid, and says who. `last` is the highest that
/// counts: the one kept for self-tests.
[[nodiscard]] Status check_pool(std::uint64_t first, std::uint64_t last,
                                const Neighbours& neighbours);

}  // namespace belljar::service
