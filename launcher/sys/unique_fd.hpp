// The owner of a descriptor under the name that the launcher has always used.
#pragma once

#include "policy/base/unique_fd.hpp"

namespace belljar::sys {
using belljar::UniqueFd;
}  // namespace belljar::sys
