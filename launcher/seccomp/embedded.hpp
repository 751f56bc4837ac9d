// The filters that generate.cpp compiled when Belljar was built.
#pragma once

#include <linux/filter.h>

#include <span>
#include <string_view>

#include "policy/policy.hpp"

namespace belljar::launcher {

/// Static storage; empty for `kNone`.
[[nodiscard]] std::span<const sock_filter> embedded_filter(policy::SyscallBase base);

/// SHA-256 of the table.json that they come from, "sha256:" and 64 hex digits.
[[nodiscard]] std::string_view embedded_table_digest();

}  // namespace belljar::launcher
