// The table of fields: every key that a policy may hold, where its value goes, how it is written,
// and what it means. The decoder walks it, and so does the JSON Schema, so the two cannot disagree.
#pragma once

#include <string_view>
#include <tuple>

#include "policy/forms.hpp"
#include "policy/policy.hpp"

namespace belljar::policy {

/// Which kinds of an object a field belongs to, one bit a kind. Objects of one kind only use
/// kAlways.
using Cases = unsigned;
inline constexpr Cases kAlways = ~0U;
inline constexpr Cases kNever = 0;

/// A key whose value is decoded into `member`.
template <class Owner, class Value, class Form>
struct Field {
  std::string_view key;
  Value Owner::*member;
  Form form;
  std::string_view description;
  std::string_view example;
  Cases applies = kAlways;
  Cases required = kNever;
};

/// A key of the design that this version would not enforce, and refuses.
struct Reserved {
  std::string_view key;
  std::string_view description;
};

/// A key that is dealt with before layers are merged (policy/layer_stack.cpp).
struct OfLayer {
  std::string_view key;
  std::string_view description;
  std::string_view example;
};

template <class Owner, class Value, class Form>
constexpr Field<Owner, Value, Form> field(std::string_view key, Value Owner::*member, Form form,
                                          std::string_view description, std::string_view example,
                                          Cases applies = kAlways, Cases required = kNever) {
  return {key, member, form, description, example, applies, required};
}

template <class T>
struct Fields;

template <>
struct Fields<Identity> {
  static constexpr std::string_view kExample = R"({"uid": "caller", "umask": "022"})";
  static constexpr auto kTable = std::tuple{
      field("uid", &Identity::uid, IdForm{}, "User id outside the sandbox.", R"("caller")"),
      field("gid", &Identity::gid, IdForm{}, "Group id outside the sandbox.", R"("caller")"),
      field("inside_uid", &Identity::inside_uid, IdNumber{},
            "User id inside; the same number as outside when absent.", "1000"),
      field("inside_gid", &Identity::inside_gid, IdNumber{},
            "Group id inside; the same number as outside when absent.", "1000"),
      field("ids", &Identity::ids, IdCount{},
            "So many ids exist inside, from 0, beside the own one: those that /etc/subuid and "
            "/etc/subgid give to it. The own one alone when absent.",
            "65536"),
      field("groups", &Identity::groups, SetOf<IdNumber>{},
            "Supplementary groups, outside numbers; none when empty.", "[100]"),
      field("hostname", &Identity::hostname, Hostname{}, "Host name inside; needs a new uts.",
            R"("sandbox")"),
      field("umask", &Identity::umask, Umask{}, "File mode creation mask.", R"("022")"),
      field("enforce", &Identity::enforce, OneOf<Enforce>{},
            "Whether groups that cannot be dropped refuse the launch.", R"("require")")};
};

template <>
struct Fields<TimeOffsets> {
  static constexpr std::string_view kExample = R"({"boottime": "-30s"})";
  static constexpr auto kTable =
      std::tuple{field("monotonic", &TimeOffsets::monotonic, SignedDuration{},
                       "How far CLOCK_MONOTONIC is ahead of the host's.", R"("1h")"),
                 field("boottime", &TimeOffsets::boottime, SignedDuration{},
                       "How far CLOCK_BOOTTIME, and with it the uptime, is ahead of the host's.",
                       R"("-30s")")};
};

template <>
struct Fields<Namespaces> {
  static constexpr std::string_view kExample = R"({"cgroup": "shared"})";
  using Mode = OneOfOrPath<NamespaceMode>;
  static constexpr auto kTable = std::tuple{
      field("user", &Namespaces::user, Mode{}, "User namespace.", R"("new")"),
      field("mount", &Namespaces::mount, Mode{}, "Mount namespace.", R"("new")"),
      field("pid", &Namespaces::pid, Mode{}, "Process namespace.", R"("new")"),
      field("ipc", &Namespaces::ipc, Mode{},
            "System V IPC and POSIX queues. As each of these, also the path of one to join.",
            R"("/proc/4711/ns/ipc")"),
      field("uts", &Namespaces::uts, Mode{}, "Host name.", R"("new")"),
      field("cgroup", &Namespaces::cgroup, Mode{}, "View of the cgroup tree.", R"("new")"),
      field("time", &Namespaces::time, Mode{}, "Boot and monotonic clocks; shared when absent.",
            R"("new")"),
      field("time_offsets", &Namespaces::time_offsets, Section<TimeOffsets>{},
            "Offsets of the clocks; needs a new time.", Fields<TimeOffsets>::kExample),
      field("nested_user", &Namespaces::nested_user, Boolean{},
            "May programs inside create user namespaces of their own?", "false")};
};

constexpr Cases mount_case(MountType type) { return 1U << static_cast<unsigned>(type); }

template <>
struct Fields<Mount> {
  static constexpr std::string_view kExample = R"({"type": "tmpfs", "size": "64MiB"})";
  static constexpr Cases kBind = mount_case(MountType::kBind);
  static constexpr Cases kTmpfs = mount_case(MountType::kTmpfs);
  static constexpr Cases kProc = mount_case(MountType::kProc);
  static constexpr Cases kDev = mount_case(MountType::kDev);
  static constexpr Cases kFile = mount_case(MountType::kFile);
  static constexpr Cases kDir = mount_case(MountType::kDir);
  static constexpr Cases kSymlink = mount_case(MountType::kSymlink);
  static constexpr Cases kOverlay = mount_case(MountType::kOverlay);
  static constexpr Cases kMqueue = mount_case(MountType::kMqueue);
  /// The kernel's own views: their flags are always on, and may be written out.
  static constexpr Cases kViews = kProc | kMqueue;
  static constexpr auto kTable = std::tuple{
      field("type", &Mount::type, OneOf<MountType>{}, "What is mounted or created.", R"("bind")",
            kAlways, kAlways),
      field("source", &Mount::source, MountSource{},
            "bind: the host's path. symlink: what the link says.", R"("/usr")", kBind | kSymlink,
            kBind | kSymlink),
      field("content", &Mount::content, Text{}, "The file's content.", R"("hello\n")", kFile,
            kFile),
      field("lower", &Mount::lower, LowerDirectories{},
            "overlay: directories of the host that are seen, the lowest first.",
            R"(["/srv/base", "/srv/site"])", kOverlay, kOverlay),
      field("upper", &Mount::upper, HostPath{},
            "overlay: the host's directory that takes what is written; without one it is memory, "
            "which goes with the sandbox.",
            R"("/srv/state/upper")", kOverlay),
      field("work", &Mount::work, HostPath{},
            "overlay: an empty directory for the kernel, on the file system of upper.",
            R"("/srv/state/work")", kOverlay),
      field("size", &Mount::size, MountSize{}, "Most bytes that it may hold.", R"("64MiB")",
            kTmpfs | kDev | kOverlay),
      field("inodes", &Mount::inodes, InodeCount{}, "Most files that it may hold.", "10000",
            kTmpfs | kDev | kOverlay),
      field("mode", &Mount::mode, FileMode{}, "Permission bits.", R"("1777")",
            kTmpfs | kFile | kDir | kOverlay),
      field("subset", &Mount::subset, OneOf<ProcSubset>{}, "Processes only, or all of /proc.",
            R"("pid")", kProc),
      field("hidepid", &Mount::hidepid, OneOf<HidePid>{}, "Who sees the processes of others.",
            R"("invisible")", kProc),
      field("readonly", &Mount::readonly, Boolean{}, "No writing. A bind's default is true.",
            "true", kBind | kTmpfs | kProc | kOverlay),
      field("nosuid", &Mount::nosuid, Boolean{},
            "No set-user-id programs. Only of a bind or tmpfs can it be false.", "true",
            kBind | kTmpfs | kOverlay | kDev | kViews),
      field("nodev", &Mount::nodev, Boolean{}, "No device files. Only of a bind can it be false.",
            "true", kBind | kTmpfs | kOverlay | kViews),
      field("noexec", &Mount::noexec, Boolean{}, "No programs. dev: in its shm neither.", "true",
            kBind | kTmpfs | kOverlay | kDev | kViews),
      field("noatime", &Mount::noatime, Boolean{}, "Reading leaves no time of access.", "true",
            kTmpfs | kOverlay),
      field("optional", &Mount::optional, Boolean{}, "No error when the source does not exist.",
            "true", kBind),
      field("enforce", &Mount::enforce, OneOf<Enforce>{},
            "Whether a weaker /proc may stand in when the kernel refuses this one.", R"("require")",
            kProc)};
};

template <>
struct Fields<Workspace> {
  static constexpr std::string_view kExample = R"({"path": "."})";
  static constexpr auto kTable = std::tuple{
      field("path", &Workspace::path, WorkspacePath{},
            "A host directory, seen at the same path; \".\" is the current one.", R"(".")", kAlways,
            kAlways),
      field("readonly", &Workspace::readonly, Boolean{}, "No writing.", "false"),
      field("idmap", &Workspace::idmap, OneOf<IdMapping>{},
            "\"owner\": what belongs to its owner is the command's inside, and what the "
            "command makes belongs to its owner. Needs root on the host.",
            R"("owner")"),
      field("enforce", &Workspace::enforce, OneOf<Enforce>{},
            "Whether a workspace that cannot be idmapped refuses the launch.", R"("prefer")")};
};

template <>
struct Fields<Filesystem> {
  static constexpr std::string_view kExample = R"({"root": "host", "home": "private"})";
  static constexpr auto kTable = std::tuple{
      field("root", &Filesystem::root, OneOf<RootKind>{},
            "The host's directories, read-only, or nothing but the mounts.", R"("empty")"),
      field("hide", &Filesystem::hide, MapOf<HiddenDirectory, Reason>{},
            "Top-level directories of the host that are not there, and why.",
            R"({"/srv": "data of services"})"),
      field("mounts", &Filesystem::mounts, MapOf<MountTarget, Section<Mount>>{},
            "What is where, by target.", R"({"/tmp": {"type": "tmpfs", "size": "64MiB"}})"),
      field("mask", &Filesystem::mask, MapOf<MaskTarget, Reason>{},
            "Paths whose content cannot be seen, and why.", R"({"/etc/shadow": "hashes"})"),
      field("toolchains", &Filesystem::toolchains, Boolean{},
            "Show, read-only, what PATH names below the caller's home.", "true"),
      field("workspace", &Filesystem::workspace, Section<Workspace>{},
            "The directory that the work is about.", R"({"path": "."})"),
      field("home", &Filesystem::home, HomeForm{}, "Where HOME is.", R"("private")")};
};

template <>
struct Fields<Destination> {
  static constexpr std::string_view kExample = R"({"ports": [443], "because": "the registry"})";
  static constexpr auto kTable =
      std::tuple{field("ports", &Destination::ports, SetOf<EgressPort>{},
                       "TCP and UDP ports; everything when absent.", R"([443])"),
                 field("because", &Destination::because, Reason{},
                       "Why, for people and the record.", R"("the registry")", kAlways, kAlways)};
};

template <>
struct Fields<Network> {
  static constexpr std::string_view kExample = R"({"mode": "none"})";
  static constexpr auto kTable = std::tuple{
      field("mode", &Network::mode, OneOfOrPath<NetworkMode>{},
            "Which network is seen; the path of a network namespace to join it.", R"("none")"),
      field("enforce", &Network::enforce, OneOf<Enforce>{},
            "Whether the shared network may stand in for a private one that cannot be had.",
            R"("require")"),
      field("allow", &Network::allow, MapOf<PrivateRange, Section<Destination>>{},
            "Private ranges that a private network reaches all the same.",
            R"({"10.1.2.0/24": {"ports": [5432], "because": "the test database"}})"),
      field("only", &Network::only, MapOf<AddressRange, Section<Destination>>{},
            "Of public addresses a private network reaches these alone; all when absent.",
            R"({"192.0.2.1": {"ports": [443], "because": "the registry"}})"),
      field("deny", &Network::deny, MapOf<AddressRange, Section<Destination>>{},
            "What a private network never reaches, whatever else is said.",
            R"({"198.51.100.0/24": {"because": "the payroll"}})"),
      field("publish", &Network::publish, MapOf<OutsideAddress, EgressPort>{},
            "Loopback ports and sockets outside, each with the port inside that it leads to.",
            R"({"127.0.0.1:8080": 80, "/run/app.sock": 8000})"),
      Reserved{"dns", "Name servers."}};
};

template <>
struct Fields<SyscallRule> {
  static constexpr std::string_view kExample =
      R"({"action": "allow", "when": [{"arg0": {"==": "AF_UNIX"}}], "otherwise": "EPERM"})";
  static constexpr auto kTable = std::tuple{
      field("action", &SyscallRule::action, ActionForm{}, "The verdict.", R"("EPERM")", kAlways,
            kAlways),
      field("when", &SyscallRule::when, Alternatives{},
            "The verdict applies when any of these holds; in each, all comparisons must.",
            R"([{"arg0": {"==": "AF_UNIX"}}])"),
      field("otherwise", &SyscallRule::otherwise, ActionForm{}, "The verdict when none holds.",
            R"("EPERM")")};
};

template <>
struct Fields<Syscalls> {
  static constexpr std::string_view kExample = R"({"base": "agent@1"})";
  static constexpr auto kTable = std::tuple{
      field("base", &Syscalls::base, OneOf<SyscallBase>{}, "A built-in set of verdicts.",
            R"("agent@1")"),
      field("mode", &Syscalls::mode, OneOf<SyscallMode>{},
            "\"log\" refuses nothing: what would be refused is allowed and logged.",
            R"("enforce")"),
      field("default", &Syscalls::default_action, ActionForm{},
            "The verdict on calls without a rule; the base's own when absent.", R"("EPERM")"),
      field("rules", &Syscalls::rules, MapOf<SyscallName, RuleForm>{},
            "Verdicts by system call; each replaces the base's.", R"({"ptrace": "EPERM"})")};
};

template <>
struct Fields<Landlock> {
  static constexpr std::string_view kExample =
      R"({"scopes": ["abstract_unix_socket", "signal"], "enforce": "prefer"})";
  static constexpr auto kTable = std::tuple{
      field("filesystem", &Landlock::filesystem, Boolean{},
            "Refuse what the mounts do not show, by rules made from them.", "true"),
      field("scopes", &Landlock::scopes, SetOf<OneOf<LandlockScope>>{},
            "Kinds of objects of which only the sandbox's own can be reached.",
            R"(["abstract_unix_socket", "signal"])"),
      field("bind_tcp", &Landlock::bind_tcp, SetOf<PortNumber>{},
            "TCP ports that can be bound, 0 for any free one; all when absent.", "[8080]"),
      field("connect_tcp", &Landlock::connect_tcp, SetOf<PortNumber>{},
            "TCP ports that can be connected to; all when absent. Not UDP.", "[443]"),
      field("enforce", &Landlock::enforce, OneOf<Enforce>{},
            "Whether a kernel that lacks some of it refuses the launch.", R"("prefer")")};
};

template <>
struct Fields<Limits> {
  static constexpr std::string_view kExample = R"({"wall_time": "30s"})";
  static constexpr auto kTable = std::tuple{
      field("wall_time", &Limits::wall_time, TimeLimit{}, "Longest time from start to end.",
            R"("30s")"),
      field("cpu_time", &Limits::cpu_time, TimeLimit{},
            "Most processor time of all processes together. Counted by a cgroup; with `enforce` "
            "\"prefer\" and without one by looking at the processes.",
            R"("30s")"),
      field("rlimits", &Limits::rlimits, Rlimits{}, "Limits of each process, soft and hard.",
            R"({"nofile": 256, "as": "2GiB", "cpu": "60s"})"),
      field("output", &Limits::output, SizeAbove<1>{},
            "Most bytes on standard output and standard error together. The command then writes "
            "into pipes, and is ended when it writes more.",
            R"("10MiB")"),
      field(
          "disk", &Limits::disk, SizeAbove<4096>{},
          "Most bytes in the workspace, in writable binds and in the upper directories of overlays "
          "together, whoever put them there. "
          "Measured once a second, so more can be written for a moment; no single file grows "
          "above it. What cannot be measured counts as too much; what is deleted and still open "
          "is not seen.",
          R"("1GiB")"),
      field("memory", &Limits::memory, SizeAbove<(std::uint64_t{4} << 20)>{},
            "Most memory of all processes together, their files' cache included. Needs a cgroup.",
            R"("512MiB")"),
      field("swap", &Limits::swap, SizeAbove<0>{},
            "Most swap beside `memory`; none when absent. Needs a cgroup.", R"("0B")"),
      field("processes", &Limits::processes, ProcessCount{},
            "Most processes and threads at a time. Needs a cgroup.", "64"),
      field("cpus", &Limits::cpus, Processors{}, "Most processors' worth of time. Needs a cgroup.",
            "0.5"),
      field("enforce", &Limits::enforce, OneOf<Enforce>{},
            "Whether memory, swap, processes, cpus and cpu_time refuse the launch where no cgroup "
            "can be made.",
            R"("require")")};
};

template <>
struct Fields<Environment> {
  static constexpr std::string_view kExample = R"({"pass": ["PATH"], "set": {"LANG": "C"}})";
  static constexpr auto kTable =
      std::tuple{field("pass", &Environment::pass, ListOf<EnvironmentGlob>{},
                       "Names or patterns taken from the caller.", R"(["PATH", "LC_*"])"),
                 field("deny", &Environment::deny, ListOf<EnvironmentGlob>{},
                       "Patterns that are not taken, whatever `pass` says.", R"(["*TOKEN*"])"),
                 field("set", &Environment::set, MapOf<EnvironmentName, Text>{},
                       "Variables with values.", R"({"LANG": "C.UTF-8"})")};
};

template <>
struct Fields<Io> {
  static constexpr std::string_view kExample = R"({"stdin": "null"})";
  static constexpr auto kTable = std::tuple{
      field("stdin", &Io::standard_input, OneOf<Stdio>{}, "Standard input.", R"("inherit")"),
      field("stdout", &Io::standard_output, OneOf<Stdio>{}, "Standard output.", R"("inherit")"),
      field("stderr", &Io::standard_error, OneOf<Stdio>{}, "Standard error.", R"("inherit")"),
      field("keep", &Io::keep, SetOf<DescriptorNumber>{},
            "Descriptors that stay open; all others are closed.", "[3]"),
      field("tty", &Io::tty, OneOf<Tty>{},
            "A terminal of its own, for the streams that are one (auto) or for all (new).",
            R"("auto")")};
};

template <>
struct Fields<Expectation> {
  static constexpr std::string_view kExample = R"({"exit": 0})";
  static constexpr auto kTable = std::tuple{
      field("exit", &Expectation::exit_code, ExitCode{}, "The command's exit status.", "0"),
      field("cause", &Expectation::cause, CauseForm{}, "Why the run must end.", R"("wall_time")")};
};

template <>
struct Fields<PolicyTest> {
  static constexpr std::string_view kExample = R"({"try": "write /usr/x", "expect": "denied"})";
  static constexpr auto kTable = std::tuple{
      field("try", &PolicyTest::attempt, AttemptForm{},
            "Something that is tried inside, and harmless.", R"("connect 192.0.2.1:80")"),
      field("run", &PolicyTest::run, ListOf<Text>{}, "A command that is run.",
            R"(["python3", "check.py"])"),
      field("expect", &PolicyTest::expect, ExpectationForm{},
            "\"denied\" or \"allowed\" for `try`; how it ends for `run`.", R"("denied")", kAlways,
            kAlways)};
};

constexpr Cases variable_case(VariableType type) { return 1U << static_cast<unsigned>(type); }

template <>
struct Fields<Variable> {
  static constexpr std::string_view kExample = R"({"type": "path", "default": "/srv/work"})";
  static constexpr Cases kEnum = variable_case(VariableType::kEnum);
  static constexpr Cases kMeasured = variable_case(VariableType::kSize) |
                                     variable_case(VariableType::kDuration) |
                                     variable_case(VariableType::kInt);
  static constexpr auto kTable = std::tuple{
      field("type", &Variable::type, OneOf<VariableType>{}, "What its value is.", R"("path")",
            kAlways, kAlways),
      field("default", &Variable::default_value, VariableText{}, "The value when --var gives none.",
            R"("/srv/work")"),
      field("values", &Variable::values, SetOf<Text>{}, "enum: what it can be.",
            R"(["debug", "release"])", kEnum, kEnum),
      field("min", &Variable::min, VariableText{}, "The smallest value.", R"("1MiB")", kMeasured),
      field("max", &Variable::max, VariableText{}, "The largest value.", R"("1GiB")", kMeasured),
      field("description", &Variable::description, Text{}, "What it is for.",
            R"("Where the sources are.")")};
};

template <>
struct Fields<Policy> {
  static constexpr std::string_view kExample = R"({"version": 1})";
  static constexpr auto kTable = std::tuple{
      OfLayer{"$schema", "Names the schema, for editors.", R"("policy-1.schema.json")"},
      OfLayer{"version", "The version of this format.", "1"},
      OfLayer{"extends",
              "Presets, and files beside this one, that this policy builds on, lowest first.",
              R"(["builtin:agent@1", "base.json"])"},
      OfLayer{"vars", "Typed variables, used as ${name} in strings; --var gives them values.",
              R"({"work": {"type": "path", "default": "/srv/work"}})"},
      OfLayer{"final", "Paths that layers above this text may only tighten.",
              R"(["network", "limits.rlimits.nproc"])"},
      field("name", &Policy::name, Text{}, "A name for records and messages.", R"("builds")"),
      field("description", &Policy::description, Text{}, "What the policy is for.",
            R"("Compilers, without a network.")"),
      field("identity", &Policy::identity, Section<Identity>{}, "Who the programs run as.",
            Fields<Identity>::kExample),
      field("namespaces", &Policy::namespaces, Section<Namespaces>{},
            "Which views of the system are separate.", Fields<Namespaces>::kExample),
      field("filesystem", &Policy::filesystem, Section<Filesystem>{}, "What files there are.",
            Fields<Filesystem>::kExample),
      field("network", &Policy::network, Section<Network>{}, "What can be reached.",
            Fields<Network>::kExample),
      field("syscalls", &Policy::syscalls, Section<Syscalls>{}, "Which system calls work.",
            Fields<Syscalls>::kExample),
      field("landlock", &Policy::landlock, Section<Landlock>{},
            "A second wall that all of the sandbox is behind.", Fields<Landlock>::kExample),
      field("capabilities", &Policy::capabilities, SetOf<CapabilityName>{},
            "Capabilities inside; none by default, for root too.", R"(["NET_BIND_SERVICE"])"),
      field("limits", &Policy::limits, Section<Limits>{}, "How much may be used.",
            Fields<Limits>::kExample),
      field("env", &Policy::env, Section<Environment>{}, "Environment variables; none by default.",
            Fields<Environment>::kExample),
      field("io", &Policy::io, Section<Io>{}, "Standard streams and descriptors.",
            Fields<Io>::kExample),
      field("tests", &Policy::tests, ListOf<Section<PolicyTest>>{},
            "What must hold; `belljar test` tries it.",
            R"([{"try": "write /usr/x", "expect": "denied"}])"),
      Reserved{"kind", "What sort of policy this is."},
      Reserved{"report", "What the record holds."}};
};

}  // namespace belljar::policy
