// Acting as a session's uid for a moment, as a privileged launcher does around a clone.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "policy/base/result.hpp"

namespace belljar::sys {

/// The calling thread's effective capabilities, one bit each.
[[nodiscard]] Result<std::uint64_t> effective_capabilities();

/// Replaces the calling thread's supplementary groups. Needs CAP_SETGID.
[[nodiscard]] Status set_groups(const gid_t* groups, std::size_t count);

/// The launcher's effective gid and uid are the session's between `assume` and `leave`. Per thread:
/// the launcher has one. The destructor leaves too, and ends the process when it cannot, because
/// going on with a mixture of ids would be worse.
class SessionCredentials {
 public:
  SessionCredentials() = default;
  SessionCredentials(const SessionCredentials&) = delete;
  SessionCredentials& operator=(const SessionCredentials&) = delete;
  ~SessionCredentials();

  /// Takes the effective ids; the capabilities that this clears stay permitted.
  [[nodiscard]] Status assume(uid_t uid, gid_t gid);

  /// Raises all permitted capabilities again while the ids stay the session's: what a clone that
  /// creates namespaces for it needs.
  [[nodiscard]] Status raise_capabilities();

  /// Back to the launcher's own effective ids and capabilities. Harmless when not assumed.
  [[nodiscard]] Status leave();

 private:
  bool assumed_ = false;
  uid_t own_uid_ = 0;
  gid_t own_gid_ = 0;
};

}  // namespace belljar::sys
