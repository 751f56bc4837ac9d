// Three texts, parted by a line "%": what they allow alone and over one another. The order that
// ceilings and `final` rest on is reflexive and transitive, a merged policy never goes beyond what
// was final below it, and where the order says "within", the plain values and the compiled filter
// say so too.
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "launcher/seccomp/seccomp.hpp"
#include "policy/load.hpp"
#include "policy/order.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tests/unit/seccomp/bpf_evaluator.hpp"

namespace {

using namespace belljar::policy;
namespace launcher = belljar::launcher;

constexpr std::string_view kAllFinal =
    R"({"version":1,"final":["identity","namespaces","filesystem","network","syscalls","landlock",)"
    R"("capabilities","limits","env","io"]})";

std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t from = 0; parts.size() < 3;) {
    const std::size_t to = text.find("\n%\n", from);
    parts.push_back(text.substr(from, to == std::string_view::npos ? to : to - from));
    if (to == std::string_view::npos) break;
    from = to + 3;
  }
  return parts;
}

/// One over the other, the first lowest; nothing when together they are no policy.
std::optional<Policy> load(std::initializer_list<std::string_view> texts) {
  Layers layers;
  for (const std::string_view text : texts) layers.add_text(text, "fuzz.json");
  layers.add_variable("v", "/v", "--var v");
  auto policy = layers.resolve();
  if (!policy) {
    // A text that declares no variable is refused for being given one; then without.
    Layers plain;
    for (const std::string_view text : texts) plain.add_text(text, "fuzz.json");
    policy = plain.resolve();
  }
  return policy ? std::optional(*policy) : std::nullopt;
}

template <class T>
bool falls(const std::optional<T>& inner, const std::optional<T>& outer) {
  return !outer || (inner && *inner <= *outer);
}

/// What "within" must mean at least, written down without the table of orders.
void check_values(const Policy& inner, const Policy& outer) {
  FUZZ_CHECK(outer.network.mode != NetworkMode::kNone || inner.network.mode == NetworkMode::kNone);
  FUZZ_CHECK(falls(inner.limits.wall_time, outer.limits.wall_time));
  FUZZ_CHECK(falls(inner.limits.memory, outer.limits.memory));
  FUZZ_CHECK(falls(inner.limits.processes, outer.limits.processes));
  FUZZ_CHECK(inner.limits.swap.value_or(0) <= outer.limits.swap.value_or(0));
  for (const auto& [name, limit] : outer.limits.rlimits) {
    const auto found = inner.limits.rlimits.find(name);
    FUZZ_CHECK(limit.unlimited || found != inner.limits.rlimits.end(), name);
    if (!limit.unlimited)
      FUZZ_CHECK(!found->second.unlimited && found->second.value <= limit.value, name);
  }
  for (const std::string& name : inner.capabilities)
    FUZZ_CHECK(std::count(outer.capabilities.begin(), outer.capabilities.end(), name) > 0, name);
  for (const int fd : inner.io.keep)
    FUZZ_CHECK(std::count(outer.io.keep.begin(), outer.io.keep.end(), fd) > 0);
  for (const auto& [target, mount] : inner.filesystem.mounts) {
    const auto found = outer.filesystem.mounts.find(target);
    FUZZ_CHECK(found != outer.filesystem.mounts.end(), target);
    FUZZ_CHECK(found->second.source == mount.source, target);
    FUZZ_CHECK(mount.readonly || !found->second.readonly, target);
    FUZZ_CHECK(mount.nosuid || !found->second.nosuid, target);
  }
  for (const auto& [path, why] : outer.filesystem.mask)
    FUZZ_CHECK(inner.filesystem.mask.contains(path), path);
  for (const auto& [name, value] : inner.env.set)
    FUZZ_CHECK(outer.env.set.contains(name) && outer.env.set.at(name) == value, name);
  FUZZ_CHECK(!inner.filesystem.workspace || outer.filesystem.workspace);
  FUZZ_CHECK(!inner.namespaces.nested_user || outer.namespaces.nested_user);
}

std::uint32_t verdict(const std::optional<launcher::SeccompFilter>& filter, int number,
                      std::uint64_t argument) {
  if (!filter) return SECCOMP_RET_ALLOW;
  const auto data =
      belljar::test::make_data(launcher::kNativeArchitecture, number,
                               {argument, argument, argument, argument, argument, argument});
  const auto end = belljar::test::evaluate(filter->instructions(), data);
  FUZZ_CHECK(end.has_value());
  return end->value;
}

bool allows(std::uint32_t value) {
  const std::uint32_t action = value & SECCOMP_RET_ACTION_FULL;
  return action == SECCOMP_RET_ALLOW || action == SECCOMP_RET_LOG;
}

/// The filter of the inner policy lets no call pass that the outer's refuses.
void check_filters(const Policy& inner, const Policy& outer) {
  const auto inside = launcher::seccomp_program(inner.syscalls);
  const auto outside = launcher::seccomp_program(outer.syscalls);
  if (!inside || !outside) return;  // An unknown call, or too long: refused before any launch.
  constexpr std::array<std::uint64_t, 6> kArguments = {0, 1, 2, 16, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF};
  for (int number = 0; number < 470; ++number)
    for (const std::uint64_t argument : kArguments)
      if (allows(verdict(*inside, number, argument)))
        FUZZ_CHECK(allows(verdict(*outside, number, argument)), std::to_string(number));
}

void check_within(const Policy& inner, const Policy& outer) {
  if (!excesses(inner, outer).empty()) {
    FUZZ_CHECK(!check_ceiling(inner, outer).empty());
    return;
  }
  FUZZ_CHECK(check_ceiling(inner, outer).empty());
  check_values(inner, outer);
  check_filters(inner, outer);
}

void check_final(std::string_view lower, std::string_view upper) {
  const auto outer = load({lower, kAllFinal});
  const auto inner = load({lower, kAllFinal, upper});
  if (!outer || !inner) return;
  const auto found = excesses(*inner, *outer);
  FUZZ_CHECK(found.empty(), found.front().path);
  check_values(*inner, *outer);
  check_filters(*inner, *outer);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parts = parts_of(belljar::fuzz::text_of(data, size));
  std::vector<Policy> policies;
  for (const std::string_view part : parts)
    if (auto policy = load({part})) policies.push_back(*std::move(policy));
  for (const Policy& inner : policies)
    for (const Policy& outer : policies) check_within(inner, outer);
  for (const Policy& a : policies)
    for (const Policy& b : policies)
      for (const Policy& c : policies)
        if (excesses(a, b).empty() && excesses(b, c).empty()) {
          const auto found = excesses(a, c);
          FUZZ_CHECK(found.empty(), found.front().path);
        }
  for (const std::string_view lower : parts)
    for (const std::string_view upper : parts) check_final(lower, upper);
  return 0;
}
