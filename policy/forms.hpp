// Forms: how the value of one field is written in JSON. Each reads a node into a value, or reports
// why it cannot and returns false.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "policy/json_tree.hpp"
#include "policy/policy.hpp"
#include "policy/reader.hpp"
#include "policy/variables.hpp"

namespace belljar::policy {

/// What a name of the design gets that this version would not enforce: accepting it silently would
/// be worse than any error.
inline constexpr std::string_view kNotEnforced =
    "not enforced by this version of belljar, so it is refused; remove it";

// Enumerations: one list of names each.

template <class E>
struct Choice {
  std::string_view name;
  E value{};
};

template <class E>
inline constexpr std::array<Choice<E>, 0> kChoices{};

template <>
inline constexpr std::array<Choice<Enforce>, 2> kChoices<Enforce>{
    {{"require", Enforce::kRequire}, {"prefer", Enforce::kPrefer}}};
template <>
inline constexpr std::array<Choice<NamespaceMode>, 2> kChoices<NamespaceMode>{
    {{"new", NamespaceMode::kNew}, {"shared", NamespaceMode::kShared}}};
template <>
inline constexpr std::array<Choice<RootKind>, 2> kChoices<RootKind>{
    {{"host", RootKind::kHost}, {"empty", RootKind::kEmpty}}};
template <>
inline constexpr std::array<Choice<MountType>, 9> kChoices<MountType>{
    {{"bind", MountType::kBind},
     {"tmpfs", MountType::kTmpfs},
     {"proc", MountType::kProc},
     {"dev", MountType::kDev},
     {"file", MountType::kFile},
     {"dir", MountType::kDir},
     {"symlink", MountType::kSymlink},
     {"overlay", MountType::kOverlay},
     {"mqueue", MountType::kMqueue}}};
template <>
inline constexpr std::array<Choice<ProcSubset>, 2> kChoices<ProcSubset>{
    {{"all", ProcSubset::kAll}, {"pid", ProcSubset::kPid}}};
template <>
inline constexpr std::array<Choice<IdMapping>, 2> kChoices<IdMapping>{
    {{"none", IdMapping::kNone}, {"owner", IdMapping::kOwner}}};
template <>
inline constexpr std::array<Choice<HidePid>, 4> kChoices<HidePid>{
    {{"off", HidePid::kOff},
     {"noaccess", HidePid::kNoAccess},
     {"invisible", HidePid::kInvisible},
     {"ptraceable", HidePid::kPtraceable}}};
template <>
inline constexpr std::array<Choice<NetworkMode>, 3> kChoices<NetworkMode>{
    {{"none", NetworkMode::kNone},
     {"shared", NetworkMode::kShared},
     {"private", NetworkMode::kPrivate}}};
template <>
inline constexpr std::array<Choice<SyscallBase>, 3> kChoices<SyscallBase>{
    {{"none", SyscallBase::kNone},
     {"agent@1", SyscallBase::kAgent1},
     {"strict@1", SyscallBase::kStrict1}}};
template <>
inline constexpr std::array<Choice<SyscallMode>, 2> kChoices<SyscallMode>{
    {{"enforce", SyscallMode::kEnforce}, {"log", SyscallMode::kLog}}};
template <>
inline constexpr std::array<Choice<Stdio>, 2> kChoices<Stdio>{
    {{"inherit", Stdio::kInherit}, {"null", Stdio::kNull}}};
template <>
inline constexpr std::array<Choice<Tty>, 3> kChoices<Tty>{
    {{"none", Tty::kNone}, {"auto", Tty::kAuto}, {"new", Tty::kNew}}};

template <>
inline constexpr std::array<Choice<LandlockScope>, 2> kChoices<LandlockScope>{
    {{"abstract_unix_socket", LandlockScope::kAbstractUnixSocket},
     {"signal", LandlockScope::kSignal}}};

template <>
inline constexpr std::array<Choice<VariableType>, 6> kChoices<VariableType>{
    {{"path", VariableType::kPath},
     {"size", VariableType::kSize},
     {"duration", VariableType::kDuration},
     {"string", VariableType::kString},
     {"enum", VariableType::kEnum},
     {"int", VariableType::kInt}}};

/// `expected "new" or "shared", got the string "nwe"; did you mean "new"?`
/// `or_else` is what else can be written.
bool refuse_choice(Reader& reader, const Node& node, std::span<const std::string_view> names,
                   std::string_view or_else = {});

template <class E>
struct OneOf {
  static bool read(Reader& reader, const Node& node, E& out, std::string_view or_else = {}) {
    std::array<std::string_view, kChoices<E>.size()> names;
    std::size_t count = 0;
    for (const Choice<E>& choice : kChoices<E>) {
      if (node.kind == Node::Kind::kString && node.text == choice.name) {
        out = choice.value;
        return true;
      }
      names[count++] = choice.name;
    }
    return refuse_choice(reader, node, names, or_else);
  }
};

/// An absolute path; false when it is not one, which is not reported yet.
bool is_absolute_path(const Node& node);
bool read_absolute_path(Reader& reader, const Node& node, std::string& out);

/// A word, or the path of a namespace.
template <class E>
struct OneOfOrPath {
  static bool read(Reader& reader, const Node& node, OrPath<E>& out) {
    if (!is_absolute_path(node)) return OneOf<E>::read(reader, node, out.mode, "a path to join");
    out.mode = E::kJoin;
    return read_absolute_path(reader, node, out.path);
  }
};

// Scalars.

struct Text {
  static bool read(Reader& reader, const Node& node, std::string& out);
};
/// A value of a variable, which its type judges later: a string, or a whole number.
struct VariableText {
  static bool read(Reader& reader, const Node& node, std::string& out);
};
struct Boolean {
  static bool read(Reader& reader, const Node& node, bool& out);
};
/// "caller", "pool" or a number.
struct IdForm {
  static bool read(Reader& reader, const Node& node, Id& out);
};
struct IdNumber {
  static bool read(Reader& reader, const Node& node, std::uint32_t& out);
};
/// How many ids.
struct IdCount {
  static bool read(Reader& reader, const Node& node, std::uint64_t& out);
};
struct Hostname {
  static bool read(Reader& reader, const Node& node, std::string& out);
};
struct Umask {
  static bool read(Reader& reader, const Node& node, std::uint32_t& out);
};
struct FileMode {
  static bool read(Reader& reader, const Node& node, std::uint32_t& out);
};
/// A size above zero: the kernel takes 0 for "no limit".
struct MountSize {
  static bool read(Reader& reader, const Node& node, std::uint64_t& out);
};
struct InodeCount {
  static bool read(Reader& reader, const Node& node, std::uint64_t& out);
};
/// A size of at least `least` bytes: 0 never means "no limit", and too little lets nothing run.
bool read_size_above(Reader& reader, const Node& node, std::uint64_t least, std::uint64_t& out);
template <std::uint64_t least>
struct SizeAbove {
  static bool read(Reader& reader, const Node& node, std::uint64_t& out) {
    return read_size_above(reader, node, least, out);
  }
};
struct ProcessCount {
  static bool read(Reader& reader, const Node& node, std::uint64_t& out);
};
/// A number of processors such as 2 or 0.5, in thousandths.
struct Processors {
  static bool read(Reader& reader, const Node& node, std::uint64_t& out);
};
struct TimeLimit {
  static bool read(Reader& reader, const Node& node, std::chrono::milliseconds& out);
};
/// "1h", "-30s".
struct SignedDuration {
  static bool read(Reader& reader, const Node& node, std::chrono::milliseconds& out);
};
/// What a bind or a symlink points at. Which of both is known only when the mount is complete.
struct MountSource {
  static bool read(Reader& reader, const Node& node, std::string& out);
};
/// A directory of the host: an absolute path.
struct HostPath {
  static bool read(Reader& reader, const Node& node, std::string& out);
};
/// The directories below an overlay: at least one, the lowest first.
inline constexpr std::size_t kMostLowerDirectories = 64;
struct LowerDirectories {
  static bool read(Reader& reader, const Node& node, std::vector<std::string>& out);
};
/// An absolute path, or "." for the current directory.
struct WorkspacePath {
  static bool read(Reader& reader, const Node& node, std::string& out);
};
struct HomeForm {
  static bool read(Reader& reader, const Node& node, Home& out);
};
struct CapabilityName {
  static bool read(Reader& reader, const Node& node, std::string& out);
};
/// A name of an environment variable, where `*` and `?` match others.
struct EnvironmentGlob {
  static bool read(Reader& reader, const Node& node, std::string& out);
};
struct DescriptorNumber {
  static bool read(Reader& reader, const Node& node, int& out);
};
/// 0 is allowed for bind: "any free one", which the kernel chooses.
struct PortNumber {
  static bool read(Reader& reader, const Node& node, std::uint16_t& out);
};
/// A port of a destination, from 1.
struct EgressPort {
  static bool read(Reader& reader, const Node& node, std::uint16_t& out);
};
/// "read /PATH", "write /PATH", "exec /PATH" or "connect ADDRESS:PORT".
struct AttemptForm {
  static bool read(Reader& reader, const Node& node, std::string& out);
};
/// An exit status.
struct ExitCode {
  static bool read(Reader& reader, const Node& node, std::uint32_t& out);
};
/// The record's word for why a run ended.
inline constexpr std::array<std::string_view, 14> kCauses = {
    "exited", "signaled", "wall_time", "cpu_time",  "file_size", "memory",       "output",
    "disk",   "syscall",  "setup",     "processes", "killed",    "network_lost", "lost"};
struct CauseForm {
  static bool read(Reader& reader, const Node& node, std::string& out);
};
/// "allow", "log", "kill" or the name of an errno.
struct ActionForm {
  static bool read(Reader& reader, const Node& node, SyscallAction& out);
};
/// The alternatives of a rule: [{"arg0": {"==": "AF_UNIX"}}, ...].
struct Alternatives {
  static bool read(Reader& reader, const Node& node, std::vector<std::vector<ArgumentTest>>& out);
};
/// {"nofile": 256, "as": "2GiB", "cpu": "60s", "core": "unlimited"}: the name decides the unit.
struct Rlimits {
  static bool read(Reader& reader, const Node& node, std::map<std::string, Rlimit>& out);
};

// Containers.

/// Reports a node that should have been an object or array, with the field's example.
bool expected_shape(Reader& reader, const Node& node, std::string_view shape);

/// An array of values.
template <class Form>
struct ListOf {
  template <class T>
  static bool read(Reader& reader, const Node& node, std::vector<T>& out) {
    if (node.kind != Node::Kind::kArray) return expected_shape(reader, node, "an array");
    bool good = true;
    for (std::size_t i = 0; i < node.elements.size(); ++i) {
      const Reader::Scope scope(reader, i);
      T value{};
      if (Form::read(reader, node.elements[i], value)) {
        out.push_back(std::move(value));
      } else {
        good = false;
      }
    }
    return good;
  }
};

/// An array in which no value may come twice.
template <class Form>
struct SetOf {
  template <class T>
  static bool read(Reader& reader, const Node& node, std::vector<T>& out) {
    if (node.kind != Node::Kind::kArray) return expected_shape(reader, node, "an array");
    std::set<T> seen;
    bool good = true;
    for (std::size_t i = 0; i < node.elements.size(); ++i) {
      const Reader::Scope scope(reader, i);
      T value{};
      if (!Form::read(reader, node.elements[i], value)) {
        good = false;
      } else if (!seen.insert(value).second) {
        good = reader.error(node.elements[i].place, "listed twice");
      } else {
        out.push_back(std::move(value));
      }
    }
    return good;
  }
};

/// The keys of a map: `check` reports a bad one at `place` and returns false.
struct MountTarget {
  static bool check(Reader& reader, const Place& place, std::string_view key);
};
struct MaskTarget {
  static bool check(Reader& reader, const Place& place, std::string_view key);
};
struct HiddenDirectory {
  static bool check(Reader& reader, const Place& place, std::string_view key);
};
struct SyscallName {
  static bool check(Reader& reader, const Place& place, std::string_view key);
};
struct AddressRange {
  static bool check(Reader& reader, const Place& place, std::string_view key);
};
struct PrivateRange {
  static bool check(Reader& reader, const Place& place, std::string_view key);
};
/// "127.0.0.1:8080", on loopback, or the path of a socket.
struct OutsideAddress {
  static bool check(Reader& reader, const Place& place, std::string_view key);
};
struct VariableName {
  static bool check(Reader& reader, const Place& place, std::string_view key);
};
struct EnvironmentName {
  static bool check(Reader& reader, const Place& place, std::string_view key);
};

/// The value of a map of reasons.
struct Reason {
  static bool read(Reader& reader, const Node& node, std::string& out);
};

/// An object whose keys are data. `null` removes an entry of a lower layer, so that a layer by
/// itself may hold one.
template <class Key, class Form>
struct MapOf {
  template <class T>
  static bool read(Reader& reader, const Node& node, std::map<std::string, T>& out) {
    if (node.kind != Node::Kind::kObject) return expected_shape(reader, node, "an object");
    bool good = true;
    for (const Member& member : node.members) {
      const Reader::Scope scope(reader, member.key);
      const bool leaf = member.value.kind != Node::Kind::kObject;
      reader.set_origin(leaf ? member.value.place : member.key_place);
      good &= Key::check(reader, member.key_place, member.key);
      if (member.value.kind == Node::Kind::kNull) continue;
      T value{};
      good &= Form::read(reader, member.value, value);
      out.emplace_hint(out.end(), member.key, std::move(value));
    }
    return good;
  }
};

/// An object with the members that Fields<T> lists.
template <class T>
struct Section {
  static bool read(Reader& reader, const Node& node, T& out);
};

/// "denied", "allowed", or how a command must end.
struct ExpectationForm {
  static bool read(Reader& reader, const Node& node, Expectation& out);
};

/// An action alone, or an object with conditions.
struct RuleForm {
  static bool read(Reader& reader, const Node& node, SyscallRule& out);
};

}  // namespace belljar::policy
