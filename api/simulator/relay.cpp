#include "api/simulator/relay.hpp"

#include <nlohmann/json.hpp>

namespace belljar::api {

namespace asio = boost::asio;
using supervisor::Awaitable;
using supervisor::Cursor;
using supervisor::Milliseconds;
using supervisor::Piece;

namespace {

constexpr std::size_t kPiece = std::size_t{32} << 10;
constexpr std::size_t kTail = std::size_t{48} << 10;
constexpr Milliseconds kLook{500};     // How long a task waits before it looks whether it is over.
constexpr Milliseconds kToShow{3000};  // For the client to take what output there still is.
constexpr std::uint16_t kNormal = 1000, kRestart = 1012;

/// Whether the daemon itself is going down.
bool is_drain(const std::string& record) {
  const auto tree = nlohmann::json::parse(record, nullptr, false);
  return tree.is_object() && tree.contains("by") && tree["by"] == "drain";
}

}  // namespace

Relay::Relay(std::shared_ptr<supervisor::Supervisor> supervisor,
             std::shared_ptr<supervisor::Session> session, WebSocket& client, RelayOptions options)
    : supervisor_(std::move(supervisor)),
      session_(std::move(session)),
      process_(session_->process(0)),
      client_(client),
      options_(options) {}

/// The task holds the relay, and `run` waits for every task before the client's socket goes.
void Relay::begin(Awaitable<void> task) {
  ++tasks_;
  asio::co_spawn(*executor_, std::move(task),
                 [self = shared_from_this()](const std::exception_ptr&) {
                   --self->tasks_;
                   self->changed_->notify();
                 });
}

Awaitable<void> Relay::run() {
  const auto self = shared_from_this();
  const auto attachment = session_->attach();
  executor_ = co_await asio::this_coro::executor;
  changed_ = std::make_unique<supervisor::Notifier>(*executor_, supervisor_->clock());
  inbox_changed_ = std::make_unique<supervisor::Notifier>(*executor_, supervisor_->clock());
  begin(read_client());
  if (process_) {
    begin(show_output());
    begin(watch_process());
    co_await dial();
  } else {
    process_ended_ = true;
    shown_all_ = true;
  }
  if (agent_) {
    begin(read_agent());
    begin(write_agent());
    co_await wait_over();
    if (!client_gone_) co_await tell_end();
  } else if (!client_gone_) {
    co_await tell_failed_start();
  }
  co_await leave();
}

/// Connects to nobody but a listener of this session's own uid: before it listens there is nobody
/// to ask, and a server that is only asked whether it is there would log a failure, or begin to
/// talk.
Awaitable<void> Relay::dial() {
  WebSocketOptions options;
  options.most_message = std::size_t{16} << 20;
  options.handshake = options_.open;
  for (int attempt = 0; attempt < options_.attempts && !finished(); ++attempt) {
    const auto began = supervisor_->clock()->now();
    const auto listening = co_await session_->wait_listening(session_->port(), options_.retry);
    if (finished()) co_return;
    if (listening) {
      auto descriptor = co_await session_->connect(session_->port());
      if (descriptor)
        agent_ = co_await WebSocket::connect(std::move(*descriptor), "127.0.0.1", options);
      if (agent_) co_return;
    }
    while (!finished() && supervisor_->clock()->now() < began + options_.retry)
      co_await changed_->wait_until(began + options_.retry);
  }
}

Awaitable<void> Relay::read_client() {
  while (!over_) {
    while (inbox_.size() >= options_.waiting && !over_) co_await inbox_changed_->wait();
    auto message = co_await client_.read();
    // A binary frame ends a relay, as it always did.
    if (!message || message->binary) break;
    inbox_.push_back(std::move(message->data));
    inbox_changed_->notify();
  }
  client_gone_ = true;
  changed_->notify();
}

Awaitable<void> Relay::write_agent() {
  while (!over_) {
    if (inbox_.empty()) {
      co_await inbox_changed_->wait();
      continue;
    }
    std::string text = std::move(inbox_.front());
    inbox_.pop_front();
    inbox_changed_->notify();
    const bool sent = co_await agent_->write(std::move(text));
    if (!sent) break;
  }
}

Awaitable<void> Relay::read_agent() {
  while (!over_) {
    auto message = co_await agent_->read();
    if (!message) break;
    std::string text = message->binary ? as_text(message->data) : std::move(message->data);
    // A larger one would end the client's connection, and all that comes after it.
    if (text.size() > kMostFrame)
      text = error_frame("The agent sent a message of " + std::to_string(text.size()) +
                         " bytes; at most 1 MiB can be shown.");
    const bool sent = co_await client_.write(std::move(text));
    if (!sent) break;
  }
  agent_gone_ = true;
  changed_->notify();
}

Awaitable<void> Relay::watch_process() {
  while (!over_ && !process_->end_record()) co_await process_->wait(kLook);
  process_ended_ = true;
  changed_->notify();
}

Awaitable<void> Relay::show_line(const std::string& line) {
  std::vector<std::string> frames = frames_of_line(line);
  for (std::string& frame : frames) co_await client_.write(std::move(frame));
}

Awaitable<void> Relay::show_piece(const Piece& piece, LineCutter& lines) {
  if (piece.kind == Piece::Kind::kData) {
    const std::vector<std::string> complete = lines.add(piece.data);
    for (const std::string& line : complete) co_await show_line(line);
    co_return;
  }
  const auto rest = lines.rest();
  if (rest) co_await show_line(*rest);
  if (piece.kind != Piece::Kind::kGap) co_return;
  std::string note = "[" + std::to_string(piece.to - piece.from) + " bytes of output were dropped]";
  co_await show_line(note);
}

Awaitable<void> Relay::show_output() {
  Cursor cursor(process_->out());
  LineCutter lines;
  while (!over_ && !client_gone_) {
    const Piece piece = cursor.read(kPiece);
    shown_all_ = piece.kind == Piece::Kind::kNothing;
    if (shown_all_) {
      changed_->notify();
      co_await cursor.wait(kLook);
      continue;
    }
    co_await show_piece(piece, lines);
    if (piece.kind == Piece::Kind::kEnd) break;
  }
  shown_all_ = true;
  changed_->notify();
}

Awaitable<void> Relay::wait_over() {
  while (!finished()) co_await changed_->wait();
  // An agent that closes is mostly about to end, and how it ends is worth a moment.
  const auto until = supervisor_->clock()->now() + 2 * kLook;
  while (!client_gone_ && !process_ended_ && supervisor_->clock()->now() < until)
    co_await changed_->wait_until(until);
}

Awaitable<void> Relay::wait_shown() {
  const auto until = supervisor_->clock()->now() + kToShow;
  while (!client_gone_ && !shown_all_ && supervisor_->clock()->now() < until)
    co_await changed_->wait_until(until);
}

Awaitable<void> Relay::tell_failed_start() {
  co_await wait_shown();
  const std::string tail = process_ ? process_->out()->tail(kTail) : std::string();
  std::string message = "The agent's WebSocket server did not start.\n\n";
  message += tail.empty() ? "The agent wrote no output." : tail;
  co_await client_.write(error_frame(message));
  if (process_ended_) co_return co_await tell_end();
  co_await client_.close(kNormal);
  (void)co_await supervisor_->end(session_->id(), supervisor::EndedBy::kDaemon);
}

Awaitable<void> Relay::tell_end() {
  co_await wait_shown();
  if (!process_ended_) {
    co_await client_.close(kNormal, "the agent closed its connection");
    co_return;
  }
  const auto end = process_ ? process_->end_record() : session_->end_record();
  std::uint16_t code = kNormal;
  std::string cause = "lost";
  if (end) {
    cause = end->cause;
    if (is_drain(end->record)) code = kRestart;
    co_await client_.write(exit_frame(cause, end->exit_code, end->signal));
  }
  co_await client_.close(code, cause);
}

Awaitable<void> Relay::leave() {
  over_ = true;
  changed_->notify();
  inbox_changed_->notify();
  if (agent_) {
    co_await agent_->close(kNormal);
    agent_->abort();
  }
  client_.abort();
  while (tasks_ > 0) co_await changed_->wait();
}

}  // namespace belljar::api
