#include "supervisor/channel.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "policy/base/sealing.hpp"

namespace belljar::supervisor {
namespace {

/// How many messages are taken in before others of the loop have their turn.
constexpr int kMessagesAtOnce = 32;

struct NamedCode {
  const char* name;
  Code code;
};
// not_in_pool and malformed requests would be faults of ours, not of a client.
constexpr NamedCode kCodes[] = {
    {"invalid", Code::kInvalid},      {"not_in_pool", Code::kSystem}, {"busy", Code::kBusy},
    {"exists", Code::kExists},        {"not_found", Code::kNotFound}, {"refused", Code::kRefused},
    {"denied", Code::kDenied},        {"too_large", Code::kTooLarge}, {"timeout", Code::kTimeout},
    {"no_space", Code::kNoSpace},     {"sandbox", Code::kSandbox},    {"system", Code::kSystem},
    {"changed", Code::kPrecondition},
};

// Bytes that are no UTF-8 have no form in JSON, and another program is not run in their place.
std::optional<std::string> strictly_dumped(const Json& json) {
  try {
    return json.dump();
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

// The descriptors beside a message; false where some were lost for want of room.
bool take_descriptors(msghdr& header, std::vector<UniqueFd>& descriptors) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t index = 0; index < count; ++index) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(part) + index * sizeof(int), sizeof(int));
      descriptors.emplace_back(descriptor);
    }
  }
  return (header.msg_flags & MSG_CTRUNC) == 0;
}

}  // namespace

std::optional<std::string> text_of(const Json& object, const char* member) {
  const auto found = object.find(member);
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

std::optional<std::uint64_t> number_of(const Json& object, const char* member) {
  const auto found = object.find(member);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<std::uint64_t>();
}

bool flag_of(const Json& object, const char* member) {
  const auto found = object.find(member);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Failure failure_of(const Json& error) {
  Failure failure;
  const std::string code = text_of(error, "code").value_or("");
  for (const NamedCode& named : kCodes)
    if (code == named.name) failure.code = named.code;
  failure.error.kind = failure.code == Code::kInvalid   ? ErrorKind::kInvalid
                       : failure.code == Code::kRefused ? ErrorKind::kRefused
                       : failure.code == Code::kSystem  ? ErrorKind::kSystem
                                                        : ErrorKind::kUnavailable;
  failure.error.what = text_of(error, "message").value_or("");
  if (failure.error.what.empty()) failure.error.what = "the launch service says: " + code;
  if (const std::optional<std::string> name = text_of(error, "errno"))
    failure.error.what += " (" + *name + ")";
  failure.error.where = text_of(error, "where").value_or("");
  failure.error.remedy = text_of(error, "remedy").value_or("");
  if (const auto setup = error.find("setup"); setup != error.end() && setup->is_object())
    failure.setup = dumped(*setup);
  if (const auto exit = error.find("exit_code"); exit != error.end() && exit->is_number_integer())
    failure.exit_code = exit->get<int>();
  return failure;
}

Channel::Channel(const asio::any_io_executor& executor, std::shared_ptr<Clock> clock,
                 UniqueFd socket, std::string name)
    : executor_(executor),
      clock_(std::move(clock)),
      socket_(executor, socket.release()),
      name_(std::move(name)) {
  socket_.native_non_blocking(true);
}

Channel::~Channel() = default;

void Channel::open(EventHandler on_event, ClosedHandler on_closed) {
  on_event_ = std::move(on_event);
  on_closed_ = std::move(on_closed);
  asio::co_spawn(executor_, listen(), asio::detached);
}

void Channel::close(const std::string& why) {
  if (closed()) return;
  boost::system::error_code ignored;
  socket_.close(ignored);
  why_closed_ = why;
  outgoing_.clear();
  for (auto& [id, waiting] : std::exchange(waiting_, {})) {
    waiting->answer = refuse(Code::kLost, name_ + ": " + why);
    waiting->changed.notify();
  }
  on_event_ = nullptr;
  if (ClosedHandler tell = std::exchange(on_closed_, nullptr)) tell(why);
}

Awaitable<void> Channel::listen() {
  const std::shared_ptr<Channel> self = shared_from_this();
  while (!closed()) {
    const auto [error] =
        co_await socket_.async_wait(asio::posix::descriptor_base::wait_read, kAsTuple);
    if (error || closed()) break;
    bool more = true;
    for (int count = 0; more && count < kMessagesAtOnce && !closed(); ++count)
      if (!receive_one(more)) close("it broke the protocol");
  }
}

// One message; false where the other end breaks the protocol. `more` is false when there is nothing
// to read now.
bool Channel::receive_one(bool& more) {
  static thread_local std::array<char, kLargestMessage + 1> buffer;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMostDescriptors)> control;
  iovec part{buffer.data(), buffer.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t length =
      ::recvmsg(socket_.native_handle(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  // An other end that went with requests unread resets the connection: the kernel says so once,
  // before it gives out what that end had sent last.
  if (length < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNRESET)) {
    more = errno != EAGAIN;
    return true;
  }
  std::vector<UniqueFd> descriptors;
  if (length > 0 && !take_descriptors(header, descriptors)) return false;
  if (length <= 0) {
    more = false;
    close(length == 0 ? "it has gone" : std::strerror(errno));
    return true;
  }
  if (header.msg_flags & MSG_TRUNC || static_cast<std::size_t>(length) > kLargestMessage)
    return false;
  return take_in({buffer.data(), static_cast<std::size_t>(length)}, std::move(descriptors));
}

bool Channel::take_in(std::string_view text, std::vector<UniqueFd> descriptors) {
  const Json message = Json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!message.is_object()) return false;
  if (message.contains("id")) return take_answer(message, std::move(descriptors));
  const std::optional<std::string> name = text_of(message, "event");
  if (!name) return false;
  // A copy: the handler may close this channel, which takes the handler away.
  if (const EventHandler handler = on_event_) handler(*name, message);
  return true;
}

bool Channel::take_answer(const Json& message, std::vector<UniqueFd> descriptors) {
  const Json& id = message["id"];
  if (!id.is_number_unsigned()) return false;
  const auto found = waiting_.find(id.get<std::uint64_t>());
  if (found == waiting_.end()) return false;
  const auto ok = message.find("ok"), error = message.find("error");
  if ((ok == message.end()) == (error == message.end())) return false;
  const std::shared_ptr<Waiting> waiting = found->second;
  waiting_.erase(found);
  if (waiting->given_up) return true;
  if (error != message.end()) {
    waiting->answer = tl::unexpected<Failure>(failure_of(*error));
  } else {
    Reply reply;
    reply.ok = *ok;
    reply.descriptors = std::move(descriptors);
    waiting->answer = std::move(reply);
  }
  waiting->changed.notify();
  return true;
}

Awaitable<Outcome<Reply>> Channel::ask(Request request, Milliseconds limit) {
  const std::shared_ptr<Channel> self = shared_from_this();
  if (closed()) co_return refuse(Code::kLost, name_ + ": " + why_closed_);
  const std::uint64_t id = ++last_id_;
  request.members["id"] = id;
  request.members["do"] = request.name;
  Outgoing message;
  std::optional<std::string> text = strictly_dumped(request.members);
  if (!text)
    co_return refuse(Code::kInvalid, request.name + ": an argument, name or value is no UTF-8");
  message.text = std::move(*text);
  message.descriptors = std::move(request.descriptors);
  if (message.text.size() > kLargestMessage)
    co_return refuse(Code::kTooLarge,
                     request.name + ": a request of " + std::to_string(message.text.size()) +
                         " bytes, of " + std::to_string(kLargestMessage) + " at most",
                     "shorten the command, its environment or the settings");
  if (outgoing_.size() >= kMostQueued || waiting_.size() >= 4 * kMostQueued)
    co_return refuse(Code::kBusy, name_ + " takes nothing in");
  const auto waiting = std::make_shared<Waiting>(executor_, clock_);
  waiting_.emplace(id, waiting);
  outgoing_.push_back(std::move(message));
  if (!flushing_) begin_flush();
  const auto answered = [&] { return waiting->answer.has_value(); };
  // Whoever goes away before the answer leaves a number that is known, so that the answer is no
  // breach of the protocol.
  struct GiveUp {
    explicit GiveUp(std::shared_ptr<Waiting> one) : waiting(std::move(one)) {}
    ~GiveUp() { waiting->given_up = true; }
    std::shared_ptr<Waiting> waiting;
  } const give_up(waiting);
  const TimePoint deadline = clock_->now() + limit;
  if (!co_await wait_for(waiting->changed, answered, deadline))
    co_return refuse(Code::kTimeout, request.name + ": " + name_ + " did not answer in " +
                                         std::to_string(limit.count()) + " ms");
  co_return std::move(*waiting->answer);
}

void Channel::begin_flush() {
  if (!send_queued() || outgoing_.empty()) return;
  flushing_ = true;
  asio::co_spawn(executor_, flush(), asio::detached);
}

Awaitable<void> Channel::flush() {
  const std::shared_ptr<Channel> self = shared_from_this();
  while (!closed() && !outgoing_.empty()) {
    const auto [error] =
        co_await socket_.async_wait(asio::posix::descriptor_base::wait_write, kAsTuple);
    if (error || !send_queued()) break;
  }
  flushing_ = false;
}

// As many messages as the socket takes; false where the channel has closed.
bool Channel::send_queued() {
  while (!outgoing_.empty()) {
    Outgoing& message = outgoing_.front();
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMostDescriptors)> control{};
    iovec part{message.text.data(), message.text.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (const std::size_t bytes = message.descriptors.size() * sizeof(int); bytes > 0) {
      header.msg_control = control.data();
      header.msg_controllen = CMSG_SPACE(bytes);
      cmsghdr* rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(bytes);
      for (std::size_t index = 0; index < message.descriptors.size(); ++index) {
        const int descriptor = message.descriptors[index].get();
        std::memcpy(CMSG_DATA(rights) + index * sizeof(int), &descriptor, sizeof(int));
      }
    }
    if (::sendmsg(socket_.native_handle(), &header, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
      if (errno == EAGAIN || errno == EINTR) return true;
      // It has gone, but what it said last is still to be read: the listener closes at its end.
      outgoing_.clear();
      if (errno != EPIPE && errno != ECONNRESET) close(std::strerror(errno));
      return false;
    }
    outgoing_.pop_front();
  }
  return true;
}

Outcome<UniqueFd> sealed_memfd(std::string_view text) {
  UniqueFd descriptor(::memfd_create("belljar", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!descriptor.valid()) return sys_refusal(errno, "memfd_create");
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor.get(), text.data(), text.size());
    if (written < 0 && errno != EINTR) return sys_refusal(errno, "write to a memfd");
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (!add_seals(descriptor.get(), F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL))
    return sys_refusal(errno, "seal a memfd");
  return descriptor;
}

Outcome<std::string> read_memfd(const UniqueFd& descriptor, std::size_t most) {
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0) return sys_refusal(errno, "fstat of a memfd");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size > most)
    return refuse(Code::kTooLarge, "an answer of " + std::to_string(size) + " bytes, of " +
                                       std::to_string(most) + " at most");
  std::string text(size, '\0');
  std::size_t have = 0;
  while (have < size) {
    const ssize_t got =
        ::pread(descriptor.get(), text.data() + have, size - have, static_cast<off_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return sys_refusal(got < 0 ? errno : EIO, "read of a memfd");
    have += static_cast<std::size_t>(got);
  }
  return text;
}

}  // namespace belljar::supervisor
