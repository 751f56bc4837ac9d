// Acting as a session's uid for a moment, as a privileged launcher does around a clone.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "policy/base/result.hpp"

namespace belljar::sys {

/// The calling thread's effective capabilities, one bit each.
[[nodiscard]] Result<std::uint64_t> effective_capabilities();

/// The calling process's, in the kernel's order; its gid may be among them.
[[nodiscard]] Result<std::vector<gid_t>> supplementary_groups();

/// Replaces the calling thread's supplementary groups. Needs CAP_SETGID.
[[nodiscard]] Status set_groups(const gid_t* groups, std::size_t count);

/// The launcher's effective gid and uid are the session's between `assume` and `leave`. Per thread:
/// the launcher has one. The destructor leaves too, and ends the process when it cannot, because
/// going on with a mixture of ids would be worse.
class SessionCredentials {
 public:
  /// `uid` and `gid` are the launcher's own effective ids, `capabilities` its permitted ones.
  SessionCredentials(uid_t uid, gid_t gid, std::uint64_t capabilities)
      : own_uid_(uid), own_gid_(gid), capabilities_(capabilities) {}
  SessionCredentials(const SessionCredentials&) = delete;
  SessionCredentials& operator=(const SessionCredentials&) = delete;
  ~SessionCredentials();

  /// Takes the effective ids; the effective capabilities that this clears stay permitted.
  [[nodiscard]] Status assume(uid_t uid, gid_t gid);

  /// Takes the effective ids and the supplementary groups with no capability in force: what the
  /// kernel says of a path then is what it says to the session.
  [[nodiscard]] Status look_as(uid_t uid, gid_t gid, const std::vector<gid_t>& groups);

  /// Puts the effective capabilities down, which stay permitted.
  [[nodiscard]] Status lower_capabilities();

  /// Raises the capabilities again while the ids stay the session's: what a clone that creates
  /// namespaces for it needs.
  [[nodiscard]] Status raise_capabilities();

  /// Back to the launcher's own effective ids, groups and capabilities. Harmless when not assumed.
  [[nodiscard]] Status leave();

 private:
  bool assumed_ = false;
  bool lowered_ = false;
  std::optional<std::vector<gid_t>> own_groups_;  ///< Only where others were taken.
  uid_t own_uid_;
  gid_t own_gid_;
  std::uint64_t capabilities_;
};

}  // namespace belljar::sys
