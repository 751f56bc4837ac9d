// What a private network may reach, as one list of rules: the first that matches decides.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/plan.hpp"
#include "policy/base/result.hpp"
#include "policy/ipv4.hpp"

namespace belljar::network {

/// The addresses inside: of a range that no network routes (192.0.0.0/29, RFC 7335), so that none
/// of them hides one of the host's or of the internet.
inline constexpr policy::Ipv4Range kInsideNet{0xc0000000, 29};
inline constexpr policy::Ipv4Range kInsideGateway{0xc0000001};
inline constexpr policy::Ipv4Range kInsideAddress{0xc0000002};
/// pasta passes what is sent to its port 53 on to the host's resolver.
inline constexpr policy::Ipv4Range kInsideResolver{0xc0000003};

struct Rule {
  policy::Ipv4Range to;
  std::vector<std::uint16_t> ports;  ///< TCP and UDP; empty: everything.
  bool accept = false;
  std::string because;  ///< "link-local addresses, the cloud's metadata among them"
};

/// What of the host must not be reached.
struct HostAddresses {
  std::vector<policy::Ipv4Range> local;     ///< What it takes for its own, sorted.
  std::vector<policy::Ipv4Range> gateways;  ///< Sorted.
  bool operator==(const HostAddresses&) const = default;
};

/// The rules; the last one says what becomes of everything else. Too many of them (kMostRules) are
/// an error: what is not held must not start.
[[nodiscard]] Result<std::vector<Rule>> rules_of(const launcher::AttachNetwork& wanted,
                                                 const HostAddresses& host);
/// So many fit into one message to the kernel, which takes all of them or none.
inline constexpr std::size_t kMostRules = 400;

/// The one that decides, as the kernel finds it.
[[nodiscard]] const Rule& rule_for(const std::vector<Rule>& rules, std::uint32_t address,
                                   std::uint16_t port);

}  // namespace belljar::network
