// From a bwrap command line to the Plan that every other front end makes, too.
//
// A policy knows no order and makes nothing on the host; bwrap's arguments do both. So they become
// steps directly, in their order ("literal", Plan::drop_in), which compile, launch and explain take
// like any others.
#pragma once

#include <string>
#include <vector>

#include "launcher/bwrap/options.hpp"
#include "launcher/host.hpp"
#include "launcher/plan.hpp"
#include "launcher/record.hpp"

namespace belljar::launcher::bwrap {

/// What the caller has handed over beside its arguments.
struct Inherited {
  std::vector<int> descriptors;  ///< That are open, from 3 on.
  std::uint64_t signal_mask = 0;
  mode_t umask = 022;
  std::string number = "self";  ///< Ours in /proc, which may be another pid namespace's.
  std::string directory;        ///< Empty when it cannot be named.
  bool user_namespaces = true;  ///< The host has them and allows some.
  bool cgroup_namespaces = true;
  /// Uid 0 here is whose /proc/sys is; not so in a user namespace that calls somebody else 0.
  bool zero_owns_sysctls = true;
  bool terminal = false;                 ///< Descriptor 1 is one.
  int last_capability = 40;              ///< That this kernel knows.
  std::vector<std::string> environment;  ///< After all changes, "NAME=VALUE".
};

/// Looks at this process; `descriptors` are those that it was started with.
[[nodiscard]] Result<Inherited> look_around(const Options& options, std::vector<int> descriptors);

/// Replaces the sources of binds and overlays by the paths that they lead to, as the caller: links,
/// "..", and what is relative to the current directory. One that does not exist is an error, or
/// leaves the list where that is allowed.
[[nodiscard]] Status resolve_sources(Options& options);

/// What --seccomp holds joins `filters`, and all are looked at.
[[nodiscard]] Status read_filters(Options& options, const ReadDescriptor& read);

/// Without a system call.
[[nodiscard]] Result<Plan> plan(const Options& options, const Host& host,
                                const Inherited& inherited);

/// Whether the sandbox gets a user namespace of its own.
[[nodiscard]] bool makes_user_namespace(const Options& options, const Host& host,
                                        const Inherited& inherited);

/// A failed launch in bwrap's words, one line or more without prefix.
[[nodiscard]] std::vector<std::string> failure_lines(const Plan& plan, const SetupFailure& failure);

}  // namespace belljar::launcher::bwrap
