// How often a client may start something.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "supervisor/clock.hpp"

namespace belljar::api {

/// A minute's worth of starts at once, and then as many as time brings.
class StartRate {
 public:
  /// `clock` outlives it; 0 a minute: as many as anybody likes.
  StartRate(supervisor::Clock& clock, std::uint64_t a_minute);

  /// Nothing, and one start of `client`'s is taken; otherwise when it has one again.
  [[nodiscard]] std::optional<std::chrono::seconds> take(const std::string& client);
  [[nodiscard]] std::uint64_t a_minute() const { return a_minute_; }

 private:
  struct Left {
    double starts = 0;
    supervisor::TimePoint at;
  };
  [[nodiscard]] double now_left(const Left& left, supervisor::TimePoint now) const;

  supervisor::Clock& clock_;
  std::uint64_t a_minute_;
  std::map<std::string, Left> clients_;  ///< Who has not all of his; at most kMostClients.
};

}  // namespace belljar::api
