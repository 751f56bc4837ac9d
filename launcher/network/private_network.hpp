// The private network of one sandbox, as the launcher has it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

#include "launcher/network/messages.hpp"
#include "launcher/plan.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::network {

/// Starts the guard (guard.hpp), hears from it, and ends it. No system call for plans without one.
class PrivateNetwork {
 public:
  enum class State {
    kNone,
    kComing,
    kUp,
    kLost,  ///< It could not be brought up, or has ended; failure() says why.
  };

  explicit PrivateNetwork(const launcher::Plan& plan);
  PrivateNetwork(const PrivateNetwork&) = delete;
  PrivateNetwork& operator=(const PrivateNetwork&) = delete;
  ~PrivateNetwork() { (void)end(); }

  /// Attaches the namespaces.
  [[nodiscard]] Status start(sys::UniqueFd user, sys::UniqueFd net);

  /// Readable when the guard has something to say; -1 without one.
  [[nodiscard]] int descriptor() const { return way_.get(); }
  void hear();

  /// Whether the plan has one.
  [[nodiscard]] bool wanted() const { return wanted_ != nullptr; }
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] const Error& failure() const { return failure_; }

  /// Ends it, pasta first, and says what it has refused; nothing without one.
  [[nodiscard]] std::optional<std::vector<Refusal>> end();

 private:
  const launcher::Plan& plan_;
  const launcher::AttachNetwork* wanted_ = nullptr;
  State state_ = State::kNone;
  Error failure_;
  sys::UniqueFd way_;
  pid_t guard_ = 0;
};

}  // namespace belljar::network
