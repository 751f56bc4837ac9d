#include "launcher/network_selftest.hpp"

#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <sstream>

#include "launcher/endpoint.hpp"
#include "launcher/failure.hpp"
#include "launcher/faults_json.hpp"
#include "launcher/network/host_addresses.hpp"
#include "launcher/network/netlink.hpp"
#include "launcher/network/rules.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::launcher {
namespace {

using namespace std::chrono_literals;
using network::Reached;
using sys::UniqueFd;

/// Together with the launch they stay below the three seconds that are promised.
constexpr std::chrono::milliseconds kInterfaceDeadline = 2s;
constexpr std::chrono::milliseconds kLookOutside = 300ms;

/// So many addresses of the host's are tried.
constexpr std::size_t kMostAddresses = 64;

NotInForce fault(std::string what, std::string remedy) {
  return {std::string(kNetwork.name), std::move(what), {}, std::move(remedy), false};
}

sockaddr_in address_of(std::uint32_t host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(host);
  return address;
}

const sockaddr* generic(const sockaddr_in& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

/// The host's address of whatever it sends to the internet. Nothing is sent.
Result<std::uint32_t> outward_address() {
  const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const sockaddr_in anywhere = address_of(0xC0000201, 9);  // TEST-NET-1
  sockaddr_in own{};
  socklen_t size = sizeof own;
  if (!fd.valid() || connect(fd.get(), generic(anywhere), sizeof anywhere) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0)
    return fail({ErrorKind::kUnavailable,
                 errno,
                 "the host has no way out (IPv4)",
                 {},
                 "give the host a default route"});
  return ntohl(own.sin_addr.s_addr);
}

/// A listener on a port that the kernel chooses.
class Listener {
 public:
  [[nodiscard]] static Result<Listener> open(std::uint32_t address) {
    Listener made;
    sockaddr_in own = address_of(address, 0);
    socklen_t size = sizeof own;
    constexpr int kMostWaiting = 128;
    made.fd_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!made.fd_.valid() || bind(made.fd_.get(), generic(own), sizeof own) != 0 ||
        listen(made.fd_.get(), kMostWaiting) != 0 ||
        getsockname(made.fd_.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0)
      return sys_failure(errno, "listen on " + policy::text_of({address, 32}));
    made.port_ = ntohs(own.sin_port);
    return made;
  }

  [[nodiscard]] std::uint16_t port() const { return port_; }

  /// To whoever waits.
  void say(const std::string& word) const {
    const UniqueFd caller(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (caller.valid()) (void)send(caller.get(), word.data(), word.size(), MSG_NOSIGNAL);
  }

  [[nodiscard]] pollfd waits() const { return {fd_.get(), POLLIN, 0}; }

 private:
  UniqueFd fd_;
  std::uint16_t port_ = 0;
};

/// Says a word of its own to all who call, from a process beside belljar, which waits for a launch
/// meanwhile.
class Answerer {
 public:
  Answerer(Listener door, Listener closed) : door_(std::move(door)), closed_(std::move(closed)) {}
  Answerer(const Answerer&) = delete;
  Answerer& operator=(const Answerer&) = delete;
  ~Answerer() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }

  [[nodiscard]] Status begin() {
    std::array<unsigned char, 8> random{};
    if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
      return sys_failure(errno, "get random bytes");
    std::ostringstream word;
    word << std::hex;
    for (const unsigned byte : random) word << byte;
    word_ = word.str();
    const pid_t parent = getpid();
    process_ = fork();
    if (process_ < 0) return sys_failure(errno, "start who answers the network's self-test");
    if (process_ > 0) return {};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent) answer();
    _exit(0);
  }

  [[nodiscard]] const Listener& door() const { return door_; }
  [[nodiscard]] const Listener& closed() const { return closed_; }
  [[nodiscard]] const std::string& word() const { return word_; }

 private:
  void answer() const {
    for (;;) {
      std::array<pollfd, 2> ready = {door_.waits(), closed_.waits()};
      if (poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) return;
      if (ready[0].revents != 0) door_.say(word_);
      if (ready[1].revents != 0) closed_.say(word_);
    }
  }

  Listener door_;
  Listener closed_;
  std::string word_;
  pid_t process_ = 0;
};

std::string endpoint_text(std::uint32_t address, std::uint16_t port) {
  return policy::text_of({address, 32}) + ":" + std::to_string(port);
}

/// Those of the host's addresses at which `answerer` is met by the host itself: what does not
/// answer there proves nothing inside.
Result<std::vector<std::string>> live_listeners(std::uint32_t outward, const Answerer& answerer) {
  constexpr std::uint32_t kLoopback = 0x7f000001;
  const auto route = BELLJAR_TRY(network::Socket::open(NETLINK_ROUTE));
  const network::HostAddresses host = BELLJAR_TRY(network::host_addresses(route));
  std::vector<std::uint32_t> addresses = {kLoopback, outward};
  for (const policy::Ipv4Range& one : host.local)
    if (one.length == 32 && one.address != outward && addresses.size() < kMostAddresses)
      addresses.push_back(one.address);
  std::vector<std::string> targets;
  targets.reserve(addresses.size());
  for (const std::uint32_t address : addresses)
    targets.push_back(endpoint_text(address, answerer.closed().port()));
  std::vector<std::string> live;
  for (const Reached& one : network::reach(targets, kLookOutside))
    if (one.said == answerer.word()) live.push_back(one.target);
  // Without these two there is no negative control.
  for (std::size_t i = 0; i < 2; ++i)
    if (std::ranges::find(live, targets[i]) == live.end())
      return fail({ErrorKind::kSystem,
                   0,
                   "a listener on all of the host's addresses does not answer the host itself at " +
                       targets[i] + ", so that nothing is proved by its silence inside",
                   {},
                   "see what of the host's firewall keeps it from its own addresses"});
  // Where a pasta with other options shows the host's loopback.
  live.push_back(endpoint_text(network::kInsideGateway.address, answerer.closed().port()));
  return live;
}

/// "TARGET VERDICT SAID", a line each, as `belljar probe --reach` prints it.
std::vector<Reached> read_answers(const std::string& output) {
  std::vector<Reached> answers;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Reached one;
    words >> one.target >> one.verdict >> one.said;
    if (!one.verdict.empty()) answers.push_back(std::move(one));
  }
  return answers;
}

const Reached* find(const std::vector<Reached>& seen, const std::string& target) {
  const auto found = std::ranges::find(seen, target, &Reached::target);
  return found == seen.end() ? nullptr : &*found;
}

void judge_door(const NetworkLures& lures, const std::vector<Reached>& seen,
                std::vector<NotInForce>& faults) {
  const Reached* door = find(seen, lures.door);
  if (door != nullptr && door->said == lures.word) return;
  faults.push_back(fault("outbound does not work: a listener on the host's outward address (" +
                             lures.door + ") that is let out to does not answer" +
                             (door == nullptr ? "" : " (" + door->verdict + ")"),
                         "see what of the host's firewall keeps the session's uid from it"));
}

void judge_resolvers(const std::vector<Reached>& seen, std::vector<NotInForce>& faults) {
  std::string how;
  for (const Reached& one : seen) {
    if (one.target.find(':') != std::string::npos) continue;
    if (one.verdict == network::kResolved && one.said.empty()) return;
    how += (how.empty() ? "" : ", ") + one.target + " " +
           (one.said.empty() ? one.verdict : "refuses: " + one.said);
  }
  faults.push_back(
      fault(how.empty() ? "no resolver answers: /etc/resolv.conf names none inside"
                        : "no resolver answers (" + how + ")",
            "make the host's /etc/resolv.conf name a resolver that answers on this host"));
}

/// As `selftest`, where nothing could be launched at all.
NetworkReport refused(const SetupFailure& failure) {
  NetworkReport report;
  report.faults.push_back(not_in_force(failure));
  return report;
}

NetworkReport refused(const Error& error, const policy::Policy& policy) {
  return refused(describe_refusal(error, policy));
}

NetworkReport look_from_inside(const TrialPolicy& trial, const NetworkLures& lures) {
  std::vector<std::string> words = {"probe", "--reach", lures.door};
  words.insert(words.end(), lures.closed.begin(), lures.closed.end());
  const Trial look = trial.launch_belljar(words);
  if (look.record.setup) return refused(*look.record.setup);
  NetworkReport report;
  if (look.record.cause == Cause::kExited && look.record.exit_code == 0)
    report.faults = judge_network(lures, read_answers(look.output));
  else
    report.faults.push_back(fault(
        "it could not be found out: the look from inside did not come to its end (" +
            std::string(cause_name(look.record.cause)) +
            (look.record.network_error ? ": " + *look.record.network_error : "") + ")",
        "belljar itself must be able to run under the policy: look at its limits and filter"));
  return report;
}

}  // namespace

std::vector<NotInForce> judge_network(const NetworkLures& lures, const std::vector<Reached>& seen) {
  std::vector<NotInForce> faults;
  for (const std::string& closed : lures.closed) {
    const Reached* found = find(seen, closed);
    if (found != nullptr && found->verdict != network::kConnected) continue;
    faults.push_back(fault(std::string("a listener of the host's ") +
                               (found == nullptr ? "was not tried at " : "answers inside at ") +
                               closed,
                           "this must never happen: please report it with the output of "
                           "`belljar explain`"));
  }
  judge_door(lures, seen, faults);
  judge_resolvers(seen, faults);
  return faults;
}

std::string NetworkReport::text() const {
  std::string line;
  for (const NotInForce& one : faults) line += (line.empty() ? "" : "; and ") + one.text();
  return line;
}

std::string NetworkReport::json() const {
  nlohmann::ordered_json out{{"network", is_private() ? "private" : "SHARED"},
                             {"faults", json_of(faults)}};
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

NetworkReport test_network(const SessionSetting& setting) {
  policy::Policy policy = setting.policy;
  const auto refuse = [&](const Error& error) { return refused(error, policy); };
  // Not the host's in its place: that is what is asked.
  policy.network.enforce = policy::Enforce::kRequire;
  const Result<std::uint32_t> outward = outward_address();
  if (!outward) return refuse(outward.error());
  Result<Listener> door = Listener::open(*outward);
  Result<Listener> closed = Listener::open(INADDR_ANY);
  if (!door || !closed) return refuse(door ? closed.error() : door.error());
  Answerer answerer(std::move(*door), std::move(*closed));
  if (Status begun = answerer.begin(); !begun) return refuse(begun.error());
  NetworkLures lures{endpoint_text(*outward, answerer.door().port()), answerer.word(), {}};
  Result<std::vector<std::string>> live = live_listeners(*outward, answerer);
  if (!live) return refuse(live.error());
  lures.closed = std::move(*live);
  Result<TestGround> ground = TestGround::make(setting.workspace_root, setting.ids, setting.caller);
  if (!ground) return refuse(ground.error());
  Result<TrialPolicy> trial =
      TrialPolicy::make(policy, setting.ids, setting.caller, *ground, TrialKind::kSession);
  if (!trial) return refuse(trial.error());
  trial->adjust_network([&](AttachNetwork& attach) {
    attach.doors.push_back({*outward, answerer.door().port()});
    attach.deadline = kInterfaceDeadline;
  });
  return look_from_inside(*trial, lures);
}

}  // namespace belljar::launcher
