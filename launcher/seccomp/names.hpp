// System calls by name, on the architecture that this was built for.
#pragma once

#include <string>
#include <string_view>

#include "policy/base/result.hpp"

namespace belljar::launcher {

/// The number of a call. kInvalid: no Linux architecture has a call of that name; `what` suggests
/// the nearest ones. kUnavailable: others have it, this one does not.
[[nodiscard]] Result<int> resolve_syscall(std::string_view name);

/// The name of a number, or empty when this build knows none.
[[nodiscard]] std::string syscall_name(int number);

}  // namespace belljar::launcher
