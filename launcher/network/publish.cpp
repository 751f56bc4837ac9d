#include "launcher/network/publish.hpp"

#include <fcntl.h>
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

#include "launcher/network/publisher.hpp"
#include "launcher/sys/resolve.hpp"
#include "policy/quote.hpp"

namespace belljar::network {
namespace {

using launcher::PublishPorts;
using sys::UniqueFd;

constexpr int kMostWaiting = 128;

bool is_path(const PublishPorts::Port& port) { return port.outside.starts_with('/'); }

std::string where_of(const PublishPorts::Port& port) {
  return "network.publish[" + policy::in_quotes(port.outside) + "]";
}

tl::unexpected<Error> cannot_listen(const PublishPorts::Port& port, int error) {
  Error failure{ErrorKind::kUnavailable, error, "listen at " + port.outside, where_of(port), {}};
  if (error == EADDRINUSE && is_path(port))
    failure.remedy =
        "a file is there, somebody's or left by a belljar that was killed: remove it, "
        "or choose another path";
  else if (error == EADDRINUSE)
    failure.remedy = "somebody listens there already: choose another port";
  return fail(std::move(failure));
}

}  // namespace

PublishedPorts::PublishedPorts(const launcher::Plan& plan) : plan_(plan) {
  for (const launcher::Step& step : plan.steps)
    if (const auto* publish = std::get_if<PublishPorts>(&step.action)) wanted_ = publish;
}

/// The way to a socket leads by root's own links alone: somebody else's could put it anywhere, with
/// the rights of whoever starts the sandbox. What is held is one directory, for its removal too.
Result<launcher::Endpoint> PublishedPorts::endpoint_of(Listener& made) {
  const PublishPorts::Port& port = *made.port;
  if (!is_path(port)) return launcher::parse_endpoint(port.outside);
  const std::size_t slash = port.outside.rfind('/');
  Result<UniqueFd> directory = sys::open_trusted(slash == 0 ? "/" : port.outside.substr(0, slash));
  if (!directory) {
    Error error = std::move(directory).error();
    error.where = where_of(port);
    return fail(std::move(error));
  }
  made.directory = *std::move(directory);
  made.name = port.outside.substr(slash + 1);
  const std::string path =
      "/proc/self/fd/" + std::to_string(made.directory.get()) + "/" + made.name;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (made.name.empty() || port.outside.size() >= sizeof address.sun_path ||
      path.size() >= sizeof address.sun_path)
    return cannot_listen(port, ENAMETOOLONG);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  launcher::Endpoint at;
  std::memcpy(&at.address, &address, sizeof address);
  at.size = sizeof address;
  return at;
}

Result<PublishedPorts::Listener> PublishedPorts::listen_at(const PublishPorts::Port& port) {
  Listener made;
  made.port = &port;
  const launcher::Endpoint at = BELLJAR_TRY(endpoint_of(made));
  made.fd = UniqueFd(socket(at.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // A connection that has ended a moment ago does not keep the port; a listener does.
  const int on = 1;
  if (!made.fd.valid() ||
      (!is_path(port) &&
       setsockopt(made.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) ||
      bind(made.fd.get(), at.get(), at.size) != 0)
    return cannot_listen(port, errno);
  struct stat about {};
  if (is_path(port) &&
      fstatat(made.directory.get(), made.name.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0) {
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
    const int at = one.directory.get();
    if (one.inode != 0 && fstatat(at, one.name.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0 &&
        about.st_dev == one.device && about.st_ino == one.inode)
      unlinkat(at, one.name.c_str(), 0);
  }
  listeners_.clear();
}

}  // namespace belljar::network
