// The sockets that requests come in on, made while there still is the right to.
#pragma once

#include <string>

#include "policy/base/result.hpp"
#include "policy/base/unique_fd.hpp"

namespace belljar::api {

/// A socket that listens at "unix:PATH" or "tcp:ADDRESS:PORT", where ADDRESS is a number or a name.
/// A unix socket is 0660, and its group's is `belljar` where that group exists and we may give it.
[[nodiscard]] Result<UniqueFd> listen_at(const std::string& address);

}  // namespace belljar::api
