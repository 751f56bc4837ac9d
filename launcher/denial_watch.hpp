// Who listens while a command runs under `--explain-denials`.
#pragma once

#include <sys/types.h>

#include <optional>

#include "launcher/denials.hpp"
#include "launcher/sys/unique_fd.hpp"
#include "policy/base/result.hpp"

namespace belljar::launcher {

/// A process beside belljar that holds the only descriptor of the filter's listener, answers for
/// it, and writes down what was refused. It is not belljar itself because it follows paths that the
/// command chose, on file systems that may make it wait: it has the session's ids, no capability,
/// and nothing of belljar's but the listener and the way back; what holds it up holds up nobody but
/// the command. When it or belljar dies the listener is gone, and what it would be asked fails with
/// ENOSYS.
/// It has the owner's rights over the sandbox's user namespace, as any process with the session's
/// effective uid outside, which is how it reads the command's memory.
class DenialWatch {
 public:
  DenialWatch(const Plan& plan, const policy::Policy& policy, const Host& host)
      : plan_(plan), policy_(policy), host_(host) {}
  DenialWatch(const DenialWatch&) = delete;
  DenialWatch& operator=(const DenialWatch&) = delete;
  ~DenialWatch();

  [[nodiscard]] Status start(sys::UniqueFd listener);

  /// Readable before `collect` only when the process has died: -1 when there is none.
  [[nodiscard]] int descriptor() const { return way_.get(); }

  /// What was seen, once the sandbox has ended; nothing when nobody listened.
  [[nodiscard]] std::optional<Denials> collect();

 private:
  const Plan& plan_;
  const policy::Policy& policy_;
  const Host& host_;
  sys::UniqueFd way_;
  pid_t pid_ = 0;
};

}  // namespace belljar::launcher
