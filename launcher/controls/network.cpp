#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/controls/facts.hpp"
#include "launcher/controls/promises.hpp"
#include "launcher/network/deciding.hpp"

namespace belljar::launcher {
namespace {

using policy::NetworkMode;

int try_socket(int family, int type, int protocol) {
  const int fd = socket(family, type | SOCK_CLOEXEC, protocol);
  if (fd < 0) return errno;
  close(fd);
  return 0;
}

/// A datagram to an address that no policy opens, from a socket that is bound to the way out, past
/// all routes. What is not let out is told at once.
int try_metadata() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "eth0", 5);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(9);
  address.sin_addr.s_addr = htonl(0xA9FEA9FE);
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  const int result = sendto(fd, "", 0, 0, to, sizeof address) < 0 ? errno : 0;
  close(fd);
  return result;
}

constexpr Probe kProbes[] = {
    {"raw-socket", "open a raw IPv4 socket",
     [] { return try_socket(AF_INET, SOCK_RAW, IPPROTO_ICMP); },
     [](const Made& made) -> const char* {
       return shares_network(made.policy, made.host)
                  ? "capabilities"
                  : refused_without(made.policy, "CAP_NET_RAW", "socket");
     }},
    {"route-out", "find a route to an address outside (TEST-NET-1; nothing is sent)",
     [] {
       const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
       if (fd < 0) return errno;
       sockaddr_in address{};
       address.sin_family = AF_INET;
       address.sin_port = htons(9);
       address.sin_addr.s_addr = htonl(0xC0000201);
       const int result =
           connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0
                                                                                         : errno;
       close(fd);
       return result;
     },
     [](const Made& made) -> const char* {
       return made.policy.network.mode == NetworkMode::kNone ? "network.mode" : nullptr;
     }},
    {"reach-metadata", "send to the cloud's metadata (169.254.169.254, the discard port)",
     try_metadata,
     [](const Made& made) -> const char* {
       return has_own_network(made.policy, made.host) ? "network.mode" : nullptr;
     }},
};

constexpr Fact kFacts[] = {
    {"own-network", "the network is not the sandbox's own", is_another_namespace,
     [](const Made& made) {
       if (!has_own_network(made.policy, made.host)) return std::vector<Fact::Expected>();
       return other_namespace_than_ours(made, "net", "network.mode");
     }},
};

Status refuse(const char* what, const char* where, const char* remedy) {
  return fail({ErrorKind::kRefused, 0, what, where, remedy});
}

/// Whoever has these inside could undo the rules, or send what they do not see.
Status check_private(const policy::Policy& policy) {
  for (const std::string& capability : policy.capabilities)
    if (capability == "CAP_NET_ADMIN" || capability == "CAP_NET_RAW")
      return refuse("with this capability the command could walk round a private network's rules",
                    "capabilities", "remove it, or use network.mode \"none\"");
  if (policy.namespaces.user == policy::NamespaceMode::kJoin)
    return refuse(
        "whoever has capabilities in the user namespace that is joined could undo a "
        "private network's rules",
        "namespaces.user", "set it to \"new\", or use network.mode \"none\"");
  return {};
}

std::string resolver_text(const Host& host) {
  return "nameserver " + policy::text_of(network::kInsideResolver) + "\n" + host.resolver_options;
}

/// Names are resolved by pasta's forward address: the host's own resolvers may be on its loopback.
void plan_resolver(PlanBuilder& builder) {
  constexpr const char* kFile = "/etc/resolv.conf";
  if (builder.policy.filesystem.mounts.contains(kFile)) {
    builder.notes.push_back("/etc/resolv.conf is the policy's; inside, names are resolved by " +
                            policy::text_of(network::kInsideResolver));
    return;
  }
  if (builder.host.resolver_file.empty()) {
    builder.notes.emplace_back("the host has no /etc/resolv.conf, so no name is resolved");
    return;
  }
  builder.add(Phase::kMasks, CoverFile{builder.host.resolver_file, resolver_text(builder.host)},
              "network.mode");
}

Status plan_private(PlanBuilder& builder) {
  BELLJAR_CHECK(check_private(builder.policy));
  builder.add(Phase::kBefore, network::wanted_by(builder.policy.network), "network.mode");
  builder.add(Phase::kNetwork, RaiseLoopback{}, "network.mode");
  builder.add(Phase::kNetwork, HandOverNamespaces{}, "network.mode");
  plan_resolver(builder);
  // As late as it can be: pasta takes longer than all that is mounted meanwhile.
  builder.add(Phase::kInitPrivileges, AwaitNetwork{}, "network.mode");
  return {};
}

Status check_no_rules(const policy::Network& network) {
  if (!network.has_rules()) return {};
  const char* where = !network.deny.empty()    ? "network.deny"
                      : !network.allow.empty() ? "network.allow"
                                               : "network.only";
  return refuse("rules of what is reached hold in a private network only", where,
                "set network.mode to \"private\", or remove them");
}

/// A process of the session's goes into the namespaces that init hands over.
Status plan_published(PlanBuilder& builder) {
  const policy::Policy& policy = builder.policy;
  if (policy.network.publish.empty()) return {};
  if (!has_own_network(policy, builder.host))
    return refuse("a port is published into a network of the sandbox's own only", "network.publish",
                  "set network.mode to \"private\" or \"none\", or remove it");
  if (policy.namespaces.user == policy::NamespaceMode::kJoin)
    return refuse(
        "whoever leads connections inside has no rights in a user namespace that is joined",
        "network.publish", "set namespaces.user to \"new\", or remove it");
  PublishPorts publish;
  for (const auto& [outside, inside] : policy.network.publish)
    publish.ports.push_back({outside, inside});
  builder.add(Phase::kBefore, std::move(publish), "network.publish");
  if (policy.network.mode == NetworkMode::kNone)
    builder.add(Phase::kNetwork, HandOverNamespaces{}, "network.publish");
  return {};
}

Status plan(PlanBuilder& builder) {
  const policy::Network& network = builder.policy.network;
  if (network.mode != NetworkMode::kPrivate) BELLJAR_CHECK(check_no_rules(network));
  BELLJAR_CHECK(plan_published(builder));
  switch (network.mode.mode) {
    case NetworkMode::kNone:
      builder.add(Phase::kNetwork, RaiseLoopback{}, "network.mode");
      return {};
    case NetworkMode::kShared:
    case NetworkMode::kJoin:  // With the other namespaces.
      return {};
    case NetworkMode::kPrivate:
      if (!shares_network(builder.policy, builder.host)) return plan_private(builder);
      builder.degrade(*builder.host.no_private_network);
      return {};
  }
  return {};
}

std::vector<Requirement> require(const policy::Policy& policy, const Host& host) {
  if (policy.network.mode == NetworkMode::kJoin || shares_network(policy, host)) return {};
  std::vector<Requirement> needed = {{"network namespaces", "network.mode"}};
  if (policy.network.mode != NetworkMode::kPrivate) return needed;
  for (const char* what : {"pasta (Debian's passt)", "/dev/net/tun, open to the session's uid",
                           "nftables with reject", "a default route (IPv4)"})
    needed.push_back({what, "network.mode"});
  return needed;
}

std::string remedy(const FailedStep& failed, const policy::Policy&, const Host&) {
  if (failed.sys_errno == EPERM)
    return "the capabilities of the new user namespace were taken away, as Ubuntu's AppArmor "
           "restriction does; see docs/hosts.md";
  return {};
}

}  // namespace

bool shares_network(const policy::Policy& policy, const Host& host) {
  const policy::Network& network = policy.network;
  return network.mode == NetworkMode::kShared ||
         (network.mode == NetworkMode::kPrivate && network.enforce == policy::Enforce::kPrefer &&
          host.no_private_network);
}

const Control kNetwork = {
    "network",
    "no way out but the one that the policy names (its namespace is read back with the "
    "other namespaces, a private network's rules by its guard)",
    require,
    plan,
    nullptr,
    kProbes,
    remedy,
    kFacts};

}  // namespace belljar::launcher
