// Core: what all sessions of one supervisor share. Internal.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "supervisor/channel.hpp"
#include "supervisor/listeners.hpp"
#include "supervisor/slots.hpp"
#include "supervisor/supervisor.hpp"

namespace belljar::supervisor {

class SessionImpl;

/// How long the service and monitors may take to answer what they do at once.
inline constexpr Milliseconds kAskLimit{10000};
/// The service gives file work up after 30 s.
inline constexpr Milliseconds kFileWorkLimit{35000};
/// Between two looks whether a workspace is busy no more.
inline constexpr Milliseconds kBusyPause{100};
/// Of what moves through a pipe, which the service bounds to ten minutes.
inline constexpr Milliseconds kTransferLimit{620000};

/// Starts that are under way at once, and those that wait for their turn, first come first served.
class StartQueue {
 public:
  StartQueue(const asio::any_io_executor& executor, std::shared_ptr<Clock> clock,
             std::size_t at_once, std::size_t most_waiting);

  /// A turn; whoever destroys it lets the next one in. The queue must outlive it.
  class Turn {
   public:
    explicit Turn(StartQueue* queue) : queue_(queue) { ++queue_->under_way_; }
    Turn(Turn&& other) noexcept : queue_(std::exchange(other.queue_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    Turn(const Turn&) = delete;
    ~Turn();

   private:
    StartQueue* queue_;
  };
  /// kBusy where too many wait already, or the turn has not come in `limit`.
  [[nodiscard]] Awaitable<Outcome<Turn>> enter(Milliseconds limit);
  [[nodiscard]] bool full() const { return waiting_.size() >= most_waiting_; }
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  [[nodiscard]] std::size_t under_way() const { return under_way_; }

 private:
  std::size_t at_once_, most_waiting_, under_way_ = 0;
  std::uint64_t last_ticket_ = 0;
  std::deque<std::uint64_t> waiting_;
  Notifier changed_;
};

class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(asio::io_context& loop, std::shared_ptr<Clock> clock, std::shared_ptr<Channel> service,
       Config config, ServiceFacts facts);

  asio::any_io_executor executor;
  std::shared_ptr<Clock> clock;
  std::shared_ptr<Channel> service;
  const Config config;
  const ServiceFacts facts;
  Slots slots;
  ListenerTables listeners;
  StartQueue starts;
  Events events;
  IdempotencyStore idempotency;
  Notifier changed;  ///< A session has ended, or the daemon is to hurry.
  bool draining = false, hurried = false, stopped = false;
  bool service_lost = false;
  std::function<void()> on_service_lost;
  std::uint64_t created = 0, failed = 0, lost = 0;

  // Sessions.
  [[nodiscard]] std::shared_ptr<SessionImpl> find(std::string_view id) const;
  [[nodiscard]] std::vector<std::shared_ptr<SessionImpl>> sessions() const;
  [[nodiscard]] std::size_t live() const;
  /// Checks, leases a slot, completes the spec and registers the session; nothing waits.
  [[nodiscard]] Outcome<std::shared_ptr<SessionImpl>> admit(SessionSpec spec);
  [[nodiscard]] Outcome<void> admits(const std::string& client, bool one_shot) const;
  /// A session has ended for good: retained, or forgotten.
  void settled(const std::shared_ptr<SessionImpl>& session);

  // Slots whose uid or workspace could not be cleared.
  void quarantine(Lease lease, std::string workspace, const std::string& why);
  /// The one loop of housekeeping: expiry and retention each second, quarantine every 5 s.
  [[nodiscard]] Awaitable<void> keep_house();

  [[nodiscard]] Awaitable<Outcome<Reply>> ask(Request request, Milliseconds limit);
  /// Kills what is left of the uid; how much that could not be killed, 0 where that is no longer
  /// so.
  [[nodiscard]] Awaitable<Outcome<std::uint64_t>> sweep(std::uint32_t uid);
  /// One that is busy is tried again, for `patience`.
  [[nodiscard]] Awaitable<Outcome<void>> remove_workspace(std::string workspace,
                                                          Milliseconds patience);
  void service_closed(const std::string& why);
  void stop();

 private:
  [[nodiscard]] Outcome<void> check(const SessionSpec& spec) const;
  [[nodiscard]] Outcome<void> check_output(const SessionSpec& spec) const;
  [[nodiscard]] std::string make_id() const;
  void prune(TimePoint now);
  [[nodiscard]] Awaitable<void> retry_quarantined();
  [[nodiscard]] Awaitable<void> look_for_workspaces();

  std::vector<std::shared_ptr<SessionImpl>> sessions_;  ///< In the order of their creation.
  std::map<std::uint32_t, std::string> left_behind_;    ///< Workspaces of quarantined slots.
};

}  // namespace belljar::supervisor
