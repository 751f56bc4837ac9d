// Channel: one end of a socket of docs/launch-service.md. Requests are matched to answers by id,
// events are handed on, descriptors travel beside both.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "policy/base/unique_fd.hpp"
#include "supervisor/asio.hpp"
#include "supervisor/clock.hpp"
#include "supervisor/failure.hpp"

namespace belljar::supervisor {

/// In the order of its writer: records are shown to people.
using Json = nlohmann::ordered_json;

/// What is asked for. The descriptors are closed once they are sent, or given up.
struct Request {
  Request(std::string_view action, Json arguments) : name(action), members(std::move(arguments)) {}
  std::string name;
  Json members;
  std::vector<UniqueFd> descriptors;
};

struct Reply {
  Json ok;
  std::vector<UniqueFd> descriptors;
};

/// The client's side. Bounded: what the other end does not take in is queued up to kMostQueued
/// messages (kBusy beyond). An other end that breaks the protocol is not spoken to again: the
/// channel closes, as it does at the end of file, and everything under way fails with kLost.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  static constexpr std::size_t kLargestMessage = std::size_t{64} << 10;
  static constexpr std::size_t kMostDescriptors = 8;
  static constexpr std::size_t kMostQueued = 1024;

  using EventHandler = std::function<void(const std::string& name, const Json& event)>;
  using ClosedHandler = std::function<void(const std::string& why)>;

  /// `name` is for messages: "the launch service".
  Channel(const asio::any_io_executor& executor, std::shared_ptr<Clock> clock, UniqueFd socket,
          std::string name);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel();

  /// Begins to listen. The handlers are called from the loop; `on_closed` once.
  void open(EventHandler on_event, ClosedHandler on_closed);

  /// The answer, or the failure that the other end names (kTimeout after `limit`). An answer that
  /// comes later is dropped, and what it carries is closed. A caller who goes away takes nothing
  /// back: the request is made.
  [[nodiscard]] Awaitable<Outcome<Reply>> ask(Request request, Milliseconds limit);

  /// Closes the socket, which for the other end is the end of what it holds.
  void close(const std::string& why);
  [[nodiscard]] bool closed() const { return !socket_.is_open(); }

 private:
  struct Waiting {
    Waiting(const asio::any_io_executor& executor, std::shared_ptr<Clock> clock)
        : changed(executor, std::move(clock)) {}
    std::optional<Outcome<Reply>> answer;
    bool given_up = false;
    Notifier changed;
  };
  struct Outgoing {
    std::string text;
    std::vector<UniqueFd> descriptors;
  };

  [[nodiscard]] Awaitable<void> listen();
  [[nodiscard]] Awaitable<void> flush();
  [[nodiscard]] bool receive_one(bool& more);
  [[nodiscard]] bool take_in(std::string_view text, std::vector<UniqueFd> descriptors);
  [[nodiscard]] bool take_answer(const Json& message, std::vector<UniqueFd> descriptors);
  [[nodiscard]] bool send_queued();
  void begin_flush();

  asio::any_io_executor executor_;
  std::shared_ptr<Clock> clock_;
  asio::posix::stream_descriptor socket_;
  std::string name_;
  EventHandler on_event_;
  ClosedHandler on_closed_;
  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, std::shared_ptr<Waiting>> waiting_;
  std::deque<Outgoing> outgoing_;
  bool flushing_ = false;
  std::string why_closed_;
};

/// A memfd that holds `text`, sealed for good, as the service wants what is larger than a message.
[[nodiscard]] Outcome<UniqueFd> sealed_memfd(std::string_view text);

/// All of `descriptor`, a memfd, at most `most` bytes (kTooLarge).
[[nodiscard]] Outcome<std::string> read_memfd(const UniqueFd& descriptor, std::size_t most);

// Members of what the other end says, which is not believed to have the right types.
[[nodiscard]] std::optional<std::string> text_of(const Json& object, const char* member);
[[nodiscard]] std::optional<std::uint64_t> number_of(const Json& object, const char* member);
[[nodiscard]] bool flag_of(const Json& object, const char* member);
/// As text, whatever bytes are in it.
[[nodiscard]] std::string dumped(const Json& json);

/// The failure that an "error" of the other end stands for.
[[nodiscard]] Failure failure_of(const Json& error);

}  // namespace belljar::supervisor
