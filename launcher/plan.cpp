#include "launcher/plan.hpp"

#include <sched.h>

#include <array>
#include <cstdio>

#include "launcher/controls/control.hpp"
#include "launcher/sys/landlock.hpp"
#include "policy/names.hpp"
#include "policy/units.hpp"

namespace belljar::launcher {
namespace {

std::string octal(mode_t mode) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%04o", mode);
  return text.data();
}

std::string flags_text(unsigned flags) {
  std::string text = flags & kReadOnly ? ", read-only" : ", writable";
  if (flags & kNoExec) text += ", noexec";
  if (flags & kNoAtime) text += ", noatime";
  if (!(flags & kNoSuid)) text += ", suid";
  if (!(flags & kNoDev)) text += ", dev";
  return text;
}

std::string size_text(std::uint64_t bytes, std::uint64_t inodes) {
  return policy::size_text(bytes) + ", " + std::to_string(inodes) + " files";
}

std::string namespaces_text(std::uint64_t flags) {
  struct Name {
    std::uint64_t flag;
    const char* text;
  };
  constexpr std::array<Name, 7> kNames = {{{CLONE_NEWUSER, "user"},
                                           {CLONE_NEWNS, "mount"},
                                           {CLONE_NEWPID, "pid"},
                                           {CLONE_NEWNET, "net"},
                                           {CLONE_NEWIPC, "ipc"},
                                           {CLONE_NEWUTS, "uts"},
                                           {CLONE_NEWCGROUP, "cgroup"}}};
  std::string text;
  for (const Name& name : kNames)
    if (flags & name.flag) text += (text.empty() ? "" : ", ") + std::string(name.text);
  return text;
}

/// A limit in the unit that it is written in.
std::string limit_text(const std::string& name, std::uint64_t value) {
  if (value == ~std::uint64_t{0}) return "unlimited";
  for (const policy::RlimitName& known : policy::rlimit_names()) {
    if (known.name != name) continue;
    using Unit = policy::RlimitUnit;
    if (known.unit == Unit::kSeconds) return std::to_string(value) + " s";
    if (known.unit == Unit::kMicroseconds) return std::to_string(value) + " us";
    if (known.unit == Unit::kBytes) return policy::size_text(value);
  }
  return std::to_string(value);
}

template <class T>
std::string list(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) {
    if (!text.empty()) text += ", ";
    if constexpr (std::is_same_v<T, std::string>)
      text += value;
    else
      text += std::to_string(value);
  }
  return text;
}

/// One overload per action: a new action does not compile until it can say what it does.
struct Describe {
  std::string operator()(const SetGroups& a) const {
    return a.groups.empty() ? "drop all supplementary groups"
                            : "keep only the groups " + list(a.groups);
  }
  std::string operator()(const JoinNamespace& a) const {
    return "join the " + a.kind + " namespace " + a.path + ", and read it back";
  }
  std::string operator()(const MakeCgroup& a) const {
    return "make a cgroup in " + a.parent.directory + ", and start the sandbox in it";
  }
  std::string operator()(const LimitCgroup& a) const {
    std::string files;
    for (const LimitCgroup::Write& write : a.writes)
      files += (files.empty() ? "" : ", ") + write.file;
    return "limit " + a.limit + " to " + a.text + " (" + files + "), and read it back";
  }
  std::string operator()(const MeterCpuTime& a) const {
    return "end it after " + std::to_string(a.limit.count()) +
           " ms of processor time of all processes together";
  }
  std::string operator()(const RelayOutput& a) const {
    return "pass at most " + policy::size_text(a.limit) + " on from " +
           (a.descriptors.size() == 2 ? "descriptors " : "descriptor ") + list(a.descriptors);
  }
  std::string operator()(const MeasureDisk& a) const {
    return "measure what is bound writable, now and once a second: at most " +
           policy::size_text(a.limit);
  }
  std::string operator()(const HoldDirectories& a) const {
    if (a.shared) return "keep " + list(a.paths) + " from being another sandbox's upper or work";
    return "hold " + list(a.paths) + " for this sandbox alone";
  }
  std::string operator()(const MapOwner& a) const {
    const auto ids = [](const SessionIds& pair) {
      return std::to_string(pair.uid) + ":" + std::to_string(pair.gid);
    };
    return "map the owner of " + a.path + ", " + ids(a.owner) + ", to " + ids(a.session) +
           (a.prefer ? ", if the host can" : "");
  }
  std::string operator()(const CreateNamespaces& a) const {
    std::string text = "create namespaces: " + namespaces_text(a.flags);
    if (a.as_session)
      text += ", owned by uid " + std::to_string(a.uid) + " gid " + std::to_string(a.gid);
    return text;
  }
  std::string operator()(const MapIds& a) const {
    if (a.uids.size() == 1 && a.gids.size() == 1)
      return "map uid " + mapping(a.uids[0]) + " and gid " + mapping(a.gids[0]) +
             " inside, and nothing else";
    std::string text = "map";
    for (const IdLine& line : a.uids) text += " uid " + mapping(line) + ",";
    for (const IdLine& line : a.gids) text += " gid " + mapping(line) + ",";
    return text + (a.by_helpers ? " by newuidmap and newgidmap," : "") + " and read it back";
  }
  static std::string mapping(const IdLine& line) {
    const auto range = [&line](std::uint32_t first) {
      return std::to_string(first) +
             (line.count == 1 ? "" : "-" + std::to_string(first + (line.count - 1)));
    };
    return range(line.outside) + " to " + range(line.inside);
  }
  std::string operator()(const TakeIds& a) const {
    return "become uid " + std::to_string(a.uid) + ", gid " + std::to_string(a.gid);
  }
  std::string operator()(const EnterTimeNamespace& a) const {
    const auto offset = [](std::chrono::milliseconds value) {
      return (value.count() < 0 ? "" : "+") + std::to_string(value.count()) + " ms";
    };
    return "enter an own time namespace (monotonic " + offset(a.monotonic) + ", boottime " +
           offset(a.boottime) + "), and read it back";
  }
  std::string operator()(const GuardInit&) const {
    return "tie init to belljar: death signal, own session, not dumpable";
  }
  std::string operator()(const JoinKeyring&) const { return "join a fresh session keyring"; }
  std::string operator()(const RaiseLoopback&) const {
    return "bring up loopback, the only interface";
  }
  std::string operator()(const AttachNetwork& a) const {
    std::string text = "attach a network by pasta: nothing comes in, and out it reaches ";
    text += a.only ? std::to_string(a.only->size()) + " public destinations" : "public addresses";
    if (!a.deny.empty()) text += " but " + std::to_string(a.deny.size()) + " ranges";
    if (!a.allow.empty()) text += ", " + std::to_string(a.allow.size()) + " private ranges";
    return text + " and the host's resolver, no address of the host's; read the rules back";
  }
  std::string operator()(const PublishPorts& a) const {
    std::string text;
    for (const PublishPorts::Port& port : a.ports)
      text += (text.empty() ? "lead what comes to " : ", to ") + port.outside + " to port " +
              std::to_string(port.inside) + " inside";
    return text;
  }
  std::string operator()(const HandOverNamespaces&) const {
    return "hand the network namespace to belljar";
  }
  std::string operator()(const AwaitNetwork&) const {
    return "wait until the network is up and its rules are in force";
  }
  std::string operator()(const CoverFile& a) const {
    return "cover " + a.path + " with a file (" + std::to_string(a.content.size()) + " bytes)";
  }
  std::string operator()(const SetHostname& a) const { return "set the host name to " + a.name; }
  std::string operator()(const AttachRoot& a) const {
    if (a.source) return "bind " + *a.source + " as the root" + flags_text(a.flags);
    return "make the root, an empty tmpfs";
  }
  std::string operator()(const BindMount& a) const {
    std::string text = "bind " + a.source;
    if (a.target != a.source) text += " on " + a.target;
    text += flags_text(a.flags);
    if (a.mapped) text += ", with its owner mapped";
    if (a.same_as >= 0) text += ", if it is the directory that was opened before";
    if (a.optional) text += a.if_reachable ? ", if it can be reached" : ", if it exists";
    return text;
  }
  std::string operator()(const MountTmpfs& a) const {
    const std::string size = a.size == 0 ? "without a limit" : size_text(a.size, a.inodes);
    return "mount a tmpfs on " + a.target + " (" + size + ", mode " + octal(a.mode) + ")" +
           flags_text(a.flags);
  }
  std::string operator()(const MountOverlay& a) const {
    std::string text = "mount an overlay on " + a.target + ": ";
    if (a.memory)
      text += "a tmpfs (" + size_text(a.memory->size, a.memory->inodes) + ", mode " +
              octal(a.memory->mode) + ") over ";
    if (!a.upper.empty()) text += a.upper + " (work in " + a.work + ") over ";
    for (std::size_t i = 0; i < a.layers.size(); ++i) text += (i > 0 ? " over " : "") + a.layers[i];
    return text + flags_text(a.flags);
  }
  std::string operator()(const MountMqueue& a) const {
    return "mount the sandbox's message queues on " + a.target;
  }
  std::string operator()(const MountProc& a) const {
    std::string text = "mount a fresh /proc on " + a.target;
    if (a.target == "/proc") text = "mount a fresh /proc";
    if (a.first == ProcMode::kPids || a.first == ProcMode::kPidsReadOnly)
      text += ", processes only";
    if (a.first == ProcMode::kFullReadOnly || a.first == ProcMode::kPidsReadOnly)
      text += ", read-only";
    if (!a.options.empty()) text += ", " + a.options;
    return text + (a.weaker ? ", or the nearest weaker one that the kernel allows" : "");
  }
  std::string operator()(const MountDev& a) const {
    return "make a minimal " + a.target + " (null zero full random urandom tty pts shm" +
           (a.queues ? " mqueue" : "") + "; shm: " + size_text(a.shm_size, a.shm_inodes) +
           (a.shm_flags & kNoExec ? ", noexec" : "") + ")";
  }
  std::string operator()(const MakeDirectory& a) const {
    return "make the directory " + a.path + ", mode " + octal(a.mode);
  }
  std::string operator()(const MakeSymlink& a) const { return "link " + a.path + " to " + a.text; }
  std::string operator()(const MakeFile& a) const {
    return "write the file " + a.path + " (" + std::to_string(a.content.size()) + " bytes, mode " +
           octal(a.mode) + ")";
  }
  std::string operator()(const MaskPath& a) const { return "mask " + a.path; }
  std::string operator()(const SettleMountFlags&) const {
    return "carry the flags to every mount below a bind";
  }
  std::string operator()(const SealRoot&) const { return "make the root read-only"; }
  std::string operator()(const ForbidUserNamespaces&) const {
    return "allow no user namespaces inside";
  }
  std::string operator()(const PivotRoot&) const {
    return "make it the root and detach the host's file tree";
  }
  std::string operator()(const TakeLandlock& a) const {
    std::string text = "take a Landlock domain for the whole sandbox:";
    if (a.files != 0) text += " rules for " + std::to_string(a.paths.size()) + " paths,";
    if (a.tcp & sys::kLandlockBindTcp) text += " TCP bind to " + ports(a, sys::kLandlockBindTcp);
    if (a.tcp & sys::kLandlockConnectTcp)
      text += " TCP connect to " + ports(a, sys::kLandlockConnectTcp);
    if (a.scopes & sys::kLandlockScopeAbstractUnix) text += " no abstract unix socket outside,";
    if (a.scopes & sys::kLandlockScopeSignal) text += " no signal to outside,";
    return text + " and read it back";
  }
  static std::string ports(const TakeLandlock& a, std::uint64_t right) {
    std::vector<int> numbers;
    for (const LandlockPort& port : a.ports)
      if (port.access & right) numbers.push_back(port.port);
    return (numbers.empty() ? "no port" : list(numbers)) + ",";
  }
  std::string operator()(const CheckNamespaces&) const {
    return "read back: each new namespace differs from belljar's own";
  }
  std::string operator()(const DropCapabilities& a) const {
    return a.keep == 0 ? "drop every capability for good, lock securebits"
                       : "keep only the named capabilities, lock securebits";
  }
  std::string operator()(const CheckInit&) const {
    return "read back: pid, ids and capabilities, as init has them";
  }
  std::string operator()(const ForgetLauncher&) const {
    return "unmap everything that came from belljar: heap, stack, environment, arguments";
  }
  std::string operator()(const TakeStreams&) const {
    return "take the streams that came with the command as descriptors 0, 1 and 2";
  }
  std::string operator()(const NewProcessGroup& a) const {
    std::string text = std::string("start a ") + (a.own_session ? "session" : "process group") +
                       ", with default signal handling";
    if (!a.terminal.empty())
      text += ", in the foreground of its terminal (descriptors " + list(a.terminal) + ")";
    return text;
  }
  std::string operator()(const OpenTerminal& a) const {
    return "open a terminal of the sandbox's own, " + std::to_string(a.size.columns) + " by " +
           std::to_string(a.size.rows) + ", relayed by belljar";
  }
  std::string operator()(const SetUmask& a) const { return "set umask " + octal(a.mask); }
  std::string operator()(const SetLimit& a) const {
    return "limit " + a.name + " to " + limit_text(a.name, a.value) + ", and read it back";
  }
  std::string operator()(const NullDescriptor& a) const {
    return "point descriptor " + std::to_string(a.fd) + " at /dev/null";
  }
  std::string operator()(const CloseDescriptors& a) const {
    return a.keep.empty() ? "close every descriptor but 0, 1 and 2"
                          : "close every descriptor but 0, 1, 2 and " + list(a.keep);
  }
  std::string operator()(const ChangeDirectory& a) const { return "change to " + a.path; }
  std::string operator()(const SetNoNewPrivileges&) const { return "set no_new_privs"; }
  std::string operator()(const InstallFilter& a) const {
    return "install the system call filter " + a.set + " (" +
           std::to_string(a.filter.instructions().size()) + " instructions)" +
           (a.listens ? ", and let belljar see what is refused" : "");
  }
  std::string operator()(const CheckPayload& a) const {
    return std::string("read back: ids, ") + (a.groups ? "groups, " : "") +
           "umask, capabilities, " + "no_new_privs" + (a.filtered ? ", the filter" : "");
  }
  std::string operator()(const Exec& a) const { return "exec " + list(a.candidates); }
  std::string operator()(const AwaitLauncher&) const {
    return "wait until belljar has told what was made";
  }
  std::string operator()(const LiteralRoot&) const {
    return "make the root on a tmpfs, with the host's file tree beside it";
  }
  std::string operator()(const RemountReadOnly& a) const {
    return "make the mount at " + a.path + " read-only";
  }
  std::string operator()(const WriteFile& a) const {
    return "write what descriptor " + std::to_string(a.descriptor) + " holds to " + a.path +
           ", mode " + octal(a.mode);
  }
  std::string operator()(const BindData& a) const {
    return "bind what descriptor " + std::to_string(a.descriptor) + " holds on " + a.target +
           flags_text(a.flags) + ", mode " + octal(a.mode);
  }
  std::string operator()(const ChangeMode& a) const {
    return "change the mode of " + a.path + " to " + octal(a.mode);
  }
  std::string operator()(const ProtectProc& a) const {
    return "make sys, sysrq-trigger, irq and bus below " + a.path + " read-only";
  }
  std::string operator()(const NestUser&) const {
    return "enter a second user namespace, in one that allows no third";
  }
  std::string operator()(const JoinUser& a) const {
    return "join the user namespace of descriptor " + std::to_string(a.descriptor);
  }
  std::string operator()(const CheckNoUser&) const {
    return "read back: no user namespace can be made";
  }
  std::string operator()(const LockFile& a) const { return "hold a read lock on " + a.path; }
  std::string operator()(const NewSession&) const { return "start a session"; }
  std::string operator()(const SetSignalMask&) const { return "take the caller's signal mask"; }
  std::string operator()(const SetCapabilities& a) const {
    return a.keep == 0 ? "drop every capability" : "keep only the named capabilities";
  }
  std::string operator()(const DieWithLauncher&) const { return "die when belljar does"; }
  std::string operator()(const Block& a) const {
    return "wait for descriptor " + std::to_string(a.descriptor);
  }
  std::string operator()(const EnterDirectory& a) const {
    return "change to " + list(a.candidates) + (a.first_only ? "" : ", the first that is there") +
           ", and let PWD say so";
  }
  std::string operator()(const StandBy&) const { return "end, and let init wait for commands"; }
};

const char* side_name(Side side) {
  switch (side) {
    case Side::kLauncher:
      return "belljar";
    case Side::kInit:
      return "init";
    case Side::kPayload:
      return "payload";
  }
  return "";
}

template <class T>
bool is(const Step& step) {
  return std::holds_alternative<T>(step.action);
}

Status broken(const std::string& rule, std::size_t index) {
  return fail({ErrorKind::kInvalid,
               0,
               "plan step " + std::to_string(index + 1) + " breaks the rule: " + rule,
               {},
               {}});
}

template <class... Ts>
bool is_one_of(const Step& step) {
  return (is<Ts>(step) || ...);
}

/// What takes something away from a sandbox that bwrap's arguments alone may do without: no policy
/// and no message of the service's leads to it.
bool is_literal(const Step& step) {
  if (step.parents != 0755 || step.covers_root) return true;
  if (const auto* guard = std::get_if<GuardInit>(&step.action))
    return guard->dumpable || guard->in_session;
  if (const auto* tmpfs = std::get_if<MountTmpfs>(&step.action)) return tmpfs->size == 0;
  if (const auto* dev = std::get_if<MountDev>(&step.action)) return dev->literal || dev->console;
  if (const auto* filter = std::get_if<InstallFilter>(&step.action)) return filter->alone;
  if (const auto* check = std::get_if<CheckInit>(&step.action))
    return check->uid == kAnyId || check->gid == kAnyId;
  if (const auto* check = std::get_if<CheckPayload>(&step.action))
    return check->when != kCapabilitiesAtExec || check->uid == kAnyId || check->gid == kAnyId;
  return is_one_of<AwaitLauncher, LiteralRoot, RemountReadOnly, WriteFile, BindData, ChangeMode,
                   ProtectProc, NestUser, JoinUser, CheckNoUser, LockFile, NewSession,
                   SetSignalMask, SetCapabilities, DieWithLauncher, Block, EnterDirectory>(step);
}

}  // namespace

std::string Step::text() const { return std::visit(Describe{}, action); }

Result<Plan> build_plan(const policy::Policy& policy, const Host& host, const Command& command) {
  PlanBuilder builder(policy, host, command, BELLJAR_TRY(session_ids(policy.identity, host)));
  for (const Control* control : controls()) {
    builder.control = control->name;
    BELLJAR_CHECK(control->plan(builder));
    if (control->read_back != nullptr) BELLJAR_CHECK(control->read_back(builder));
  }
  Plan plan = std::move(builder).finish();
  BELLJAR_CHECK(validate(plan));
  return plan;
}

Status validate(const Plan& plan) {
  bool pivoted = false, filtered = false, dropped = false;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    if (i > 0 && step.side < plan.steps[i - 1].side)
      return broken("belljar, then init, then payload", i);
    if (!plan.drop_in && is_literal(step)) return broken("bwrap's arguments alone ask for it", i);
    if (pivoted && (is<BindMount>(step) || is<MountTmpfs>(step) || is<MountOverlay>(step) ||
                    is<MountMqueue>(step) || is<MaskPath>(step) || is<CoverFile>(step)))
      return broken("every mount before the pivot", i);
    if (is<TakeLandlock>(step) && (!pivoted || dropped))
      return broken("Landlock between the pivot and the drop of capabilities", i);
    if (dropped && is<PivotRoot>(step)) return broken("the pivot before capabilities go", i);
    if (filtered && !is<CheckPayload>(step) && !(plan.drop_in && is<InstallFilter>(step)) &&
        !is<CloseDescriptors>(step) && !is<Exec>(step) && !is<StandBy>(step))
      return broken("after the filter only the read-back, the closing and exec", i);
    pivoted |= is<PivotRoot>(step);
    filtered |= is<InstallFilter>(step);
    dropped |= is<DropCapabilities>(step);
  }
  if (plan.steps.empty() || (!is<Exec>(plan.steps.back()) && !is<StandBy>(plan.steps.back())))
    return broken("exec is the last", 0);
  if (!pivoted || (!dropped && !plan.drop_in))
    return broken("a pivot and a drop of capabilities", 0);
  return {};
}

std::string explain(const Plan& plan, const policy::Policy& policy) {
  std::string text = "policy " + policy.name + " (" + policy.digest + ")\n";
  std::size_t number = 0;
  for (const Step& step : plan.steps) {
    std::array<char, 32> head{};
    std::snprintf(head.data(), head.size(), "%3zu  %-8s", ++number, side_name(step.side));
    text += std::string(head.data()) + step.text();
    const std::string where = step.because.empty() ? std::string() : policy.where(step.because);
    text += "\n             " + step.control + ", ";
    text += where.empty() ? "by default" : where + (step.because.empty() ? "" : " " + step.because);
    text += "\n";
  }
  text += "environment:\n";
  for (const std::string& entry : plan.environment)
    text += "     " + entry.substr(0, entry.find('=')) + "\n";
  if (policy.limits.wall_time)
    text += "wall time: " + std::to_string(policy.limits.wall_time->count()) + " ms, " +
            policy.where("limits.wall_time") + "\n";
  for (const Degraded& item : plan.degraded)
    text += "degraded: " + item.control + ": " + item.what + "\n";
  for (const std::string& note : plan.notes) text += "note: " + note + "\n";
  return text;
}

}  // namespace belljar::launcher
