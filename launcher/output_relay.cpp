#include "launcher/output_relay.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "launcher/sys/raw.hpp"

namespace belljar::launcher {
namespace {

constexpr std::size_t kRoom = 64 << 10;

/// Whether what is written to 1 and 2 comes out in one place, as after 2>&1. Then one pipe keeps
/// the order of both.
bool go_to_the_same() {
  constexpr int kFile = 0;  // KCMP_FILE
  const long self = getpid();
  if (sys::raw(SYS_kcmp, self, self, kFile, 1, 2) == 0) return true;
  struct stat out {
  }, err{};
  // Of a regular file each open has an offset of its own.
  return fstat(1, &out) == 0 && fstat(2, &err) == 0 && out.st_dev == err.st_dev &&
         out.st_ino == err.st_ino && !S_ISREG(out.st_mode);
}

}  // namespace

OutputRelay::OutputRelay(const Plan& plan) {
  for (const Step& step : plan.steps) {
    const auto* relay = std::get_if<RelayOutput>(&step.action);
    if (relay == nullptr) continue;
    limit_ = relay->limit;
    for (int fd : relay->descriptors) {
      if (fd == 2 && !streams_.empty() && go_to_the_same())
        streams_.front().descriptors.push_back(fd);
      else
        streams_.emplace_back().descriptors = {fd};
    }
  }
}

Status OutputRelay::divert() {
  for (Stream& stream : streams_)
    if (Status taken = take_over(stream); !taken) {
      (void)restore();
      return taken;
    }
  return {};
}

Status OutputRelay::take_over(Stream& stream) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return sys_failure(errno, "make a pipe for the output");
  stream.from = sys::UniqueFd(ends[0]);
  stream.into = sys::UniqueFd(ends[1]);
  for (int fd : stream.descriptors) {
    sys::UniqueFd saved(fcntl(fd, F_DUPFD_CLOEXEC, 3));
    if (!saved.valid() || dup2(ends[1], fd) != fd)
      return sys_failure(errno, "put a pipe on descriptor " + std::to_string(fd));
    saved_[static_cast<std::size_t>(fd)] = std::move(saved);
  }
  return {};
}

Status OutputRelay::restore() {
  for (int fd = 1; fd <= 2; ++fd) {
    sys::UniqueFd& saved = saved_[static_cast<std::size_t>(fd)];
    if (!saved.valid()) continue;
    if (dup2(saved.get(), fd) != fd)
      return sys_failure(errno, "put descriptor " + std::to_string(fd) + " back");
    saved.reset();
  }
  for (Stream& stream : streams_) stream.into.reset();
  return {};
}

void OutputRelay::wait_for(pollfd* polls) const {
  for (std::size_t i = 0; i < kPolls; ++i) {
    polls[i] = {-1, 0, 0};
    if (i >= streams_.size()) continue;
    const Stream& stream = streams_[i];
    if (stream.pending())
      polls[i] = {stream.descriptors.front(), POLLOUT, 0};
    else
      polls[i] = {stream.from.get(), POLLIN, 0};
  }
}

bool OutputRelay::move(const pollfd* polls) {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (polls[i].fd < 0 || polls[i].revents == 0) continue;
    if (streams_[i].pending())
      write_some(streams_[i]);
    else
      read_some(streams_[i]);
  }
  return exceeded_;
}

bool OutputRelay::is_open() const {
  return std::any_of(streams_.begin(), streams_.end(), [this](const Stream& stream) {
    return stream.pending() || (stream.from.valid() && !exceeded_);
  });
}

void OutputRelay::read_some(Stream& stream) {
  // One byte more than may pass tells that there is too much.
  const std::uint64_t left = *limit_ - taken_;
  stream.buffer.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kRoom, left + 1)));
  stream.sent = 0;
  const ssize_t got = read(stream.from.get(), stream.buffer.data(), stream.buffer.size());
  const bool again = got < 0 && (errno == EINTR || errno == EAGAIN);
  stream.buffer.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  if (got <= 0 && !again) stream.from.reset();
  exceeded_ |= stream.buffer.size() > left;
  if (stream.buffer.size() > left) stream.buffer.resize(static_cast<std::size_t>(left));
  taken_ += stream.buffer.size();
}

void OutputRelay::write_some(Stream& stream) {
  const long wrote =
      write_now(stream, stream.buffer.data() + stream.sent, stream.buffer.size() - stream.sent);
  if (wrote == -EAGAIN || wrote == -EINTR) return;
  if (wrote > 0) {
    stream.sent += static_cast<std::size_t>(wrote);
    return;
  }
  // The reader is gone. The command is told as it would be without a relay: by SIGPIPE or EPIPE.
  stream.buffer.clear();
  stream.sent = 0;
  stream.from.reset();
}

/// Nobody else's idea of the descriptor may change, so O_NONBLOCK is not set on it. Somebody who
/// writes to the same pipe could fill it between poll and write: RWF_NOWAIT does not wait then
/// (pipes and sockets, man 2 pwritev2). For what has no such flag, a page fits where poll says so.
long OutputRelay::write_now(Stream& stream, const char* data, std::size_t size) {
  const int fd = stream.descriptors.front();
  const iovec piece{const_cast<char*>(data), size};
  struct stat about {};
  if (stream.no_wait && fstat(fd, &about) == 0 && S_ISREG(about.st_mode)) stream.no_wait = false;
  if (stream.no_wait) {
    const ssize_t wrote = pwritev2(fd, &piece, 1, -1, RWF_NOWAIT);
    if (wrote >= 0) return wrote;
    if (errno != EOPNOTSUPP && errno != EINVAL && errno != ENOSYS && errno != ESPIPE) return -errno;
    stream.no_wait = false;
  }
  const ssize_t wrote = write(fd, data, std::min<std::size_t>(size, PIPE_BUF));
  return wrote >= 0 ? wrote : -errno;
}

}  // namespace belljar::launcher
