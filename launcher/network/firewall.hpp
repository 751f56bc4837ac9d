// The rules of a private network, in the kernel (nftables).
//
// Routes alone would not hold: a program may bind its socket to the interface (SO_BINDTODEVICE,
// which takes no capability since Linux 5.7), and where no route matches, or one that prohibits,
// the kernel then takes the destination to be on the link (ip_route_output_key_hash_rcu), where
// pasta answers for every address. The output hook sees all that leaves, whatever way it took.
#pragma once

#include <cstdint>
#include <vector>

#include "launcher/network/netlink.hpp"
#include "launcher/network/rules.hpp"

namespace belljar::network {

/// Of the namespace in which it was opened, whose user namespace's owner the caller is.
class Firewall {
 public:
  [[nodiscard]] static Result<Firewall> open();

  /// Makes the chain: from here on nothing leaves but what is sent to the namespace itself.
  [[nodiscard]] Status close();

  /// Puts `rules` in force in place of those before, all at once, and asks the kernel for them.
  [[nodiscard]] Status set(const std::vector<Rule>& rules);

  /// How many packets each of the rules that are in force has met since.
  [[nodiscard]] Result<std::vector<std::uint64_t>> packets() const;

 private:
  explicit Firewall(Socket socket) : socket_(std::move(socket)) {}
  [[nodiscard]] Status check_chains() const;
  [[nodiscard]] Result<std::vector<Answer>> rules_in_force(const char* chain) const;

  Socket socket_;
  std::vector<std::vector<std::byte>>
      sent_;                          ///< Of each of the kernel's rules, what was asked for.
  std::vector<std::size_t> rule_of_;  ///< Of each, which rule of ours it is one of.
  std::size_t count_ = 0;             ///< Of ours.
  std::vector<std::vector<std::byte>> chains_;
  std::vector<std::vector<std::byte>> refusal_;  ///< As sent_, of the chain that refuses.
};

}  // namespace belljar::network
