#include "policy/order.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "policy/ipv4.hpp"
#include "policy/order_table.hpp"
#include "policy/paths.hpp"
#include "policy/quote.hpp"
#include "policy/setting.hpp"
#include "policy/suggest.hpp"

namespace belljar::policy {
namespace {

/// How much a verdict permits: nothing and the end of the process, nothing, the call.
int rank(const SyscallAction& action) {
  switch (action.kind) {
    case SyscallAction::Kind::kKill:
      return 0;
    case SyscallAction::Kind::kErrno:
      return 1;
    case SyscallAction::Kind::kAllow:
    case SyscallAction::Kind::kLog:
      break;
  }
  return 2;
}

constexpr int kRefused = 1;
constexpr int kAllowed = 2;

int most(const SyscallRule& rule) {
  return rule.when.empty() ? rank(rule.action) : std::max(rank(rule.action), rank(rule.otherwise));
}

int least(const SyscallRule& rule) {
  return rule.when.empty() ? rank(rule.action) : std::min(rank(rule.action), rank(rule.otherwise));
}

bool same_test(const ArgumentTest& a, const ArgumentTest& b) {
  return a.argument == b.argument && a.compare == b.compare && a.mask == b.mask &&
         a.value == b.value;
}

bool same_conditions(const SyscallRule& a, const SyscallRule& b) {
  return std::equal(a.when.begin(), a.when.end(), b.when.begin(), b.when.end(),
                    [](const auto& left, const auto& right) {
                      return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                                        same_test);
                    });
}

bool rule_within(const SyscallRule& inner, const SyscallRule& outer) {
  if (most(inner) <= least(outer)) return true;
  return same_conditions(inner, outer) && rank(inner.action) <= rank(outer.action) &&
         rank(inner.otherwise) <= rank(outer.otherwise);
}

/// Whether `pattern` matches `name`, which holds no wildcards.
bool glob_matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() == '*') {
    return glob_matches(pattern.substr(1), name) ||
           (!name.empty() && glob_matches(pattern, name.substr(1)));
  }
  return !name.empty() && (pattern.front() == '?' || pattern.front() == name.front()) &&
         glob_matches(pattern.substr(1), name.substr(1));
}

/// Whether nothing at all is at `target` when no mount covers it: all above it are directories of
/// our own, which cannot be written to.
bool uncovers_nothing(const Filesystem& filesystem, std::string_view target) {
  if (filesystem.root != RootKind::kEmpty || filesystem.toolchains) return false;
  if (filesystem.workspace &&
      (filesystem.workspace->path == "." || is_within(target, filesystem.workspace->path))) {
    return false;
  }
  return std::all_of(filesystem.mounts.begin(), filesystem.mounts.end(), [&](const auto& entry) {
    return entry.second.type == MountType::kDir || !is_within(target, entry.first);
  });
}

// Paths.

template <class Form>
std::string unknown_below(const Form&, std::span<const std::string> keys) {
  return keys.empty() ? "" : in_quotes(keys.front()) + " is below a value without members";
}

template <class T>
std::string unknown_below(const Section<T>&, std::span<const std::string> keys);

std::string unknown_below(const Rlimits&, std::span<const std::string> keys) {
  return keys.empty() ? "" : unknown_below(Text{}, keys.subspan(1));
}

template <class Key, class Form>
std::string unknown_below(const MapOf<Key, Form>&, std::span<const std::string> keys) {
  return keys.empty() ? "" : unknown_below(Form{}, keys.subspan(1));
}

template <class T>
std::string unknown_below(const Section<T>&, std::span<const std::string> keys) {
  if (keys.empty()) return {};
  std::optional<std::string> answer;
  std::vector<std::string_view> known;
  const auto look = [&](const auto& entry) {
    if constexpr (requires { entry.member; }) {
      known.push_back(entry.key);
      if (entry.key == keys.front()) answer = unknown_below(entry.form, keys.subspan(1));
    }
  };
  std::apply([&look](const auto&... entries) { (look(entries), ...); }, Fields<T>::kTable);
  if (answer) return *answer;
  return with_suggestion("there is no " + in_quotes(keys.front()), keys.front(), known);
}

/// The value at `path` when it is plain enough to be quoted in a message.
std::string scalar_text(const Policy& policy, std::string_view path) {
  Findings findings;
  const std::optional<Node> tree = parse_json(policy.canonical, 0, Comments::kRefused, findings);
  const Parsed<std::vector<std::string>> keys = parse_setting_path(path);
  const Node* node = tree && keys ? &*tree : nullptr;
  for (std::size_t i = 0; node != nullptr && i < keys->size(); ++i) {
    const Member* member = node->find((*keys)[i]);
    node = member == nullptr ? nullptr : &member->value;
  }
  if (node == nullptr) return {};
  if (node->kind == Node::Kind::kArray || node->kind == Node::Kind::kObject) return {};
  if (node->kind == Node::Kind::kString) return in_quotes(node->text);
  std::string text;
  append_json(text, *node);
  return text;
}

}  // namespace

bool GlobsShrink::within(const std::vector<std::string>& inner,
                         const std::vector<std::string>& outer) {
  return std::all_of(inner.begin(), inner.end(), [&](const std::string& name) {
    const bool plain = name.find_first_of("*?") == std::string::npos;
    return std::any_of(outer.begin(), outer.end(), [&](const std::string& pattern) {
      return pattern == name || pattern == "*" || (plain && glob_matches(pattern, name));
    });
  });
}

bool Refuses::within(const std::optional<SyscallAction>& inner,
                     const std::optional<SyscallAction>& outer) {
  if (!inner && !outer) return true;
  if (!inner) return false;
  return rank(*inner) <= (outer ? rank(*outer) : kRefused);
}

bool WorkspaceOrder::within(const std::optional<Workspace>& inner,
                            const std::optional<Workspace>& outer) {
  if (!inner || !outer) return inner.has_value() == outer.has_value();
  return inner->path == outer->path && (inner->readonly || !outer->readonly) &&
         inner->idmap == outer->idmap && TowardsRequire::within(inner->enforce, outer->enforce);
}

void EachFalls::compare(Comparison& comparison, const std::map<std::string, Rlimit>& inner,
                        const std::map<std::string, Rlimit>& outer) {
  for (const auto& [name, limit] : outer) {
    const auto found = inner.find(name);
    const bool limited = found != inner.end() && !found->second.unlimited;
    if (limit.unlimited || (limited && found->second.value <= limit.value)) continue;
    comparison.within(name, [&] { comparison.add(kRule); });
  }
}

void KeysGrow::compare(Comparison& comparison, const std::map<std::string, std::string>& inner,
                       const std::map<std::string, std::string>& outer) {
  for (const auto& entry : outer) {
    if (inner.contains(entry.first)) continue;
    comparison.within(entry.first, [&] { comparison.add(kRule); });
  }
}

namespace {

/// Whether one of `many` covers all of `one`.
bool covered(const std::string& range, const Destination& one, const Destinations& many) {
  const Parsed<Ipv4Range> wanted = parse_ipv4_range(range);
  return wanted && std::any_of(many.begin(), many.end(), [&](const auto& entry) {
           const Parsed<Ipv4Range> wide = parse_ipv4_range(entry.first);
           const std::vector<std::uint16_t>& ports = entry.second.ports;
           return wide && wide->contains(*wanted) &&
                  (ports.empty() || (!one.ports.empty() && Shrinks::within(one.ports, ports)));
         });
}

void compare_each(Comparison& comparison, const Destinations& inner, const Destinations& outer,
                  std::string_view rule) {
  for (const auto& [range, one] : inner)
    if (!covered(range, one, outer)) comparison.within(range, [&] { comparison.add(rule); });
}

}  // namespace

void DestinationsShrink::compare(Comparison& comparison, const Destinations& inner,
                                 const Destinations& outer) {
  compare_each(comparison, inner, outer, kRule);
}

void DestinationsShrinkFromAll::compare(Comparison& comparison,
                                        const std::optional<Destinations>& inner,
                                        const std::optional<Destinations>& outer) {
  if (!outer) return;
  if (!inner) return comparison.add(kRule);
  compare_each(comparison, *inner, *outer, kRule);
}

void DestinationsGrow::compare(Comparison& comparison, const Destinations& inner,
                               const Destinations& outer) {
  compare_each(comparison, outer, inner, kRule);
}

void PublishedShrink::compare(Comparison& comparison,
                              const std::map<std::string, std::uint16_t>& inner,
                              const std::map<std::string, std::uint16_t>& outer) {
  for (const auto& [outside, port] : inner) {
    const auto found = outer.find(outside);
    if (found != outer.end() && found->second == port) continue;
    comparison.within(outside, [&] { comparison.add(kRule); });
  }
}

void EachSame::compare(Comparison& comparison, const std::map<std::string, std::string>& inner,
                       const std::map<std::string, std::string>& outer) {
  const auto check = [&](const auto& here, const auto& there) {
    for (const auto& entry : here) {
      const auto found = there.find(entry.first);
      const bool both = found != there.end();
      if (both && (found->second == entry.second || &here == &outer)) continue;
      comparison.within(entry.first, [&] { comparison.add(kRule); });
    }
  };
  check(inner, outer);
  check(outer, inner);
}

void MountsOrder::compare(Comparison& comparison, const std::map<std::string, Mount>& inner,
                          const std::map<std::string, Mount>& outer) {
  for (const auto& [target, mount] : inner) {
    const auto found = outer.find(target);
    comparison.within(target, [&, &mount = mount] {
      if (found == outer.end()) {
        comparison.add(kRule);
      } else {
        compare_fields(comparison, mount, found->second);
      }
    });
  }
}

void RulesOrder::compare(Comparison& comparison, const std::map<std::string, SyscallRule>& inner,
                         const std::map<std::string, SyscallRule>& outer) {
  for (const auto& [name, rule] : outer) {
    const auto found = inner.find(name);
    // Without it the base decides, which allows no more than everything.
    const bool within =
        found == inner.end() ? least(rule) == kAllowed : rule_within(found->second, rule);
    if (!within) comparison.within(name, [&] { comparison.add(kRule); });
  }
}

void compare_whole(Comparison& comparison, const Filesystem& inner, const Filesystem& outer) {
  comparison.within("mounts", [&] {
    for (const auto& entry : outer.mounts) {
      if (inner.mounts.contains(entry.first) || uncovers_nothing(inner, entry.first)) continue;
      comparison.within(entry.first, [&] { comparison.add(MountsOrder::kRule); });
    }
  });
}

void compare_whole(Comparison& comparison, const Syscalls& inner, const Syscalls& outer) {
  // With a default of its own the outer one may be a list of what is allowed, which another base
  // would add to.
  if (inner.base != outer.base && outer.default_action) {
    comparison.within("base", [&] { comparison.add(Same::kRule); });
  }
  const bool kills = outer.default_action && rank(*outer.default_action) < kRefused;
  for (const auto& [name, rule] : inner.rules) {
    if (outer.rules.contains(name) || most(rule) < kRefused) continue;
    if (most(rule) == kRefused && !kills) continue;
    comparison.within("rules", [&, &key = name] {
      comparison.within(key, [&] { comparison.add(RulesOrder::kRule); });
    });
  }
}

std::vector<Excess> excesses(const Policy& inner, const Policy& outer) {
  Comparison comparison;
  compare_fields(comparison, inner, outer);
  return comparison.take();
}

std::string unknown_path(const std::vector<std::string>& keys) {
  if (keys.front() == "vars")
    return unknown_below(MapOf<VariableName, Text>{}, std::span(keys).subspan(1));
  return unknown_below(Section<Policy>{}, keys);
}

bool paths_meet(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  return b.starts_with(a) && (a.size() == b.size() || b[a.size()] == '.' || b[a.size()] == '[');
}

std::string excess_text(const Excess& excess, const Policy& inner, const Policy& outer) {
  const std::string got = scalar_text(inner, excess.path);
  const std::string limit = scalar_text(outer, excess.path);
  const std::string place = outer.where(excess.path);
  if (got.empty() && !limit.empty()) {
    return limit + " of " + place + " is missing; " + std::string(excess.rule);
  }
  std::string text = got.empty() ? "is wider than " : got + " is wider than ";
  if (!limit.empty()) text += limit + " of ";
  text += place.empty() ? "the default of " + outer.name : place;
  return text + "; " + std::string(excess.rule);
}

Diagnostics check_ceiling(const Policy& policy, const Policy& ceiling) {
  Diagnostics diagnostics;
  for (const Excess& excess : excesses(policy, ceiling)) {
    Location place = policy.origin(excess.path);
    if (place.file.empty()) place.file = policy.name;
    diagnostics.push_back({std::move(place), excess.path, excess_text(excess, policy, ceiling)});
  }
  return diagnostics;
}

}  // namespace belljar::policy
