// The descriptors that a program was started with.
#pragma once

#include <string>
#include <vector>

#include "policy/base/result.hpp"

namespace belljar::sys {

/// Descriptors 0, 1 and 2 exist, so that nothing of ours lands there; all others end at exec. To be
/// called first of all. False when that could not be had.
[[nodiscard]] bool guard_descriptors();

/// Those from 3 on that are open, but for what guard_descriptors has opened.
[[nodiscard]] std::vector<int> inherited_descriptors();

/// All that a descriptor gives, up to its end; then it is closed.
[[nodiscard]] Result<std::string> read_and_close(int descriptor);

}  // namespace belljar::sys
