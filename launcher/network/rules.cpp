#include "launcher/network/rules.hpp"

#include <algorithm>
#include <array>

namespace belljar::network {
namespace {

using policy::Ipv4Range;

struct Named {
  Ipv4Range range;
  const char* because;
};

/// No policy opens these.
constexpr std::array<Named, 8> kNever = {{
    {{0x00000000, 8}, "addresses of this host (0.0.0.0/8)"},
    {{0x7f000000, 8}, "loopback addresses"},
    {{0xa9fe0000, 16}, "link-local addresses, the cloud's metadata among them"},
    {{0xc0000000, 24}, "addresses for the network's own use (192.0.0.0/24)"},
    {{0x646464c8, 32}, "the cloud's metadata"},
    {{0xa83f8110, 32}, "the cloud's metadata"},
    {{0xe0000000, 4}, "multicast addresses"},
    {{0xf0000000, 4}, "reserved and broadcast addresses"},
}};

class RuleList {
 public:
  void add(const Ipv4Range& to, bool accept, std::string because,
           std::vector<std::uint16_t> ports = {}) {
    rules_.push_back({to, std::move(ports), accept, std::move(because)});
  }

  void add(const policy::Destinations& destinations, bool accept) {
    for (const auto& [range, one] : destinations)
      if (const auto parsed = policy::parse_ipv4_range(range))
        add(*parsed, accept, one.because, one.ports);
  }

  [[nodiscard]] std::vector<Rule> take() { return std::move(rules_); }

 private:
  std::vector<Rule> rules_;
};

/// What keeps `range` away although the host has it as an address of its own: with thousands of
/// these, as nodes of a cluster have, the others are enough to say.
bool is_refused_anyway(const Ipv4Range& range, const launcher::AttachNetwork& wanted) {
  if (std::ranges::any_of(kNever, [&](const Named& one) { return one.range.contains(range); }))
    return true;
  return policy::is_private(range) && wanted.allow.empty();
}

}  // namespace

const Rule& rule_for(const std::vector<Rule>& rules, std::uint32_t address, std::uint16_t port) {
  for (const Rule& rule : rules)
    if (rule.to.contains({address, 32}) &&
        (rule.ports.empty() || std::ranges::find(rule.ports, port) != rule.ports.end()))
      return rule;
  return rules.back();
}

Result<std::vector<Rule>> rules_of(const launcher::AttachNetwork& wanted,
                                   const HostAddresses& host) {
  constexpr std::size_t kManyAddresses = 64;
  RuleList list;
  for (const launcher::AttachNetwork::Door& door : wanted.doors)
    list.add({door.address, 32}, true, "a door of belljar's own", {door.port});
  list.add(kInsideResolver, true, "the resolver", {53});
  const bool many = host.local.size() > kManyAddresses;
  for (const Ipv4Range& range : host.local)
    if (!many || !is_refused_anyway(range, wanted)) list.add(range, false, "addresses of the host");
  for (const Ipv4Range& range : host.gateways) list.add(range, false, "the host's gateway");
  for (const Named& one : kNever) list.add(one.range, false, one.because);
  list.add(wanted.deny, false);
  list.add(wanted.allow, true);
  for (const Ipv4Range& range : policy::kPrivateRanges)
    list.add(range, false, "private ranges (network.allow opens them)");
  if (wanted.only) list.add(*wanted.only, true);
  list.add({0, 0}, !wanted.only, wanted.only ? "what network.only does not name" : "");
  std::vector<Rule> rules = list.take();
  std::size_t size = 0;
  for (const Rule& rule : rules) size += std::max<std::size_t>(1, 2 * rule.ports.size());
  if (size <= kMostRules) return rules;
  return fail({ErrorKind::kRefused, 0,
               "the private network would take " + std::to_string(size) + " rules, more than " +
                   std::to_string(kMostRules),
               "network", "name fewer destinations and ports"});
}

}  // namespace belljar::network
