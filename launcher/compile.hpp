// From a Plan to the bytes that the child works from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/child/image.hpp"
#include "launcher/plan.hpp"

namespace belljar::launcher {

/// Which system calls a launch uses.
enum class BackEnd {
  kModern,  ///< clone3 and the mount API of Linux 5.12.
  kLegacy,  ///< fork, unshare and mount(2), for containers whose profiles refuse the newer ones.
};

[[nodiscard]] const char* back_end_name(BackEnd back_end);

/// What the image must know besides the plan.
struct Surroundings {
  BackEnd back_end = BackEnd::kModern;
  bool privileged = false;
  std::uint64_t namespace_inodes[kNamespaceKinds] = {};
  int mapped_tree = -1;  ///< The descriptor of what MapOwner has made; -1: a plain bind stands in.
  std::vector<Join> joins;

  /// Whether a helper makes the namespaces: setns works on the calling process alone.
  [[nodiscard]] bool helped() const { return back_end == BackEnd::kLegacy || !joins.empty(); }
};

/// The text of a uid_map or gid_map (man 7 user_namespaces).
[[nodiscard]] std::string map_lines(const std::vector<IdLine>& lines);

/// The text of a timens_offsets file (man 7 time_namespaces). Empty when both are zero.
[[nodiscard]] std::string time_offset_lines(const EnterTimeNamespace& action);

/// A relocatable image (image.hpp): same plan and surroundings, same bytes.
[[nodiscard]] std::vector<std::byte> compile(const Plan& plan, const Surroundings& surroundings);

}  // namespace belljar::launcher
