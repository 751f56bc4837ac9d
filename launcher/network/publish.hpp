// Ports of the sandbox's that are reached from outside.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "launcher/endpoint.hpp"
#include "launcher/network/messages.hpp"
#include "launcher/plan.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::network {

/// The listeners that a plan publishes ports at, and the process that takes their connections: with
/// the session's ids, in the sandbox's network, without a capability. It dials nothing but the
/// loopback of the sandbox, at the port of the listener, so that nothing else becomes reachable. No
/// system call for plans without one.
class PublishedPorts {
 public:
  explicit PublishedPorts(const launcher::Plan& plan);
  PublishedPorts(const PublishedPorts&) = delete;
  PublishedPorts& operator=(const PublishedPorts&) = delete;
  ~PublishedPorts() { end(); }

  /// Opens the listeners, with the caller's rights. Errors name the policy's line.
  [[nodiscard]] Status open();

  /// Takes connections into these namespaces from now on. The descriptors stay the caller's.
  [[nodiscard]] Status start(int user, int net);

  /// Readable when it has failed; -1 when there is none.
  [[nodiscard]] int descriptor() const { return way_.get(); }
  /// Why.
  [[nodiscard]] Error failure();

  /// Ends the process and with it all connections; a listener for another attempt stays.
  void stop();
  /// The listeners are gone, too, and the sockets that were made for them in the file tree.
  void end();

 private:
  struct Listener {
    sys::UniqueFd fd;
    const launcher::PublishPorts::Port* port = nullptr;
    /// Of a socket in the file tree: the directory that it was made in, wherever that is by now,
    /// its name there, and that it is still ours.
    sys::UniqueFd directory = {};
    std::string name = {};
    dev_t device = 0;
    ino_t inode = 0;
  };
  [[nodiscard]] static Result<Listener> listen_at(const launcher::PublishPorts::Port& port);
  /// Where `made` listens; for a path, its directory is opened.
  [[nodiscard]] static Result<launcher::Endpoint> endpoint_of(Listener& made);

  const launcher::Plan& plan_;
  const launcher::PublishPorts* wanted_ = nullptr;
  std::vector<Listener> listeners_;
  sys::UniqueFd way_;
  pid_t process_ = 0;
};

}  // namespace belljar::network
