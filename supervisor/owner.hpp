// An owner: who a session dies with.
#pragma once

#include <memory>
#include <optional>

#include "policy/base/unique_fd.hpp"
#include "supervisor/clock.hpp"

namespace belljar::supervisor {

/// Whether whoever owns sessions is still there. Held by each session of his.
class Owner {
 public:
  explicit Owner(std::shared_ptr<Clock> clock) : clock_(std::move(clock)) {}
  /// One that leaves with the process that `pidfd` is of.
  [[nodiscard]] static std::shared_ptr<Owner> of_process(const asio::any_io_executor& executor,
                                                         std::shared_ptr<Clock> clock,
                                                         UniqueFd pidfd);

  /// He has gone. The first time counts.
  void leave();
  /// He has gone, but came back in time.
  void come_back() { left_.reset(); }
  [[nodiscard]] std::optional<TimePoint> left() const { return left_; }

 private:
  std::shared_ptr<Clock> clock_;
  std::optional<TimePoint> left_;
};

}  // namespace belljar::supervisor
