// Where a self-test's sandbox has its workspace: a directory in the real place, gone afterwards.
#pragma once

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/host.hpp"
#include "launcher/sys/unique_fd.hpp"
#include "policy/base/result.hpp"

namespace belljar::launcher {

/// A fresh directory of the session's below a root, as the daemon makes one for each session. What
/// was made on the way to it goes as well, when it ends. It is locked while it is in use, and one
/// that nobody holds, because its belljar was killed, goes with the next. INT, TERM and HUP wait
/// until it is gone.
class TestGround {
 public:
  /// Makes it. `root` is made when absent, root-owned and 0711. Errors name the directory and what
  /// to change.
  [[nodiscard]] static Result<TestGround> make(const std::string& root, const SessionIds& ids,
                                               const Host& host);
  TestGround(TestGround&& other) noexcept;
  TestGround& operator=(TestGround&&) = delete;
  ~TestGround();

  [[nodiscard]] const std::string& path() const { return path_; }

  /// Bytes of what is in it.
  [[nodiscard]] std::uint64_t held() const;

  /// A copy of this program in it, which the session can execute.
  [[nodiscard]] Result<std::string> copy_of_belljar();

 private:
  TestGround() = default;
  Status make_root(const std::string& root);
  Status make_own(const SessionIds& ids, const Host& host);
  Status make_locked(const std::string& root);
  void hold_signals();

  std::optional<sigset_t> mask_;  ///< The signals that were blocked before.
  std::string root_;
  std::string path_;
  sys::UniqueFd directory_;
  std::vector<std::string> made_;  ///< Directories on the way, the highest first.
  bool copied_ = false;            ///< It holds a copy of belljar.
};

/// Removes from the directory `root` what self-tests that were killed have left there: nobody holds
/// it.
void remove_left_grounds(int root);

/// Where sessions have their workspaces when no setting says so: /var/lib/belljar/sessions, or for
/// a plain user a directory in $XDG_RUNTIME_DIR, or else in /tmp.
[[nodiscard]] std::string default_sessions_root(const Host& host);

}  // namespace belljar::launcher
