#include "api/belljard/listen.hpp"

#include <grp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace belljar::api {
namespace {

constexpr int kBacklog = 512;

/// Whether a socket at this place is one that nobody listens on any more.
bool is_stale(const sockaddr_un& address) {
  struct stat status {};
  if (lstat(address.sun_path, &status) != 0 || !S_ISSOCK(status.st_mode)) return false;
  const UniqueFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
         errno == ECONNREFUSED;
}

auto cannot_listen(int error, const std::string& where) {
  const char* remedy = "choose another place with --listen";
  if (error == EADDRINUSE) remedy = "end what listens there, or choose another place with --listen";
  if (error == EADDRNOTAVAIL) remedy = "name an address of this host with --listen";
  if (error == ENOENT) remedy = "make its directory, or choose another place with --listen";
  return fail({ErrorKind::kSystem, error, "listen at " + where, "listen", remedy});
}

Result<UniqueFd> listen_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return fail({ErrorKind::kInvalid, ENAMETOOLONG, "listen at unix:" + path, "listen",
                 "choose a path of at most 107 bytes"});
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return sys_failure(errno, "make a unix socket");
  if (is_stale(address)) (void)unlink(address.sun_path);
  // Nobody may come in before the mode is what it is to be.
  const mode_t mask = umask(0177);
  const int bound = bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  const int why = errno;
  umask(mask);
  if (bound != 0) return cannot_listen(why, "unix:" + path);
  // Who comes in here needs no token, so no other group than this one may.
  const group* ours = getgrnam("belljar");
  const bool given =
      ours != nullptr && chown(address.sun_path, static_cast<uid_t>(-1), ours->gr_gid) == 0;
  if (chmod(address.sun_path, given ? 0660 : 0600) != 0)
    return sys_failure(errno, "set the mode of " + path);
  if (listen(listener.get(), kBacklog) != 0) return cannot_listen(errno, "unix:" + path);
  return listener;
}

Result<UniqueFd> listen_tcp(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  const std::string port = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo wanted{};
  wanted.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &wanted, &found); error != 0)
    return fail({ErrorKind::kInvalid, 0, "listen at tcp:" + text + ": " + gai_strerror(error),
                 "listen", "name an address of this host"});
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  UniqueFd listener(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return sys_failure(errno, "make a socket for tcp:" + text);
  const int on = 1;
  // A port that connections of an earlier daemon still hold is ours again.
  if (setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(listener.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      listen(listener.get(), kBacklog) != 0)
    return cannot_listen(errno, "tcp:" + text);
  return listener;
}

}  // namespace

Result<UniqueFd> listen_at(const std::string& address) {
  constexpr std::string_view kUnix = "unix:", kTcp = "tcp:";
  if (address.starts_with(kUnix)) return listen_unix(address.substr(kUnix.size()));
  return listen_tcp(address.substr(kTcp.size()));
}

}  // namespace belljar::api
