#include "launcher/launch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sstream>
#include <utility>

#include "launcher/cgroups.hpp"
#include "launcher/child/child.hpp"
#include "launcher/controls/control.hpp"
#include "launcher/cpu_meter.hpp"
#include "launcher/denial_watch.hpp"
#include "launcher/disk_meter.hpp"
#include "launcher/failure.hpp"
#include "launcher/namespace_joins.hpp"
#include "launcher/network/private_network.hpp"
#include "launcher/network/publish.hpp"
#include "launcher/output_relay.hpp"
#include "launcher/own_mounts.hpp"
#include "launcher/sys/id_ranges.hpp"
#include "launcher/sys/kernel.hpp"
#include "launcher/sys/proc.hpp"
#include "launcher/sys/process_status.hpp"
#include "launcher/sys/raw.hpp"
#include "launcher/sys/read_file.hpp"
#include "launcher/sys/session_credentials.hpp"
#include "launcher/sys/unique_fd.hpp"
#include "launcher/terminal_relay.hpp"

// Where glibc registered its restartable-sequence area (glibc 2.35).
extern "C" {
extern const std::ptrdiff_t __rseq_offset;
extern const unsigned __rseq_size;
extern const char _end[] __attribute__((visibility("hidden")));
}

namespace belljar::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using sys::UniqueFd;

/// What `belljar run` passes on. KILL and STOP cannot be.
/// TSTP stops both, CONT lets both go on.
constexpr std::array kForwarded = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGWINCH,
                                   SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};

/// A launch that has not reached the command's exec by then is given up: a dead network file system
/// below a bind's source would hold it for ever.
constexpr std::chrono::seconds kSetupDeadline{60};

std::chrono::microseconds since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start);
}

/// Blocks every signal for its lifetime: forwarded ones are read from a descriptor, and the child
/// starts with nothing pending that could end it half made.
class SignalMask {
 public:
  SignalMask() {
    sigfillset(&blocked_);
    for (int keep : {SIGTTIN, SIGTTOU}) sigdelset(&blocked_, keep);
    error_ = sigprocmask(SIG_SETMASK, &blocked_, &before_) == 0 ? 0 : errno;
  }
  SignalMask(const SignalMask&) = delete;
  SignalMask& operator=(const SignalMask&) = delete;
  /// What came meanwhile and was not passed on is dropped: it must not end belljar now, when there
  /// is a record to write.
  ~SignalMask() {
    const timespec at_once{};
    while (sigtimedwait(&blocked_, nullptr, &at_once) > 0) {
    }
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }

  /// 0, or why nothing is blocked: without it no launch is started, since init inherits the mask.
  [[nodiscard]] int error() const { return error_; }

 private:
  int error_ = 0;
  sigset_t blocked_{};
  sigset_t before_{};
};

/// The one mapping that init keeps, with the compiled plan in it.
class ArenaMapping {
 public:
  explicit ArenaMapping(const std::vector<std::byte>& image) {
    constexpr std::size_t kPage = 4096;
    const auto pages = [](std::size_t size) { return (size + kPage - 1) / kPage * kPage; };
    const std::size_t head = pages(sizeof(Arena));
    size_ = head + pages(image.size());
    // Beside the program's image where there is room: init then has one piece less to cut away.
    void* const beside = reinterpret_cast<void*>(
        (reinterpret_cast<std::uintptr_t>(_end) + kPage - 1) / kPage * kPage);
    memory_ = mmap(beside, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) return;
    // Not value-initialised: zeroing would touch every page of the stacks.
    auto* arena = new (memory_) Arena;
    arena->size = size_;
    arena->image_offset = head;
    std::memcpy(static_cast<std::byte*>(memory_) + head, image.data(), image.size());
  }
  ArenaMapping(const ArenaMapping&) = delete;
  ArenaMapping& operator=(const ArenaMapping&) = delete;
  ~ArenaMapping() {
    if (memory_ != MAP_FAILED) munmap(memory_, size_);
  }

  [[nodiscard]] bool valid() const { return memory_ != MAP_FAILED; }
  Arena& operator*() { return *static_cast<Arena*>(memory_); }
  Arena* operator->() { return static_cast<Arena*>(memory_); }

 private:
  void* memory_ = MAP_FAILED;
  std::size_t size_ = 0;
};

RseqArea rseq_area() {
  if (__rseq_size == 0) return {};
  const auto base = reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
  // glibc registers the 32 bytes of the first layout at least, whatever it then uses of them.
  return {base + static_cast<std::uintptr_t>(__rseq_offset), __rseq_size < 32 ? 32 : __rseq_size};
}

/// The outcome of one attempt with one back end.
enum class Attempt { kDone, kUnavailable };

class Launcher {
 public:
  Launcher(const Plan& plan, const policy::Policy& policy, const Host& host, const Events& events,
           Attendant* attendant)
      : plan_(plan),
        policy_(policy),
        host_(host),
        events_(events),
        attendant_(attendant),
        relay_(plan),
        meter_(plan),
        cpu_meter_(plan, cgroups_),
        denials_(plan, policy, host),
        network_(plan),
        published_(plan) {}

  Record run() {
    const Clock::time_point begun = Clock::now();
    record_.degraded = plan_.degraded;
    record_.policy_name = policy_.name;
    record_.policy_digest = policy_.digest;
    if (Status prepared = prepare(); !prepared) {
      refuse(prepared.error());
    } else if (std::optional<StepFailure> failed = cgroups_.set_up(plan_, record_.degraded)) {
      refuse_step(*failed);
    } else if ((failed = mounts_.set_up(plan_, record_.degraded))) {
      refuse_step(*failed);
    } else {
      record_.back_end = first_back_end();
      if (attempt() == Attempt::kUnavailable) {
        record_.back_end = BackEnd::kLegacy;
        if (attempt() == Attempt::kUnavailable) record_.cause = Cause::kSetup;
      }
    }
    if (unheard_end_ != 0) refuse_unheard_end();
    cgroups_.remove();
    published_.end();
    end_network();
    note_denials();
    record_.usage.wall = since(begun);
    return std::move(record_);
  }

 private:
  void note_denials() {
    record_.denials = denials_.collect();
    if (record_.denials && record_.cause == Cause::kSyscall)
      record_.denials->list.push_back(DenialJudge(plan_, policy_, host_).kill());
  }

  /// After the sandbox, whose last packets are counted.
  void end_network() {
    auto refused = network_.end();
    if (refused && started_) record_.unreached = std::move(refused);
  }

  void refuse(const Error& error) {
    record_.cause = Cause::kSetup;
    record_.exit_code = 125;
    record_.setup = describe_refusal(error, policy_);
  }

  /// Nothing true could be said of how the run has ended.
  void refuse_unheard_end() {
    record_.signal.reset();
    refuse({ErrorKind::kSystem, unheard_end_, "wait for the end of the sandbox", {}, {}});
  }

  void refuse_step(const StepFailure& failed) {
    Message message;
    message.step = failed.step;
    message.error = failed.error.sys_errno;
    record_.cause = Cause::kSetup;
    record_.exit_code = 125;
    record_.setup = describe_failure(plan_, policy_, host_, message);
    record_.setup->reason = failed.error.what;
    if (!failed.error.remedy.empty()) record_.setup->remedy = failed.error.remedy;
  }

  /// What both back ends need and no attempt changes.
  Status prepare() {
    if (mask_.error() != 0) return sys_failure(mask_.error(), "block signals");
    if (sys::proc_directory() < 0) return sys_failure(errno, "open /proc");
    constexpr std::array<const char*, kNamespaceKinds> kPaths = {"self/ns/ipc", "self/ns/uts",
                                                                 "self/ns/cgroup"};
    for (std::size_t i = 0; i < kPaths.size(); ++i) {
      struct stat about {};
      if (fstatat(sys::proc_directory(), kPaths[i], &about, 0) != 0) {
        Error error{
            ErrorKind::kUnavailable, errno, std::string("look at /proc/") + kPaths[i], {}, {}};
        error.remedy = "mount a procfs on /proc: the id maps of a user namespace are written there";
        return fail(std::move(error));
      }
      surroundings_.namespace_inodes[i] = about.st_ino;
    }
    sigset_t forwarded;
    sigemptyset(&forwarded);
    for (int number : kForwarded) sigaddset(&forwarded, number);
    signals_ = UniqueFd(signalfd(-1, &forwarded, SFD_CLOEXEC));
    if (!signals_.valid()) return sys_failure(errno, "make a signalfd");
    BELLJAR_CHECK(meter_.begin());
    BELLJAR_CHECK(published_.open());
    BELLJAR_CHECK(joins_.open(plan_, host_));
    if (plan_.drop_in && plan_.drop_in->die_with_parent) BELLJAR_CHECK(watch_parent());
    surroundings_.joins = joins_.list();
    return carry_out_own_steps();
  }

  /// The whole process, not the thread that has started us, which a death signal is about. One that
  /// has ended already was somebody else's parent by now.
  Status watch_parent() {
    const pid_t parent = getppid();
    parent_ = UniqueFd(static_cast<int>(sys::raw(SYS_pidfd_open, parent, 0U)));
    if (parent != getppid()) return sys_failure(ESRCH, "watch the parent process");
    // One outside of our pid namespace has no number here: its end is told by the death signal.
    if (!parent_.valid() && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0)
      return sys_failure(errno, "ask for the death signal");
    return {};
  }

  Status carry_out_own_steps() {
    for (const Step& step : plan_.steps) {
      if (const auto* groups = std::get_if<SetGroups>(&step.action))
        BELLJAR_CHECK(sys::set_groups(groups->groups.data(), groups->groups.size()));
      if (const auto* create = std::get_if<CreateNamespaces>(&step.action)) create_ = create;
      if (const auto* map = std::get_if<MapIds>(&step.action)) map_ = map;
    }
    surroundings_.privileged = create_ != nullptr && create_->as_session;
    return {};
  }

  /// Modern until something of it turns out to be missing: the launch itself is the probe, so that
  /// a host where all is well pays nothing for it.
  static BackEnd first_back_end() {
    const char* forced = std::getenv("BELLJAR_BACK_END");
    return forced != nullptr && std::strcmp(forced, "legacy") == 0 ? BackEnd::kLegacy
                                                                   : BackEnd::kModern;
  }

  Attempt attempt() {
    surroundings_.back_end = record_.back_end;
    // Of a first attempt with the other back end.
    (void)network_.end();
    published_.stop();
    if (record_.back_end == BackEnd::kLegacy)
      if (const auto failed = mounts_.give_tree_up(plan_, record_.degraded)) {
        refuse_step(*failed);
        return Attempt::kDone;
      }
    surroundings_.mapped_tree = mounts_.tree();
    ArenaMapping arena(compile(plan_, surroundings_));
    std::array<int, 2> ends{};
    if (!arena.valid() || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
      refuse({ErrorKind::kSystem, errno, "make the sandbox's memory and control socket", {}, {}});
      return Attempt::kDone;
    }
    control_ = UniqueFd(ends[0]);
    childs_end_ = UniqueFd(ends[1]);
    // Who speaks is known by the number that the kernel gives: a keeper's own is another one
    // inside, and so is that of an init that names itself.
    const int on = 1;
    if ((attendant_ != nullptr || nests_pids()) &&
        setsockopt(control_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) {
      refuse({ErrorKind::kSystem, errno, "ask for the senders of messages", {}, {}});
      return Attempt::kDone;
    }
    direct_ = plan_.drop_in && plan_.drop_in->direct;
    arena->control = ends[1];
    arena->launchers_control = ends[0];
    arena->proc = sys::proc_directory();
    arena->rseq = rseq_area();
    cloned_at_ = Clock::now();
    started_ = false;
    map_error_ = 0;
    early_.clear();
    const int error = clone_in_cgroups(*arena);
    // Only a helper's death is told by the end of file; init's is by its own descriptor.
    if (surroundings_.helped() || direct_) childs_end_.reset();
    if (own_failure_) return cannot_act();
    if (error != 0) return cannot_create(error);
    if (map_error_ != 0) return cannot_map();
    if (init_.valid() && map_ != nullptr && map_->by_helpers)
      if (std::optional<Attempt> end = have_maps_written(init_pid_)) return *end;
    return watch();
  }

  /// 0, or the errno of the clone.
  int clone_in_cgroups(Arena& arena) {
    Status entered;
    if (surroundings_.helped()) entered = cgroups_.make_room();
    if (entered) entered = relay_.divert();
    if (entered) entered = cgroups_.enter();
    if (!entered) own_failure_ = entered.error();
    const int error = !entered                 ? EPERM
                      : surroundings_.helped() ? fork_helper(arena)
                                               : clone_modern(arena);
    Status left = cgroups_.leave();
    if (Status restored = relay_.restore(); !restored) left = restored;
    if (left && error == 0 && init_.valid()) left = cgroups_.check(init_pid_);
    if (!left) own_failure_ = left.error();
    return error;
  }

  Attempt cannot_create(int error) {
    if (record_.back_end == BackEnd::kModern && error != EAGAIN && error != ENOMEM)
      return Attempt::kUnavailable;
    Message message;
    message.error = error;
    message.step = step_of<CreateNamespaces>();
    return failed(message);
  }

  /// The index of the plan's only step of that kind; -1 without one.
  template <class Action>
  [[nodiscard]] int step_of() const {
    for (std::size_t i = 0; i < plan_.steps.size(); ++i)
      if (std::holds_alternative<Action>(plan_.steps[i].action)) return static_cast<int>(i);
    return -1;
  }

  /// 0, or the errno of the clone. The namespaces are owned by whoever is the effective uid then.
  int clone_modern(Arena& arena) {
    sys::SessionCredentials session(host_.uid, host_.gid, host_.capabilities);
    if (create_->as_session && !act_as_session(session)) return EPERM;
    int pidfd = -1;
    sys::CloneArgs arguments;
    arguments.flags = create_->flags | CLONE_PIDFD;
    arguments.pidfd = reinterpret_cast<std::uintptr_t>(&pidfd);
    arguments.exit_signal = SIGCHLD;
    const long pid = sys::raw(SYS_clone3, &arguments, sizeof arguments);
    if (pid == 0) run_child(arena);
    if (pid > 0) {
      init_ = UniqueFd(pidfd);
      init_pid_ = static_cast<pid_t>(pid);
      if (create_->as_session) map_error_ = write_maps(init_pid_);
    }
    go_back(session);
    return pid < 0 ? static_cast<int>(-pid) : 0;
  }

  /// The one-line id maps of `pid`'s namespace, by the session's effective ids with the
  /// capabilities raised: the owner of the namespace writes them, and no process has to be dumpable
  /// for it. 0, or the errno. Then the child may go on.
  int write_maps(pid_t pid) {
    if (map_ == nullptr) return ENOSYS;
    const std::string directory = std::to_string(pid);
    int error = write_file(directory + "/setgroups", "deny");
    if (error == 0) error = write_file(directory + "/uid_map", map_lines(map_->uids));
    if (error == 0) error = write_file(directory + "/gid_map", map_lines(map_->gids));
    // One line maps what it says or is refused.
    if (error == 0 && map_->uids.size() + map_->gids.size() > 2) error = read_maps_back(pid);
    return error == 0 ? let_go_on() : error;
  }

  int read_maps_back(pid_t pid) {
    Status right = check_map(pid, "uid", map_->uids, "belljar");
    if (right) right = check_map(pid, "gid", map_->gids, "belljar");
    if (right) return 0;
    own_failure_ = right.error();
    return right.error().sys_errno;
  }

  /// As write_maps, where belljar may not. A value when the attempt is over.
  std::optional<Attempt> have_maps_written(pid_t pid) {
    map_error_ = write_file(std::to_string(pid) + "/setgroups", "deny");
    if (map_error_ != 0) return cannot_map();
    Status done = have_map_written(pid, "uid", map_->uids);
    if (done) done = have_map_written(pid, "gid", map_->gids);
    if (done) {
      map_error_ = let_go_on();
      return map_error_ == 0 ? std::nullopt : std::optional(cannot_map());
    }
    if (record_.signal) {
      if (helper_ > 0) kill(helper_, SIGKILL);
      return ended_silently();
    }
    own_failure_ = done.error();
    return cannot_act();
  }

  Status have_map_written(pid_t pid, const std::string& kind, const std::vector<IdLine>& lines) {
    const std::string helper = "new" + kind + "map";
    const sys::Interruption interruption{signals_.get(), [this] {
                                           pass_signal_on();
                                           return record_.signal.has_value();
                                         }};
    BELLJAR_CHECK(sys::run_id_helper(helper, pid, numbers_of(lines), interruption));
    return check_map(pid, kind, lines, helper);
  }

  static std::vector<std::uint32_t> numbers_of(const std::vector<IdLine>& lines) {
    std::vector<std::uint32_t> numbers;
    for (const IdLine& line : lines)
      numbers.insert(numbers.end(), {line.inside, line.outside, line.count});
    return numbers;
  }

  /// What the kernel says of the map that `writer` was to write.
  static Status check_map(pid_t pid, const std::string& kind, const std::vector<IdLine>& lines,
                          const std::string& writer) {
    std::istringstream written(
        sys::read_file(sys::proc_directory(), std::to_string(pid) + "/" + kind + "_map"));
    std::vector<std::uint32_t> found;
    for (std::uint32_t number = 0; written >> number;) found.push_back(number);
    if (found == numbers_of(lines)) return {};
    return fail({ErrorKind::kRefused, EPROTO,
                 "the kernel does not report the " + kind + " map that " + writer + " was to write",
                 "identity.ids", "please report it with the output of `belljar explain`"});
  }

  /// What the child waits for is done. 0, or the errno.
  [[nodiscard]] int let_go_on(int answer = 0) const {
    Message go;
    go.kind = MessageKind::kGo;
    go.status = answer;
    return ::send(control_.get(), &go, sizeof go, MSG_NOSIGNAL) == sizeof go ? 0 : errno;
  }

  /// The offsets of init's time namespace, which only the owner of its user namespace may write.
  std::optional<Attempt> move_clocks() {
    Message message;
    message.step = step_of<EnterTimeNamespace>();
    if (message.step < 0) return ended_silently();
    const auto& step = plan_.steps[static_cast<std::size_t>(message.step)];
    sys::SessionCredentials session(host_.uid, host_.gid, host_.capabilities);
    if (act_as_session(session))
      message.error = write_file(std::to_string(init_pid_) + "/timens_offsets",
                                 time_offset_lines(std::get<EnterTimeNamespace>(step.action)));
    go_back(session);
    if (own_failure_) return cannot_act();
    if (message.error == 0) message.error = let_go_on();
    return message.error == 0 ? std::nullopt : std::optional(failed(message));
  }

  static int write_file(const std::string& path, const std::string& text) {
    const UniqueFd file(openat(sys::proc_directory(), path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!file.valid()) return errno;
    const ssize_t wrote = write(file.get(), text.data(), text.size());
    if (wrote < 0) return errno;
    return static_cast<std::size_t>(wrote) == text.size() ? 0 : EIO;
  }

  /// The helper has unshared.
  std::optional<Attempt> map_helper() {
    if (map_ != nullptr && map_->by_helpers) return have_maps_written(helper_);
    sys::SessionCredentials session(host_.uid, host_.gid, host_.capabilities);
    if (act_as_session(session)) map_error_ = write_maps(helper_);
    go_back(session);
    if (own_failure_) return cannot_act();
    return map_error_ == 0 ? std::nullopt : std::optional(cannot_map());
  }

  /// The session's effective ids, with the capabilities. What fails here is about belljar's own
  /// privileges: no reason to try the other back end.
  bool act_as_session(sys::SessionCredentials& session) {
    Status assumed = session.assume(create_->uid, create_->gid);
    if (assumed) assumed = session.raise_capabilities();
    if (!assumed) {
      own_failure_ = assumed.error();
      own_failure_->where = "identity.uid";
      own_failure_->remedy = "belljar needs CAP_SETUID and CAP_SETGID in force for this uid";
    }
    return assumed.has_value();
  }

  /// To belljar's own ids: with those of a session it must not go on, not even to write the record.
  static void go_back(sys::SessionCredentials& session) {
    if (session.leave()) return;
    std::fputs("belljar: could not take its own ids back after acting as the sandbox's\n", stderr);
    std::abort();
  }

  Attempt cannot_act() {
    if (helper_ > 0) kill(helper_, SIGKILL);
    kill_sandbox();
    finish();
    refuse(*own_failure_);
    return Attempt::kDone;
  }

  Attempt cannot_map() {
    Message message;
    message.error = map_error_;
    message.step = step_of<MapIds>();
    if (helper_ > 0) kill(helper_, SIGKILL);
    return failed(message);
  }

  /// A pid namespace is made below one that is joined.
  [[nodiscard]] bool nests_pids() const {
    const auto is_pid = [](const Join& join) { return join.flag == CLONE_NEWPID; };
    if (std::ranges::none_of(surroundings_.joins, is_pid)) return false;
    const int step = step_of<CreateNamespaces>();
    if (step < 0) return false;
    const StepAction& action = plan_.steps[static_cast<std::size_t>(step)].action;
    return (std::get<CreateNamespaces>(action).flags & CLONE_NEWPID) != 0;
  }

  int fork_helper(Arena& arena) {
    // Init becomes our child by the helper's end.
    if (nests_pids() && prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) return errno;
    const long helper = sys::raw(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
    if (helper == 0) run_helper(arena);
    if (helper < 0) return static_cast<int>(-helper);
    helper_ = static_cast<pid_t>(helper);
    return 0;
  }

  // --- while it runs ---------------------------------------------------------------------------

  static constexpr std::size_t kOwn = 9;  ///< What belljar waits for, beside what it passes on.

  /// As ppoll, without those that are not there: the kernel takes no more than RLIMIT_NOFILE says.
  static int wait_for_any(std::span<pollfd> all, const timespec* timeout) {
    std::array<pollfd, kOwn + OutputRelay::kPolls + TerminalRelay::kPollCount> open{};
    const auto is_open = [](const pollfd& one) { return one.fd >= 0; };
    const auto end = std::ranges::copy_if(all, open.begin(), is_open).out;
    const int count = ppoll(open.data(), static_cast<nfds_t>(end - open.begin()), timeout, nullptr);
    auto from = open.begin();
    for (pollfd& one : all) one.revents = is_open(one) && count > 0 ? (from++)->revents : short{0};
    return count;
  }

  Attempt watch() {
    for (;;) {
      std::array<pollfd, kOwn + OutputRelay::kPolls + TerminalRelay::kPollCount> ready = {
          {{control_.get(), POLLIN, 0},
           {signals_.get(), POLLIN, 0},
           {init_.get(), POLLIN, 0},
           {cgroups_.memory_event(), POLLIN, 0},
           {denials_.descriptor(), POLLIN, 0},
           {started_ && attendant_ != nullptr ? attendant_->descriptor() : -1, POLLIN, 0},
           {network_.descriptor(), POLLIN, 0},
           {published_.descriptor(), POLLIN, 0},
           {parent_.get(), POLLIN, 0}}};
      relay_.wait_for(ready.data() + kOwn);
      const auto relayed = std::span(ready).last<TerminalRelay::kPollCount>();
      std::ranges::copy(terminal_.wanted(), relayed.begin());
      const std::optional<Clock::time_point> deadline = end_time();
      if (deadline && Clock::now() >= *deadline) return time_is_up();
      const std::optional<timespec> timeout = time_until(deadline);
      const int count = wait_for_any(ready, timeout ? &*timeout : nullptr);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return give_up("watch the sandbox", errno);
      if (started_ && meter_.work()) return end_with(Cause::kDisk);
      if (started_ && cpu_meter_.work()) return end_with(Cause::kCpuTime);
      if (started_ && attendant_ != nullptr) attendant_->work();
      if (const auto end = wanted_end()) return end_for(*end);
      if (cpu_meter_.failure() != nullptr) {
        own_failure_ = *cpu_meter_.failure();
        return cannot_act();
      }
      if (count == 0) continue;
      // Messages first: a signal that comes after the command's start is the command's.
      bool heard = false;
      while (has_message()) {
        heard = true;
        if (std::optional<Attempt> end = hear()) return *end;
      }
      terminal_.move(relayed);
      if (ready[6].revents != 0)
        if (std::optional<Attempt> end = hear_of_network()) return *end;
      if (ready[7].revents != 0) return lose_published_ports();
      if (ready[1].revents != 0) pass_signal_on();
      if (ready[5].revents != 0) attendant_->serve();
      if (const auto end = wanted_end()) return end_for(*end);
      if (ready[3].revents != 0 && memory_ran_out()) return end_with(Cause::kMemory);
      if (relay_.move(ready.data() + kOwn) || wrote_too_much()) return end_with(Cause::kOutput);
      if (ready[8].revents != 0) return end_for({Cause::kKilled, "parent"});
      if (!heard && ready[2].revents != 0) return direct_ ? ended_directly() : ended_silently();
      // Without it what is only looked at fails, too: nothing true could be said of such a run.
      if (ready[4].revents != 0)
        return give_up("explain what is refused: who listened has ended", EPIPE);
    }
  }

  [[nodiscard]] std::optional<Ending> wanted_end() const {
    return attendant_ == nullptr ? std::nullopt : attendant_->ending();
  }

  Attempt end_for(const Ending& ending) {
    if (ending.cause != Cause::kKilled) return end_with(ending.cause);
    kill_sandbox();
    finish();
    pass_last_words_on();
    record_.cause = Cause::kKilled;
    record_.killed_by = ending.by;
    record_.signal = SIGKILL;
    return Attempt::kDone;
  }

  /// Through pipes and terminal together.
  [[nodiscard]] bool wrote_too_much() const {
    return relay_.exceeded() || terminal_.exceeded() ||
           (policy_.limits.output && relay_.taken() + terminal_.taken() > *policy_.limits.output);
  }

  /// The network is up, or has gone.
  std::optional<Attempt> hear_of_network() {
    using State = network::PrivateNetwork::State;
    network_.hear();
    if (network_.state() == State::kUp) {
      Message up;
      up.kind = MessageKind::kNetworkUp;
      if (::send(control_.get(), &up, sizeof up, MSG_NOSIGNAL) == sizeof up) return std::nullopt;
      return give_up("tell init that its network is up", errno);
    }
    if (!started_) return cannot_attach<AttachNetwork>(network_.failure());
    record_.network_error = network_.failure().what;
    return end_with(Cause::kNetworkLost);
  }

  Attempt lose_published_ports() {
    const Error error = published_.failure();
    if (!started_) return cannot_attach<PublishPorts>(error);
    record_.network_error = error.what;
    return end_with(Cause::kNetworkLost);
  }

  template <class Action>
  Attempt cannot_attach(const Error& error) {
    kill_sandbox();
    finish();
    refuse_step({step_of<Action>(), error});
    return Attempt::kDone;
  }

  /// The deadline that is in force now; none when the command may run for ever.
  [[nodiscard]] std::optional<Clock::time_point> end_time() const {
    // Under bwrap's arguments others may have to do their part first.
    if (!started_ && plan_.drop_in) return std::nullopt;
    if (!started_) return cloned_at_ + kSetupDeadline;
    if (!policy_.limits.wall_time || step_of<StandBy>() >= 0) return std::nullopt;
    return started_at_ + *policy_.limits.wall_time;
  }

  [[nodiscard]] std::optional<std::chrono::milliseconds> time_given() const {
    const std::optional<Clock::time_point> end = end_time();
    if (!end) return std::nullopt;
    return std::chrono::duration_cast<std::chrono::milliseconds>(*end - started_at_);
  }

  /// How long there is nothing to do by the clock.
  [[nodiscard]] std::optional<timespec> time_until(std::optional<Clock::time_point> end) const {
    const auto attendants = attendant_ != nullptr ? attendant_->next() : std::nullopt;
    for (const auto work : {meter_.next(), cpu_meter_.next(), attendants})
      if (started_ && work) end = end ? std::min(*end, *work) : work;
    if (!end) return std::nullopt;
    const auto left = std::max(*end - Clock::now(), Clock::duration::zero());
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    return timespec{
        .tv_sec = seconds.count(),
        .tv_nsec = std::chrono::duration_cast<std::chrono::nanoseconds>(left - seconds).count()};
  }

  Attempt time_is_up() {
    if (!started_) {
      // Before it has said so, the helper has no init that would be left behind.
      if (helper_ > 0) kill(helper_, SIGKILL);
      return give_up("set the sandbox up within 60 s", ETIMEDOUT);
    }
    record_.cause = Cause::kWallTime;
    record_.limits.emplace_back("wall_time");
    kill_sandbox();
    finish();
    pass_last_words_on();
    return Attempt::kDone;
  }

  /// An event that no kill followed is over.
  bool memory_ran_out() {
    std::uint64_t count = 0;
    return read(cgroups_.memory_event(), &count, sizeof count) == sizeof count &&
           cgroups_.has_killed_for_memory();
  }

  /// A limit that belljar enforces: kCpuTime, kDisk, kMemory, when cgroup v1 has killed one process
  /// and the rest must not go on half broken, and kOutput.
  Attempt end_with(Cause cause) {
    kill_sandbox();
    finish();
    pass_last_words_on();
    record_.signal = SIGKILL;
    record_.cause = cause;
    if (cause != Cause::kMemory && cause != Cause::kNetworkLost) touch(cause_name(cause));
    return Attempt::kDone;
  }

  /// After the end of the sandbox, what is in the pipes and its terminal still goes to a reader
  /// that takes it. False when the time is over first. Once belljar has been asked to end, a reader
  /// that takes nothing for a second is not waited for.
  bool pass_output_on(std::optional<Clock::time_point> end) {
    while (relay_.is_open() || terminal_.is_open()) {
      std::array<pollfd, 1 + OutputRelay::kPolls + TerminalRelay::kPollCount> ready = {
          {{signals_.get(), POLLIN, 0}}};
      relay_.wait_for(ready.data() + 1);
      const auto relayed = std::span(ready).last<TerminalRelay::kPollCount>();
      std::ranges::copy(terminal_.wanted(), relayed.begin());
      std::int64_t timeout = was_asked_to_end() ? 1000 : 3'600'000;
      if (end) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(*end - Clock::now());
        if (left.count() <= 0) return false;
        timeout = std::min<std::int64_t>(timeout, left.count());
      }
      const timespec patience{timeout / 1000, timeout % 1000 * 1'000'000};
      const int count = wait_for_any(ready, &patience);
      if (count == 0 && was_asked_to_end()) return false;
      if (count <= 0) continue;
      relay_.move(ready.data() + 1);
      terminal_.move(relayed);
      signalfd_siginfo info{};
      if (ready[0].revents != 0 && read(signals_.get(), &info, sizeof info) == sizeof info)
        passed_on_ |= std::uint64_t{1} << info.ssi_signo;
    }
    return true;
  }

  [[nodiscard]] bool was_asked_to_end() const {
    constexpr std::uint64_t kAsking = std::uint64_t{1} << SIGINT | std::uint64_t{1} << SIGTERM |
                                      std::uint64_t{1} << SIGHUP | std::uint64_t{1} << SIGQUIT;
    return (passed_on_ & kAsking) != 0;
  }

  /// Of a command that was ended: a reader gets a moment for them, not more.
  void pass_last_words_on() { (void)pass_output_on(Clock::now() + std::chrono::seconds(1)); }

  Attempt give_up(const char* what, int error) {
    kill_sandbox();
    finish();
    refuse({ErrorKind::kSystem, error, std::string("could not ") + what, {}, {}});
    return Attempt::kDone;
  }

  void kill_sandbox() const {
    cgroups_.kill();
    if (!init_.valid()) return;
    // Where a filter knows no pidfd calls: init is our child, so its number is its own until we
    // reap.
    if (sys::raw(SYS_pidfd_send_signal, init_.get(), SIGKILL, nullptr, 0U) < 0)
      kill(init_pid_, SIGKILL);
  }

  void pass_signal_on() {
    signalfd_siginfo info{};
    if (read(signals_.get(), &info, sizeof info) != sizeof info || attendant_ != nullptr) return;
    const int number = static_cast<int>(info.ssi_signo);
    passed_on_ |= std::uint64_t{1} << number;
    if (!started_) {
      const bool ends = asks_for_end(number);
      if (ends && reaper_will_obey()) return send_signal(number);
      if (ends) {
        record_.signal = number;
        kill_sandbox();
      }
      return;
    }
    if (number == SIGWINCH && terminal_.active()) return terminal_.take_size_over();
    if (number == SIGCONT) terminal_.enter();
    if (!terminal_has_told_command(info)) send_signal(number);
    if (asks_for_end(number) && is_lost_on_command(number)) {
      ended_for_ = number;
      kill_sandbox();
    }
    // The command must not go on reading a terminal that its caller has taken back. (With a
    // terminal of its own it says so when it has stopped.)
    if (number != SIGTSTP || terminal_.active()) return;
    raise(plan_.drop_in ? SIGTSTP : SIGSTOP);
    if (plan_.drop_in) take_stop();
  }

  static bool asks_for_end(int number) {
    return number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
  }

  /// What comes from the terminal it tells the foreground's process group, to which bwrap's command
  /// belongs without a session of its own; of a hangup, the session's leader alone.
  [[nodiscard]] bool terminal_has_told_command(const signalfd_siginfo& info) const {
    if (!plan_.drop_in || info.ssi_code != SI_KERNEL) return false;
    if (info.ssi_signo == SIGHUP && getsid(0) == getpid()) return false;
    return step_of<NewSession>() < 0;
  }

  /// A pid namespace's first process is sent nothing that it has no handler for, from outside
  /// neither (man 7 pid_namespaces). One that ignores or blocks the signal has said what it wants.
  [[nodiscard]] bool is_lost_on_command(int number) const {
    const int step = step_of<CreateNamespaces>();
    if (!direct_ || step < 0) return false;
    const auto& made = plan_.steps[static_cast<std::size_t>(step)];
    if ((std::get<CreateNamespaces>(made.action).flags & CLONE_NEWPID) == 0) return false;
    const std::optional<sys::ProcessStatus> status = sys::status_of(init_pid_);
    return status && (status->expected_signals >> (number - 1) & 1) == 0;
  }

  /// Stops for a SIGTSTP that waits, as the kernel does for a key: not where nobody could let us go
  /// on (an orphaned process group).
  static void take_stop() {
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, nullptr);
    sigprocmask(SIG_BLOCK, &stop, nullptr);
  }

  /// The command has stopped on its own terminal, by a key or by itself: so does belljar, with its
  /// whole process group, as it would have done on the caller's. Where there is nobody who could
  /// let it go on, the kernel does not stop it (an orphaned process group), and the command goes
  /// on. Away from the foreground of a terminal nobody has pressed a key, and a command could stop
  /// whatever runs beside belljar.
  void stop_likewise() {
    if (!terminal_.in_foreground()) return;
    terminal_.leave();
    kill(0, SIGTSTP);
    take_stop();
    terminal_.enter();
    send_signal(SIGCONT);
  }

  /// bwrap's reaper finds it when the command has started, which may be so already without our
  /// having heard of it; unless the plan waits for somebody first, and might for ever.
  [[nodiscard]] bool reaper_will_obey() const {
    return plan_.drop_in && !direct_ && init_.valid() && step_of<Block>() < 0 &&
           step_of<AwaitLauncher>() < 0;
  }

  void send_signal(int number) const {
    if (direct_ && started_) {
      // One that is about to end needs no signal, ignoring.
      (void)sys::raw(SYS_pidfd_send_signal, init_.get(), number, nullptr, 0U);
      return;
    }
    Message message;
    message.kind = MessageKind::kSignal;
    message.status = number;
    // A full or closed socket means that the sandbox is about to end, ignoring.
    (void)::send(control_.get(), &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  /// Also true at the end of file, which hear() then finds.
  [[nodiscard]] bool has_message() const {
    pollfd ready{control_.get(), POLLIN, 0};
    return poll(&ready, 1, 0) == 1;
  }

  /// As recv, with what came along.
  ssize_t receive(Heard& heard) {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int)) + CMSG_SPACE(sizeof(ucred))> room;
    iovec part{&heard.message, sizeof heard.message};
    msghdr envelope{};
    envelope.msg_iov = &part;
    envelope.msg_iovlen = 1;
    envelope.msg_control = room.data();
    envelope.msg_controllen = room.size();
    const ssize_t got = recvmsg(control_.get(), &envelope, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) return got;
    for (cmsghdr* beside = CMSG_FIRSTHDR(&envelope); beside != nullptr;
         beside = CMSG_NXTHDR(&envelope, beside)) {
      if (beside->cmsg_type == SCM_CREDENTIALS) {
        ucred sender{};
        std::memcpy(&sender, CMSG_DATA(beside), sizeof sender);
        heard.sender = sender.pid;
      } else if (beside->cmsg_type == SCM_RIGHTS) {
        std::array<int, 2> ends = {-1, -1};
        std::memcpy(ends.data(), CMSG_DATA(beside),
                    std::min<std::size_t>(beside->cmsg_len - CMSG_LEN(0), sizeof ends));
        heard.beside = {UniqueFd(ends[0]), UniqueFd(ends[1])};
      }
    }
    return got;
  }

  /// What came for the plan's own command: its terminal's two ends, its filter's listener, or a
  /// link that is asked about.
  void take(std::array<UniqueFd, 2>& beside, MessageKind kind) {
    if (!beside[0].valid()) return;
    if (kind == MessageKind::kHandedOver) return attach(beside);
    // At once, and before it is known which process init is: the child waits for an answer.
    if (!beside[1].valid()) return take(std::move(beside[0]), kind);
    const int step = step_of<OpenTerminal>();
    if (step >= 0)
      terminal_.start(std::get<OpenTerminal>(plan_.steps[static_cast<std::size_t>(step)].action),
                      policy_.limits.output, std::move(beside[0]), std::move(beside[1]));
  }

  void attach(std::array<UniqueFd, 2>& spaces) {
    Status begun = published_.start(spaces[0].get(), spaces[1].get());
    if (begun && network_.wanted())
      begun = network_.start(std::move(spaces[0]), std::move(spaces[1]));
    if (!begun) own_failure_ = begun.error();
  }

  void take(UniqueFd descriptor, MessageKind kind) {
    if (kind == MessageKind::kWhoseLink) return say_whose(descriptor.get());
    if (Status watched = denials_.start(std::move(descriptor)); !watched)
      own_failure_ = watched.error();
  }

  /// Seen from here, not from the sandbox's user namespace. Unheard, the end of init tells it.
  void say_whose(int link) const {
    struct stat about {};
    const bool roots = fstat(link, &about) == 0 && S_ISLNK(about.st_mode) && about.st_uid == 0;
    (void)let_go_on(roots ? 1 : 0);
  }

  /// One message of the child. A value when the attempt is over.
  std::optional<Attempt> hear() {
    Heard heard;
    Message& message = heard.message;
    ssize_t got = receive(heard);
    // Init ended with a signal of ours unread; what it said before is still queued behind this
    // error.
    if (got < 0 && errno == ECONNRESET) got = receive(heard);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
    if (got == sizeof message && message.process != 0 && attendant_ != nullptr) {
      attendant_->hear(std::move(heard));
      return std::nullopt;
    }
    if (message.kind == MessageKind::kHelper && nests_pids()) message.pid = heard.sender;
    take(heard.beside, message.kind);
    if (own_failure_) return cannot_act();
    if (got != sizeof message || !makes_sense(message, plan_)) return end_of_file();
    // Init may speak before the helper has said which process it is.
    const bool is_helpers =
        message.kind == MessageKind::kHelper || message.kind == MessageKind::kNeedMaps;
    if (helper_ > 0 && !is_helpers) {
      early_.push_back(message);
      // Init waits for an answer, and would for long if its helper has died without naming it.
      const bool orphaned =
          (message.kind == MessageKind::kNeedTime || message.kind == MessageKind::kWaits) &&
          helper_is_gone() && !has_message();
      return orphaned ? std::optional(ended_silently()) : std::nullopt;
    }
    return handle(message);
  }

  /// What came before init was known.
  std::optional<Attempt> handle_early() {
    const std::vector<Message> messages = std::exchange(early_, {});
    for (const Message& message : messages)
      if (std::optional<Attempt> end = handle(message)) return end;
    return std::nullopt;
  }

  /// Nobody will say any more; what is still unheard was the helper's last word.
  std::optional<Attempt> end_of_file() {
    if (std::optional<Attempt> end = handle_early()) return *end;
    if (!direct_ || !init_.valid()) return ended_silently();
    // The command is what init was, and has no end of the socket.
    control_.reset();
    started({});
    return std::nullopt;
  }

  std::optional<Attempt> handle(const Message& message) {
    switch (message.kind) {
      case MessageKind::kNeedMaps:
        return map_helper();
      case MessageKind::kNeedTime:
        return move_clocks();
      case MessageKind::kWaits:
        if (!init_.valid()) return ended_silently();
        if (events_.born)
          if (Status told = events_.born(init_pid_); !told) {
            own_failure_ = told.error();
            return cannot_act();
          }
        if (const int error = let_go_on(); error != 0) return give_up("let init go on", error);
        return std::nullopt;
      case MessageKind::kHelper:
        return adopt(message.pid);
      case MessageKind::kFailed:
        return failed(message);
      case MessageKind::kStarted:
        // Without a descriptor of init nothing could be ended.
        if (!init_.valid()) return ended_silently();
        started(message);
        return std::nullopt;
      case MessageKind::kStopped:
        if (events_.stopped) events_.stopped(message.status);
        if (terminal_.active()) stop_likewise();
        return std::nullopt;
      case MessageKind::kTerminal:
      case MessageKind::kListener:
      case MessageKind::kHandedOver:
      case MessageKind::kWhoseLink:
        return std::nullopt;
      case MessageKind::kContinued:
        if (events_.continued) events_.continued();
        return std::nullopt;
      case MessageKind::kEnded:
        return ended(message);
      case MessageKind::kExecuted:
      case MessageKind::kKeeperEnded:
      case MessageKind::kConnected:
      case MessageKind::kGo:
      case MessageKind::kNetworkUp:
      case MessageKind::kSignal:
      case MessageKind::kExec:
      case MessageKind::kConnect:
        break;
    }
    return ended_silently();
  }

  /// Init is our own child, so its number cannot be reused before we reap it.
  std::optional<Attempt> adopt(pid_t pid) {
    init_pid_ = pid;
    const long opened = sys::raw(SYS_pidfd_open, pid, 0U);
    const int open_error = opened < 0 ? static_cast<int>(-opened) : 0;
    init_ = UniqueFd(static_cast<int>(opened));
    reap_helper();
    if (nests_pids() && init_.valid())
      if (const int error = let_go_on(); error != 0) return give_up("let init go on", error);
    if (init_.valid()) {
      Status placed = cgroups_.check(init_pid_);
      if (placed) placed = cgroups_.take_room_back();
      if (!placed) {
        own_failure_ = placed.error();
        return cannot_act();
      }
      // A signal that came before there was anything to kill.
      if (record_.signal) kill_sandbox();
      return handle_early();
    }
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    Error error{
        ErrorKind::kUnavailable, open_error, "open a descriptor of the sandbox's init", {}, {}};
    error.remedy =
        "allow pidfd_open (Linux 5.3): without it the end of a sandbox cannot be waited for";
    refuse(error);
    return Attempt::kDone;
  }

  /// Waits for the end of the helper, which is near unless somebody has stopped it.
  [[nodiscard]] bool helper_is_gone() const {
    siginfo_t info{};
    const int rc = waitid(P_PID, static_cast<id_t>(helper_), &info, WEXITED | WSTOPPED | WNOWAIT);
    return rc == 0 && info.si_code != CLD_STOPPED;
  }

  void reap_helper() {
    if (helper_ > 0) waitpid(helper_, nullptr, 0);
    helper_ = 0;
  }

  void started(const Message& message) {
    started_ = true;
    childs_end_.reset();
    started_at_ = Clock::now();
    cpu_meter_.begin(init_pid_);
    record_.setup_time = since(cloned_at_);
    note_proc_mode(static_cast<ProcMode>(message.proc_mode));
    if (events_.started) events_.started(init_pid_);
    if (attendant_ != nullptr)
      attendant_->begin({control_.get(), init_pid_, record_.back_end, record_.degraded,
                         record_.setup_time, [this] { return terminal_.master(); }});
    if (events_.armed)
      events_.armed(
          {time_given(), cpu_meter_.limit(), relay_.limit(), meter_.limit(), cgroups_.limits()});
  }

  void note_proc_mode(ProcMode mode) {
    for (const Step& step : plan_.steps) {
      const auto* proc = std::get_if<MountProc>(&step.action);
      if (proc == nullptr || proc->first == mode) continue;
      static constexpr std::array<const char*, 5> kModes = {
          "whole", "read-only", "with processes only", "read-only, with processes only", "absent"};
      record_.degraded.push_back({step.control, proc->target + " is " +
                                                    kModes[static_cast<std::size_t>(mode)] +
                                                    ": the kernel allows no stronger one here"});
    }
  }

  Attempt failed(const Message& message) {
    const bool unavailable =
        message.detail == Detail::kMountApiUnavailable && record_.back_end == BackEnd::kModern;
    kill_sandbox();
    finish();
    if (unavailable) return Attempt::kUnavailable;
    record_.cause = Cause::kSetup;
    record_.exit_code = exit_code_of(plan_, message);
    record_.setup = describe_failure(plan_, policy_, host_, message);
    // Whose a namespace is decides who may join it.
    if (const std::string owner = joins_.owner_text(message.step); !owner.empty())
      record_.setup->reason += "; " + owner;
    return Attempt::kDone;
  }

  Attempt ended_silently() {
    kill_sandbox();
    finish();
    pass_last_words_on();
    if (record_.signal) {
      record_.cause = Cause::kKilled;
      record_.killed_by = "signal";
    } else if (evidence_.out_of_memory) {
      // As a group: init went with the rest, and could not say so.
      record_.cause = Cause::kMemory;
      record_.signal = SIGKILL;
    } else {
      record_.cause = Cause::kLost;
      record_.exit_code = 125;
    }
    return Attempt::kDone;
  }

  /// The command was what init had been: how it ended is the kernel's word.
  Attempt ended_directly() {
    // Before its exec: by us, for a signal that asked for it.
    if (record_.signal) return ended_silently();
    finish();
    Message message;
    message.kind = MessageKind::kEnded;
    message.status = end_.si_code == CLD_EXITED ? (end_.si_status & 0xff) << 8 : end_.si_status;
    if (ended_for_ != 0 && message.status == SIGKILL) message.status = ended_for_;
    return ended(message);
  }

  /// A key's signal goes to the command and to us at once, and the command may be heard of first.
  void note_waiting_signals() {
    sigset_t waiting;
    if (attendant_ != nullptr || sigpending(&waiting) != 0) return;
    for (const int number : {SIGINT, SIGQUIT, SIGHUP, SIGTERM})
      if (sigismember(&waiting, number) == 1) passed_on_ |= std::uint64_t{1} << number;
  }

  Attempt ended(const Message& message) {
    note_waiting_signals();
    // What a command has left running goes on, unless the command was told to end.
    if (plan_.drop_in && plan_.drop_in->lingers) {
      if (WIFSIGNALED(message.status) && (passed_on_ >> WTERMSIG(message.status) & 1) != 0)
        kill_sandbox();
      else
        init_.reset();
    }
    finish();
    if (WIFEXITED(message.status)) {
      record_.cause = Cause::kExited;
      record_.exit_code = WEXITSTATUS(message.status);
    } else {
      record_.signal = WTERMSIG(message.status);
      record_.cause = cause_of_this_signal(message);
    }
    note_output();
    const bool succeeded = WIFEXITED(message.status) && WEXITSTATUS(message.status) == 0;
    const bool plain = record_.cause == Cause::kExited || record_.cause == Cause::kSignaled;
    if (plain) record_.cause = cause_of_limits(succeeded);
    if (record_.cause == Cause::kCpuTime || record_.cause == Cause::kFileSize ||
        record_.cause == Cause::kDisk)
      touch(cause_name(record_.cause));
    return Attempt::kDone;
  }

  /// The limit that explains an end which looks like the command's own.
  [[nodiscard]] Cause cause_of_limits(bool succeeded) {
    if (!succeeded && evidence_.out_of_memory) return Cause::kMemory;
    if (meter_.measure()) return Cause::kDisk;
    if (!succeeded && evidence_.forks_refused) return Cause::kProcesses;
    return record_.cause;
  }

  /// The command has ended, and what it wrote may not be with its reader yet.
  void note_output() {
    std::optional<Clock::time_point> end;
    if (policy_.limits.wall_time) end = started_at_ + *policy_.limits.wall_time;
    const bool all = pass_output_on(end);
    if (!all && end && Clock::now() >= *end) {
      record_.cause = Cause::kWallTime;
      record_.limits.emplace_back("wall_time");
    }
    if (!wrote_too_much()) return;
    record_.cause = Cause::kOutput;
    record_.limits.emplace_back("output");
  }

  [[nodiscard]] Cause cause_of_this_signal(const Message& message) {
    const std::chrono::microseconds used(message.user_us + message.system_us);
    if (const auto cause = cause_of_signal(*record_.signal, used, policy_.limits, has_filter()))
      return *cause;
    if (passed_on_ >> *record_.signal & 1) {
      record_.killed_by = "signal";
      return Cause::kKilled;
    }
    return Cause::kSignaled;
  }

  [[nodiscard]] bool has_filter() const {
    for (const Step& step : plan_.steps)
      if (const auto* install = std::get_if<InstallFilter>(&step.action))
        return !install->listens || install->judged;
    return false;
  }

  /// Waits until nothing of the sandbox is left: its pid 1 is reaped only after everything in its
  /// pid namespace. The kernel adds up what all of it used.
  Attempt finish() {
    // A helper that waits for its maps would be waited for in turn; the end of file ends it.
    if (helper_ > 0) shutdown(control_.get(), SHUT_RDWR);
    reap_helper();
    if (!init_.valid()) return Attempt::kDone;
    rusage usage{};
    long rc = 0;
    do rc = sys::raw(SYS_waitid, static_cast<int>(P_PIDFD), init_.get(), &end_, WEXITED, &usage);
    while (rc == -EINTR);
    if (rc < 0) unheard_end_ = static_cast<int>(-rc);
    const auto time = [](const timeval& value) {
      return std::chrono::microseconds(value.tv_sec * 1'000'000 + value.tv_usec);
    };
    record_.usage.user = time(usage.ru_utime);
    record_.usage.system = time(usage.ru_stime);
    record_.usage.max_rss_of_one_process_kib = usage.ru_maxrss;
    record_.usage.read_blocks = usage.ru_inblock;
    record_.usage.written_blocks = usage.ru_oublock;
    note_evidence();
    record_.usage.cpu = cpu_meter_.end(record_.usage.user + record_.usage.system);
    if (record_.usage.cpu && *record_.usage.cpu >= *policy_.limits.cpu_time) touch("cpu_time");
    init_.reset();
    terminal_.sandbox_has_ended();
    return Attempt::kDone;
  }

  void touch(const std::string& limit) {
    if (std::ranges::find(record_.limits, limit) == record_.limits.end())
      record_.limits.push_back(limit);
  }

  /// What was touched is listed whatever ended the run.
  void note_evidence() {
    evidence_ = cgroups_.evidence();
    if (evidence_.out_of_memory) record_.limits.emplace_back("memory");
    if (evidence_.forks_refused) record_.limits.emplace_back("processes");
    if (evidence_.peak_memory) record_.usage.peak_memory_kib = *evidence_.peak_memory / 1024;
  }

  const Plan& plan_;
  const policy::Policy& policy_;
  const Host& host_;
  const Events& events_;
  Attendant* attendant_;
  SignalMask mask_;
  Cgroups cgroups_;
  CgroupEvidence evidence_;
  OwnMounts mounts_;
  OutputRelay relay_;
  DiskMeter meter_;
  CpuMeter cpu_meter_;
  NamespaceJoins joins_;
  DenialWatch denials_;
  network::PrivateNetwork network_;
  network::PublishedPorts published_;
  Surroundings surroundings_;
  const CreateNamespaces* create_ = nullptr;
  const MapIds* map_ = nullptr;
  UniqueFd signals_;
  UniqueFd control_;
  UniqueFd childs_end_;
  UniqueFd init_;
  TerminalRelay terminal_;
  pid_t init_pid_ = 0;
  pid_t helper_ = 0;
  int map_error_ = 0;
  std::optional<Error> own_failure_;
  std::vector<Message> early_;
  Clock::time_point cloned_at_;
  Clock::time_point started_at_;
  bool started_ = false;
  std::uint64_t passed_on_ = 0;
  bool direct_ = false;  ///< The command takes init's place.
  UniqueFd parent_;      ///< The launcher's, where all ends with it.
  siginfo_t end_{};      ///< How init ended.
  int ended_for_ = 0;    ///< The signal that would not have ended the command.
  int unheard_end_ = 0;  ///< Why that is not known, an errno.
  Record record_;
};

}  // namespace

Record launch(const Plan& plan, const policy::Policy& policy, const Host& host,
              const Events& events, Attendant* attendant) {
  return Launcher(plan, policy, host, events, attendant).run();
}

}  // namespace belljar::launcher
