#include "launcher/service/zygote.hpp"

#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "launcher/record.hpp"
#include "launcher/service/channel.hpp"
#include "launcher/service/helper_process.hpp"
#include "launcher/service/message.hpp"
#include "launcher/service/monitor.hpp"
#include "launcher/service/session_channel.hpp"
#include "launcher/service/unsandboxed.hpp"
#include "launcher/sys/proc.hpp"
#include "launcher/sys/raw.hpp"

namespace belljar::service {
namespace {

using launcher::Record;
using sys::UniqueFd;

/// What the zygote has, and its monitors with it.
struct Inherited {
  const ServedPolicies& policies;
  const Pool& pool;
  const std::string& sessions_root;
  pid_t service;
  int lifeline;
  bool sandboxed;
};

/// A launch that came to nothing before there was anything to monitor.
Record refusal(const Launch& launch, const NoPolicy& why) {
  constexpr std::size_t kLongest = 8192;  // The message has its bound.
  std::string reason;
  for (const policy::Diagnostic& wrong : why.wrong)
    reason += (reason.empty() ? "" : "\n") + wrong.text();
  Record record;
  record.cause = launcher::Cause::kSetup;
  record.exit_code = 125;
  record.policy_name = launch.policy;
  record.policy_digest = launch.digest;
  record.setup = launcher::SetupFailure{};
  record.setup->step = "read the policy " + launch.policy + " with the request's changes";
  record.setup->control = why.control;
  record.setup->reason = reason.substr(0, kLongest);
  record.setup->policy = why.wrong.front().path;
  record.setup->remedy = "ask for what the policy allows, or have its operator change it";
  return record;
}

policy::Id number(std::uint32_t id) { return {policy::Id::From::kNumber, id}; }

/// Where a directory is now, which may have another name by now than when it was opened.
std::string path_of(const UniqueFd& directory) {
  const std::string entry = "self/fd/" + std::to_string(directory.get());
  std::string path(PATH_MAX, '\0');
  const ssize_t size = readlinkat(sys::proc_directory(), entry.c_str(), path.data(), path.size());
  path.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return path;
}

/// The session works in a directory of the caller's; HOME is its own workspace, which goes with it.
void work_elsewhere(policy::Policy& policy, const std::string& home) {
  policy::Filesystem& files = policy.filesystem;
  if (files.home.kind != policy::HomeKind::kWorkspace) return;
  files.home = {policy::HomeKind::kPath, home};
  policy::Mount mount;
  mount.source = home;
  files.mounts.insert_or_assign(home, std::move(mount));
  files.hide.emplace(home.substr(0, home.find('/', 1)), "holds the homes of other sessions");
}

void serve_launch(const Inherited& inherited, const Launch& launch, const UniqueFd& existing,
                  UniqueFd session) {
  const policy::Id own{policy::Id::From::kCaller, 0};
  const std::string own_workspace = inherited.sessions_root + "/" + launch.workspace;
  const bool privileged = inherited.pool.privileged;
  const SessionIdentity identity{privileged ? number(launch.uid) : own,
                                 privileged ? number(inherited.pool.group_of(launch.uid)) : own,
                                 existing.valid() ? path_of(existing) : own_workspace};
  auto policy = policy_of_launch(inherited.policies, launch, identity);
  if (!policy) return SessionChannel(std::move(session)).over(refusal(launch, policy.error()));
  SessionOrder order;
  order.policy = *std::move(policy);
  if (existing.valid()) {
    work_elsewhere(order.policy, own_workspace);
    order.command.workspace = existing.get();
  }
  order.command.stands_by = !launch.argv;
  order.command.argv = launch.argv.value_or(std::vector<std::string>{});
  order.command.directory = launch.directory;
  order.terminal = launch.terminal;
  if (inherited.sandboxed) return serve_session(order, std::move(session));
  serve_unsandboxed(order, inherited.pool, launch.uid, std::move(session));
}

/// The whole life of a monitor.
[[noreturn]] void be_monitor(const Inherited& inherited, std::vector<UniqueFd> parts) {
  die_with(inherited.service);
  std::vector<int> kept = {inherited.lifeline};
  for (const UniqueFd& part : parts) kept.push_back(part.get());
  if (!close_all_but(kept)) _exit(1);
  hold_on_to(inherited.lifeline);
  ::close(inherited.lifeline);
  for (int fd = 0; fd < 3; ++fd)
    if (dup2(parts[static_cast<std::size_t>(fd) + 1].get(), fd) != fd) _exit(1);
  UniqueFd session = std::move(parts[4]);
  const UniqueFd existing = parts.size() > kLaunchParts ? std::move(parts[5]) : UniqueFd();
  // The service has read it before, and nobody can have changed it since.
  const Outcome<std::uint64_t> size = check_sealed(parts[0].get(), kLargestMessage);
  const Outcome<std::string> text = size ? read_whole(parts[0].get(), *size) : std::string();
  parts.clear();
  const auto request = read_request(text.value_or(""));
  const Launch* launch = request ? std::get_if<Launch>(&request->demand) : nullptr;
  if (launch == nullptr) _exit(1);
  serve_launch(inherited, *launch, existing, std::move(session));
  _exit(0);
}

/// A child of the service's, not of this process: whoever has it as a child can wait for it and
/// hold it without a doubt about its number.
long start_monitor(const Inherited& inherited, std::vector<UniqueFd> parts) {
  const long pid = sys::raw(SYS_clone, CLONE_PARENT | SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (pid == 0) be_monitor(inherited, std::move(parts));
  return pid;
}

[[noreturn]] void be_zygote(const Inherited& inherited, const UniqueFd& socket) {
  die_with(inherited.service);
  if (!close_all_but({socket.get(), inherited.lifeline})) _exit(1);
  for (;;) {
    Received received = receive(socket.get(), kLargestMessage);
    if (received.kind != Received::Kind::kMessage) _exit(0);
    const std::size_t parts = received.descriptors.size();
    const bool whole = parts == kLaunchParts || parts == kLaunchParts + 1;
    const std::string answer =
        std::to_string(whole ? start_monitor(inherited, std::move(received.descriptors)) : -EMFILE);
    if (send(socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL) < 0) _exit(0);
  }
}

}  // namespace

Result<Zygote> Zygote::start(const ServedPolicies& policies, const Pool& pool,
                             const std::string& sessions_root, int lifeline, bool sandboxed) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return sys_failure(errno, "make a socket for the zygote");
  UniqueFd ours(ends[0]), theirs(ends[1]);
  const Inherited inherited{policies, pool, sessions_root, getpid(), lifeline, sandboxed};
  const pid_t pid = fork();
  if (pid < 0) return sys_failure(errno, "fork the zygote");
  if (pid == 0) {
    ours.reset();
    be_zygote(inherited, theirs);
  }
  return Zygote(std::move(ours), pid);
}

int Zygote::ask(const LaunchParts& parts) const {
  return send_message(socket_.get(), "launch", parts);
}

std::optional<long> Zygote::next_monitor() const {
  std::array<char, 32> text{};
  const ssize_t got = recv(socket_.get(), text.data(), text.size(), MSG_DONTWAIT);
  long answer = 0;
  if (got <= 0 || std::from_chars(text.data(), text.data() + got, answer).ec != std::errc())
    return std::nullopt;
  return answer;
}

}  // namespace belljar::service
