#include "launcher/network/publish.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "launcher/endpoint.hpp"
#include "launcher/network/publisher.hpp"
#include "policy/quote.hpp"

namespace belljar::network {
namespace {

using launcher::PublishPorts;
using sys::UniqueFd;

constexpr int kMostWaiting = 128;

bool is_path(const PublishPorts::Port& port) { return port.outside.starts_with('/'); }

tl::unexpected<Error> cannot_listen(const PublishPorts::Port& port, int error) {
  Error failure{ErrorKind::kUnavailable,
                error,
                "listen at " + port.outside,
                "network.publish[" + policy::in_quotes(port.outside) + "]",
                {}};
  if (error == EADDRINUSE && is_path(port))
    failure.remedy =
        "a file is there, somebody's or left by a belljar that was killed: remove it, "
        "or choose another path";
  else if (error == EADDRINUSE)
    failure.remedy = "somebody listens there already: choose another port";
  return fail(std::move(failure));
}

Result<launcher::Endpoint> endpoint_of(const PublishPorts::Port& port) {
  if (!is_path(port)) return launcher::parse_endpoint(port.outside);
  launcher::Endpoint made;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (port.outside.size() >= sizeof address.sun_path) return cannot_listen(port, ENAMETOOLONG);
  std::memcpy(address.sun_path, port.outside.c_str(), port.outside.size() + 1);
  std::memcpy(&made.address, &address, sizeof address);
  made.size = sizeof address;
  return made;
}

}  // namespace

PublishedPorts::PublishedPorts(const launcher::Plan& plan) : plan_(plan) {
  for (const launcher::Step& step : plan.steps)
    if (const auto* publish = std::get_if<PublishPorts>(&step.action)) wanted_ = publish;
}

Result<PublishedPorts::Listener> PublishedPorts::listen_at(const PublishPorts::Port& port) {
  const launcher::Endpoint at = BELLJAR_TRY(endpoint_of(port));
  Listener made;
  made.port = &port;
  made.fd = UniqueFd(socket(at.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // A connection that has ended a moment ago does not keep the port; a listener does.
  const int on = 1;
  if (!made.fd.valid() ||
      (!is_path(port) &&
       setsockopt(made.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) ||
      bind(made.fd.get(), at.get(), at.size) != 0)
    return cannot_listen(port, errno);
  struct stat about {};
  if (is_path(port) && lstat(port.outside.c_str(), &about) == 0) {
    made.device = about.st_dev;
    made.inode = about.st_ino;
  }
  if (listen(made.fd.get(), kMostWaiting) != 0) return cannot_listen(port, errno);
  return made;
}

Status PublishedPorts::open() {
  if (wanted_ == nullptr) return {};
  for (const PublishPorts::Port& port : wanted_->ports)
    listeners_.push_back(BELLJAR_TRY(listen_at(port)));
  return {};
}

Status PublishedPorts::start(int user, int net) {
  if (wanted_ == nullptr) return {};
  std::array<int, 2> ends{};
  if (process_ > 0 || user < 0 || net < 0)
    return sys_failure(EPROTO, "start the process that publishes ports");
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return sys_failure(errno, "make a socket for the process that publishes ports");
  way_ = UniqueFd(ends[0]);
  const UniqueFd other(ends[1]);
  std::vector<Published> ports;
  ports.reserve(listeners_.size());
  for (const Listener& one : listeners_) ports.push_back({one.fd.get(), one.port->inside});
  process_ = fork();
  if (process_ == 0) publish_ports(ports, {user, net, plan_.uid, plan_.gid}, other.get());
  if (process_ < 0) return sys_failure(errno, "start the process that publishes ports");
  return {};
}

Error PublishedPorts::failure() {
  std::optional<Word> word = hear(way_.get());
  way_.reset();
  if (word) return std::move(word->error);
  return {ErrorKind::kUnavailable, 0, "the process that publishes ports has ended", {}, {}};
}

void PublishedPorts::stop() {
  way_.reset();
  if (process_ <= 0) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  process_ = 0;
}

void PublishedPorts::end() {
  stop();
  for (const Listener& one : listeners_) {
    struct stat about {};
    const char* path = one.port->outside.c_str();
    if (is_path(*one.port) && one.inode != 0 && lstat(path, &about) == 0 &&
        about.st_dev == one.device && about.st_ino == one.inode)
      unlink(path);
  }
  listeners_.clear();
}

}  // namespace belljar::network
