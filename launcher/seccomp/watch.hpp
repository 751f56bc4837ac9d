// A filter that refuses what another refuses, and tells belljar of it: `run --explain-denials`.
#pragma once

#include <linux/filter.h>

#include <span>
#include <string_view>

#include "launcher/seccomp/program.hpp"
#include "policy/base/result.hpp"

namespace belljar::launcher {

/// How a call names what it is about.
enum class CallShape {
  kOpen,     ///< A path, and flags in argument `more`.
  kOpenHow,  ///< A path, and a struct open_how at argument `more`.
  kCreate,   ///< A path that is opened for writing, and made.
  kExec,
  kLook,    ///< A path that has to be there.
  kAccess,  ///< A path, and what is wanted of it in argument `more`.
  kMake,    ///< A path that is new in its directory.
  kRemove,  ///< A path that goes from its directory.
  kChange,  ///< A path that is written to.
  kConnect,
  kBind,
};

/// A call that belljar is told of although the policy allows it, because its path or address may
/// be refused.
struct WatchedCall {
  std::string_view name;
  CallShape shape;
  int directory = -1;  ///< Argument with the directory's descriptor; -1: the current one.
  int path = 0;        ///< Argument with the path, or the address.
  int more = -1;
  int empty_path = -1;  ///< Argument whose AT_EMPTY_PATH says that there is no path.
  int other_directory = -1;
  int other_path = -1;  ///< Argument with a second path, which is made.
};

[[nodiscard]] std::span<const WatchedCall> watched_calls();

/// The filter to install, with SECCOMP_FILTER_FLAG_NEW_LISTENER, in the place of `judged` (empty:
/// nothing is refused). It is three copies of `judged`, one for each of
///   what is not watched: an errno becomes a notification;
///   what is watched: so does what is allowed;
///   seccomp(NEW_LISTENER): what is allowed fails with EBUSY, and an errno stays one.
/// Kills are kills in all of them. A listener that is gone makes ENOSYS of every notification
/// (man 2 seccomp_unotify), so a refused call stays refused without belljar. The last copy keeps it
/// so: of two filters that notify the kernel asks the newer one's listener, which could say
/// "continue"; here nobody can ever have one.
/// kInvalid: three copies are too long for a filter.
[[nodiscard]] Result<SeccompFilter> watching_filter(std::span<const sock_filter> judged);

}  // namespace belljar::launcher
