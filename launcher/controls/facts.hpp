// Looks that the facts of several controls share.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "launcher/controls/control.hpp"

namespace belljar::launcher {

[[nodiscard]] inline Seen holds(std::string what = {}) {
  return {Seen::Verdict::kHolds, std::move(what)};
}
[[nodiscard]] inline Seen differs(std::string what) {
  return {Seen::Verdict::kDiffers, std::move(what)};
}
[[nodiscard]] inline Seen unseen(std::string what) {
  return {Seen::Verdict::kUnseen, std::move(what)};
}

/// kHolds when both are the same; otherwise "WHAT is SEEN, not EXPECTED".
[[nodiscard]] Seen compare(const std::string& what, const std::string& seen,
                           const std::string& expected);

/// "net:[4026531840]" of the calling process, for its namespaces: what is expected is another one
/// inside. Nothing where the kernel has none of that kind.
[[nodiscard]] std::vector<Fact::Expected> other_namespace_than_ours(const Made& made,
                                                                    const char* kind,
                                                                    std::string because);
[[nodiscard]] Seen is_another_namespace(const std::string& ours);

/// Whether a proc is mounted at /proc that the policy does not go without.
[[nodiscard]] bool requires_proc(const policy::Policy& policy);

/// How many Landlock domains this process could enter, one in the other, or -errno. Entered by a
/// process of its own, which ends.
[[nodiscard]] int room_for_landlock_domains();

/// "nofile 256": both limits of the calling process.
[[nodiscard]] Seen look_at_limit(const std::string& value);

/// Mount options, masks and the workspace: filesystem_facts.cpp.
extern const std::array<Fact, 4> kFilesystemFacts;

}  // namespace belljar::launcher
