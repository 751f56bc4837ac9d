// Whether addresses answer: the self-test of a private network asks from inside and from outside.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "policy/base/result.hpp"

namespace belljar::network {

inline constexpr std::string_view kConnected = "connected";
inline constexpr std::string_view kUnanswered = "unanswered";
inline constexpr std::string_view kResolved = "resolved";

/// What came of one target.
struct Reached {
  std::string target;
  std::string verdict;  ///< kConnected, kResolved, kUnanswered, or the errno ("ECONNREFUSED").
  std::string said;  ///< The first word that came over the connection, or the resolver's refusal.

  bool operator==(const Reached&) const = default;
};

/// Connects to all of "ADDRESS:PORT" at once, by TCP, and listens to what is said there; asks all
/// of "ADDRESS" for the root's name servers, by UDP on port 53. Ends when there is an answer to
/// all, or no more time. Answers come in the order of the targets.
[[nodiscard]] std::vector<Reached> reach(const std::vector<std::string>& targets,
                                         std::chrono::milliseconds patience);

/// The IPv4 name servers that a resolv.conf(5) of that text names.
[[nodiscard]] std::vector<std::string> name_servers(std::string_view resolv_conf);

}  // namespace belljar::network
