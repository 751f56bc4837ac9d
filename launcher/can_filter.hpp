// What a plan's system call filter says of the calls by which an ordinary program does a thing.
#pragma once

#include <optional>
#include <string>

#include "launcher/can.hpp"
#include "launcher/endpoint.hpp"
#include "launcher/plan.hpp"

namespace belljar::launcher {

/// A call that is refused in every form that a program would try.
struct FilterRefusal {
  std::string call;     ///< "openat"
  std::string verdict;  ///< "EPERM"; "SIGSYS" for a kill.
};

/// Nothing where one of the ways to open or execute a path passes.
[[nodiscard]] std::optional<FilterRefusal> filter_refuses(const Plan& plan, Verb verb);

/// Nothing where a TCP socket can be made, and connected by connect(2).
[[nodiscard]] std::optional<FilterRefusal> filter_refuses(const Plan& plan, const Endpoint& to);

}  // namespace belljar::launcher
