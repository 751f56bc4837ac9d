// The supervisor: sessions over time. The one interface that api/ is written against.
//
// One thread, one io_context: every call is made on it, and nothing here blocks it. A call that is
// begun goes on to its end whether or not its caller still waits: who gives up on `create` leaves a
// session behind that expires like any other.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policy/base/unique_fd.hpp"
#include "supervisor/events.hpp"
#include "supervisor/failure.hpp"
#include "supervisor/idempotency.hpp"
#include "supervisor/session.hpp"

namespace belljar::supervisor {

/// The operator's bounds. `max_sessions` and the uids come from the service's own settings.
struct Config {
  std::string node = "0";  ///< Part of the ids that are made up: 1 to 16 of a-z0-9.
  std::string policy = "builtin:agent@1";
  std::uint16_t port_base = 7700;
  std::optional<Milliseconds> default_ttl;  ///< Nothing: the maximum.
  Milliseconds max_ttl = std::chrono::hours(24);
  std::size_t max_runs = 16;
  std::size_t sessions_of_a_client = 0;  ///< 0: no quota.
  std::size_t starts_at_once = 4;
  std::size_t starts_waiting = 100;          ///< More: kBusy at once.
  Milliseconds start_wait{10000};            ///< Of a start for its turn: kBusy.
  Milliseconds start_timeout{30000};         ///< From its turn to `started`: kTimeout.
  Milliseconds term_grace{2000};             ///< Between TERM and KILL, at most 4 s.
  Milliseconds owner_grace{5000};            ///< Between an owner's end and that of his sessions.
  Milliseconds retention{600000};            ///< Of ended sessions.
  std::size_t retained_sessions = 256;       ///< The oldest go first, also beyond
  std::size_t retained_bytes = 64u << 20;    ///< that much of journals.
  std::size_t processes_of_a_session = 256;  ///< At once; more: kQuota.
  std::size_t ended_processes_kept = 64;     ///< Of each session.
};

/// A policy that the service serves.
struct ServedPolicy {
  std::string name, digest, network;
  std::optional<Milliseconds> wall_time;
  std::optional<std::uint64_t> output;
};

/// What the service said of itself at the start.
struct ServiceFacts {
  std::string version, back_end, sessions_root;
  bool sandboxed = true;   ///< False: the operator has switched the sandbox off.
  bool privileged = true;  ///< False: every session has the caller's uid.
  std::uint32_t uid_base = 0, max_sessions = 0;
  std::vector<ServedPolicy> policies;
};

struct Counts {
  std::size_t starting = 0, running = 0, ending = 0, ended = 0;  ///< ended: still retained.
  std::size_t runs = 0;                                          ///< One-shots among the live.
  std::size_t slots_free = 0, slots_leased = 0, slots_quarantined = 0;
  std::size_t starts_waiting = 0, starts_under_way = 0;
  std::uint64_t created = 0, failed = 0, lost = 0;  ///< Since the start.
  std::size_t processes = 0;                        ///< That run now.
};

struct SelfTest {
  bool ok = false;
  std::string sandbox;  ///< What is in force, in words.
  std::string missing;  ///< JSON array as text: control, what, remedy.
};

class Supervisor {
 public:
  /// Speaks to the launch service on `service`, a SOCK_SEQPACKET socket: says hello, and learns the
  /// pool and the policies. Ignores SIGPIPE in this process from then on.
  [[nodiscard]] static Awaitable<Outcome<std::shared_ptr<Supervisor>>> start(
      asio::io_context& loop, UniqueFd service, Config config, std::shared_ptr<Clock> clock);
  virtual ~Supervisor() = default;

  /// A new session, once it runs: its sandbox stands and its command, if any, has been executed.
  /// On failure nothing of it is left, or its slot is quarantined, and its id is free again.
  [[nodiscard]] virtual Awaitable<Outcome<std::shared_ptr<Session>>> create(SessionSpec spec) = 0;
  /// Live or retained; null where there is none.
  [[nodiscard]] virtual std::shared_ptr<Session> find(std::string_view id) const = 0;
  /// In the order of their creation.
  [[nodiscard]] virtual std::vector<std::shared_ptr<Session>> list() const = 0;
  /// TERM, grace, kill, sweep, remove. Whether all of it is gone when this answers, which is within
  /// the grace and one second; it goes on behind in any case. Also of a session that is starting.
  /// kNotFound: no session of that name is known; true again for one that has ended.
  [[nodiscard]] virtual Awaitable<Outcome<bool>> end(std::string id, EndedBy by) = 0;

  [[nodiscard]] virtual const Config& config() const = 0;
  [[nodiscard]] virtual const ServiceFacts& service() const = 0;
  [[nodiscard]] virtual Counts counts() const = 0;
  /// Whether a session of `client` would be admitted now; otherwise what `create` would say.
  [[nodiscard]] virtual Outcome<void> admits(const std::string& client) const = 0;
  [[nodiscard]] virtual Events& events() = 0;
  [[nodiscard]] virtual IdempotencyStore& idempotency() = 0;
  /// For whoever outlives this too: it holds nothing of the supervisor.
  [[nodiscard]] virtual const std::shared_ptr<Clock>& clock() const = 0;
  /// Run afresh by the service.
  [[nodiscard]] virtual Awaitable<Outcome<SelfTest>> self_test() = 0;
  /// False for good once the launch service is gone: the daemon is to end.
  [[nodiscard]] virtual bool healthy() const = 0;
  /// Called once when that happens. Every session ends by itself.
  virtual void on_service_lost(std::function<void()> what) = 0;

  // The orderly stop.
  /// From now on `create` fails with kDraining.
  virtual void begin_drain() = 0;
  /// begin_drain, then waits for sessions to end, at most `limit`, or until `hurry`; then ends all
  /// that are left at once, in parallel, with "drain". Answers when they are gone, or 10 s later.
  [[nodiscard]] virtual Awaitable<void> drain(Milliseconds limit) = 0;
  /// The second signal: `drain` stops waiting. Before a `drain`: its wait will be none.
  virtual void hurry() = 0;
};

/// Sends bytes to systemd's notification socket: "READY=1". Without one (NOTIFY_SOCKET), nothing.
void notify_manager(const std::string& state);

/// The sockets that systemd has opened for this process, with their names; each once.
struct ActivatedSocket {
  UniqueFd descriptor;
  std::string name;
};
[[nodiscard]] std::vector<ActivatedSocket> activated_sockets();

}  // namespace belljar::supervisor
