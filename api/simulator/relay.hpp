// One client's WebSocket beside one agent's: output, changes of state, and what both say.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "api/http/websocket.hpp"
#include "api/simulator/frames.hpp"
#include "supervisor/supervisor.hpp"

namespace belljar::api {

struct RelayOptions {
  std::chrono::milliseconds retry{500};
  int attempts = 150;
  std::chrono::milliseconds open{2000};  ///< For the agent's answer to the upgrade.
  std::size_t waiting = 32;              ///< Messages of the client before the agent is there.
};

/// Lives as long as its client's WebSocket. The session outlives it. Output is shown from the first
/// byte on, to each relay of a session alike.
class Relay : public std::enable_shared_from_this<Relay> {
 public:
  Relay(std::shared_ptr<supervisor::Supervisor> supervisor,
        std::shared_ptr<supervisor::Session> session, WebSocket& client, RelayOptions options);

  /// Until either side has gone; closes both.
  supervisor::Awaitable<void> run();

 private:
  template <class T>
  using Awaitable = supervisor::Awaitable<T>;
  void begin(Awaitable<void> task);
  Awaitable<void> read_client();
  Awaitable<void> write_agent();
  Awaitable<void> read_agent();
  Awaitable<void> show_output();
  Awaitable<void> watch_process();
  Awaitable<void> show_line(const std::string& line);
  Awaitable<void> show_piece(const supervisor::Piece& piece, LineCutter& lines);
  Awaitable<void> dial();
  Awaitable<void> wait_over();
  Awaitable<void> wait_shown();
  Awaitable<void> tell_failed_start();
  Awaitable<void> tell_end();
  Awaitable<void> leave();
  [[nodiscard]] bool finished() const { return client_gone_ || agent_gone_ || process_ended_; }

  std::shared_ptr<supervisor::Supervisor> supervisor_;
  std::shared_ptr<supervisor::Session> session_;
  std::shared_ptr<supervisor::Process> process_;
  WebSocket& client_;
  RelayOptions options_;
  std::optional<boost::asio::any_io_executor> executor_;
  /// The inbox has one of its own: what waits for the end is not to look at each message.
  std::unique_ptr<supervisor::Notifier> changed_, inbox_changed_;
  std::unique_ptr<WebSocket> agent_;
  std::deque<std::string> inbox_;  ///< From the client to the agent.
  int tasks_ = 0;
  bool client_gone_ = false, agent_gone_ = false, process_ended_ = false;
  bool shown_all_ = false;  ///< All output that there was has been sent.
  bool over_ = false;       ///< Every task is to end.
};

}  // namespace belljar::api
