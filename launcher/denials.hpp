// What a run was refused, by which line of the policy, and what would allow it.
#pragma once

#include <linux/seccomp.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/can.hpp"
#include "launcher/host.hpp"
#include "launcher/plan.hpp"
#include "launcher/view.hpp"
#include "policy/ipv4.hpp"
#include "policy/policy.hpp"

namespace belljar::launcher {

struct Denial {
  std::string what;     ///< "read", "write", "exec", "connect", "bind", "system call".
  std::string subject;  ///< A path inside, an address, or the name of a call.
  std::string error;    ///< "EROFS"; "SIGSYS" for a kill.
  std::string because;  ///< One clause.
  std::string policy;   ///< The line; empty when no line of the policy refuses it.
  std::string change;   ///< What allows it, for --set; empty: nothing in the policy would.
  std::uint64_t times = 1;
  bool expected = false;  ///< A call that the kernel seems not to have: programs go on without.
};

struct Denials {
  std::vector<Denial> list;        ///< Each once, in the order in which they came.
  std::uint64_t not_kept = 0;      ///< Distinct ones beyond those.
  std::vector<std::string> notes;  ///< What could not be seen in this run.
};

/// A call to unshare or clone that asks for a user namespace.
[[nodiscard]] bool makes_user_namespace(const seccomp_data& data);

/// Words for what was refused. Pure but for looks at the host, as the calling process.
class DenialJudge {
 public:
  DenialJudge(const Plan& plan, const policy::Policy& policy, const Host& host)
      : plan_(plan), policy_(policy), host_(host), view_(plan, policy) {}

  /// A call that the filter refused with `error`.
  [[nodiscard]] Denial call(const seccomp_data& data, int error) const;

  /// A path (without links) that was refused with `error`. Nothing where it is no refusal: the host
  /// has nothing there either.
  [[nodiscard]] std::optional<Denial> path(Verb verb, const std::string& path, int error) const;

  /// Whether only the kernel knows what is at the path.
  [[nodiscard]] bool is_kernels(const std::string& path) const;

  [[nodiscard]] std::optional<Denial> connect(const std::string& address, std::uint16_t port,
                                              bool loopback, bool tcp) const;
  [[nodiscard]] std::optional<Denial> bind(const std::string& address, std::uint16_t port,
                                           bool tcp) const;

  /// The filter killed the command, which leaves no word of the call.
  [[nodiscard]] Denial kill() const;

 private:
  /// What the rules of a private network refuse now; by number, IPv6 not at all.
  [[nodiscard]] std::optional<Denial> by_rules(const std::string& address,
                                               std::uint16_t port) const;
  /// What lets a private network reach it, which the entry `denied` of network.deny keeps away, or
  /// another rule does; empty where nothing does.
  [[nodiscard]] std::string opening(const policy::Ipv4Range& address, std::uint16_t port,
                                    const std::string& denied) const;
  [[nodiscard]] Denial of(std::string what, std::string subject, std::string error,
                          const std::string& policy_path, std::string change) const;
  /// What a call takes besides the filter's word.
  void add_what_it_takes(Denial& denial, const std::string& name, const seccomp_data& data) const;
  [[nodiscard]] std::string change_of(const Answer& answer, Verb verb,
                                      const std::string& path) const;
  /// What the host calls the thing that a change would open the way to; empty: none of the host's.
  [[nodiscard]] std::string behind(const Answer& answer, const std::string& path) const;
  [[nodiscard]] std::string change_of_read_only(const std::string& by,
                                                const std::string& path) const;

  const Plan& plan_;
  const policy::Policy& policy_;
  const Host& host_;
  const View view_;
};

/// The denials as `belljar run` prints them, several lines, each beginning with "belljar: ".
[[nodiscard]] std::string denials_text(const Denials& denials);

}  // namespace belljar::launcher
