// The Policy: what may run and with what, as one value that knows no kernel.
//
// Text becomes a Policy in policy/load.hpp. Every effective value remembers the line that set it
// (`where`), so that each step of a plan and each refusal can name it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace belljar::policy {

/// What to do when this host cannot enforce a control. There is no third way: a control that is
/// accepted and not enforced is the worst fault that a sandbox can have.
enum class Enforce {
  kRequire,  ///< Refuse the launch.
  kPrefer,   ///< Launch without it and list it under `degraded` in the record.
};

/// A place in a policy's text. `line` and `column` count from 1 (columns in bytes); 0 when the
/// value did not come from a file, as with a command-line option, whose text is then `file`.
struct Location {
  std::string file;
  int line = 0;
  int column = 0;

  /// "agent.json:14:9", or just "--set identity.uid=5" for a value without a line.
  [[nodiscard]] std::string text() const;
  bool operator==(const Location&) const = default;
};

/// A user or group id outside the sandbox.
struct Id {
  enum class From {
    kCaller,  ///< The caller's own; 65534 when the caller is uid 0, which never maps itself.
    kPool,    ///< One that the launch service chooses; `belljar run` refuses it.
    kNumber,  ///< `number`, which needs CAP_SETUID and CAP_SETGID unless it is the caller's own.
  };
  From from = From::kCaller;
  std::uint32_t number = 0;
  bool operator==(const Id&) const = default;
};

struct Identity {
  Id uid;
  Id gid;
  std::optional<std::uint32_t> inside_uid;  ///< Absent: the same number as outside.
  std::optional<std::uint32_t> inside_gid;
  std::optional<std::uint64_t> ids;     ///< So many more exist inside, from 0; absent: none.
  std::vector<std::uint32_t> groups;    ///< Supplementary groups, outside numbers. Empty: none.
  std::optional<std::string> hostname;  ///< Absent: the host's name is seen.
  std::uint32_t umask = 022;
  Enforce enforce = Enforce::kRequire;  ///< Of `groups`: only a privileged caller can drop them.
};

/// One of a few words, or the path of a namespace to join: then `mode` is kJoin.
template <class Mode>
struct OrPath {
  Mode mode{};
  std::string path;
  bool operator==(const OrPath&) const = default;
  bool operator==(Mode other) const { return mode == other; }
};

enum class NamespaceMode { kNew, kShared, kJoin };
using Namespace = OrPath<NamespaceMode>;

/// What the clocks of an own time namespace show, relative to the host's.
struct TimeOffsets {
  std::optional<std::chrono::milliseconds> monotonic;
  std::optional<std::chrono::milliseconds> boottime;
};

struct Namespaces {
  Namespace user;
  Namespace mount;
  Namespace pid;
  Namespace ipc;
  Namespace uts;
  Namespace cgroup;
  Namespace time{NamespaceMode::kShared, {}};
  TimeOffsets time_offsets;  ///< Only with a new `time`.
  bool nested_user = false;  ///< May the payload create user namespaces of its own?
};

enum class RootKind {
  kEmpty,  ///< A read-only tmpfs that holds the mounts and nothing else.
  kHost,   ///< The same, with each top-level directory of the host bound read-only (see `hide`).
};

enum class MountType { kBind, kTmpfs, kProc, kDev, kFile, kDir, kSymlink, kOverlay, kMqueue };
enum class ProcSubset { kAll, kPid };
enum class HidePid { kOff, kNoAccess, kInvisible, kPtraceable };

/// What is at one target path. Which members mean something depends on `type`; the parser refuses
/// the others.
struct Mount {
  MountType type = MountType::kBind;
  std::string source;                   ///< bind: a host path. symlink: what the link says.
  std::string content;                  ///< file: its bytes.
  std::vector<std::string> lower;       ///< overlay: host directories, the lowest first.
  std::string upper;                    ///< overlay: takes what is written; empty: memory does.
  std::string work;                     ///< overlay: the kernel's own, beside `upper`.
  std::optional<std::uint64_t> size;    ///< tmpfs, temporary overlay, dev's shm: bytes.
  std::optional<std::uint64_t> inodes;  ///< The same: number of files.
  std::optional<std::uint32_t> mode;    ///< tmpfs, temporary overlay, dir, file: permission bits.
  ProcSubset subset = ProcSubset::kAll;
  HidePid hidepid = HidePid::kOff;
  bool readonly = false;  ///< bind: true unless the policy says otherwise.
  bool nosuid = true;
  bool nodev = true;
  bool noexec = false;    ///< dev: of its shm; the rest of it has none anyway.
  bool noatime = false;   ///< tmpfs, overlay: reading leaves no time.
  bool optional = false;  ///< bind: no error when the source does not exist.
  Enforce enforce =
      Enforce::kRequire;  ///< proc: kPrefer allows the weaker modes, none at all last.
};

/// Whose the files of the workspace are.
enum class IdMapping {
  kNone,   ///< As the host's owners and modes say.
  kOwner,  ///< Those of its owner are the command's inside, and what it makes is the owner's.
};

struct Workspace {
  std::string path;  ///< A host directory, bound at the same path; "." is the current directory.
  bool readonly = false;
  IdMapping idmap = IdMapping::kNone;
  Enforce enforce = Enforce::kRequire;  ///< Of `idmap`: kPrefer allows a plain bind.
};

enum class HomeKind {
  kNone,       ///< HOME is whatever `env` says.
  kWorkspace,  ///< HOME is the workspace.
  kPrivate,    ///< An empty tmpfs at the caller's own home path.
  kPath,       ///< HOME is `path`, which the mounts must provide.
};

struct Home {
  HomeKind kind = HomeKind::kNone;
  std::string path;
};

/// Names in `hide` that are computed when the plan is made.
inline constexpr std::string_view kHideWorkspace = "@workspace";  ///< Its top-level directory.
inline constexpr std::string_view kHideHome = "@home";            ///< The caller's home's one.

struct Filesystem {
  RootKind root = RootKind::kEmpty;
  std::map<std::string, std::string> hide;  ///< Top-level directories left out of `kHost` -> why.
  std::map<std::string, Mount> mounts;      ///< By target, absolute and normalised.
  std::map<std::string, std::string>
      mask;                 ///< Path whose content is hidden -> why. Nothing is created.
  bool toolchains = false;  ///< Show, read-only, what PATH names below the caller's home.
  std::optional<Workspace> workspace;
  Home home;
};

enum class NetworkMode { kNone, kShared, kPrivate, kJoin };

/// A range of addresses that a private network treats differently, and why.
struct Destination {
  std::vector<std::uint16_t> ports;  ///< TCP and UDP alike; empty: everything.
  std::string because;
};
/// By IPv4 address or range (policy/ipv4.hpp).
using Destinations = std::map<std::string, Destination>;

struct Network {
  OrPath<NetworkMode> mode;
  Enforce enforce = Enforce::kRequire;  ///< Of `private`: kPrefer allows `shared` in its place.
  Destinations allow;                   ///< Private ranges that are reached all the same.
  std::optional<Destinations> only;     ///< Of public addresses these alone; absent: all.
  Destinations deny;                    ///< Beats both.
  /// By "127.0.0.1:PORT" or the path of a socket, outside: the port inside that it leads to.
  std::map<std::string, std::uint16_t> publish;

  [[nodiscard]] bool has_rules() const { return !allow.empty() || only || !deny.empty(); }
};

/// What the kernel does with a system call.
struct SyscallAction {
  enum class Kind {
    kAllow,
    kLog,  ///< Allowed, and written to the kernel's log.
    kErrno,
    kKill,
  };  // From the least to the most strict.
  Kind kind = Kind::kAllow;
  int error = 0;           ///< kErrno: the number,
  std::string error_name;  ///< and the name that the policy used, "EPERM".
  bool operator==(const SyscallAction&) const = default;
};

enum class Compare { kEqual, kNotEqual, kLess, kLessOrEqual, kGreater, kGreaterOrEqual };

/// One comparison of one argument, on its low 32 bits when both `mask` and `value` fit in them: the
/// kernel ignores the upper half of an int argument, so a filter that looks at it can be walked
/// round (CVE-2019-10063).
struct ArgumentTest {
  unsigned argument = 0;  ///< 0 to 5.
  Compare compare = Compare::kEqual;
  std::optional<std::uint64_t> mask;  ///< Only with kEqual and kNotEqual: of (argument & mask).
  std::uint64_t value = 0;
};

/// The verdict on one system call: `action` when `when` is empty or any of its alternatives holds
/// (an alternative holds when all its tests do), otherwise `otherwise`.
struct SyscallRule {
  SyscallAction action;
  std::vector<std::vector<ArgumentTest>> when;
  SyscallAction otherwise;
};

enum class SyscallBase { kNone, kAgent1, kStrict1 };

enum class SyscallMode {
  kEnforce,
  kLog,  ///< What would be refused is allowed and logged: for making a policy, not for confining.
};

struct Syscalls {
  SyscallMode mode = SyscallMode::kEnforce;
  SyscallBase base = SyscallBase::kAgent1;      ///< "none" has to be written out.
  std::optional<SyscallAction> default_action;  ///< Absent: the base's own; for `none`, allow.
  std::map<std::string, SyscallRule> rules;  ///< By system call; each replaces the base's verdict.
};

/// An rlimit, soft and hard alike. Values are in the kernel's units (bytes, seconds, counts).
struct Rlimit {
  bool unlimited = false;
  std::uint64_t value = 0;
};

struct Limits {
  std::optional<std::chrono::milliseconds> wall_time;
  std::optional<std::chrono::milliseconds> cpu_time;  ///< Of all processes together.
  std::optional<std::uint64_t> output;     ///< Bytes on standard output and error together.
  std::optional<std::uint64_t> disk;       ///< Bytes in writable directories of the host.
  std::optional<std::uint64_t> memory;     ///< Bytes of all processes together: a cgroup.
  std::optional<std::uint64_t> swap;       ///< Bytes beside `memory`; none when absent.
  std::optional<std::uint64_t> processes;  ///< The command and what it starts, threads too.
  std::optional<std::uint64_t> cpus;       ///< Thousandths of a processor.
  Enforce enforce = Enforce::kRequire;     ///< Of memory, swap, processes, cpus and cpu_time.
  std::map<std::string, Rlimit> rlimits;   ///< By lower-case name without RLIMIT_: "nofile".
};

struct Environment {
  std::vector<std::string> pass;  ///< Names or globs (`*`, `?`) taken from the caller.
  std::vector<std::string> deny;  ///< Globs; beats `pass`, never `set`.
  std::map<std::string, std::string> set;
};

enum class Stdio { kInherit, kNull };

/// A pseudo-terminal of the sandbox's own, relayed to the caller.
enum class Tty {
  kNone,  ///< The caller's descriptors are inherited as they are; no controlling terminal.
  kAuto,  ///< For those of stdin, stdout and stderr that are a terminal.
  kNew,   ///< For all three.
};

struct Io {
  Stdio standard_input = Stdio::kInherit;
  Stdio standard_output = Stdio::kInherit;
  Stdio standard_error = Stdio::kInherit;
  Tty tty = Tty::kNone;
  std::vector<int>
      keep;  ///< Descriptors (3 and up) that the payload inherits; all others are closed.
};

enum class LandlockScope { kAbstractUnixSocket, kSignal };

/// The domain that all processes of the sandbox share, from before the first of them: a second wall
/// behind mounts and namespaces, taken only for what is asked for here.
struct Landlock {
  bool filesystem = false;  ///< Rules made from the mounts: what they do not show is refused.
  std::vector<LandlockScope>
      scopes;  ///< Kinds of objects of which only the sandbox's own are reached.
  std::optional<std::vector<std::uint16_t>> bind_tcp;     ///< Only these ports; absent: any.
  std::optional<std::vector<std::uint16_t>> connect_tcp;  ///< Likewise.
  Enforce enforce = Enforce::kRequire;

  [[nodiscard]] bool asks_for_something() const {
    return filesystem || !scopes.empty() || bind_tcp || connect_tcp;
  }
};

/// What a test of a policy must come to.
struct Expectation {
  enum class Kind { kDenied, kAllowed, kEnds };
  Kind kind = Kind::kEnds;
  std::optional<std::uint32_t> exit_code;  ///< kEnds: of the command,
  std::optional<std::string> cause;        ///< and the record's word for why it ended.
};

/// Something that must hold under the policy: `belljar test` does it in a sandbox.
struct PolicyTest {
  std::string attempt;           ///< "write /usr/x", "connect 192.0.2.1:80". Empty: `run` is run.
  std::vector<std::string> run;  ///< A command.
  Expectation expect;
};

struct Policy {
  std::string name;  ///< As written, or the name of the file or preset.
  std::string description;
  Identity identity;
  Namespaces namespaces;
  Filesystem filesystem;
  Network network;
  Syscalls syscalls;
  Landlock landlock;
  std::vector<std::string> capabilities;  ///< Kernel names, "CAP_NET_BIND_SERVICE".
  Limits limits;
  Environment env;
  Io io;
  std::vector<PolicyTest> tests;

  std::string canonical;  ///< The effective policy as JSON, keys sorted, without white space.
  std::string digest;     ///< "sha256:" and 64 hex digits over `canonical`.
  std::map<std::string, Location> origins;  ///< Which line set each value, by path.

  /// The place of the value at `path`, or of the nearest object that holds it. Without a file when
  /// no text set it.
  [[nodiscard]] Location origin(std::string_view path) const;

  /// The location of the value at `path`, or of the nearest object that holds it:
  /// "agent.json:14:9". Empty when no text set it, which means that the value is a default of ours.
  [[nodiscard]] std::string where(std::string_view path) const;
};

/// `filesystem.mounts["/work"]`: how a member of a map is written in paths, messages and `--set`.
[[nodiscard]] std::string member_path(std::string_view map_path, std::string_view key);

}  // namespace belljar::policy
