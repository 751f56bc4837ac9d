// Image: a plan compiled for the child, position-independent and without a pointer, so that it can
// cross a fork or a memfd. Offsets count from the start of the Image; 0 means "none".
#pragma once

#include <cstdint>

namespace belljar::launcher {

enum class OpCode : std::uint16_t {
  // Carried out by init.
  kMapIds,     ///< s0 uid_map, s1 gid_map; a privileged launcher writes them itself
  kTakeIds,    ///< a uid, b gid
  kEnterTime,  ///< s0 offsets or none, a monotonic, b boottime, in nanoseconds
  kGuardInit,  ///< a GuardOption
  kJoinKeyring,
  kRaiseLoopback,
  kHandOverNamespaces,
  kAwaitNetwork,
  kSetHostname,    ///< s0 name, a length
  kAttachRoot,     ///< s0 source or none, a flags, s1 tmpfs options
  kBindMount,      ///< s0 source, s1 target, a flags, b BindOption, c 1 + a tree's descriptor or 0
  kMountTmpfs,     ///< s0 target, s1 options, a flags, b may create
  kMountOverlay,   ///< s0 target, s1 OverlayLayers, a flags, b may create
  kMountMqueue,    ///< s0 target, b may create
  kMountProc,      ///< s0 target, s1 options, a first ProcMode, b may create, c weaker
  kMountDev,       ///< s0 target, s1 options of shm, a flags of shm, b may create, c DevOption
  kMakeDirectory,  ///< s0 path, a mode
  kMakeSymlink,    ///< s0 path, s1 text
  kMakeFile,       ///< s0 path, s1 content, a mode, b length
  kMaskPath,       ///< s0 path
  kCoverFile,      ///< s0 path, s1 content, a length
  kSettleMountFlags,
  kSealRoot,
  kForbidUserNamespaces,  ///< a: 1 when the filter forbids them too
  kPivotRoot,
  // Of a literal plan only (Image::literal), init's:
  kAwaitLauncher,    ///< The launcher looks at init, or lets others, before it goes on
  kLiteralRoot,      ///< a flags
  kRemountReadOnly,  ///< s0 path
  kWriteFile,        ///< s0 path, a mode, b descriptor of the content
  kBindData,         ///< s0 path, a flags, b descriptor of the content, c mode
  kChangeMode,       ///< s0 path, a mode
  kProtectProc,      ///< s0 path
  kNestUser,         ///< s0 uid_map, s1 gid_map
  kJoinUser,         ///< a descriptor
  kCheckNoUser,
  kLockFile,  ///< s0 path
  kNewSession,
  kOpenTerminal,      ///< s0 TerminalSettings or none, s1 TerminalSize, a: 1 for a further command
  kTakeLandlock,      ///< s0 LandlockSet
  kCheckNamespaces,   ///< a CLONE_NEW* flags that were created
  kDropCapabilities,  ///< a bits to keep
  kForgetLauncher,
  // Carried out by the payload.
  kTakeStreams,      ///< What came with the command becomes 0, 1 and 2
  kCheckInit,        ///< a uid, b gid, c capability bits, s0: 1 for a further command; opens the
                     ///< payload's status
  kNewProcessGroup,  ///< a one bit a descriptor that is the terminal, b: 1 for a session of its own
  kSetUmask,         ///< a mask
  kSetLimit,         ///< a resource, b value
  kNullDescriptor,   ///< a descriptor
  kChangeDirectory,  ///< s0 path
  kSetNoNewPrivileges,
  kInstallFilter,     ///< s0 instructions, a count, b: 1 when the launcher gets its listener, 2
                      ///< when nothing but prctl may be used
  kCheckPayload,      ///< s0 Expectation, a CapabilityCheck
  kCloseDescriptors,  ///< s0 descriptors (int32, ascending), a count
  // Of a literal plan only, the payload's:
  kSetSignalMask,    ///< a mask
  kSetCapabilities,  ///< a bits, b: 1 when they are ambient, too
  kDieWithLauncher,
  kBlock,           ///< a descriptor
  kEnterDirectory,  ///< s0 candidates (uint32 offsets), a count, b: 1 when the first must do
  kExec,            ///< s0 candidates (uint32 offsets), a count
  kStandBy,         ///< Instead of kExec: the payload ends well, and init waits for commands
};

/// Bits of kBindMount's `b`.
enum BindOption : std::uint64_t {
  kBindOptional = 1,     ///< A missing source is passed over.
  kBindIfReachable = 2,  ///< So is one that may not be reached.
  kBindMayCreate = 4,    ///< A missing mount point is made.
  kBindSameAs = 8,       ///< The source is what descriptor `c` is on, or it is refused.
};

/// Bits of kMountDev's `c`.
enum DevOption : std::uint64_t {
  kDevQueues = 1,   ///< It has an empty directory "mqueue".
  kDevLiteral = 2,  ///< Mounts can be made in it, and shm is a plain directory.
  kDevConsole = 4,  ///< The terminal on descriptor 1 is its "console".
};

/// kCheckPayload's `a`: what the capability sets must be.
enum CapabilityCheck : std::uint64_t {
  kCapabilitiesAtExec = 0,     ///< Those of the plan come into force at exec.
  kCapabilitiesInForce = 1,    ///< They are already.
  kCapabilitiesAsTheyAre = 2,  ///< Nobody has touched them.
  kCapabilitiesOfRoot = 3,     ///< In force, and none is ambient.
};

/// Of kCheckInit and Expectation: the ids of a user namespace that others have mapped.
inline constexpr std::uint32_t kAnyId = 0xffffffff;

/// In Op::parents: a mount has covered the new root itself.
inline constexpr std::uint16_t kCoversRoot = 0x8000;

/// Bits of kGuardInit's `a`.
enum GuardOption : std::uint64_t {
  kGuardDumpable = 1,   ///< Others of its uid may look at it.
  kGuardInSession = 2,  ///< It stays in the caller's session.
};

struct Op {
  OpCode code = OpCode::kMapIds;
  std::uint16_t parents = 0755;  ///< In a literal plan, the mode of directories made on the way.
  std::int32_t step = 0;         ///< Index into Plan::steps, for reports.
  std::uint32_t s0 = 0;
  std::uint32_t s1 = 0;
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  std::uint64_t c = 0;
};

/// What read-back (b) must find in the payload's status.
struct Expectation {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t umask = 0;
  std::uint32_t filters = 0;  ///< Beyond those that init already had.
  std::uint64_t capabilities = 0;
  std::int32_t group_count = -1;  ///< -1: the caller's groups stayed, nothing to compare.
  std::uint32_t unused = 0;
};

/// What an overlay is made of; 0 for what it has not.
struct OverlayLayers {
  std::uint32_t layers = 0;  ///< Offset of uint32[count], each the offset of a path; topmost first.
  std::uint32_t count = 0;
  std::uint32_t upper = 0;
  std::uint32_t work = 0;
  std::uint32_t memory = 0;  ///< Options of the tmpfs that takes the changes,
  std::uint32_t mode = 0;    ///< and the mode of the directory in it that does.
};

/// A Landlock domain; rights as in launcher/sys/landlock.hpp.
struct LandlockSet {
  std::uint64_t files = 0;
  std::uint64_t tcp = 0;
  std::uint64_t scopes = 0;
  std::uint32_t restrict_flags = 0;
  std::uint32_t paths = 0;  ///< Offset of LandlockRule[path_count], `what` the offset of a path.
  std::uint32_t path_count = 0;
  std::uint32_t ports = 0;  ///< Offset of LandlockRule[port_count], `what` a port.
  std::uint32_t port_count = 0;
  std::uint32_t descriptors = 0;  ///< Offset of int32[descriptor_count].
  std::uint32_t descriptor_count = 0;
  std::uint32_t checked_tcp = 0;  ///< Rights without a rule for port 0, which is then tried.
};
struct LandlockRule {
  std::uint32_t what = 0;
  std::uint32_t unused = 0;
  std::uint64_t access = 0;
};

/// Namespaces whose inode numbers are compared: ipc, uts, cgroup. The others prove themselves: an
/// id map can be written once in the life of a user namespace, init's NSpid line ends in 1, and the
/// mounts and the loopback interface take capabilities that only an own namespace's owner has.
inline constexpr int kNamespaceKinds = 3;

/// A namespace to join, by a descriptor of the launcher's.
struct Join {
  std::uint64_t flag = 0;  ///< CLONE_NEW*
  std::uint64_t inode = 0;
  std::int32_t fd = -1;
  std::int32_t step = 0;
};

/// One of each kind at the most.
inline constexpr int kMostJoins = 8;

struct Image {
  std::uint32_t size = 0;  ///< Of all of it, in bytes.
  std::uint32_t ops = 0;   ///< Offset of Op[op_count].
  std::uint32_t op_count = 0;
  std::uint32_t payload_op = 0;  ///< Index of the first of the payload's.
  std::uint32_t argv = 0;        ///< Offset of uint32 offsets, argc of them.
  std::uint32_t argc = 0;
  std::uint32_t envp = 0;
  std::uint32_t envc = 0;
  std::uint32_t pointers = 0;  ///< Room for argc + envc + 2 pointers, filled in by the child; in a
                               ///< literal plan for argc + 2 more, the arguments of a shell.
  std::uint32_t namespaces_step = 0;
  std::uint64_t namespace_flags = 0;
  std::uint32_t joins = 0;  ///< Offset of Join[join_count].
  std::uint32_t join_count = 0;
  std::uint32_t uid_inside = 0;  ///< As the user namespace that is joined has to call the session.
  std::uint32_t gid_inside = 0;
  std::uint64_t namespace_inodes[kNamespaceKinds] = {};  ///< The launcher's own.
  std::uint32_t uid_outside = 0;
  std::uint32_t gid_outside = 0;
  std::uint8_t privileged = 0;      ///< The launcher acts for another uid.
  std::uint8_t waits_for_maps = 0;  ///< It writes the id maps, or has them written.
  std::uint8_t legacy = 0;          ///< No clone3, no new mount API.
  std::uint8_t helped = 0;          ///< A helper makes the namespaces, not clone3.
  std::uint8_t literal = 0;         ///< Everything as bwrap's arguments say, in their order.
  std::uint8_t direct = 0;          ///< The command takes init's place.
  std::uint8_t lingers = 0;         ///< Init stays until its last child has ended.
  std::int32_t held = -1;           ///< A descriptor that init keeps.
  std::uint8_t stands_by = 0;       ///< The plan's command is only a trial; init goes on after it.
};

// --- what the child says -----------------------------------------------------------------------

enum class MessageKind : std::uint32_t {
  kHelper,   ///< Of a helper: `pid` is init, as the launcher sees it. Of a keeper: it is there.
  kFailed,   ///< Step `step` failed with `error`.
  kStarted,  ///< The payload has passed exec.
  kStopped,  ///< By signal `status`.
  kContinued,
  kEnded,        ///< With wait status `status`; `usage` of the payload's own process.
  kTerminal,     ///< Beside it, the terminal's two ends, master first.
  kListener,     ///< Beside it, the listener of the payload's filter.
  kNeedMaps,     ///< The helper has unshared, and waits for maps that the launcher writes.
  kNeedTime,     ///< Privileged: init waits for the offsets of its time namespace.
  kHandedOver,   ///< Beside it, the user and the network namespace.
  kWaits,        ///< Init is there, and waits to hear that it may go on.
  kWhoseLink,    ///< Beside it, a symbolic link. Init waits to hear whether it is root's.
  kExecuted,     ///< By a further command's keeper: `process` has passed exec, and is `pid` inside.
  kKeeperEnded,  ///< The keeper of `process` has ended, with wait status `status`.
  kConnected,    ///< Beside it, the socket that kConnect number `process` asked for.
  // From the launcher:
  kGo,         ///< What was waited for is written; `status` 1: the link is root's.
  kNetworkUp,  ///< The network is attached.
  kSignal,   ///< Send signal `status` to the process group `pid`, 0: the payload's. `error` 1: not
             ///< to the group, to its leader.
  kExec,     ///< Start `process`: beside it an image, the launcher's /proc, and 0, 1 and 2 or none.
  kConnect,  ///< A socket to port `status` of 127.0.0.1, or with 0 to the socket at path `subject`.
};

/// More about a failure than its errno can say.
enum class Detail : std::uint32_t {
  kNone,
  kReadBack,             ///< The kernel says something else than what was set; `subject` says what.
  kMountApiUnavailable,  ///< The very first mount of the modern back end was refused.
  kNotFound,             ///< exec: no candidate exists.
  kInterpreterMissing,   ///< exec: the script's `subject` does not exist in the sandbox.
  kLoaderMissing,        ///< exec: the program's dynamic loader `subject` does not exist there.
  kNoexecMount,          ///< exec: it lies on a mount without exec.
  kNotExecutable,        ///< exec: its mode has no x bit.
  kIsDirectory,          ///< exec: it is a directory.
  kNoFormat,             ///< exec: `subject` is no program of this machine and has no #! line.
  kForeignIds,           ///< The user namespace that is joined calls the session `subject`.
  kUnmappedIds,          ///< The user namespace that is joined has no `subject`, the session's id.
  kUpperUnusable,  ///< The kernel cannot work in `subject` and would make the overlay read-only.
  kOtherLink,      ///< A link that is there says `subject`.
  kPlantedLink,    ///< `subject`, a symbolic link that a command can have made, stood in the way.
};

struct Message {
  MessageKind kind = MessageKind::kFailed;
  std::int32_t step = -1;
  std::int32_t error = 0;
  Detail detail = Detail::kNone;
  std::int32_t pid = 0;
  std::int32_t status = 0;
  std::uint32_t process = 0;    ///< 0: the plan's own command; others are the launcher's numbers.
  std::uint32_t proc_mode = 0;  ///< ProcMode of the last kMountProc.
  std::int64_t user_us = 0;
  std::int64_t system_us = 0;
  std::int64_t max_rss_kib = 0;
  std::int64_t read_blocks = 0;
  std::int64_t written_blocks = 0;
  char subject[256] = {};
};

}  // namespace belljar::launcher
