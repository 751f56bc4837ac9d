#include "supervisor/owner.hpp"

#include <utility>

namespace belljar::supervisor {
namespace {

/// Ends by itself when nobody has the owner any more, at the latest with its process.
Awaitable<void> watch(std::shared_ptr<asio::posix::stream_descriptor> process,
                      std::weak_ptr<Owner> owner) {
  const auto [error] =
      co_await process->async_wait(asio::posix::descriptor_base::wait_read, kAsTuple);
  if (const auto alive = owner.lock(); alive && !error) alive->leave();
}

}  // namespace

std::shared_ptr<Owner> Owner::of_process(const asio::any_io_executor& executor,
                                         std::shared_ptr<Clock> clock, UniqueFd pidfd) {
  // Whoever has no session any more need not be watched.
  struct Watched {
    Watched(std::shared_ptr<Clock> clock, std::shared_ptr<asio::posix::stream_descriptor> fd)
        : owner(std::move(clock)), process(std::move(fd)) {}
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;
    ~Watched() {
      boost::system::error_code ignored;
      process->close(ignored);
    }
    Owner owner;
    std::shared_ptr<asio::posix::stream_descriptor> process;
  };
  auto process = std::make_shared<asio::posix::stream_descriptor>(executor, pidfd.release());
  const auto watched = std::make_shared<Watched>(std::move(clock), process);
  std::shared_ptr<Owner> owner(watched, &watched->owner);
  asio::co_spawn(executor, watch(std::move(process), owner), asio::detached);
  return owner;
}

void Owner::leave() {
  if (!left_) left_ = clock_->now();
}

}  // namespace belljar::supervisor
