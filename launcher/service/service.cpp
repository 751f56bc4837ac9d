#include "launcher/service/service.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "launcher/facts.hpp"
#include "launcher/findings.hpp"
#include "launcher/process_tree.hpp"
#include "launcher/selftest.hpp"
#include "launcher/service/archive.hpp"
#include "launcher/service/file_work.hpp"
#include "launcher/service/helper_process.hpp"
#include "launcher/service/session_channel.hpp"
#include "launcher/service/sweep.hpp"
#include "launcher/test_ground.hpp"
#include "policy/quote.hpp"

namespace belljar::service {
namespace {

/// Of what is as slow as the other end of a pipe, which the helper gives up itself when nothing
/// moves.
constexpr std::chrono::minutes kTransferLimit{10};

using Json = nlohmann::ordered_json;
using sys::UniqueFd;

/// CHOWN, DAC_OVERRIDE, SETGID, SETUID and KILL, by their numbers (linux/capability.h).
constexpr std::uint64_t kNeeded = 1U << 0 | 1U << 1 | 1U << 5 | 1U << 6 | 1U << 7;

Status check_socket(int fd) {
  int type = 0;
  socklen_t size = sizeof type;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET)
    return fail({ErrorKind::kInvalid,
                 0,
                 "descriptor " + std::to_string(fd) + " is no SOCK_SEQPACKET socket",
                 {},
                 "belljard starts the launch service itself"});
  return {};
}

/// A service of the last moment may still be on its way out.
Status check_processes(std::uint64_t first, std::uint64_t last) {
  for (int tries = 0;; ++tries) {
    Neighbours processes;
    processes.processes = look_around().processes;
    Status free = check_pool(first, last, processes);
    if (free || tries == 10) return free;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

Status check_whole_pool(const policy::Settings& settings) {
  Neighbours neighbours = look_around();
  neighbours.processes.clear();
  BELLJAR_CHECK(check_pool(settings.uid_base, settings.self_test_uid(), neighbours));
  return check_processes(settings.uid_base, settings.self_test_uid() - 1);
}

std::string back_end_of(const Pool& pool, const launcher::Host& caller) {
  if (const char* forced = std::getenv("BELLJAR_BACK_END")) return forced;
  const auto uid = pool.privileged ? static_cast<uid_t>(pool.first + pool.count) : pool.own_uid;
  launcher::Facts facts;
  facts.tries = launcher::try_steps({uid, pool.group_of(uid)}, caller);
  const std::string text = back_end_text(facts);
  return text.substr(0, text.find(':'));
}

const char* network_name(const policy::Network& network) {
  switch (network.mode.mode) {
    case policy::NetworkMode::kNone:
      return "none";
    case policy::NetworkMode::kShared:
      return "shared";
    case policy::NetworkMode::kPrivate:
      return "private";
    case policy::NetworkMode::kJoin:
      break;
  }
  return "join";
}

/// Nothing is signalled to the service; its end is that of the socket. Held back, not ignored: what
/// is ignored stays so over exec, and no command of a session would ever see TERM. What is blocked
/// each command is rid of before its exec.
void hold_signals() {
  sigset_t held;
  sigemptyset(&held);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    // Whoever started the service may have ignored it.
    signal(number, SIG_DFL);
    sigaddset(&held, number);
  }
  sigprocmask(SIG_BLOCK, &held, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

}  // namespace

Result<std::unique_ptr<Service>> Service::start(policy::Settings settings, UniqueFd socket) {
  BELLJAR_CHECK(check_socket(socket.get()));
  std::unique_ptr<Service> service(new Service(std::move(settings), std::move(socket)));
  BELLJAR_CHECK(service->prepare_process());
  BELLJAR_CHECK(service->look_at_host());
  BELLJAR_CHECK(service->open_places());
  return service;
}

Status Service::prepare_process() {
  if (!close_all_but({socket_.get()})) return sys_failure(EMFILE, "close what was inherited");
  hold_signals();
  if (setpgid(0, 0) != 0 && getsid(0) != getpid())
    return sys_failure(errno, "take a process group of its own");
  // What outlives its monitor comes here to be reaped, and counts as a descendant all along.
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
    return sys_failure(errno, "become a reaper of orphans");
  fcntl(socket_.get(), F_SETFL, fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
  // Tokens are the daemon's: they have no place in the environment of what is started from here.
  unsetenv("BELLJAR_TOKEN");
  unsetenv("AGENT_SIMULATOR_API_TOKEN");
  return {};
}

Status Service::look_at_host() {
  const launcher::Host caller = BELLJAR_TRY(launcher::observe_caller());
  pool_.own_uid = caller.uid;
  pool_.own_gid = caller.gid;
  pool_.privileged = (caller.capabilities & kNeeded) == kNeeded;
  pool_.first = settings_.uid_base;
  pool_.count = settings_.max_sessions;
  if (!pool_.privileged && caller.uid == 0)
    return fail({ErrorKind::kRefused,
                 0,
                 "uid 0 without CHOWN, DAC_OVERRIDE, SETUID, SETGID and KILL can give sessions no "
                 "uid but its own",
                 {},
                 "add these capabilities, or start it as another user"});
  if (pool_.privileged) BELLJAR_CHECK(check_whole_pool(settings_));
  if (settings_.sessions_root.empty())
    settings_.sessions_root = launcher::default_sessions_root(caller);
  back_end_ = back_end_of(pool_, caller);
  return {};
}

Status Service::open_places() {
  if (settings_.sandbox == "off")
    std::fprintf(stderr, "belljar launch-service: UNSANDBOXED: sandbox is off by %s\n",
                 settings_.origin("sandbox").c_str());
  std::vector<std::string> complaints;
  policies_ = std::make_unique<ServedPolicies>(
      BELLJAR_TRY(ServedPolicies::load(settings_, pool_.privileged, complaints)));
  for (const std::string& complaint : complaints)
    std::fprintf(stderr, "belljar launch-service: %s\n", complaint.c_str());
  workspaces_ =
      std::make_unique<Workspaces>(BELLJAR_TRY(Workspaces::open(settings_.sessions_root, pool_)));
  // Before the first message, and before anything that only the service should have.
  lifeline_ = BELLJAR_TRY(Lifeline::make());
  monitors_ = std::make_unique<Monitors>(
      BELLJAR_TRY(Zygote::start(*policies_, pool_, workspaces_->root(), lifeline_.reading.get(),
                                settings_.sandbox != "off")));
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  sigprocmask(SIG_BLOCK, &children, nullptr);
  child_signals_ = UniqueFd(signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!child_signals_.valid()) return sys_failure(errno, "watch for the ends of children");
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  remove_stale_workspaces();
  return {};
}

/// What sessions of an earlier service have left, whose names nobody knows any more.
void Service::remove_stale_workspaces() {
  for (const std::string& name : workspaces_->names()) {
    Outcome<OpenedWorkspace> opened = workspaces_->find(name);
    if (!opened) continue;
    const uid_t owner = opened->owner;
    const auto removed = std::make_shared<bool>(false);
    if (!remove_workspace(name, *std::move(opened), [removed](Answer) { *removed = true; })) break;
    finish_jobs(std::chrono::seconds(35), [removed] { return *removed; });
    if (pool_.privileged && workspaces_->find(name)) workspace_of_[owner] = name;
  }
}

void Service::run() {
  while (!ended_) turn(/*reading=*/true);
  jobs_.kill_all();
  end_monitors();
  finish_jobs(std::chrono::seconds(5), [] { return false; });
  reap_all();
  changing_.clear();
  remove_stale_workspaces();
  launcher::remove_left_grounds(workspaces_->root_directory());
  // Only a directory of this process's own is removed; others are the operator's.
  const std::string own = "-" + std::to_string(getpid());
  if (!pool_.privileged && settings_.sessions_root.ends_with(own))
    rmdir(settings_.sessions_root.c_str());
}

/// A helper that waits for a file system cannot be ended, and the service does not wait for it.
void Service::finish_jobs(std::chrono::seconds patience, const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (jobs_.busy() && !done() && std::chrono::steady_clock::now() < end)
    turn(/*reading=*/false, 100);
}

/// Their sockets have usually ended with belljard's; who has kept one keeps nothing alive by it.
void Service::end_monitors() {
  using namespace std::chrono_literals;
  const auto patience = std::chrono::steady_clock::now() + 1s;
  while ((!monitors_->processes().empty() || monitors_->expecting()) && !zygote_gone_ &&
         std::chrono::steady_clock::now() < patience)
    turn(/*reading=*/false, 20);
  for (const pid_t pid : monitors_->processes()) kill(pid, SIGKILL);
  if (!zygote_gone_) kill(monitors_->zygote().pid(), SIGKILL);
  zygote_gone_ = true;
}

/// All that is left now are children, or become so: sandboxes end with their monitors. One that the
/// kernel does not let go of is given up.
void Service::reap_all() {
  using namespace std::chrono_literals;
  const auto patience = std::chrono::steady_clock::now() + 5s;
  for (;;) {
    // Without a sandbox a session can leave what no death of a monitor ends.
    launcher::signal_descendants(getpid(), SIGKILL);
    const pid_t pid = waitpid(-1, nullptr, WNOHANG);
    if (pid < 0 && errno != EINTR) return;
    if (pid == 0 && std::chrono::steady_clock::now() > patience) return;
    if (pid == 0) std::this_thread::sleep_for(2ms);
  }
}

void Service::turn(bool reading, int most_ms) {
  const bool taking = reading && outgoing_.size() < kMostAnswers;
  const auto wanted = static_cast<short>((taking ? POLLIN : 0) | (outgoing_.empty() ? 0 : POLLOUT));
  // Without `reading` the socket is not looked at: its end would be seen again and again.
  std::array<pollfd, 3> places = {{{child_signals_.get(), POLLIN, 0},
                                   {reading ? socket_.get() : -1, wanted, 0},
                                   {zygote_gone_ ? -1 : monitors_->zygote().socket(), POLLIN, 0}}};
  int timeout = jobs_.next_deadline_ms();
  if (most_ms >= 0 && (timeout < 0 || timeout > most_ms)) timeout = most_ms;
  const int ready = poll(places.data(), places.size(), timeout);
  jobs_.expire();
  if (ready <= 0) return;
  if (places[2].revents != 0) monitors_->take_answers();
  if (places[0].revents != 0 || (places[2].revents & POLLHUP) != 0) reap();
  if ((places[1].revents & POLLOUT) != 0) flush();
  if ((places[1].revents & (POLLHUP | POLLERR)) != 0) {
    // What was asked before the end is not done any more.
    ended_ = true;
  } else if ((places[1].revents & POLLIN) != 0) {
    read_messages();
  }
  flush();
}

std::vector<pid_t> Service::own_processes() const {
  std::vector<pid_t> own = jobs_.processes();
  const std::vector<pid_t> monitors = monitors_->processes();
  own.insert(own.end(), monitors.begin(), monitors.end());
  own.push_back(monitors_->zygote().pid());
  return own;
}

void Service::reap() {
  signalfd_siginfo note{};
  while (read(child_signals_.get(), &note, sizeof note) > 0) {
  }
  for (const pid_t pid : own_processes())
    if (waitpid(pid, nullptr, WNOHANG) == pid) reaped(pid);
  // The rest are orphans, of sandboxes whose monitor is gone.
  while (!monitors_->expecting() || zygote_gone_) {
    const pid_t pid = waitpid(-1, nullptr, WNOHANG);
    if (pid <= 0) return;
    reaped(pid);
  }
}

void Service::reaped(pid_t pid) {
  if (jobs_.ended(pid) || monitors_->ended(pid) || pid != monitors_->zygote().pid()) return;
  // Without it nothing can be launched any more; who has started the service can start another.
  zygote_gone_ = true;
  if (!ended_)
    std::fprintf(stderr,
                 "belljar launch-service: the zygote (process %d) is gone; this is the end\n", pid);
  ended_ = true;
}

void Service::read_messages() {
  // A few at a time, so that children are reaped and time is kept whatever comes.
  for (int i = 0; i < 64 && !ended_ && outgoing_.size() < kMostAnswers; ++i) {
    Received received = receive(socket_.get(), kLargestMessage);
    if (received.kind == Received::Kind::kNothing) return;
    if (received.kind == Received::Kind::kMessage)
      take(std::move(received));
    else
      ended_ = true;
  }
}

void Service::take(Received received) {
  auto request = read_request(received.text);
  if (!request && !request.error().id) {
    std::fprintf(stderr, "belljar launch-service: %s; the connection ends\n",
                 request.error().fault.message.c_str());
    ended_ = true;
    return;
  }
  if (!request) return reply(*request.error().id, request.error().fault);
  const std::size_t due = descriptors_of(request->demand);
  if (received.lost_descriptors)
    return reply(request->id, Fault{Code::kSystem, "no number is free for a descriptor", EMFILE});
  if (received.descriptors.size() != due)
    return reply(request->id, Fault{Code::kInvalid,
                                    std::to_string(due) + " descriptors belong to the request, " +
                                        std::to_string(received.descriptors.size()) + " have come",
                                    0});
  const auto answer = [&](const auto& order) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(order)>, Launch>)
      launch(request->id, order, received.text, std::move(received.descriptors));
    else
      serve(request->id, order, std::move(received.descriptors));
  };
  std::visit(answer, request->demand);
}

void Service::reply(std::uint64_t id, std::string body, Descriptors descriptors) {
  outgoing_.push_back({answer_text(id, body), std::move(descriptors)});
}

void Service::flush() {
  while (!outgoing_.empty()) {
    const Outgoing& next = outgoing_.front();
    std::vector<int> fds;
    for (const UniqueFd& fd : next.descriptors) fds.push_back(fd.get());
    const int error = send_message(socket_.get(), next.text, fds);
    if (error == EAGAIN || error == EWOULDBLOCK) return;
    // ETOOMANYREFS: the reader holds too many undelivered descriptors; it has to take some first.
    if (error == ETOOMANYREFS) return;
    if (error != 0) ended_ = true;
    outgoing_.pop_front();
  }
}

// --- what can be asked
// ----------------------------------------------------------------------------

std::string Service::hello_json() const {
  Json policies = Json::array();
  for (const auto& [name, served] : policies_->all()) {
    const policy::Limits& limits = served.policy.limits;
    policies.push_back(
        {{"name", name},
         {"digest", served.policy.digest},
         {"network", network_name(served.policy.network)},
         {"wall_time_ms", limits.wall_time ? Json(limits.wall_time->count()) : Json()},
         {"output", limits.output ? Json(*limits.output) : Json()}});
  }
  return Json{{"version", BELLJAR_VERSION},
              {"back_end", back_end_},
              {"uid_base", settings_.uid_base},
              {"max_sessions", settings_.max_sessions},
              {"privileged", pool_.privileged},
              {"uid", pool_.own_uid},
              {"sessions_root", workspaces_->root()},
              {"sandbox", settings_.sandbox},
              {"inline", policies_->ceiling() != nullptr},
              {"policies", std::move(policies)}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

Fault Service::not_in_pool(uid_t uid) const {
  return {Code::kNotInPool, "uid " + std::to_string(uid) + " is not in the pool " + pool_.text(),
          0};
}

void Service::serve(std::uint64_t id, const Hello&, Descriptors) {
  reply(id, "{\"ok\":" + hello_json() + "}");
}

void Service::add_job(std::uint64_t id, Job job) {
  job.done = [this, id](Answer answer) {
    Descriptors descriptors;
    if (answer.descriptor.valid()) descriptors.push_back(std::move(answer.descriptor));
    reply(id, std::move(answer.body), std::move(descriptors));
  };
  if (!jobs_.add(std::move(job)))
    reply(id, Fault{Code::kBusy, "too many requests wait already", 0});
}

Outcome<OpenedWorkspace> Service::find_ready(const std::string& name) const {
  if (changing_.contains(name))
    return refuse(Code::kBusy, "the workspace " + name + " is being made or removed");
  return workspaces_->find(name);
}

void Service::work_inside(std::uint64_t id, const std::string& name, Descriptors descriptors,
                          std::function<Outcome<Finding>(int, uid_t)> work,
                          std::chrono::seconds limit) {
  Outcome<OpenedWorkspace> opened = find_place(name);
  if (!opened) return reply(id, opened.error());
  Job job;
  job.limit = limit;
  job.workspace = name;
  job.uid = opened->owner;
  const int directory = opened->directory.get();
  job.work = [directory, owner = opened->owner, work = std::move(work)] {
    return work(directory, owner);
  };
  job.owned = std::move(descriptors);
  job.owned.push_back(std::move(opened->directory));
  for (const UniqueFd& fd : job.owned) job.kept.push_back(fd.get());
  add_job(id, std::move(job));
}

Outcome<OpenedWorkspace> Service::make_workspace(const Prepare& order) {
  if (!pool_.holds(order.uid)) return tl::unexpected<Fault>(not_in_pool(order.uid));
  if (changing_.contains(order.workspace) || handing_over_.contains(order.workspace))
    return refuse(Code::kBusy, "the workspace " + order.workspace + " is being changed");
  const auto other = workspace_of_.find(order.uid);
  if (other != workspace_of_.end() && other->second != order.workspace)
    return refuse(Code::kBusy, "uid " + std::to_string(order.uid) + " has the workspace " +
                                   other->second + " already");
  return workspaces_->make(order.workspace, order.uid);
}

void Service::serve(std::uint64_t id, const Prepare& order, Descriptors descriptors) {
  const Outcome<std::uint64_t> size = check_sealed(descriptors.front().get(), kLargestBody);
  if (!size) return reply(id, size.error());
  Outcome<OpenedWorkspace> made = make_workspace(order);
  if (!made) return reply(id, made.error());
  Job job;
  job.uid = order.uid;
  job.kept = {made->directory.get(), descriptors.front().get()};
  job.work = [directory = job.kept[0], body = job.kept[1], bytes = *size] {
    return fill_workspace(directory, body, bytes);
  };
  job.owned = std::move(descriptors);
  job.owned.push_back(std::move(made->directory));
  job.done = [this, id, name = order.workspace](Answer answer) {
    changing_.erase(name);
    if (answer.ok) {
      const Json json{{"ok", {{"path", workspaces_->path_of(name)}}}};
      return reply(id, json.dump(-1, ' ', false, Json::error_handler_t::replace));
    }
    // On any failure nothing is left; what went wrong is told when that is so.
    Outcome<OpenedWorkspace> half = workspaces_->find(name);
    const std::string why = answer.body;
    if (!half ||
        !remove_workspace(name, *std::move(half), [this, id, why](Answer) { reply(id, why); }))
      reply(id, why);
  };
  changing_.insert(order.workspace);
  if (pool_.privileged) workspace_of_[order.uid] = order.workspace;
  if (jobs_.add(std::move(job))) return;
  changing_.erase(order.workspace);
  workspace_of_.erase(order.uid);
  static_cast<void>(workspaces_->drop(order.workspace));
  reply(id, Fault{Code::kBusy, "too many requests wait already", 0});
}

bool Service::remove_workspace(const std::string& name, OpenedWorkspace opened,
                               std::function<void(Answer)> done) {
  Job job;
  job.uid = opened.owner;
  job.kept = {opened.directory.get()};
  job.work = [directory = job.kept[0]] { return empty_workspace(directory); };
  job.owned.push_back(std::move(opened.directory));
  job.done = [this, name, owner = opened.owner, done = std::move(done)](Answer answer) {
    changing_.erase(name);
    if (workspaces_->drop(name) == 0) {
      workspace_of_.erase(owner);
      answer = {R"({"ok":{"left":0}})", {}, true};
    } else if (answer.ok && answer.body == R"({"ok":{"left":0}})") {
      // Something has been made in it since.
      answer.body = R"({"ok":{"left":1}})";
    }
    done(std::move(answer));
  };
  if (!jobs_.add(std::move(job))) return false;
  changing_.insert(name);
  return true;
}

void Service::serve(std::uint64_t id, const Remove& order, Descriptors) {
  Outcome<OpenedWorkspace> opened = find_settled(order.workspace);
  if (!opened && opened.error().code == Code::kNotFound)
    return reply(id, std::string(R"({"ok":{"left":0}})"));
  if (!opened) return reply(id, opened.error());
  if (is_in_use(order.workspace, std::nullopt))
    return reply(id, Fault{Code::kBusy, "a session has the workspace " + order.workspace, 0});
  // What it has adopted is its owner's, and stays as it is.
  adopted_.erase(order.workspace);
  const auto answered = [this, id](Answer answer) { reply(id, std::move(answer.body)); };
  if (!remove_workspace(order.workspace, *std::move(opened), answered))
    reply(id, Fault{Code::kBusy, "too many requests wait already", 0});
}

/// Whoever has seen the end of a monitor may count on it, although this process has not yet.
bool Service::is_in_use(const std::string& workspace, std::optional<uid_t> uid) {
  const auto used = [&] {
    return monitors_->has_workspace(workspace) ||
           (pool_.privileged && uid && monitors_->has_uid(*uid));
  };
  if (!used()) return false;
  reap();
  return used();
}

Outcome<void> Service::check_launch(const Launch& order) {
  if (!pool_.holds(order.uid)) return tl::unexpected<Fault>(not_in_pool(order.uid));
  const OpenedWorkspace workspace = BELLJAR_TRY(find_settled(order.workspace));
  if (workspace.owner != order.uid)
    return refuse(Code::kRefused, "the workspace " + order.workspace + " is that of uid " +
                                      std::to_string(workspace.owner));
  if (is_in_use(order.workspace, order.uid))
    return refuse(Code::kBusy, "a session has the workspace " + order.workspace + " or uid " +
                                   std::to_string(order.uid));
  const ServedPolicy* served = policies_->find(order.policy);
  if (order.inline_policy && policies_->ceiling() == nullptr)
    return refuse(Code::kRefused,
                  "policies that come along are not allowed; inline_ceiling is not set");
  if (!order.inline_policy && served == nullptr)
    return refuse(Code::kNotFound, "there is no policy " + policy::in_quotes(order.policy));
  if (!order.digest.empty() && order.digest != served->policy.digest)
    return refuse(Code::kRefused,
                  "the policy " + order.policy + " is " + served->policy.digest + " here");
  for (const std::string& setting : order.settings) BELLJAR_CHECK(check_setting(setting));
  return {};
}

void Service::launch(std::uint64_t id, const Launch& order, const std::string& text,
                     Descriptors standard) {
  if (const Outcome<void> may = check_launch(order); !may) return reply(id, may.error());
  for (const UniqueFd& fd : standard)
    if (const Outcome<void> may = check_stream(fd.get()); !may) return reply(id, may.error());
  const UniqueFd memory = sealed_memfd("belljar-launch", text);
  if (!memory.valid()) return reply(id, call_failed(errno, "make a memfd for the launch").value());
  const auto started = [this, id](Outcome<Descriptors> made) {
    if (!made) return reply(id, made.error());
    reply(id, std::string(R"({"ok":{}})"), *std::move(made));
  };
  const auto adopted = adopted_.find(order.workspace);
  const int existing = adopted == adopted_.end() ? -1 : adopted->second.directory.get();
  const Outcome<void> asked =
      monitors_->launch({order.uid, order.workspace}, memory, standard, existing, started);
  if (!asked) reply(id, asked.error());
}

void Service::serve(std::uint64_t id, const List& order, Descriptors) {
  work_inside(id, order.workspace, {},
              [order](int directory, uid_t owner) { return list_files(directory, owner, order); });
}

void Service::serve(std::uint64_t id, const Open& order, Descriptors) {
  work_inside(id, order.workspace, {},
              [order](int directory, uid_t owner) { return open_file(directory, owner, order); });
}

void Service::serve(std::uint64_t id, const Write& order, Descriptors descriptors) {
  const int source = descriptors.front().get();
  work_inside(
      id, order.workspace, std::move(descriptors),
      [order, source](int directory, uid_t owner) {
        return write_file(directory, owner, order, source);
      },
      kTransferLimit);
}

void Service::serve(std::uint64_t id, const Delete& order, Descriptors) {
  work_inside(id, order.workspace, {},
              [order](int directory, uid_t owner) { return delete_file(directory, owner, order); });
}

void Service::serve(std::uint64_t id, const Archive& order, Descriptors descriptors) {
  const int pipe = descriptors.front().get();
  const auto work = [order, pipe](int directory, uid_t owner) {
    return order.into ? read_archive(directory, owner, order.path, pipe)
                      : write_archive(directory, owner, order.path, pipe);
  };
  work_inside(id, order.workspace, std::move(descriptors), work, kTransferLimit);
}

void Service::serve(std::uint64_t id, const Sweep& order, Descriptors) {
  if (!pool_.holds(order.uid)) return reply(id, not_in_pool(order.uid));
  if (is_in_use({}, order.uid))
    return reply(id, Fault{Code::kBusy,
                           "uid " + std::to_string(order.uid) + " is that of a live session", 0});
  Job job;
  job.uid = order.uid;
  // Whom it spares is looked up in the helper, when its turn has come.
  job.work = [this, uid = order.uid, service = getpid()] {
    return sweep(uid, service, settings_.sandbox == "off", !pool_.privileged, own_processes());
  };
  add_job(id, std::move(job));
}

Outcome<Finding> Service::run_selftest() const {
  using launcher::NotInForce;
  hold_on_to(lifeline_.reading.get());
  launcher::SelftestReport report;
  auto policy = launcher::session_policy(settings_.policy, settings_);
  if (!policy) return refuse(Code::kRefused, policy.error().front().text());
  const Result<launcher::SessionSetting> setting =
      launcher::session_setting(*std::move(policy), settings_, std::nullopt);
  if (!setting) return tl::unexpected<Fault>(fault_of(setting.error()));
  report = launcher::selftest(*setting);
  Json missing = Json::array();
  for (const auto* items : {&report.controls.missing, &report.controls.unknown})
    for (const NotInForce& item : *items)
      missing.push_back({{"control", item.control}, {"what", item.what}, {"remedy", item.remedy}});
  // Bounded like every message.
  while (missing.size() > 64) missing.erase(missing.size() - 1);
  return Finding{
      Json{{"ok", report.ok()}, {"missing", std::move(missing)}, {"sandbox", settings_.sandbox}}
          .dump(-1, ' ', false, Json::error_handler_t::replace),
      {}};
}

void Service::serve(std::uint64_t id, const Selftest&, Descriptors) {
  if (settings_.sandbox == "off") {
    const Json json{
        {"ok",
         {{"ok", false},
          {"missing",
           {{{"control", "sandbox"},
             {"what", "off by " + settings_.origin("sandbox") + ", so sessions run UNSANDBOXED"},
             {"remedy", "remove it"}}}},
          {"sandbox", "off"}}}};
    return reply(id, json.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  Job job;
  job.kept = {lifeline_.reading.get()};
  job.work = [this] { return run_selftest(); };
  job.limit = std::chrono::seconds(60);
  add_job(id, std::move(job));
}

}  // namespace belljar::service
