// The Plan: a launch as an ordered list of typed steps, a value that can be printed and compared.
//
// `build_plan` makes it from a Policy and from what was observed of the host, without a system
// call: the same input gives the same plan. `belljar explain` prints it, `launch` compiles it
// (image.hpp) and the child carries it out (child/child.cpp). Nothing below decides anything.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/child/image.hpp"
#include "launcher/host.hpp"
#include "launcher/plan_modes.hpp"
#include "launcher/seccomp/seccomp.hpp"
#include "policy/base/result.hpp"
#include "policy/policy.hpp"

namespace belljar::launcher {

/// Who carries a step out.
enum class Side {
  kLauncher,  ///< belljar itself, outside.
  kInit,      ///< The sandbox's first process, before anything else runs in it.
  kPayload,   ///< The command's own process, before exec.
};

/// Options of one mount, as a set.
enum MountFlag : unsigned {
  kReadOnly = 1,
  kNoSuid = 2,
  kNoDev = 4,
  kNoExec = 8,
  kNoAtime = 1024,
};

// --- launcher ---------------------------------------------------------------------------------

/// Replaces the launcher's supplementary groups, so that the sandbox inherits just these.
struct SetGroups {
  std::vector<gid_t> groups;
};

/// Creates the namespaces; `flags` are CLONE_NEW*. A privileged launcher does it with the session's
/// effective ids and its capabilities raised again, so that the session's uid owns them.
struct CreateNamespaces {
  std::uint64_t flags = 0;
  bool as_session = false;
  uid_t uid = 0;
  gid_t gid = 0;
};

/// Enters a namespace that is there, before the others are created. Read back by its inode.
struct JoinNamespace {
  std::string kind;        ///< As in /proc/PID/ns: "net".
  std::uint64_t flag = 0;  ///< CLONE_NEW*
  std::string path;
};

/// Makes a cgroup of the sandbox's own. Everything in the sandbox is born in it, and cannot leave.
struct MakeCgroup {
  sys::CgroupParent parent;
  std::vector<std::string> controllers;  ///< Those that its limits need.
  bool prefer = false;                   ///< The launch goes on without it.
};

/// Sets one limit in the cgroup that was made last, and reads it back.
struct LimitCgroup {
  struct Write {
    std::string file;
    std::string value;
    bool if_there = false;  ///< A kernel without this file has nothing that it would limit.
  };
  std::string limit;  ///< "memory"
  std::string text;   ///< "512 MiB"
  std::vector<Write> writes;
  bool prefer = false;
};

/// Pipes on these descriptors of the command, of which the launcher passes so many bytes on.
struct RelayOutput {
  std::uint64_t limit = 0;
  std::vector<int> descriptors;
};

/// All processes of the sandbox together may use so much processor time. The launcher measures it.
struct MeterCpuTime {
  std::chrono::milliseconds limit{};
};

/// What the plan binds writable may hold so many bytes. The launcher measures it.
struct MeasureDisk {
  std::uint64_t limit = 0;
};

/// No other sandbox has these directories as an overlay's upper or work directory while this one
/// runs: two overlays would pull each other's files from under their feet.
struct HoldDirectories {
  std::vector<std::string> paths;
  bool shared = false;  ///< As layers that nobody writes to, which several sandboxes may have.
};

/// A copy of the mount at `path`, in which the files of `owner` are the session's. It takes
/// privileges that no sandbox has, so belljar makes it, and init puts it where it belongs.
struct MapOwner {
  std::string path;
  SessionIds owner;
  SessionIds session;
  unsigned flags = 0;
  bool prefer = false;  ///< The launch goes on with a plain bind.
};

/// pasta, started by a guard process with the session's ids once init has handed the namespaces
/// over (launcher/network), and the rules of what is reached through it. The rules are read back
/// before the command starts, and no capability of the sandbox's can change them.
struct AttachNetwork {
  /// A listener of belljar's own on an address of the host.
  struct Door {
    std::uint32_t address = 0;
    std::uint16_t port = 0;
  };
  policy::Destinations allow;
  std::optional<policy::Destinations> only;
  policy::Destinations deny;
  std::vector<Door> doors;
  /// A pasta that has made no interface by then is killed: one that failed may hang.
  std::chrono::milliseconds deadline = std::chrono::seconds(10);
};

/// Listeners of the caller's outside, each of which leads to one port on the sandbox's loopback
/// (launcher/network/publish.hpp), once init has handed the namespaces over.
struct PublishPorts {
  struct Port {
    std::string outside;  ///< "127.0.0.1:8080" or a path.
    std::uint16_t inside = 0;
  };
  std::vector<Port> ports;
};

// --- init -------------------------------------------------------------------------------------

/// A line of a uid_map or gid_map: `inside` is what the sandbox sees, `outside` what the host sees.
struct IdLine {
  std::uint32_t inside = 0;
  std::uint32_t outside = 0;
  std::uint32_t count = 1;
  bool operator==(const IdLine&) const = default;
};

/// Maps the session's own ids, which come first, and what else its policy asks for.
struct MapIds {
  std::vector<IdLine> uids;
  std::vector<IdLine> gids;
  bool by_helpers = false;  ///< By newuidmap and newgidmap: belljar may map only its caller's ids.
};

/// Takes the mapped ids for real, effective, saved and file-system id alike.
struct TakeIds {
  uid_t uid = 0;
  gid_t gid = 0;
};

/// An own time namespace whose clocks are ahead of the host's by these offsets. Read back by its
/// inode and by the clocks.
struct EnterTimeNamespace {
  std::chrono::milliseconds monotonic{};
  std::chrono::milliseconds boottime{};
};

/// Ends with the launcher: a death signal, a session of its own, not dumpable for good.
struct GuardInit {
  bool dumpable = false;    ///< Others of its uid may look at it.
  bool in_session = false;  ///< It stays in the caller's session.
};

/// A fresh session keyring, so that the caller's keys are out of reach.
struct JoinKeyring {};

/// Brings `lo` up in the new network namespace.
struct RaiseLoopback {};

/// Hands the user and the network namespace to belljar, which attaches a network meanwhile.
struct HandOverNamespaces {};

/// Until the network is up, and its rules are in force.
struct AwaitNetwork {};

struct SetHostname {
  std::string name;
};

/// The new root: an own tmpfs, or (for a mount at "/") a bind of `source`.
struct AttachRoot {
  std::optional<std::string> source;
  unsigned flags = kNoSuid | kNoDev;
};

/// Bind `source` (opened by path, no link of the session's followed) at `target`.
struct BindMount {
  std::string source;
  std::string target;
  unsigned flags = 0;
  bool optional = false;      ///< Nothing happens when the source does not exist.
  bool if_reachable = false;  ///< Nor when the session's uid cannot reach it.
  bool may_create = false;    ///< The mount point lies in a tmpfs of ours and is made when absent.
  bool mapped = false;        ///< It is what MapOwner has made of `source`.
  int same_as = -1;           ///< It has to be what this descriptor is on.
};

struct MountTmpfs {
  std::string target;
  std::uint64_t size = 0;
  std::uint64_t inodes = 0;
  mode_t mode = 0755;
  unsigned flags = 0;
  bool may_create = false;
};

/// Directories of the host seen as one, never written to but for `upper`.
struct MountOverlay {
  /// What takes the changes where no directory of the host does.
  struct Memory {
    std::uint64_t size = 0;
    std::uint64_t inodes = 0;
    mode_t mode = 0755;
  };
  std::string target;
  std::vector<std::string> layers;  ///< The topmost first.
  std::string upper;                ///< Empty: `memory` or, in a read-only one, nothing.
  std::string work;                 ///< With `upper`.
  std::optional<Memory> memory;
  unsigned flags = 0;
  bool may_create = false;
};

/// The message queues of the sandbox's IPC namespace.
struct MountMqueue {
  std::string target;
  bool may_create = false;
};

/// A fresh procfs; with `weaker`, the next mode of ProcMode is tried when the kernel refuses one.
/// /proc/sys is always read-only or absent.
struct MountProc {
  std::string target;
  ProcMode first = ProcMode::kFull;
  std::string options;  ///< hidepid
  bool weaker = false;
  bool may_create = false;
};

/// A minimal /dev: six nodes, five links, an own devpts, an own /dev/shm; nothing else can be made.
struct MountDev {
  std::string target;
  std::uint64_t shm_size = 0;
  std::uint64_t shm_inodes = 0;
  unsigned shm_flags = kNoSuid | kNoDev;
  bool queues = false;  ///< It has an empty directory "mqueue", to be mounted on.
  bool may_create = false;
  bool literal = false;  ///< Names can be added to it, and shm is a plain directory.
  bool console = false;  ///< The terminal on descriptor 1 is its "console".
};

struct MakeDirectory {
  std::string path;
  mode_t mode = 0755;
};
struct MakeSymlink {
  std::string path;
  std::string text;
};
struct MakeFile {
  std::string path;
  std::string content;
  mode_t mode = 0444;
};

/// What is at `path`, a file or nothing, reads as `content`.
struct CoverFile {
  std::string path;
  std::string content;
};

/// Hides what is at `path`: a directory becomes an empty one, a file cannot be opened. Where
/// nothing is there, nothing is made.
struct MaskPath {
  std::string path;
};

/// Legacy back end: flags reach submounts by re-reading mountinfo until nothing is left to change.
struct SettleMountFlags {};

/// The root tmpfs becomes read-only.
struct SealRoot {};

/// No process of the sandbox can create a user namespace (user.max_user_namespaces, per namespace).
/// `filtered_too`: the system call filter refuses it as well, so that a host whose /proc/sys is
/// read-only still holds.
struct ForbidUserNamespaces {
  bool filtered_too = false;
};

struct PivotRoot {};

// What only a literal plan has (Plan::drop_in): bwrap's arguments, in their order.

/// Init waits until the launcher has looked at it, or has let others do so.
struct AwaitLauncher {};

/// A new root on a tmpfs; the host's tree is beside it until the pivot.
struct LiteralRoot {};

/// One mount, without those below it.
struct RemountReadOnly {
  std::string path;
};

/// What the descriptor holds, to a file that is made or emptied.
struct WriteFile {
  std::string path;
  int descriptor = -1;
  mode_t mode = 0666;
};

/// The same, to a file that no other path leads to.
struct BindData {
  std::string target;
  int descriptor = -1;
  unsigned flags = 0;
  mode_t mode = 0600;
};

struct ChangeMode {
  std::string path;
  mode_t mode = 0;
};

/// What uid 0 could change of the host below a /proc becomes read-only.
struct ProtectProc {
  std::string path;
};

/// A second user namespace, in one that allows no third (user.max_user_namespaces).
struct NestUser {
  IdLine uid;
  IdLine gid;
};

struct JoinUser {
  int descriptor = -1;
};

/// Read back: no user namespace can be made.
struct CheckNoUser {};

/// A read lock for as long as init is there.
struct LockFile {
  std::string path;
};

struct NewSession {};

/// A pseudo-terminal of the sandbox's devpts becomes init's controlling terminal; belljar gets both
/// ends and relays.
struct OpenTerminal {
  std::vector<int> descriptors;  ///< Of 0, 1, 2: what the payload has it as.
  int input = 0;                 ///< The caller's descriptor that keys are read from,
  int output = 1;                ///< and that everything is written to.
  int terminal = -1;             ///< The caller's terminal, which becomes raw; -1: there is none.
  bool further = false;  ///< Of a further command, whose own controlling terminal it becomes.
  sys::TerminalSize size{24, 80, 0, 0};
  std::optional<sys::TerminalSettings> settings;  ///< Absent: the kernel's own.
};

struct LandlockPath {
  std::string path;
  std::uint64_t access = 0;
};
struct LandlockPort {
  std::uint16_t port = 0;
  std::uint64_t access = 0;
};

/// Init takes one Landlock domain, which everything in the sandbox inherits: a domain for each
/// command would keep one from signalling another. Rights are those of launcher/sys/landlock.hpp;
/// what is handled and not granted is refused. Read back by an attempt at each kind.
struct TakeLandlock {
  int abi = 0;
  std::uint64_t files = 0;  ///< Handled rights on files.
  std::uint64_t tcp = 0;    ///< Handled rights on TCP ports.
  std::uint64_t scopes = 0;
  std::vector<LandlockPath> paths;  ///< One that is not there needs no rule.
  std::vector<LandlockPort> ports;
  std::vector<int> descriptors;  ///< What they are on can be opened again, as it is open now.
};

/// Read-back (a): the namespaces differ from the launcher's, or are its own where the policy
/// shares.
struct CheckNamespaces {
  std::uint64_t created = 0;  ///< CLONE_NEW* flags.
};

/// Init gives up every capability that the policy does not name, in all five sets, and locks
/// securebits, so that no uid means root any more.
struct DropCapabilities {
  std::uint64_t keep = 0;  ///< One bit per capability number.
};

/// Read-back (a), second half: pid, ids and capabilities, as init has them, from the status of the
/// payload that has just been cloned from it.
struct CheckInit {
  uid_t uid = 0;
  gid_t gid = 0;
  std::uint64_t capabilities = 0;
  bool further = false;  ///< Not the first process that init has cloned.
};

/// Unmaps everything of init that came from the launcher: heap, stack, environment, arguments.
struct ForgetLauncher {};

// --- payload ----------------------------------------------------------------------------------

/// The streams that came with a further command become its 0, 1 and 2.
struct TakeStreams {};

/// An own process group, default signal handling, nothing blocked; with a terminal, in its
/// foreground and as these descriptors.
struct NewProcessGroup {
  std::vector<int> terminal;
  bool own_session = false;  ///< And an own session, whose controlling terminal that is.
};
struct SetUmask {
  mode_t mask = 022;
};
struct SetLimit {
  std::string name;  ///< "nofile"
  int resource = 0;  ///< RLIMIT_*
  std::uint64_t value = 0;
};
/// The descriptor `fd` reads and writes nothing.
struct NullDescriptor {
  int fd = 0;
};
/// Everything but 0, 1, 2 and `keep` is closed.
struct CloseDescriptors {
  std::vector<int> keep;
};
struct ChangeDirectory {
  std::string path;
};
struct SetNoNewPrivileges {};
struct InstallFilter {
  std::string set;  ///< "agent@1", or the base with "and N rules of the policy".
  SeccompFilter filter;
  bool alone = false;    ///< By prctl: a filter before it may know no other call.
  bool listens = false;  ///< `filter` tells belljar what it refuses (seccomp/watch.hpp),
  std::optional<SeccompFilter> judged;  ///< which is what this one does; absent: nothing.
};

/// Read-back (b): what /proc/self/status says of the payload just before exec. The comparison is
/// with the other steps of the plan; what is not expected here is not compared.
struct CheckPayload {
  uid_t uid = 0;
  gid_t gid = 0;
  mode_t umask = 0;
  std::optional<std::vector<gid_t>> groups;
  std::uint64_t capabilities = 0;
  bool filtered = false;
  CapabilityCheck when = kCapabilitiesAtExec;
};

struct SetSignalMask {
  std::uint64_t mask = 0;
};

/// In force at once; those that are ambient stay across exec for any uid, the others for uid 0.
struct SetCapabilities {
  std::uint64_t keep = 0;
  bool ambient = true;
};

/// The command dies when its launcher does.
struct DieWithLauncher {};

/// Waits for a byte on the descriptor, or for its end.
struct Block {
  int descriptor = -1;
};

/// The first of the directories that is there, and PWD names it.
struct EnterDirectory {
  std::vector<std::string> candidates;
  bool first_only = false;
};

struct Exec {
  std::vector<std::string> candidates;  ///< Paths to try in order.
};

/// The sandbox has no command of its own: its first process has tried every step, and ends. The
/// sandbox waits for commands.
struct StandBy {};

using StepAction = std::variant<
    SetGroups, JoinNamespace, MakeCgroup, LimitCgroup, MeterCpuTime, RelayOutput, MeasureDisk,
    HoldDirectories, MapOwner, AttachNetwork, PublishPorts, CreateNamespaces, MapIds, TakeIds,
    EnterTimeNamespace, GuardInit, JoinKeyring, RaiseLoopback, HandOverNamespaces, AwaitNetwork,
    SetHostname, CoverFile, AttachRoot, BindMount, MountTmpfs, MountOverlay, MountMqueue, MountProc,
    MountDev, MakeDirectory, MakeSymlink, MakeFile, MaskPath, SettleMountFlags, SealRoot,
    ForbidUserNamespaces, PivotRoot, OpenTerminal, TakeLandlock, CheckNamespaces, DropCapabilities,
    CheckInit, ForgetLauncher, TakeStreams, NewProcessGroup, SetUmask, SetLimit, NullDescriptor,
    CloseDescriptors, ChangeDirectory, SetNoNewPrivileges, InstallFilter, CheckPayload, Exec,
    StandBy, AwaitLauncher, LiteralRoot, RemountReadOnly, WriteFile, BindData, ChangeMode,
    ProtectProc, NestUser, JoinUser, CheckNoUser, LockFile, NewSession, SetSignalMask,
    SetCapabilities, DieWithLauncher, Block, EnterDirectory>;

struct Step {
  Side side = Side::kInit;
  StepAction action;
  std::string control;  ///< The control that asked for it, "filesystem".
  std::string
      because;  ///< Its policy path, `filesystem.mounts["/work"]`; empty: a default of ours.
  mode_t parents = 0755;     ///< In a literal plan, the mode of directories made on the way.
  bool covers_root = false;  ///< In a literal plan: it is mounted on "/".

  /// "bind /usr/bin on /bin, read-only", for explain and for messages.
  [[nodiscard]] std::string text() const;
};

/// Something that the policy wanted and this launch does without, because it said "prefer".
struct Degraded {
  std::string control;
  std::string what;
};

/// How a literal plan's processes are, which is bwrap's way; no other plan has it.
struct DropIn {
  bool direct = false;           ///< The command takes init's place.
  bool lingers = false;          ///< Init stays until its last child has ended.
  bool die_with_parent = false;  ///< All of it ends when the launcher's parent does.
  int held = -1;                 ///< A descriptor that init keeps.
};

struct Plan {
  std::vector<Step> steps;
  std::vector<std::string> argv;
  std::vector<std::string> environment;  ///< NAME=VALUE, sorted.
  std::string directory = "/";           ///< Where the command starts.
  uid_t uid = 0;                         ///< Outside.
  gid_t gid = 0;
  std::vector<Degraded> degraded;
  std::optional<DropIn> drop_in;
  std::vector<std::string> notes;  ///< One-line facts for the person who runs it.
};

/// What to run, as the command line says it.
struct Command {
  std::vector<std::string> argv;
  std::string directory;  ///< Empty: the workspace, or "/".
  bool explain_denials = false;
  bool stands_by = false;  ///< There is no argv; the sandbox waits for commands.
  int workspace = -1;      ///< A descriptor of what the workspace has to be; -1: whatever is there.
};

/// The plan for `command` under `policy` on `host`. Errors name the policy path and the remedy.
[[nodiscard]] Result<Plan> build_plan(const policy::Policy& policy, const Host& host,
                                      const Command& command);

/// Checks the ordering rules that every plan must keep: sides in order, mounts before the pivot,
/// filter and read-back last. A broken rule is a fault of ours, never of a policy.
[[nodiscard]] Status validate(const Plan& plan);

/// The steps as `belljar explain` prints them, each with the policy line that asked for it.
[[nodiscard]] std::string explain(const Plan& plan, const policy::Policy& policy);

}  // namespace belljar::launcher
