// Which rule of a private network decides, asked beside a launch.
#pragma once

#include <cstdint>

#include "launcher/network/rules.hpp"
#include "policy/policy.hpp"

namespace belljar::network {

/// What the policy wants of its private network.
[[nodiscard]] launcher::AttachNetwork wanted_by(const policy::Network& network);

/// The rule for an address with what this host has now: rules follow the host's addresses.
[[nodiscard]] Result<Rule> deciding_rule(const policy::Network& network, std::uint32_t address,
                                         std::uint16_t port);

}  // namespace belljar::network
