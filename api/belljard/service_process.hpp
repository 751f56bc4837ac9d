// Starting the launch service, the one part of the daemon that keeps privileges.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "policy/base/result.hpp"
#include "policy/base/unique_fd.hpp"

namespace belljar::api {

/// belljar: $BELLJAR_LAUNCHER, or beside this program, or in /usr/bin.
[[nodiscard]] Result<std::string> find_launcher();

struct ServiceProcess {
  pid_t pid = -1;
  UniqueFd socket;  ///< Its end of file is the end of everything below it.
};

/// Starts `launcher launch-service --fd 3 ARGUMENTS…` in a process group of its own, with this
/// process' environment but for tokens, nothing on stdin, and stderr on 1 and 2.
[[nodiscard]] Result<ServiceProcess> start_service(const std::string& launcher,
                                                   const std::vector<std::string>& arguments);

}  // namespace belljar::api
