#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/controls/facts.hpp"
#include "launcher/controls/promises.hpp"

namespace belljar::launcher {
namespace {

using policy::NetworkMode;

int try_socket(int family, int type, int protocol) {
  const int fd = socket(family, type | SOCK_CLOEXEC, protocol);
  if (fd < 0) return errno;
  close(fd);
  return 0;
}

constexpr Probe kProbes[] = {
    {"raw-socket", "open a raw IPv4 socket",
     [] { return try_socket(AF_INET, SOCK_RAW, IPPROTO_ICMP); },
     [](const Made& made) -> const char* {
       return shares_network(made.policy) ? "capabilities"
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
       return has_own_network(made.policy) ? "network.mode" : nullptr;
     }},
};

constexpr Fact kFacts[] = {
    {"own-network", "the network is not the sandbox's own", is_another_namespace,
     [](const Made& made) {
       if (!has_own_network(made.policy)) return std::vector<Fact::Expected>();
       return other_namespace_than_ours(made, "net", "network.mode");
     }},
};

Status plan(PlanBuilder& builder) {
  switch (builder.policy.network.mode.mode) {
    case NetworkMode::kNone:
      builder.add(Phase::kNetwork, RaiseLoopback{}, "network.mode");
      return {};
    case NetworkMode::kShared:
    case NetworkMode::kJoin:  // With the other namespaces.
      return {};
    case NetworkMode::kPrivate:
      if (policy::Enforce::kPrefer == builder.policy.network.enforce) {
        builder.degrade(
            "the host's network in place of a private one, which this version of "
            "belljar does not have yet");
        return {};
      }
      return fail({ErrorKind::kRefused, 0, "this version of belljar has no private network yet",
                   "network.mode", "use \"none\", or \"shared\" for the host's network"});
  }
  return {};
}

std::vector<Requirement> require(const policy::Policy& policy, const Host&) {
  if (policy.network.mode == NetworkMode::kJoin || shares_network(policy)) return {};
  return {{"network namespaces", "network.mode"}};
}

std::string remedy(const FailedStep& failed, const policy::Policy&, const Host&) {
  if (failed.sys_errno == EPERM)
    return "the capabilities of the new user namespace were taken away, as Ubuntu's AppArmor "
           "restriction does; see docs/hosts.md";
  return {};
}

}  // namespace

bool shares_network(const policy::Policy& policy) {
  const policy::Network& network = policy.network;
  return network.mode == NetworkMode::kShared ||
         (network.mode == NetworkMode::kPrivate && network.enforce == policy::Enforce::kPrefer);
}

const Control kNetwork = {
    "network",
    "no way out but the one that the policy names (its namespace is read back with the "
    "other namespaces)",
    require,
    plan,
    nullptr,
    kProbes,
    remedy,
    kFacts};

}  // namespace belljar::launcher
