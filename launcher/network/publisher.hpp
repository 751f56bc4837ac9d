// The process that leads what comes to published ports into a sandbox.
#pragma once

#include <cstdint>
#include <vector>

#include "launcher/network/guard.hpp"

namespace belljar::network {

struct Published {
  int listener = -1;         ///< Outside.
  std::uint16_t inside = 0;  ///< On the sandbox's loopback.
};

/// Runs in a forked child of belljar's, as `guard_network` does, and gives up all capabilities as
/// soon as it is inside. The end of file of `way` is its end.
[[noreturn]] void publish_ports(const std::vector<Published>& ports, const Place& place, int way);

}  // namespace belljar::network
