// Moving what is too large for memory between a client and the launch service, through a pipe.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "api/http/server.hpp"
#include "supervisor/supervisor.hpp"

namespace belljar::api {

/// How many transfers there are at once: each holds one of the service's 32 helpers for as long as
/// its client takes, and others are to find one.
class Transfers {
 public:
  static constexpr std::size_t kMost = 16;
  class Turn {
   public:
    explicit Turn(std::size_t& count) : count_(count), admitted_(count < kMost) {
      if (admitted_) ++count_;
    }
    ~Turn() {
      if (admitted_) --count_;
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    [[nodiscard]] bool admitted() const { return admitted_; }

   private:
    std::size_t& count_;
    bool admitted_;
  };
  /// Not admitted: `busy` is what to answer.
  [[nodiscard]] Turn take() { return Turn(count_); }
  [[nodiscard]] static Response busy(Request& request);

 private:
  std::size_t count_ = 0;
};

/// A call of the supervisor that goes on beside its caller, who gives it one end of a pipe.
template <class T>
class Beside {
 public:
  Beside(const asio::any_io_executor& executor, std::shared_ptr<supervisor::Clock> clock)
      : state_(std::make_shared<State>(executor, std::move(clock))) {}

  void start(const asio::any_io_executor& executor, Awaitable<supervisor::Outcome<T>> call) {
    const std::shared_ptr<State> state = state_;
    asio::co_spawn(executor, std::move(call),
                   [state](const std::exception_ptr& failed, supervisor::Outcome<T> outcome) {
                     if (failed)
                       state->outcome = supervisor::refuse(supervisor::Code::kSystem, "failed");
                     else
                       state->outcome = std::move(outcome);
                     state->changed.notify();
                   });
  }
  [[nodiscard]] bool done() const { return state_->outcome.has_value(); }
  /// Its outcome, once there is one: the service bounds how long that takes.
  [[nodiscard]] Awaitable<supervisor::Outcome<T>> outcome() {
    const std::shared_ptr<State> state = state_;
    while (!state->outcome) co_await state->changed.wait();
    co_return *state->outcome;
  }

 private:
  struct State {
    State(const asio::any_io_executor& executor, std::shared_ptr<supervisor::Clock> clock)
        : changed(executor, std::move(clock)) {}
    std::optional<supervisor::Outcome<T>> outcome;
    supervisor::Notifier changed;
  };
  std::shared_ptr<State> state_;
};

/// Writes all of it to a pipe or socket; false when nobody reads it any more.
[[nodiscard]] Awaitable<bool> write_all(asio::posix::stream_descriptor& to, std::string_view bytes);

/// Writes the whole body of a request to a pipe. What stopped it decides what is still to be said.
enum class Copied {
  kAll,
  kNoReader,  ///< The other end of the pipe has been closed.
  kNoSender,  ///< The body broke off, which has been answered where it could be.
};
[[nodiscard]] Awaitable<Copied> copy_body(Exchange& exchange, asio::posix::stream_descriptor& to);

}  // namespace belljar::api
