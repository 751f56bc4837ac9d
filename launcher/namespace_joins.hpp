// The namespaces that a plan joins: opened before the clone, and named when the kernel refuses one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/compile.hpp"
#include "launcher/plan.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::launcher {

class NamespaceJoins {
 public:
  /// Opens what the plan names. No link is followed but root's, and those of /proc/PID/ns, which
  /// the kernel guards (man 2 ptrace, PTRACE_MODE_READ). What is there has to be a namespace of the
  /// kind that it is named for.
  /// What belljar's own ids may not look at is opened by the session's: its processes are its own.
  [[nodiscard]] Status open(const Plan& plan, const Host& host);

  /// For the image, in the order of the plan.
  [[nodiscard]] const std::vector<Join>& list() const { return list_; }

  /// Whose the namespace of that step is, and what a person could change when it was refused.
  [[nodiscard]] std::string owner_text(int step) const;

 private:
  [[nodiscard]] Status keep(sys::UniqueFd fd, const JoinNamespace& action, int step);

  std::vector<Join> list_;
  std::vector<sys::UniqueFd> fds_;
};

}  // namespace belljar::launcher
