// What holds the daemon itself: with which options its container was started, and what they cost.
#pragma once

#include <string>
#include <vector>

#include "api/log.hpp"

namespace belljar::api {

struct Confinement {
  bool container = false;     ///< Docker's or Podman's mark is there.
  bool filtered = false;      ///< A system call filter is on this process.
  bool no_new_privs = false;  ///< What is set-user-id gains nothing.
  bool knobs_open = false;    ///< /proc/sys/kernel/core_pattern can be opened for writing.
  std::string apparmor;       ///< "docker-default (enforce)"; empty: none.
  std::vector<std::string> other_procs;  ///< Paths besides /proc that lead to a procfs.

  /// What whoever takes the daemon's container over is not kept from: one sentence each, none where
  /// container/compose.yaml is what it was started with.
  [[nodiscard]] std::vector<std::string> prices() const;
  /// The options as one line of the log has them.
  [[nodiscard]] Facts facts() const;
};

/// Looks at this process. To be called while it still has the container's privileges.
[[nodiscard]] Confinement observe_confinement();

/// Says which setting was found, and the price of each weaker option. Silent outside containers.
void tell(const Confinement& found);

}  // namespace belljar::api
