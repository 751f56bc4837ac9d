// What of the host a private network must not reach.
#pragma once

#include "launcher/network/netlink.hpp"
#include "launcher/network/rules.hpp"

namespace belljar::network {

/// Tells when the host's addresses may have changed.
[[nodiscard]] Result<Socket> watch_host();

/// From the kernel's own table of what is local, in which an address stands that no interface has,
/// too (man 8 ip-route, "local"), and from the gateways of all other tables.
[[nodiscard]] Result<HostAddresses> host_addresses(const Socket& route);

/// Whether there is a way out in the socket's namespace: a default route.
[[nodiscard]] Result<bool> has_way_out(const Socket& route);

}  // namespace belljar::network
