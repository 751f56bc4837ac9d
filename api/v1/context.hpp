// What every operation of /v1 works with.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "api/self_test.hpp"
#include "api/v1/leases.hpp"
#include "api/v1/problem.hpp"
#include "api/v1/rate.hpp"
#include "supervisor/supervisor.hpp"

namespace belljar::api {

/// The operator's, for sessions that are asked for here.
struct V1Options {
  std::vector<std::string> settings;           ///< Of each session: "limits.rlimits.cpu=60s".
  std::chrono::milliseconds heartbeat{15000};  ///< Of streams that have nothing to say.
  std::uint64_t starts_a_minute = 0;           ///< Of each client; 0: as many as it likes.
  bool workspaces = false;                     ///< There are roots for directories of clients'.
};

/// Lives as long as the face.
struct V1Context {
  std::shared_ptr<supervisor::Supervisor> supervisor;
  std::shared_ptr<SelfTestCache> self_test;
  V1Options options;
  std::shared_ptr<StartRate> rate;
  std::shared_ptr<Leases> leases;

  /// The session that the first captured part of `request` names; null where there is none, of
  /// which no_session tells the client. Its id goes to the log.
  [[nodiscard]] std::shared_ptr<supervisor::Session> session(Request& request) const;
  /// The process that the second captured part names.
  [[nodiscard]] std::shared_ptr<supervisor::Process> process(Request& request) const;
  /// 404: of the session, or of the process.
  [[nodiscard]] Response no_session(Request& request) const;
  [[nodiscard]] Response no_process(Request& request) const;
};

}  // namespace belljar::api
