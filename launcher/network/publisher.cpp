#include "launcher/network/publisher.hpp"

#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <list>

#include "launcher/network/messages.hpp"
#include "launcher/session_process.hpp"
#include "launcher/sys/raw.hpp"
#include "launcher/sys/unique_fd.hpp"

namespace belljar::network {
namespace {

using sys::UniqueFd;

/// More wait in the listeners' queues: what comes from outside takes no more of belljar than this.
constexpr std::size_t kMostConnections = 128;

/// After so long another connection is tried although none has ended here: others may have let go.
constexpr int kStarvedMs = 1000;

/// One direction of a connection.
class Stream {
 public:
  Stream(int from, int to) : from_(from), to_(to) {}

  [[nodiscard]] bool over() const { return ended_ && begin_ == end_; }
  [[nodiscard]] bool wants_to_read() const { return !ended_ && begin_ == end_; }
  [[nodiscard]] bool wants_to_write() const { return begin_ != end_; }

  /// False when the connection is broken.
  [[nodiscard]] bool move() {
    if (wants_to_read() && !take()) return false;
    if (wants_to_write() && !give()) return false;
    if (over() && !told_) {
      told_ = true;
      return shutdown(to_, SHUT_WR) == 0 || errno == ENOTCONN;
    }
    return true;
  }

 private:
  static bool must_wait() { return errno == EAGAIN || errno == EINTR; }

  bool take() {
    const ssize_t got = recv(from_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got < 0) return must_wait();
    ended_ = got == 0;
    begin_ = 0;
    end_ = static_cast<std::size_t>(got);
    return true;
  }

  bool give() {
    const ssize_t sent =
        send(to_, buffer_.data() + begin_, end_ - begin_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) return must_wait();
    begin_ += static_cast<std::size_t>(sent);
    return true;
  }

  int from_;
  int to_;
  std::array<char, 16384> buffer_{};
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool ended_ = false;
  bool told_ = false;
};

class Connection {
 public:
  Connection(UniqueFd outside, UniqueFd inside)
      : outside_(std::move(outside)),
        inside_(std::move(inside)),
        in_(outside_.get(), inside_.get()),
        out_(inside_.get(), outside_.get()) {}

  [[nodiscard]] std::array<pollfd, 2> waits() const {
    return {waits_on(outside_.get(), in_, out_), waits_on(inside_.get(), out_, in_)};
  }

  /// False when it is over.
  [[nodiscard]] bool move() { return in_.move() && out_.move() && !(in_.over() && out_.over()); }

 private:
  /// Nothing to wait for is no entry: the kernel would tell of a hang-up again and again.
  static pollfd waits_on(int fd, const Stream& from_it, const Stream& to_it) {
    const int events =
        (from_it.wants_to_read() ? POLLIN : 0) | (to_it.wants_to_write() ? POLLOUT : 0);
    return {events == 0 ? -1 : fd, static_cast<short>(events), 0};
  }

  UniqueFd outside_;
  UniqueFd inside_;
  Stream in_;
  Stream out_;
};

/// Dials the sandbox's loopback; a refusal shows when it is used.
bool dial(const UniqueFd& fd, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
         errno == EINPROGRESS;
}

bool is_want_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

class Publisher {
 public:
  Publisher(const std::vector<Published>& ports, const Place& place, int way)
      : ports_(ports), place_(place), way_(way) {}

  void run() {
    Status done = enter();
    while (done && !over_) done = serve();
    if (!done) tell(way_, Word{Word::Kind::kFailed, done.error(), {}});
  }

 private:
  /// Sockets that are made from here on are the sandbox's.
  Status enter() const {
    if (setns(place_.user, CLONE_NEWUSER) != 0)
      return sys_failure(errno, "enter the sandbox's user namespace to publish ports");
    if (setns(place_.net, CLONE_NEWNET) != 0)
      return sys_failure(errno, "enter the sandbox's network namespace to publish ports");
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    const std::array<__user_cap_data_struct, 2> none{};
    if (const long error = sys::raw(SYS_capset, &header, none.data()); error < 0)
      return sys_failure(static_cast<int>(-error), "give up all capabilities");
    // A change of credentials may clear it (man 2 prctl).
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
      return sys_failure(errno, "tie the process that publishes ports to belljar");
    close(place_.user);
    close(place_.net);
    return {};
  }

  Status serve() {
    const bool full = starved_ || connections_.size() >= kMostConnections;
    std::vector<pollfd> ready = {{way_, POLLIN, 0}};
    for (const Published& port : ports_) ready.push_back({full ? -1 : port.listener, POLLIN, 0});
    for (const Connection& one : connections_)
      for (const pollfd& entry : one.waits()) ready.push_back(entry);
    const int told = poll(ready.data(), ready.size(), starved_ ? kStarvedMs : -1);
    if (told < 0 && errno != EINTR)
      return sys_failure(errno, "wait for connections to published ports");
    if (told == 0) starved_ = false;
    over_ = ready[0].revents != 0;
    const pollfd* entry = ready.data() + 1 + ports_.size();
    for (auto one = connections_.begin(); one != connections_.end(); entry += 2) {
      const bool idle = entry[0].revents == 0 && entry[1].revents == 0;
      const bool over = !idle && !one->move();
      one = over ? connections_.erase(one) : std::next(one);
      if (over) starved_ = false;
    }
    for (std::size_t i = 0; i < ports_.size(); ++i)
      if (ready[1 + i].revents != 0) take_connection(ports_[i]);
    return {};
  }

  /// Who cannot be served for want of descriptors goes on to wait, and is not taken to be let go.
  void take_connection(const Published& port) {
    UniqueFd inside(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    UniqueFd outside;
    if (inside.valid())
      outside = UniqueFd(accept4(port.listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!outside.valid()) {
      starved_ = is_want_of_descriptors(errno);
      return;
    }
    if (dial(inside, port.inside)) connections_.emplace_back(std::move(outside), std::move(inside));
  }

  const std::vector<Published>& ports_;
  const Place& place_;
  const int way_;
  bool over_ = false;
  bool starved_ = false;  ///< No descriptor is left for another connection.
  std::list<Connection> connections_;
};

}  // namespace

void publish_ports(const std::vector<Published>& ports, const Place& place, int way) {
  // A key that ends the command is not meant for it.
  setsid();
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  std::vector<int> kept = {way, place.user, place.net};
  for (const Published& port : ports) kept.push_back(port.listener);
  launcher::close_all_but(kept);
  // So that no descriptor that is opened later is taken for a stream.
  for (int fd = open("/dev/null", O_RDWR | O_CLOEXEC); fd >= 0 && fd < 2;) fd = dup(fd);
  launcher::become_the_session(place.uid, place.gid);
  Publisher(ports, place, way).run();
  _exit(0);
}

}  // namespace belljar::network
