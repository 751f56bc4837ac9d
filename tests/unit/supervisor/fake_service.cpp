#include "fake_service.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "supervisor/streams.hpp"

namespace belljar::supervisor {

std::pair<UniqueFd, UniqueFd> socket_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw std::runtime_error("socketpair");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::size_t open_descriptors() {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

FakePeer::FakePeer(asio::io_context& loop, UniqueFd socket)
    : socket_(loop.get_executor(), socket.release()) {
  socket_.native_non_blocking(true);
}

void FakePeer::open(Handler on_message, std::function<void()> on_closed) {
  on_message_ = std::move(on_message);
  on_closed_ = std::move(on_closed);
  asio::co_spawn(socket_.get_executor(), listen(shared_from_this()), asio::detached);
}

Awaitable<void> FakePeer::listen(std::shared_ptr<FakePeer> self) {
  std::vector<char> buffer(70000);
  while (!self->closed()) {
    const auto [error] =
        co_await socket_.async_wait(asio::posix::descriptor_base::wait_read, kAsTuple);
    if (error || self->closed()) break;
    iovec part{buffer.data(), buffer.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * 8)> control{};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    const ssize_t length =
        ::recvmsg(socket_.native_handle(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (length < 0 && errno == EAGAIN) continue;
    if (length <= 0) break;
    std::vector<UniqueFd> descriptors;
    for (cmsghdr* one = CMSG_FIRSTHDR(&header); one; one = CMSG_NXTHDR(&header, one))
      for (std::size_t at = 0; at < (one->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++at) {
        int number = -1;
        std::memcpy(&number, CMSG_DATA(one) + at * sizeof(int), sizeof(int));
        descriptors.emplace_back(number);
      }
    on_message_(Json::parse(buffer.data(), buffer.data() + length), std::move(descriptors));
  }
  self->close();
  if (const auto tell = std::exchange(on_closed_, nullptr)) tell();
}

void FakePeer::send(const std::string& text, const std::vector<int>& descriptors) {
  if (!damage) return send_as_it_is(text, descriptors);
  for (const std::string& one : damage(text)) send_as_it_is(one, descriptors);
}

void FakePeer::send_as_it_is(const std::string& text, const std::vector<int>& descriptors) {
  iovec part{const_cast<char*>(text.data()), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * 16)> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size() * sizeof(int));
  }
  (void)::sendmsg(socket_.native_handle(), &header, MSG_NOSIGNAL);
}

void FakePeer::answer(const Json& request, const Json& ok, const std::vector<int>& descriptors) {
  Json message;
  message["id"] = request["id"];
  message["ok"] = ok;
  send(message.dump(), descriptors);
}

void FakePeer::fail(const Json& request, const std::string& code) {
  Json message;
  message["id"] = request["id"];
  message["error"] = {{"code", code}, {"message", "the test says " + code}};
  send(message.dump());
}

void FakePeer::tell(const std::string& event, Json members) {
  members["event"] = event;
  send(members.dump());
}

void FakePeer::close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
}

// The monitor.

FakeMonitor::FakeMonitor(asio::io_context& loop, UniqueFd socket, UniqueFd alive, Json the_launch,
                         std::vector<UniqueFd> streams)
    : peer(std::make_shared<FakePeer>(loop, std::move(socket))),
      launch(std::move(the_launch)),
      alive_(std::move(alive)) {
  if (launch.contains("argv")) processes[0].streams = std::move(streams);
  peer->open([this](const Json& message,
                    std::vector<UniqueFd> descriptors) { take(message, std::move(descriptors)); },
             [this] {
               if (obeys_end_of_file) die();
             });
}

void FakeMonitor::started(Json members) {
  members["pid"] = ::getpid();
  members["back_end"] = "modern";
  members["degraded"] = Json::array();
  members["policy_digest"] = "sha256:of-the-resolved";
  peer->tell("started", members);
}

void FakeMonitor::over(const std::string& cause, Json more) {
  more["cause"] = cause;
  Json members;
  members["record"] = std::move(more);
  processes.clear();
  peer->tell("over", members);
  die();
}

void FakeMonitor::ended(std::uint32_t process, const std::string& cause, Json more) {
  more["cause"] = cause;
  Json members;
  members["process"] = process;
  members["record"] = std::move(more);
  processes.erase(process);
  peer->tell("ended", members);
}

void FakeMonitor::write(std::uint32_t process, int stream, const std::string& text) {
  const auto& streams = processes.at(process).streams;
  if (::write(streams.at(static_cast<std::size_t>(stream)).get(), text.data(), text.size()) !=
      static_cast<ssize_t>(text.size()))
    throw std::runtime_error("the pipe is full");
}

void FakeMonitor::die() {
  processes.clear();
  peer->close();
  alive_.reset();
}

void FakeMonitor::signal(const Json& message) {
  const auto found = processes.find(message["process"].get<std::uint32_t>());
  if (found == processes.end()) return peer->answer(message, {{"gone", true}});
  found->second.signals.push_back(message["signal"].get<int>());
  peer->answer(message, {{"gone", false}});
  if (!dies_of_term || message["signal"] != 15) return;
  const std::uint32_t id = found->first;
  if (id == 0) return over("signaled", {{"signal", "SIGTERM"}});
  ended(id, "signaled", {{"signal", "SIGTERM"}});
}

void FakeMonitor::take(const Json& message, std::vector<UniqueFd> descriptors) {
  const std::string action = message["do"];
  asked.push_back(action);
  if (!answers) return;
  if (const auto other = instead.find(action); other != instead.end())
    return other->second(message);
  if (action == "exec") {
    FakeProcess& process = processes[message["process"].get<std::uint32_t>()];
    process.streams = std::move(descriptors);
    process.request = message;
    if (!message.contains("terminal")) return peer->answer(message, {{"pid", 7}});
    auto [ours, theirs] = socket_pair();
    peer->answer(message, {{"pid", 7}}, {theirs.get()});
    process.streams.push_back(std::move(ours));
  } else if (action == "signal") {
    signal(message);
  } else if (action == "end") {
    peer->answer(message, Json::object());
    ended(message["process"].get<std::uint32_t>(), message["cause"]);
  } else if (action == "kill") {
    killed_by = message["by"];
    if (!obeys_kill) return;
    peer->answer(message, Json::object());
    over("killed", {{"by", killed_by}});
  } else if (action == "connect") {
    auto [ours, theirs] = socket_pair();
    peer->answer(message, Json::object(), {theirs.get()});
  } else {
    peer->answer(message, Json::object());
  }
}

// The service.

FakeService::FakeService(asio::io_context& loop, UniqueFd socket)
    : peer(std::make_shared<FakePeer>(loop, std::move(socket))), loop_(loop) {
  hello = {{"version", "0"},    {"back_end", "modern"}, {"uid_base", 20000},
           {"max_sessions", 5}, {"privileged", true},   {"sessions_root", "/sessions"},
           {"sandbox", "auto"}};
  hello["policies"] = Json::array();
  hello["policies"].push_back({{"name", "builtin:agent@1"}, {"digest", "sha256:a"}});
  hello["policies"].push_back({{"name", "small"}, {"digest", "sha256:b"}, {"output", 10}});
  on_launch = [](FakeMonitor& monitor) { monitor.started(); };
  peer->open([this](const Json& message,
                    std::vector<UniqueFd> descriptors) { take(message, std::move(descriptors)); },
             [this] { die(); });
}

std::size_t FakeService::count(const std::string& action) const {
  return static_cast<std::size_t>(std::ranges::count(asked, action));
}

std::size_t FakeService::monitors_alive() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(monitors, [](const auto& one) { return one.second->alive(); }));
}

void FakeService::die() {
  peer->close();
  for (const auto& [id, monitor] : monitors) monitor->die();
}

void FakeService::take(const Json& message, std::vector<UniqueFd> descriptors) {
  const std::string action = message["do"];
  asked.push_back(action);
  if (const auto other = instead.find(action); other != instead.end())
    return other->second(message);
  if (action == "hello") {
    peer->answer(message, hello);
  } else if (action == "prepare") {
    const std::string name = message["workspace"];
    if (!workspaces.insert(name).second) return peer->fail(message, "exists");
    bodies[name] = read_memfd(descriptors.at(0), 1 << 20).value();
    peer->answer(message, {{"path", "/sessions/" + name}});
  } else if (action == "remove") {
    if (remove_leaves == 0) workspaces.erase(message["workspace"].get<std::string>());
    peer->answer(message, {{"left", remove_leaves}});
  } else if (action == "launch") {
    launch(message, std::move(descriptors));
  } else if (action == "sweep") {
    swept.push_back(message["uid"].get<std::uint32_t>());
    peer->answer(message, {{"left", left[swept.back()]}});
  } else {
    peer->answer(message, Json::object());
  }
}

void FakeService::launch(const Json& message, std::vector<UniqueFd> descriptors) {
  auto [ours, theirs] = socket_pair();
  Pipe alive = make_pipe().value();
  peer->answer(message, Json::object(), {theirs.get(), alive.read_end.get()});
  const auto monitor = std::make_shared<FakeMonitor>(
      loop_, std::move(ours), std::move(alive.write_end), message, std::move(descriptors));
  monitors[message["session"].get<std::string>()] = monitor;
  if (on_launch) on_launch(*monitor);
}

// The world.

World::World(Config config, std::function<void(FakeService&)> change)
    : clock(std::make_shared<TestClock>(loop)) {
  auto [ours, theirs] = socket_pair();
  service = std::make_unique<FakeService>(loop, std::move(theirs));
  if (change) change(*service);
  auto started = run(Supervisor::start(loop, std::move(ours), std::move(config), clock));
  if (started) {
    supervisor = *started;
  } else {
    refused = started.error();
  }
}

// What still goes on sees its sockets end before the loop does.
World::~World() {
  supervisor.reset();
  service->die();
  for (int turn = 0; turn < 100; ++turn) {
    settle();
    clock->advance(Milliseconds(1000));
  }
}

void World::settle() {
  // Readiness of a socket may need a look of its own.
  for (int quiet = 0; quiet < 2;) {
    loop.restart();
    quiet = loop.poll() == 0 ? quiet + 1 : 0;
  }
}

bool World::turn_until(const std::function<bool()>& done, Milliseconds limit) {
  const TimePoint until = clock->now() + limit;
  settle();
  while (!done()) {
    const TimePoint next = std::min(clock->next(), until);
    if (next >= until) break;
    clock->advance(std::chrono::ceil<Milliseconds>(next - clock->now()));
    settle();
  }
  return done();
}

void World::pass(Milliseconds time) {
  const TimePoint until = clock->now() + time;
  turn_until([] { return false; }, time);
  if (clock->now() < until) clock->advance(std::chrono::ceil<Milliseconds>(until - clock->now()));
  settle();
}

void World::run(Awaitable<void> work, Milliseconds limit) {
  const auto done = std::make_shared<bool>(false);
  asio::co_spawn(loop, std::move(work), [done](const std::exception_ptr&) { *done = true; });
  if (!turn_until([done] { return *done; }, limit))
    throw std::runtime_error("it did not end in time");
}

SessionSpec World::spec(const std::string& id) const {
  SessionSpec spec;
  spec.id = id;
  spec.client = "tester";
  spec.command.emplace();
  spec.command->argv = {"agent"};
  return spec;
}

std::shared_ptr<Session> World::session(const std::string& id) {
  auto made = run(supervisor->create(spec(id)));
  if (!made) throw std::runtime_error(made.error().error.what);
  settle();
  return *made;
}

}  // namespace belljar::supervisor
