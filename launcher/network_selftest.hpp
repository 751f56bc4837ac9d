// `belljar --selftest --network`: whether a session's network would be its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/network/reach.hpp"
#include "launcher/selftest.hpp"

namespace belljar::launcher {

/// Why a network is not what was promised; one that is has none.
struct NetworkReport {
  std::vector<NotInForce> faults;

  [[nodiscard]] bool is_private() const { return faults.empty(); }
  [[nodiscard]] std::string text() const;  ///< The faults, in one line.
  [[nodiscard]] std::string json() const;
};

/// What is set out on the host for a look from inside.
struct NetworkLures {
  std::string door;                 ///< "ADDRESS:PORT", to be let out to,
  std::string word;                 ///< and what is said there.
  std::vector<std::string> closed;  ///< Listeners of the host's, none of them to be reached.
};

/// What is wrong, judged by what came of the door, of what is closed, and of the name servers.
[[nodiscard]] std::vector<NotInForce> judge_network(const NetworkLures& lures,
                                                    const std::vector<network::Reached>& seen);

/// Launches a sandbox with the private network that a session under this policy would have, with a
/// listener on the host's outward address let out to, and looks from inside: that one must answer,
/// a name server must, and no other listener of the host's may. Ends within three seconds. The
/// policy's network is private.
[[nodiscard]] NetworkReport test_network(const SessionSetting& setting);

}  // namespace belljar::launcher
