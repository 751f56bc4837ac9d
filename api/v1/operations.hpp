// Where the operations come from: one function for each file of them. `context` outlives `router`.
#pragma once

#include "api/v1/context.hpp"
#include "api/v1/router.hpp"

namespace belljar::api {

class Transfers;

/// All of them: face.cpp.
void add_all_operations(Router& router, const V1Context& context);

/// livez, readyz, version, policies, capabilities, limits: host.cpp.
void add_host_operations(Router& router, const V1Context& context);
/// Sessions: sessions.cpp.
void add_session_operations(Router& router, const V1Context& context);

/// Processes, and what may be done with one: processes.cpp.
void add_process_operations(Router& router, const V1Context& context);

/// exec and run, which wait for the end of a command: exec.cpp.
void add_exec_operations(Router& router, const V1Context& context);
/// The output of processes: output.cpp.
void add_output_operations(Router& router, const V1Context& context);
/// WebSockets that are attached to processes: attach.cpp.
void add_attach_operations(Router& router, const V1Context& context);
/// events.cpp
void add_event_operations(Router& router, const V1Context& context);
/// Files of workspaces: files.cpp. `transfers` counts what both move.
void add_file_operations(Router& router, const V1Context& context,
                         std::shared_ptr<Transfers> transfers);
/// Workspaces as tars: archive.cpp.
void add_archive_operations(Router& router, const V1Context& context,
                            std::shared_ptr<Transfers> transfers);
/// Ports inside: proxy.cpp.
void add_proxy_operations(Router& router, const V1Context& context);

/// The shell of a session: shell.cpp.
void add_shell_operations(Router& router, const V1Context& context);

/// Leases, which sessions can die with: leases.cpp.
void add_lease_operations(Router& router, const V1Context& context);

}  // namespace belljar::api
