// Owners of sessions: the process behind a connection, or a lease that is held open.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "api/http/message.hpp"
#include "supervisor/supervisor.hpp"

namespace belljar::api {

/// "die_with" of a session's body: nobody, "client", or {"lease": ID}.
struct DieWith {
  bool client = false;
  std::string lease;
};

/// The leases that are held, by id.
class Leases {
 public:
  struct Lease {
    std::string client;
    std::shared_ptr<supervisor::Owner> owner;
  };
  /// A new one of `client`; its id.
  [[nodiscard]] std::string take(const std::string& client,
                                 std::shared_ptr<supervisor::Clock> clock);
  /// Let go of: its sessions end, after the grace.
  void leave(const std::string& id);
  /// Null where `client` holds none of that id.
  [[nodiscard]] std::shared_ptr<supervisor::Owner> find(const std::string& id,
                                                        const std::string& client) const;

 private:
  std::map<std::string, Lease> leases_;
};

/// Whom a session that `request` asks for is to die with; null for nobody. A failure names what
/// to do instead.
[[nodiscard]] supervisor::Outcome<std::shared_ptr<supervisor::Owner>> owner_of(
    const DieWith& wanted, const Request& request, const Leases& leases,
    const boost::asio::any_io_executor& executor, std::shared_ptr<supervisor::Clock> clock);

}  // namespace belljar::api
