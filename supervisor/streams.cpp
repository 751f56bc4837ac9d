#include "supervisor/streams.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace belljar::supervisor {
namespace {

constexpr std::size_t kReadAtOnce = std::size_t{64} << 10;
/// What may be taken at the end without waiting: as much as a pipe of root's can hold.
constexpr int kLastReads = 16;

}  // namespace

Outcome<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return sys_refusal(errno, "pipe2");
  Pipe pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
  if (::fchmod(pipe.read_end.get(), 0666) != 0) return sys_refusal(errno, "fchmod of a pipe");
  return pipe;
}

Outcome<UniqueFd> duplicate(const UniqueFd& descriptor) {
  UniqueFd copy(::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 3));
  if (!copy.valid()) return sys_refusal(errno, "F_DUPFD_CLOEXEC");
  return copy;
}

Pump::Pump(const asio::any_io_executor& executor, UniqueFd from, std::shared_ptr<Journal> journal,
           Allowance allowance)
    : from_(executor, from.release()),
      journal_(std::move(journal)),
      allowance_(std::move(allowance)) {
  from_.native_non_blocking(true);
}

void Pump::start(std::function<void()> on_end) {
  asio::co_spawn(from_.get_executor(), run(std::move(on_end)), asio::detached);
}

Awaitable<void> Pump::run(std::function<void()> on_end) {
  const std::shared_ptr<Pump> self = shared_from_this();
  while (!done_) {
    const auto [error] =
        co_await from_.async_wait(asio::posix::descriptor_base::wait_read, kAsTuple);
    if (done_) co_return;
    if (error || read_some() == Got::kEnd) break;
  }
  if (done_) co_return;
  finish();
  on_end();
}

Pump::Got Pump::read_some() {
  static thread_local std::array<char, kReadAtOnce> buffer;
  const ssize_t length = ::read(from_.native_handle(), buffer.data(), buffer.size());
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return Got::kNothing;
  // EIO: nobody has the other side of a terminal any more.
  if (length <= 0) return Got::kEnd;
  const auto bytes = static_cast<std::size_t>(length);
  journal_->append({buffer.data(), allowance_(bytes)});
  return Got::kBytes;
}

void Pump::take_now() {
  for (int count = 0; !done_ && count < kLastReads && read_some() == Got::kBytes; ++count) {
  }
}

void Pump::stop() {
  if (done_) return;
  take_now();
  finish();
}

void Pump::finish() {
  done_ = true;
  boost::system::error_code ignored;
  from_.close(ignored);
  journal_->finish();
}

StdinWriter::StdinWriter(const asio::any_io_executor& executor, UniqueFd to)
    : to_(executor, to.release()) {
  to_.native_non_blocking(true);
}

Awaitable<Outcome<std::uint64_t>> StdinWriter::write(std::string bytes,
                                                     std::optional<std::uint64_t> offset) {
  if (busy_) co_return refuse(Code::kBusy, "stdin: another writer is at it");
  if (!to_.is_open()) co_return refuse(Code::kEnded, "stdin is closed");
  const std::uint64_t from = offset.value_or(taken_);
  if (from > taken_)
    co_return refuse(Code::kConflict, "stdin: offset " + std::to_string(from) + " is behind " +
                                          std::to_string(taken_) + ", which it has");
  const std::uint64_t known = taken_ - from;
  if (known >= bytes.size()) co_return taken_;
  struct Busy {
    explicit Busy(bool& flag) : busy(flag) { busy = true; }
    ~Busy() { busy = false; }
    bool& busy;
  } const busy(busy_);
  stopped_ = false;
  const std::string_view rest = std::string_view(bytes).substr(static_cast<std::size_t>(known));
  const Outcome<void> written = co_await write_all(rest);
  if (!written) co_return tl::unexpected<Failure>(written.error());
  co_return taken_;
}

Awaitable<Outcome<void>> StdinWriter::write_all(std::string_view bytes) {
  while (!bytes.empty()) {
    if (!to_.is_open()) co_return refuse(Code::kEnded, "stdin is closed");
    if (stopped_)
      co_return refuse(
          Code::kTimeout,
          "stdin: the program does not read; it has " + std::to_string(taken_) + " bytes",
          "write again from that offset");
    const ssize_t length = ::write(to_.native_handle(), bytes.data(), bytes.size());
    if (length > 0) {
      taken_ += static_cast<std::uint64_t>(length);
      bytes.remove_prefix(static_cast<std::size_t>(length));
    } else if (length < 0 && errno == EAGAIN) {
      (void)co_await to_.async_wait(asio::posix::descriptor_base::wait_write, kAsTuple);
    } else if (length < 0 && errno != EINTR) {
      const int why = errno;
      if (why == EPIPE || why == EIO) co_return refuse(Code::kEnded, "nobody reads stdin");
      co_return sys_refusal(why, "write to stdin");
    }
  }
  co_return Outcome<void>();
}

void StdinWriter::stop_waiting() {
  stopped_ = true;
  boost::system::error_code ignored;
  if (busy_) to_.cancel(ignored);
}

Outcome<void> StdinWriter::close() {
  if (busy_) return refuse(Code::kBusy, "stdin: a writer is at it");
  drop();
  return {};
}

void StdinWriter::drop() {
  boost::system::error_code ignored;
  to_.close(ignored);
}

}  // namespace belljar::supervisor
