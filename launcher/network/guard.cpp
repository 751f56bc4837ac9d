#include "launcher/network/guard.hpp"

#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>

#include "launcher/network/firewall.hpp"
#include "launcher/network/host_addresses.hpp"
#include "launcher/network/messages.hpp"
#include "launcher/network/pasta.hpp"
#include "launcher/session_process.hpp"
#include "launcher/sys/proc.hpp"

namespace belljar::network {
namespace {

using Clock = std::chrono::steady_clock;

class Guard {
 public:
  Guard(const launcher::AttachNetwork& wanted, const Place& place, int way)
      : wanted_(wanted), place_(place), way_(way) {}

  void run() {
    Status done = bring_up();
    if (done && !over_) {
      tell(way_, Word{Word::Kind::kUp, {}, {}});
      done = serve();
    }
    if (!done) tell(way_, Word{Word::Kind::kFailed, done.error(), {}});
    if (firewall_) add_packets();
    pasta_.end();
    tell(way_, Word{Word::Kind::kOver, {}, refusals_});
  }

 private:
  Status bring_up() {
    // Both stay in the host's network, where they are opened.
    host_changes_ = BELLJAR_TRY(watch_host());
    host_routes_ = BELLJAR_TRY(Socket::open(NETLINK_ROUTE));
    addresses_ = BELLJAR_TRY(host_addresses(*host_routes_));
    rules_ = BELLJAR_TRY(rules_of(wanted_, addresses_));
    BELLJAR_CHECK(pasta_.start(place_.user, place_.net));
    BELLJAR_CHECK(enter());
    inside_changes_ = BELLJAR_TRY(Socket::open(NETLINK_ROUTE, RTMGRP_IPV4_ROUTE));
    inside_routes_ = BELLJAR_TRY(Socket::open(NETLINK_ROUTE));
    firewall_ = BELLJAR_TRY(Firewall::open());
    BELLJAR_CHECK(firewall_->close());
    BELLJAR_CHECK(firewall_->set(rules_));
    return wait_for_interface();
  }

  /// The session's namespaces; what follows is done there.
  Status enter() const {
    if (setns(place_.user, CLONE_NEWUSER) != 0)
      return sys_failure(errno, "enter the sandbox's user namespace");
    if (setns(place_.net, CLONE_NEWNET) != 0)
      return sys_failure(errno, "enter the sandbox's network namespace");
    // A change of credentials may clear it (man 2 prctl).
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
      return sys_failure(errno, "tie the network's guard to belljar");
    return {};
  }

  Status wait_for_interface() {
    const Clock::time_point end = Clock::now() + wanted_.deadline;
    while (!BELLJAR_TRY(has_way_out(*inside_routes_))) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
      if (left.count() <= 0)
        return fail(
            {ErrorKind::kUnavailable, ETIMEDOUT,
             "pasta has made no interface within " + std::to_string(wanted_.deadline.count()) +
                 " ms" + (pasta_.said().empty() ? "" : ": " + pasta_.said()),
             "network.mode", "see what `pasta --config-net true` says to the session's uid"});
      BELLJAR_CHECK(look(inside_changes_->descriptor(), static_cast<int>(left.count())));
      if (over_) return {};
      (void)inside_changes_->drain();
    }
    return {};
  }

  Status serve() {
    while (!over_) {
      BELLJAR_CHECK(look(host_changes_->descriptor(), -1));
      if (!over_ && host_changes_->drain()) BELLJAR_CHECK(follow_host());
    }
    return {};
  }

  /// Waits for the end of belljar or of pasta, for its words, or for `changes`.
  Status look(int changes, int timeout) {
    std::array<pollfd, 4> ready = {{{way_, POLLIN, 0},
                                    {pasta_.handle(), POLLIN, 0},
                                    {pasta_.words(), POLLIN, 0},
                                    {changes, POLLIN, 0}}};
    if (poll(ready.data(), ready.size(), timeout) < 0 && errno != EINTR)
      return sys_failure(errno, "watch pasta");
    // belljar says nothing but that it is over.
    over_ = ready[0].revents != 0;
    if (ready[2].revents != 0) pasta_.take_words();
    if (over_ || ready[1].revents == 0) return {};
    const std::string how = pasta_.how_it_ended();
    return fail({ErrorKind::kUnavailable, 0, "pasta " + how, "network.mode", remedy_of(how)});
  }

  static std::string remedy_of(const std::string& how) {
    if (how.find("routable interface") != std::string::npos)
      return "the host has no default route (IPv4), so that there is no way out to share";
    if (how.find("/dev/net/tun") != std::string::npos || how.find("tun ") != std::string::npos)
      return "chmod 666 /dev/net/tun";
    return {};
  }

  /// The host's addresses may have changed, and the rules with them.
  Status follow_host() {
    HostAddresses now = BELLJAR_TRY(host_addresses(*host_routes_));
    if (now == addresses_) return {};
    addresses_ = std::move(now);
    std::vector<Rule> rules = BELLJAR_TRY(rules_of(wanted_, addresses_));
    add_packets();
    BELLJAR_CHECK(firewall_->set(rules));
    rules_ = std::move(rules);
    return {};
  }

  /// What the rules in force have refused so far.
  void add_packets() {
    const Result<std::vector<std::uint64_t>> packets = firewall_->packets();
    if (!packets) return;
    for (std::size_t i = 0; i < rules_.size() && i < packets->size(); ++i)
      if (!rules_[i].accept && (*packets)[i] > 0) add(rules_[i], (*packets)[i]);
  }

  void add(const Rule& rule, std::uint64_t packets) {
    const std::string to = policy::text_of(rule.to);
    for (Refusal& known : refusals_)
      if (known.to == to && known.because == rule.because) {
        known.packets += packets;
        return;
      }
    constexpr std::size_t kMost = 100;
    if (refusals_.size() < kMost) refusals_.push_back({to, rule.because, packets});
  }

  const launcher::AttachNetwork& wanted_;
  const Place& place_;
  const int way_;
  bool over_ = false;
  std::optional<Socket> host_changes_, host_routes_, inside_changes_, inside_routes_;
  std::optional<Firewall> firewall_;
  HostAddresses addresses_;
  std::vector<Rule> rules_;
  std::vector<Refusal> refusals_;
  Pasta pasta_;
};

}  // namespace

void guard_network(const launcher::AttachNetwork& wanted, const Place& place, int way) {
  // A key that ends the command must not end its network first.
  setsid();
  launcher::close_all_but({way, place.user, place.net, sys::proc_directory()});
  // So that no descriptor that is opened later is taken for a stream.
  for (int fd = open("/dev/null", O_RDWR | O_CLOEXEC); fd >= 0 && fd < 2;) fd = dup(fd);
  launcher::become_the_session(place.uid, place.gid);
  Guard(wanted, place, way).run();
  _exit(0);
}

}  // namespace belljar::network
