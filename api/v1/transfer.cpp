#include "api/v1/transfer.hpp"

#include <unistd.h>

#include <cerrno>

#include "api/v1/problem.hpp"

namespace belljar::api {

Response Transfers::busy(Request& request) {
  Problem problem(503, "busy", "as many files are being moved already as may be at once");
  problem.limit = kMost;
  problem.retry_after_s = 1;
  return problem_response(request, std::move(problem));
}

Awaitable<bool> write_all(asio::posix::stream_descriptor& to, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t length = ::write(to.native_handle(), bytes.data(), bytes.size());
    if (length > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(length));
    } else if (length < 0 && errno == EAGAIN) {
      const auto [error] =
          co_await to.async_wait(asio::posix::descriptor_base::wait_write, supervisor::kAsTuple);
      if (error) co_return false;
    } else if (length < 0 && errno != EINTR) {
      co_return false;
    }
  }
  co_return true;
}

Awaitable<Copied> copy_body(Exchange& exchange, asio::posix::stream_descriptor& to) {
  for (;;) {
    const std::optional<std::string> piece = co_await exchange.read();
    if (!piece) co_return Copied::kNoSender;
    if (piece->empty()) co_return Copied::kAll;
    const bool written = co_await write_all(to, *piece);
    if (!written) co_return Copied::kNoReader;
  }
}

}  // namespace belljar::api
