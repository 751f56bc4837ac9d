// The agent simulator's face: /sessions and /health, as its existing clients expect them.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/http/server.hpp"
#include "api/self_test.hpp"
#include "api/simulator/create_request.hpp"
#include "supervisor/supervisor.hpp"

namespace belljar::api {

struct SimulatorOptions {
  std::vector<std::string> command = {"python", "agent.py"};
  std::vector<std::string> settings;               ///< Of each session: "limits.rlimits.cpu=60s".
  std::map<std::string, std::string> environment;  ///< Of each agent, whoever's it is.
  std::chrono::milliseconds retry{500};            ///< Between attempts to reach an agent's server.
  int attempts = 150;
};

/// {"detail": …}
[[nodiscard]] Response simulator_error(int status, std::string_view detail);

class SimulatorFace {
 public:
  SimulatorFace(std::shared_ptr<supervisor::Supervisor> supervisor,
                std::shared_ptr<SelfTestCache> self_test, SimulatorOptions options);

  /// Whether a path is one of this face's, so that its own credentials count.
  [[nodiscard]] static bool owns(const Request& head);
  [[nodiscard]] Verdict route(const Request& head);

 private:
  Awaitable<Response> create(Request& request);
  Awaitable<Response> files(std::string id);
  Awaitable<Response> remove(std::string id);
  Awaitable<Response> health();
  Awaitable<void> relay(std::string id, WebSocket& socket);
  [[nodiscard]] supervisor::SessionSpec specify(const Request& request, std::string id,
                                                CreateRequest wanted) const;
  void keep_secrets(const std::string& uuid, std::vector<std::string> secrets);
  /// A session that lives, by any spelling of its id.
  [[nodiscard]] std::shared_ptr<supervisor::Session> live(const std::string& uuid) const;

  std::shared_ptr<supervisor::Supervisor> supervisor_;
  std::shared_ptr<SelfTestCache> self_test_;
  SimulatorOptions options_;
  /// What sessions were given, and nobody is shown, by their ids; those of ended ones go when the
  /// next is made.
  std::map<std::string, std::vector<std::string>> secrets_;
};

}  // namespace belljar::api
