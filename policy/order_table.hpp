// The table of orders: for every field of fields.hpp, which change of it allows less. A field
// without a line here does not compile.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "policy/fields.hpp"
#include "policy/order.hpp"

namespace belljar::policy {

/// Collects excesses along a path.
class Comparison {
 public:
  void add(std::string_view rule) { found_.push_back({path_, rule}); }

  template <class Function>
  void within(std::string_view key, Function function) {
    const std::size_t length = path_.size();
    path_ = member_path(path_, key);
    function();
    path_.resize(length);
  }

  [[nodiscard]] std::vector<Excess> take() { return std::move(found_); }

 private:
  std::string path_;
  std::vector<Excess> found_;
};

template <class T>
void compare_fields(Comparison& comparison, const T& inner, const T& outer);

// Orders of scalars and lists. `kRule` is what documentation and messages say.

/// Says nothing about what a program can do.
struct Free {
  static constexpr std::string_view kRule = "it may change";
  template <class T>
  static bool within(const T&, const T&) {
    return true;
  }
};
/// No change is certain to allow less.
struct Same {
  static constexpr std::string_view kRule = "it may not change";
  template <class T>
  static bool within(const T& inner, const T& outer) {
    return inner == outer;
  }
};
struct SwitchesOn {
  static constexpr std::string_view kRule = "it may only be switched on";
  static bool within(bool inner, bool outer) { return inner || !outer; }
};
struct SwitchesOff {
  static constexpr std::string_view kRule = "it may only be switched off";
  static bool within(bool inner, bool outer) { return !inner || outer; }
};
/// Without a value there is no limit.
struct Falls {
  static constexpr std::string_view kRule = "a limit may only fall";
  template <class T>
  static bool within(const std::optional<T>& inner, const std::optional<T>& outer) {
    return !outer || (inner && *inner <= *outer);
  }
};
/// Without a value there is none of it at all.
struct FallsFromNothing {
  static constexpr std::string_view kRule = "a limit may only fall, and is 0 when absent";
  static bool within(const std::optional<std::uint64_t>& inner,
                     const std::optional<std::uint64_t>& outer) {
    return inner.value_or(0) <= outer.value_or(0);
  }
};
struct MasksMore {
  static constexpr std::string_view kRule = "it may only take more permissions away";
  static bool within(std::uint32_t inner, std::uint32_t outer) { return (outer & ~inner) == 0; }
};
struct Shrinks {
  static constexpr std::string_view kRule = "a set may only shrink";
  template <class T>
  static bool within(const std::vector<T>& inner, const std::vector<T>& outer) {
    return std::all_of(inner.begin(), inner.end(), [&](const T& value) {
      return std::find(outer.begin(), outer.end(), value) != outer.end();
    });
  }
};
/// Without a set there is no limit to it.
struct ShrinksFromAll {
  static constexpr std::string_view kRule = "a set may only shrink, and is everything when absent";
  template <class T>
  static bool within(const std::optional<std::vector<T>>& inner,
                     const std::optional<std::vector<T>>& outer) {
    return !outer || (inner && Shrinks::within(*inner, *outer));
  }
};
struct Grows {
  static constexpr std::string_view kRule = "what is kept away may only grow";
  template <class T>
  static bool within(const std::vector<T>& inner, const std::vector<T>& outer) {
    return Shrinks::within(outer, inner);
  }
};
/// Names and patterns: each must be among the outer ones, or be a name that one of them matches.
struct GlobsShrink {
  static constexpr std::string_view kRule = "a set may only shrink";
  static bool within(const std::vector<std::string>& inner, const std::vector<std::string>& outer);
};

/// An enumeration from what allows most to what allows least. A value that is not named is within
/// itself only.
template <auto... kValues>
struct Towards {
  template <class E>
  static bool within(E inner, E outer) {
    constexpr std::array<E, sizeof...(kValues)> kChain{kValues...};
    const auto found = std::find(kChain.begin(), kChain.end(), inner);
    if (found == kChain.end()) return inner == outer;
    return std::find(kChain.begin(), found + 1, outer) != found + 1;
  }
};
struct TowardsNew {
  static constexpr std::string_view kRule = "it may only become \"new\"";
  static bool within(const Namespace& inner, const Namespace& outer) {
    return inner == NamespaceMode::kNew || inner == outer;
  }
};
struct TowardsRequire : Towards<Enforce::kPrefer, Enforce::kRequire> {
  static constexpr std::string_view kRule = "it may only become \"require\"";
};
struct TowardsEmpty : Towards<RootKind::kHost, RootKind::kEmpty> {
  static constexpr std::string_view kRule = "it may only become \"empty\"";
};
struct TowardsProcesses : Towards<ProcSubset::kAll, ProcSubset::kPid> {
  static constexpr std::string_view kRule = "it may only become \"pid\"";
};
struct TowardsHidden
    : Towards<HidePid::kOff, HidePid::kNoAccess, HidePid::kInvisible, HidePid::kPtraceable> {
  static constexpr std::string_view kRule =
      "it may only move from \"off\" over \"noaccess\" and \"invisible\" to \"ptraceable\"";
};
struct TowardsNoNetwork {
  static constexpr std::string_view kRule =
      "it may only move from \"shared\" over \"private\" to \"none\"";
  static bool within(const OrPath<NetworkMode>& inner, const OrPath<NetworkMode>& outer) {
    using Words = Towards<NetworkMode::kShared, NetworkMode::kPrivate, NetworkMode::kNone>;
    if (inner == outer || inner == NetworkMode::kNone) return true;
    // Who knows what a namespace that is joined can reach.
    return inner.mode != NetworkMode::kJoin && outer.mode != NetworkMode::kJoin &&
           Words::within(inner.mode, outer.mode);
  }
};
struct TowardsStrict : Towards<SyscallBase::kNone, SyscallBase::kAgent1, SyscallBase::kStrict1> {
  static constexpr std::string_view kRule =
      "it may only move from \"none\" over \"agent@1\" to \"strict@1\"";
};
struct TowardsEnforce : Towards<SyscallMode::kLog, SyscallMode::kEnforce> {
  static constexpr std::string_view kRule = "it may only become \"enforce\"";
};
struct TowardsNull : Towards<Stdio::kInherit, Stdio::kNull> {
  static constexpr std::string_view kRule = "it may only become \"null\"";
};
/// Another value of an action that refuses, or the one that was.
struct Refuses {
  static constexpr std::string_view kRule = "it may only refuse more";
  static bool within(const std::optional<SyscallAction>& inner,
                     const std::optional<SyscallAction>& outer);
};
struct WorkspaceOrder {
  static constexpr std::string_view kRule =
      "only \"readonly\" may be switched on, and \"enforce\" become \"require\"";
  static bool within(const std::optional<Workspace>& inner, const std::optional<Workspace>& outer);
};
struct HomeOrder {
  static constexpr std::string_view kRule = "it may not change";
  static bool within(const Home& inner, const Home& outer) {
    return inner.kind == outer.kind && inner.path == outer.path;
  }
};

// Orders that go on below the field.

/// A section: by its own fields.
struct ByFields {
  static constexpr std::string_view kRule = "by its members";
  template <class T>
  static void compare(Comparison& comparison, const T& inner, const T& outer) {
    compare_fields(comparison, inner, outer);
  }
};
/// A limit that is not named is none.
struct EachFalls {
  static constexpr std::string_view kRule = Falls::kRule;
  static void compare(Comparison& comparison, const std::map<std::string, Rlimit>& inner,
                      const std::map<std::string, Rlimit>& outer);
};
/// Keys of a map of reasons, which do not matter.
struct KeysGrow {
  static constexpr std::string_view kRule = Grows::kRule;
  static void compare(Comparison& comparison, const std::map<std::string, std::string>& inner,
                      const std::map<std::string, std::string>& outer);
};
/// Each destination of the inner one lies within one of the outer one, in addresses and ports.
struct DestinationsShrink {
  static constexpr std::string_view kRule = "destinations may only be taken away";
  static void compare(Comparison& comparison, const Destinations& inner, const Destinations& outer);
};
/// Without a list it is everything.
struct DestinationsShrinkFromAll {
  static constexpr std::string_view kRule =
      "destinations may only be taken away, and are all when absent";
  static void compare(Comparison& comparison, const std::optional<Destinations>& inner,
                      const std::optional<Destinations>& outer);
};
struct DestinationsGrow {
  static constexpr std::string_view kRule = "what is kept away may only grow";
  static void compare(Comparison& comparison, const Destinations& inner, const Destinations& outer);
};
struct PublishedShrink {
  static constexpr std::string_view kRule = "what is published may only be taken away";
  static void compare(Comparison& comparison, const std::map<std::string, std::uint16_t>& inner,
                      const std::map<std::string, std::uint16_t>& outer);
};
struct EachSame {
  static constexpr std::string_view kRule = "values may not be added, removed or changed";
  static void compare(Comparison& comparison, const std::map<std::string, std::string>& inner,
                      const std::map<std::string, std::string>& outer);
};
/// Mounts of both by their fields. A new one is an excess; one that is gone, where something else
/// would come into view (policy/order.cpp).
struct MountsOrder {
  static constexpr std::string_view kRule =
      "none may be added, and none removed where it may uncover something";
  static void compare(Comparison& comparison, const std::map<std::string, Mount>& inner,
                      const std::map<std::string, Mount>& outer);
};
struct RulesOrder {
  static constexpr std::string_view kRule = Refuses::kRule;
  static void compare(Comparison& comparison, const std::map<std::string, SyscallRule>& inner,
                      const std::map<std::string, SyscallRule>& outer);
};

template <class Order>
struct Ordered {
  std::string_view key;
  Order order;
};

template <class Order>
constexpr Ordered<Order> ordered(std::string_view key, Order order) {
  return {key, order};
}

template <class T>
struct Orders;

template <>
struct Orders<Identity> {
  static constexpr auto kTable =
      std::tuple{ordered("uid", Same{}), ordered("gid", Same{}), ordered("inside_uid", Same{}),
                 ordered("inside_gid", Same{}), ordered("ids", FallsFromNothing{}),
                 // A mode such as 0705 keeps a group out, so that leaving a group can open a file.
                 ordered("groups", Same{}), ordered("hostname", Free{}),
                 ordered("umask", MasksMore{}), ordered("enforce", TowardsRequire{})};
};
/// A clock that is ahead or behind is no more and no less.
template <>
struct Orders<TimeOffsets> {
  static constexpr auto kTable =
      std::tuple{ordered("monotonic", Same{}), ordered("boottime", Same{})};
};
template <>
struct Orders<Namespaces> {
  static constexpr auto kTable =
      std::tuple{ordered("user", TowardsNew{}),        ordered("mount", TowardsNew{}),
                 ordered("pid", TowardsNew{}),         ordered("ipc", TowardsNew{}),
                 ordered("uts", TowardsNew{}),         ordered("cgroup", TowardsNew{}),
                 ordered("time", TowardsNew{}),        ordered("time_offsets", ByFields{}),
                 ordered("nested_user", SwitchesOff{})};
};
template <>
struct Orders<Mount> {
  static constexpr auto kTable =
      std::tuple{ordered("type", Same{}), ordered("source", Same{}), ordered("content", Same{}),
                 ordered("lower", Same{}), ordered("upper", Same{}), ordered("work", Same{}),
                 ordered("noatime", Free{}), ordered("size", Falls{}), ordered("inodes", Falls{}),
                 ordered("mode", Same{}), ordered("subset", TowardsProcesses{}),
                 ordered("hidepid", TowardsHidden{}), ordered("readonly", SwitchesOn{}),
                 ordered("nosuid", SwitchesOn{}), ordered("nodev", SwitchesOn{}),
                 ordered("noexec", SwitchesOn{}),
                 // A mount that is left out uncovers what it would have covered.
                 ordered("optional", SwitchesOff{}), ordered("enforce", TowardsRequire{})};
};
template <>
struct Orders<Filesystem> {
  static constexpr auto kTable =
      std::tuple{ordered("root", TowardsEmpty{}),      ordered("hide", KeysGrow{}),
                 ordered("mounts", MountsOrder{}),     ordered("mask", KeysGrow{}),
                 ordered("toolchains", SwitchesOff{}), ordered("workspace", WorkspaceOrder{}),
                 ordered("home", HomeOrder{})};
};
template <>
struct Orders<Network> {
  static constexpr auto kTable = std::tuple{
      ordered("mode", TowardsNoNetwork{}),    ordered("enforce", TowardsRequire{}),
      ordered("allow", DestinationsShrink{}), ordered("only", DestinationsShrinkFromAll{}),
      ordered("deny", DestinationsGrow{}),    ordered("publish", PublishedShrink{})};
};
template <>
struct Orders<Syscalls> {
  static constexpr auto kTable =
      std::tuple{ordered("base", TowardsStrict{}), ordered("default", Refuses{}),
                 ordered("rules", RulesOrder{}), ordered("mode", TowardsEnforce{})};
};
template <>
struct Orders<Landlock> {
  static constexpr auto kTable =
      std::tuple{ordered("filesystem", SwitchesOn{}), ordered("scopes", Grows{}),
                 ordered("bind_tcp", ShrinksFromAll{}), ordered("connect_tcp", ShrinksFromAll{}),
                 ordered("enforce", TowardsRequire{})};
};
template <>
struct Orders<Limits> {
  static constexpr auto kTable =
      std::tuple{ordered("wall_time", Falls{}),        ordered("cpu_time", Falls{}),
                 ordered("output", Falls{}),           ordered("disk", Falls{}),
                 ordered("memory", Falls{}),           ordered("swap", FallsFromNothing{}),
                 ordered("processes", Falls{}),        ordered("cpus", Falls{}),
                 ordered("enforce", TowardsRequire{}), ordered("rlimits", EachFalls{})};
};
template <>
struct Orders<Environment> {
  static constexpr auto kTable = std::tuple{ordered("pass", GlobsShrink{}),
                                            ordered("deny", Grows{}), ordered("set", EachSame{})};
};
template <>
struct Orders<Io> {
  static constexpr auto kTable =
      std::tuple{ordered("stdin", TowardsNull{}), ordered("stdout", TowardsNull{}),
                 ordered("stderr", TowardsNull{}), ordered("keep", Shrinks{}),
                 // Another terminal is neither more nor less.
                 ordered("tty", Same{})};
};
template <>
struct Orders<Policy> {
  static constexpr auto kTable = std::tuple{ordered("name", Free{}),
                                            ordered("description", Free{}),
                                            ordered("identity", ByFields{}),
                                            ordered("namespaces", ByFields{}),
                                            ordered("filesystem", ByFields{}),
                                            ordered("network", ByFields{}),
                                            ordered("syscalls", ByFields{}),
                                            ordered("landlock", ByFields{}),
                                            ordered("capabilities", Shrinks{}),
                                            ordered("limits", ByFields{}),
                                            ordered("env", ByFields{}),
                                            ordered("io", ByFields{}),
                                            ordered("tests", Free{})};
};

// Walking both tables.

inline constexpr std::size_t kNoOrder = static_cast<std::size_t>(-1);

template <class T>
consteval std::size_t order_index(std::string_view key) {
  std::size_t index = 0;
  std::size_t found = kNoOrder;
  const auto look = [&](std::string_view other) {
    if (other == key) found = index;
    ++index;
  };
  std::apply([&look](const auto&... orders) { (look(orders.key), ...); }, Orders<T>::kTable);
  return found;
}

/// What must hold between two values beyond their single fields.
template <class T>
void compare_whole(Comparison&, const T&, const T&) {}
void compare_whole(Comparison& comparison, const Filesystem& inner, const Filesystem& outer);
void compare_whole(Comparison& comparison, const Syscalls& inner, const Syscalls& outer);

template <class T, std::size_t kIndex>
void compare_field(Comparison& comparison, const T& inner, const T& outer) {
  constexpr auto& kField = std::get<kIndex>(Fields<T>::kTable);
  using Entry = std::remove_cvref_t<decltype(kField)>;
  if constexpr (requires { kField.member; }) {
    constexpr std::size_t kOrder = order_index<T>(kField.key);
    static_assert(kOrder != kNoOrder, "a field of fields.hpp without an order");
    constexpr auto& kOrdered = std::get<kOrder>(Orders<T>::kTable);
    using Order = std::remove_cvref_t<decltype(kOrdered.order)>;
    const auto& a = inner.*kField.member;
    const auto& b = outer.*kField.member;
    comparison.within(kField.key, [&] {
      if constexpr (requires { Order::compare(comparison, a, b); }) {
        Order::compare(comparison, a, b);
      } else if (!Order::within(a, b)) {
        comparison.add(Order::kRule);
      }
    });
  } else {
    static_assert(std::is_same_v<Entry, Reserved> || std::is_same_v<Entry, OfLayer>);
  }
}

template <class T>
void compare_fields(Comparison& comparison, const T& inner, const T& outer) {
  [&]<std::size_t... kIndices>(std::index_sequence<kIndices...>) {
    (compare_field<T, kIndices>(comparison, inner, outer), ...);
  }
  (std::make_index_sequence<std::tuple_size_v<std::remove_cvref_t<decltype(Fields<T>::kTable)>>>{});
  compare_whole(comparison, inner, outer);
}

}  // namespace belljar::policy
