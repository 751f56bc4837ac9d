#include "launcher/network/deciding.hpp"

#include <linux/rtnetlink.h>

#include "launcher/network/host_addresses.hpp"
#include "launcher/network/netlink.hpp"

namespace belljar::network {

launcher::AttachNetwork wanted_by(const policy::Network& network) {
  launcher::AttachNetwork wanted;
  wanted.allow = network.allow;
  wanted.only = network.only;
  wanted.deny = network.deny;
  return wanted;
}

Result<Rule> deciding_rule(const policy::Network& network, std::uint32_t address,
                           std::uint16_t port) {
  const Socket route = BELLJAR_TRY(Socket::open(NETLINK_ROUTE));
  const HostAddresses own = BELLJAR_TRY(host_addresses(route));
  return rule_for(BELLJAR_TRY(rules_of(wanted_by(network), own)), address, port);
}

}  // namespace belljar::network
