// A launch service and monitors that live in the test itself, and misbehave as they are told.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "supervisor/channel.hpp"
#include "supervisor/supervisor.hpp"

namespace belljar::supervisor {

/// The other end of a socket: messages in, messages out.
class FakePeer : public std::enable_shared_from_this<FakePeer> {
 public:
  using Handler = std::function<void(const Json& message, std::vector<UniqueFd> descriptors)>;
  FakePeer(asio::io_context& loop, UniqueFd socket);
  void open(Handler on_message, std::function<void()> on_closed);
  void send(const std::string& text, const std::vector<int>& descriptors = {});
  void answer(const Json& request, const Json& ok, const std::vector<int>& descriptors = {});
  void fail(const Json& request, const std::string& code);
  void tell(const std::string& event, Json members);
  void close();
  [[nodiscard]] bool closed() const { return !socket_.is_open(); }

  /// What goes out in place of a message: any number of them.
  std::function<std::vector<std::string>(const std::string&)> damage;

 private:
  void send_as_it_is(const std::string& text, const std::vector<int>& descriptors);
  [[nodiscard]] Awaitable<void> listen(std::shared_ptr<FakePeer> self);
  asio::posix::stream_descriptor socket_;
  Handler on_message_;
  std::function<void()> on_closed_;
};

[[nodiscard]] std::pair<UniqueFd, UniqueFd> socket_pair();

/// A command of a fake sandbox, and what it has as 0, 1 and 2.
struct FakeProcess {
  std::vector<UniqueFd> streams;
  Json request;
  std::vector<int> signals;
};

class FakeMonitor {
 public:
  FakeMonitor(asio::io_context& loop, UniqueFd socket, UniqueFd alive, Json launch,
              std::vector<UniqueFd> streams);
  FakeMonitor(const FakeMonitor&) = delete;
  FakeMonitor& operator=(const FakeMonitor&) = delete;

  // How it behaves.
  bool dies_of_term = true, obeys_kill = true, answers = true;
  bool obeys_end_of_file = true;  ///< False: it stays when its socket has ended.
  std::map<std::string, std::function<void(const Json&)>> instead;  ///< Of what it does for a `do`.

  void started(Json members = Json::object());
  void over(const std::string& cause, Json more = Json::object());
  void ended(std::uint32_t process, const std::string& cause, Json more = Json::object());
  void write(std::uint32_t process, int stream, const std::string& text);
  void die();
  [[nodiscard]] bool alive() const { return alive_.valid(); }

  std::shared_ptr<FakePeer> peer;
  Json launch;
  std::map<std::uint32_t, FakeProcess> processes;
  std::string killed_by;
  std::vector<std::string> asked;

 private:
  void take(const Json& message, std::vector<UniqueFd> descriptors);
  void signal(const Json& message);
  UniqueFd alive_;  ///< The other end is what the daemon takes for a pidfd.
};

class FakeService {
 public:
  FakeService(asio::io_context& loop, UniqueFd socket);
  FakeService(const FakeService&) = delete;
  FakeService& operator=(const FakeService&) = delete;

  // How it behaves.
  std::map<std::string, std::function<void(const Json&)>> instead;
  std::function<void(FakeMonitor&)> on_launch;  ///< By default the sandbox stands at once.
  std::map<std::uint32_t, std::uint64_t> left;  ///< Processes of a uid that no sweep gets.
  std::uint64_t remove_leaves = 0;
  Json hello;

  [[nodiscard]] FakeMonitor& monitor(const std::string& session) { return *monitors.at(session); }
  [[nodiscard]] std::size_t count(const std::string& action) const;
  [[nodiscard]] std::size_t monitors_alive() const;
  void die();

  std::shared_ptr<FakePeer> peer;
  std::map<std::string, std::shared_ptr<FakeMonitor>> monitors;
  std::set<std::string> workspaces;
  std::map<std::string, std::string> bodies;
  std::vector<std::string> asked;
  std::vector<std::uint32_t> swept;

 private:
  void take(const Json& message, std::vector<UniqueFd> descriptors);
  void launch(const Json& message, std::vector<UniqueFd> descriptors);
  asio::io_context& loop_;
};

/// A supervisor on simulated time, with a fake service. Time moves on by itself whenever nothing
/// else is left to do.
class World {
 public:
  explicit World(Config config = {}, std::function<void(FakeService&)> change = {});
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Runs the loop until `work` is done, or for `limit` of simulated time.
  template <class T>
  T run(Awaitable<T> work, Milliseconds limit = Milliseconds(120000)) {
    const auto result = std::make_shared<std::optional<T>>();
    asio::co_spawn(loop, std::move(work), [result](const std::exception_ptr& broken, T value) {
      if (!broken) *result = std::move(value);
    });
    turn_until([result] { return result->has_value(); }, limit);
    if (!*result) throw std::runtime_error("it did not end in time");
    return std::move(**result);
  }
  void run(Awaitable<void> work, Milliseconds limit = Milliseconds(120000));
  /// Without waiting for it.
  template <class T>
  std::shared_ptr<std::optional<T>> begin(Awaitable<T> work) {
    const auto result = std::make_shared<std::optional<T>>();
    asio::co_spawn(loop, std::move(work), [result](const std::exception_ptr& broken, T value) {
      if (!broken) *result = std::move(value);
    });
    settle();
    return result;
  }
  /// Everything that can be done without time going by.
  void settle();
  void pass(Milliseconds time);
  bool turn_until(const std::function<bool()>& done, Milliseconds limit);

  [[nodiscard]] SessionSpec spec(const std::string& id = {}) const;
  [[nodiscard]] std::shared_ptr<Session> session(const std::string& id = "one");

  asio::io_context loop;
  std::shared_ptr<TestClock> clock;
  std::unique_ptr<FakeService> service;
  std::shared_ptr<Supervisor> supervisor;
  std::optional<Failure> refused;  ///< Where the supervisor did not start.
};

[[nodiscard]] std::size_t open_descriptors();

}  // namespace belljar::supervisor
