#include "launcher/network/host_addresses.hpp"

#include <linux/rtnetlink.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace belljar::network {
namespace {

using policy::Ipv4Range;

struct Route {
  rtmsg head{};
  std::uint32_t table = 0;
  Ipv4Range to;
  std::vector<std::uint32_t> gateways;
};

void add_gateway(Bytes value, std::vector<std::uint32_t>& gateways) {
  if (value.size() == sizeof(in_addr)) gateways.push_back(Attribute{0, value}.big());
}

/// Several ways of one route.
void add_ways(Bytes ways, std::vector<std::uint32_t>& gateways) {
  while (ways.size() >= sizeof(rtnexthop)) {
    rtnexthop head{};
    std::memcpy(&head, ways.data(), sizeof head);
    if (head.rtnh_len < sizeof head || head.rtnh_len > ways.size()) return;
    add_gateway(find(ways.subspan(sizeof head, head.rtnh_len - sizeof head), RTA_GATEWAY),
                gateways);
    ways = ways.subspan(std::min<std::size_t>(RTNH_ALIGN(head.rtnh_len), ways.size()));
  }
}

Route route_of(const Answer& answer) {
  Route route;
  route.head = answer.header<rtmsg>();
  route.table = route.head.rtm_table;
  route.to.length = route.head.rtm_dst_len;
  for (const Attribute& one : attributes(answer.attributes(sizeof(rtmsg)))) {
    if (one.type == RTA_TABLE) route.table = one.number();
    if (one.type == RTA_DST) route.to.address = one.big();
    if (one.type == RTA_GATEWAY) add_gateway(one.value, route.gateways);
    if (one.type == RTA_MULTIPATH) add_ways(one.value, route.gateways);
  }
  return route;
}

Result<std::vector<Route>> routes(const Socket& socket) {
  rtmsg head{};
  head.rtm_family = AF_INET;
  Requests request;
  request.begin(RTM_GETROUTE, NLM_F_DUMP, head);
  std::vector<Route> found;
  for (const Answer& answer : BELLJAR_TRY(socket.dump(request)))
    if (answer.type == RTM_NEWROUTE) found.push_back(route_of(answer));
  return found;
}

void sort_and_clear(std::vector<Ipv4Range>& ranges) {
  const auto key = [](const Ipv4Range& range) { return std::pair(range.address, range.length); };
  std::ranges::sort(ranges, {}, key);
  ranges.erase(std::unique(ranges.begin(), ranges.end()), ranges.end());
}

}  // namespace

Result<Socket> watch_host() {
  return Socket::open(NETLINK_ROUTE, RTMGRP_IPV4_ROUTE | RTMGRP_IPV4_IFADDR);
}

Result<HostAddresses> host_addresses(const Socket& route) {
  constexpr Ipv4Range kLoopback{0x7f000000, 8};
  HostAddresses found;
  for (const Route& one : BELLJAR_TRY(routes(route))) {
    // Other tables are asked for marked packets alone (transparent proxies have all of them local).
    const bool local = one.table == RT_TABLE_LOCAL &&
                       (one.head.rtm_type == RTN_LOCAL || one.head.rtm_type == RTN_BROADCAST);
    if (local && !kLoopback.contains(one.to)) found.local.push_back(one.to);
    for (const std::uint32_t gateway : one.gateways) found.gateways.push_back({gateway, 32});
  }
  sort_and_clear(found.local);
  sort_and_clear(found.gateways);
  return found;
}

Result<bool> has_way_out(const Socket& route) {
  const std::vector<Route> all = BELLJAR_TRY(routes(route));
  return std::ranges::any_of(all, [](const Route& one) {
    return one.to.length == 0 && one.head.rtm_type == RTN_UNICAST && !one.gateways.empty();
  });
}

}  // namespace belljar::network
