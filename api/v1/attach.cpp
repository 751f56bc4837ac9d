// GET /v1/sessions/{session}/processes/{process}/attach: a WebSocket beside a process, sub-protocol
// belljar.attach.v1. Binary messages; the first byte is the channel, with Kubernetes' numbers:
//   0    stdin, to the process
//   1, 2 stdout and stderr, from it
//   3    how it ended: the record, JSON. The last message before the closing handshake (1000)
//   4    resize: {"cols":80,"rows":24}
//   255  closes a channel: one byte, 0 (stdin)
//   5    control, JSON with a `type`. From us:
//        {"type":"hello","offsets":{"stdout":N,"stderr":N},"stdin":N or null,"writer":true}: what
//        comes
//          begins at these offsets; so many bytes of stdin have been taken
//        {"type":"gap","stream":"stdout","from":N,"to":N}: these bytes are gone
//        {"type":"writer","writer":false}: another has taken over
//        {"type":"error","code":"...","detail":"..."}: what came last had no effect
//        {"type":"pong","stdin":N or null}
//      To us: {"type":"signal","signal":"INT" or 2,"target":"leader"|"group"|"tree"},
//      {"type":"ping"}
//
// Query: stdout=N and stderr=N, where to begin (0); writer=true|false: whether to be the writer
// (true: 409 where there is another; without it: where there is none); takeover=true: in any case.
// At most 256 KiB wait for a reader, in the socket's buffer; one who is slower than the process
// meets a gap, and one who takes nothing and says nothing for two pings is cut off. So many bytes
// of stdin wait for the process as well; then nothing more is read. Messages to us have up to 128
// KiB (1009).
#include <algorithm>
#include <csignal>
#include <deque>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>

#include "api/simulator/create_request.hpp"
#include "api/v1/body.hpp"
#include "api/v1/operations.hpp"
#include "api/v1/output_reader.hpp"

namespace belljar::api {
namespace {

using nlohmann::json;
using supervisor::Code;
using supervisor::Milliseconds;
using supervisor::Outcome;
using supervisor::Piece;
using supervisor::Process;
using Kind = Piece::Kind;

constexpr const char* kProtocol = "belljar.attach.v1";
constexpr std::size_t kMostMessage = std::size_t{128} << 10;
constexpr std::size_t kPiece = std::size_t{32} << 10;
constexpr std::size_t kWaiting = std::size_t{256} << 10;
constexpr Milliseconds kLook{1000};  // How long a task waits before it looks whether it is over.
constexpr Milliseconds kAgain{50};
constexpr std::uint16_t kNormal = 1000, kUnsupported = 1003, kFailed = 1011;

enum Channel : unsigned char {
  kStdin = 0,
  kStdout = 1,
  kStderr = 2,
  kRecord = 3,
  kResize = 4,
  kControl = 5,
  kClose = 255
};

class Attach;
/// Who writes the stdin of which process.
using Writers = std::map<const Process*, Attach*>;

struct Wish {
  Offsets from;
  std::optional<bool> writer;
  bool takeover = false;
};

std::optional<Problem> read_wish(const Request& request, const Process& process, Wish& wish) {
  Query query(request.query);
  wish.from.out = query.number("stdout", 0, process.out()->size()).value_or(0);
  wish.from.err = query.number("stderr", 0, process.err()->size()).value_or(0);
  wish.writer = query.boolean("writer");
  wish.takeover = query.boolean("takeover").value_or(false);
  return query.finish();
}

/// Whether an object has members that nobody reads.
bool has_others(const json& said, std::initializer_list<std::string_view> known) {
  for (const auto& [name, value] : said.items())
    if (std::find(known.begin(), known.end(), name) == known.end()) return true;
  return false;
}

std::optional<int> signal_number(const json& said) {
  if (said.is_number_unsigned() && said < NSIG) return said.get<int>();
  if (!said.is_string()) return std::nullopt;
  return supervisor::signal_number(said.get_ref<const std::string&>());
}

std::optional<Process::Target> target_of(const json& said) {
  if (said.is_null() || said == "leader") return Process::Target::kLeader;
  if (said == "group") return Process::Target::kGroup;
  if (said == "tree") return Process::Target::kTree;
  return std::nullopt;
}

std::string frame(Channel channel, std::string_view bytes) {
  std::string text(1, static_cast<char>(channel));
  text += bytes;
  return text;
}

std::string dumped(const json& tree) {
  return tree.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// One client's WebSocket, for as long as it lasts.
class Attach : public std::enable_shared_from_this<Attach> {
 public:
  Attach(const V1Context& context, std::shared_ptr<Writers> writers, const Request& request,
         std::shared_ptr<Process> process, const Wish& wish, WebSocket& client)
      : context_(context),
        writers_(std::move(writers)),
        request_(request),
        process_(std::move(process)),
        wish_(wish),
        client_(client) {}

  Awaitable<void> run();

 private:
  void begin(Awaitable<void> task);
  Awaitable<void> read_client();
  Awaitable<void> take(std::string message);
  Awaitable<void> take_control(const json& said);
  Awaitable<void> resize(const json& said);
  Awaitable<void> signal(const json& said);
  Awaitable<void> write_stdin();
  Awaitable<bool> write_piece(std::string bytes);
  Awaitable<void> show_output(std::shared_ptr<OutputReader> reader);
  Awaitable<bool> show(OutputReader::Next next);
  Awaitable<void> tell_end();
  Awaitable<json> stdin_offset();
  Awaitable<void> say(json members);
  Awaitable<void> refuse(std::string code, std::string detail);
  void become_writer();
  void lose_writer();
  [[nodiscard]] bool writes() const {
    const auto found = writers_->find(process_.get());
    return found != writers_->end() && found->second == this;
  }
  [[nodiscard]] supervisor::TimePoint after(Milliseconds pause) const {
    return context_.supervisor->clock()->now() + pause;
  }

  const V1Context& context_;
  std::shared_ptr<Writers> writers_;
  const Request& request_;
  std::shared_ptr<Process> process_;
  Wish wish_;
  WebSocket& client_;
  std::optional<boost::asio::any_io_executor> executor_;
  std::unique_ptr<supervisor::Notifier> changed_;
  std::deque<std::string> stdin_;
  std::size_t waiting_ = 0;  ///< Bytes of stdin_.
  bool close_stdin_ = false, lost_writer_ = false;
  int tasks_ = 0;
  bool over_ = false;  ///< Every task is to end.
};

/// The task holds it, and `run` waits for every task before the client's socket goes.
void Attach::begin(Awaitable<void> task) {
  ++tasks_;
  asio::co_spawn(*executor_, std::move(task),
                 [self = shared_from_this()](const std::exception_ptr&) {
                   --self->tasks_;
                   self->over_ = true;
                   self->changed_->notify();
                 });
}

void Attach::become_writer() {
  const auto found = writers_->find(process_.get());
  const bool free = found == writers_->end();
  if (!wish_.takeover && (!free || !wish_.writer.value_or(true))) return;
  if (!free) found->second->lose_writer();
  (*writers_)[process_.get()] = this;
}

/// What still waits is not typed behind the other's back.
void Attach::lose_writer() {
  stdin_.clear();
  waiting_ = 0;
  close_stdin_ = false;
  lost_writer_ = true;
  changed_->notify();
}

Awaitable<void> Attach::run() {
  const auto self = shared_from_this();
  executor_ = co_await asio::this_coro::executor;
  changed_ = std::make_unique<supervisor::Notifier>(*executor_, context_.supervisor->clock());
  client_.limit_waiting(kWaiting);
  become_writer();
  const OutputReader::Wanted both;
  const auto reader =
      std::make_shared<OutputReader>(*executor_, context_.supervisor, process_, wish_.from, both);
  begin(show_output(reader));
  begin(read_client());
  begin(write_stdin());
  while (!over_) co_await changed_->wait();
  if (writes()) writers_->erase(process_.get());
  changed_->notify();
  client_.abort();
  while (tasks_ > 0) co_await changed_->wait();
}

// --- from the process

Awaitable<void> Attach::show_output(std::shared_ptr<OutputReader> reader) {
  json hello = {{"type", "hello"}, {"writer", writes()}};
  hello["offsets"] = {{"stdout", wish_.from.out}, {"stderr", wish_.from.err}};
  hello["stdin"] = co_await stdin_offset();
  co_await say(std::move(hello));
  while (!over_) {
    OutputReader::Next next = reader->next(kPiece);
    if (next.piece.kind == Kind::kEnd) co_return co_await tell_end();
    if (next.piece.kind == Kind::kNothing) {
      co_await reader->wait(kLook);
      continue;
    }
    const bool shown = co_await show(std::move(next));
    if (!shown) co_return;
  }
}

Awaitable<bool> Attach::show(OutputReader::Next next) {
  const Piece& piece = next.piece;
  if (piece.kind == Kind::kGap) {
    json gap = {{"type", "gap"}, {"stream", stream_name(next.stream)}};
    gap["from"] = piece.from;
    gap["to"] = piece.to;
    std::string told = frame(kControl, dumped(gap));
    co_return co_await client_.write_binary(std::move(told));
  }
  std::string bytes = frame(next.stream == OutputStream::kOut ? kStdout : kStderr, next.piece.data);
  co_return co_await client_.write_binary(std::move(bytes));
}

/// From how it really ended: where nobody knows, the closing code says so.
Awaitable<void> Attach::tell_end() {
  while (!over_ && process_->state() != Process::State::kEnded) co_await process_->wait(kLook);
  if (over_) co_return;
  if (!process_->end_record()) {
    co_await client_.close(kFailed, "nobody knows how it ended");
    co_return;
  }
  std::string record = frame(kRecord, shown_record(request_, process_->end_record()->record));
  co_await client_.write_binary(std::move(record));
  std::string cause = process_->end_record()->cause;
  co_await client_.close(kNormal, std::move(cause));
}

Awaitable<void> Attach::say(json members) {
  std::string text = frame(kControl, dumped(members));
  co_await client_.write_binary(std::move(text));
}

Awaitable<void> Attach::refuse(std::string code, std::string detail) {
  json members = {{"type", "error"}, {"code", code}, {"detail", detail}};
  co_await say(std::move(members));
}

Awaitable<json> Attach::stdin_offset() {
  std::string none;
  const auto taken = co_await process_->write_stdin(std::move(none), std::nullopt);
  co_return taken ? json(*taken) : json();
}

// --- from the client

Awaitable<void> Attach::read_client() {
  while (!over_) {
    if (waiting_ >= kWaiting) {
      // Who is not listened to cannot answer a ping.
      client_.expect_silence(true);
      while (waiting_ >= kWaiting && !over_) co_await changed_->wait();
      client_.expect_silence(false);
      continue;
    }
    auto message = co_await client_.read();
    if (!message) co_return;
    if (!message->binary) {
      co_await client_.close(kUnsupported, "messages are binary");
      co_return;
    }
    co_await take(std::move(message->data));
  }
}

Awaitable<void> Attach::take(std::string message) {
  if (message.empty()) co_return co_await refuse("malformed", "a message without a channel");
  const auto channel = static_cast<unsigned char>(message[0]);
  message.erase(0, 1);
  if (channel == kStdin || channel == kClose) {
    if (channel == kClose && message != std::string(1, '\0'))
      co_return co_await refuse("malformed", "only channel 0, stdin, can be closed");
    if (!writes()) co_return co_await refuse("not_the_writer", "another client writes stdin");
    close_stdin_ |= channel == kClose;
    waiting_ += message.size();
    if (channel == kStdin && !message.empty()) stdin_.push_back(std::move(message));
    changed_->notify();
    co_return;
  }
  if (channel != kResize && channel != kControl)
    co_return co_await refuse("malformed", "no channel of yours");
  json said = nested_at_most(message, 4) ? json::parse(message, nullptr, false) : json();
  if (!said.is_object()) co_return co_await refuse("malformed", "expected a JSON object");
  if (channel == kResize) co_return co_await resize(said);
  co_await take_control(said);
}

Awaitable<void> Attach::take_control(const json& said) {
  const std::string type = said.value("type", json()) == "signal" ? "signal"
                           : said.value("type", json()) == "ping" ? "ping"
                                                                  : "";
  if (type == "signal") co_return co_await signal(said);
  if (type.empty()) co_return co_await refuse("malformed", "expected the type signal or ping");
  if (said.size() > 1) co_return co_await refuse("malformed", "a ping has no other members");
  json pong = {{"type", "pong"}};
  pong["stdin"] = co_await stdin_offset();
  co_await say(std::move(pong));
}

Awaitable<void> Attach::resize(const json& said) {
  if (has_others(said, {"cols", "rows"}))
    co_return co_await refuse("malformed", "expected cols and rows, and nothing else");
  const json columns = said.value("cols", json()), rows = said.value("rows", json());
  if (!columns.is_number_unsigned() || !rows.is_number_unsigned() || columns > 9999 || rows > 9999)
    co_return co_await refuse("malformed", "expected cols and rows, up to 9999");
  supervisor::TerminalSize size;
  size.columns = columns.get<std::uint16_t>();
  size.rows = rows.get<std::uint16_t>();
  const Outcome<void> done = co_await process_->resize(size);
  if (done) co_return;
  std::string code(supervisor::code_name(done.error().code)), what = done.error().error.what;
  co_await refuse(std::move(code), std::move(what));
}

Awaitable<void> Attach::signal(const json& said) {
  if (has_others(said, {"type", "signal", "target"}))
    co_return co_await refuse("malformed", "expected a signal, a target, and nothing else");
  const auto number = signal_number(said.value("signal", json()));
  const auto target = target_of(said.value("target", json()));
  if (!number || !target)
    co_return co_await refuse("malformed", "expected a signal, and leader, group or tree");
  const Outcome<void> done = co_await process_->signal(*number, *target);
  if (done) co_return;
  std::string code(supervisor::code_name(done.error().code)), what = done.error().error.what;
  co_await refuse(std::move(code), std::move(what));
}

/// Beside the reading, so that a program that reads nothing can still be signalled.
Awaitable<void> Attach::write_stdin() {
  while (!over_) {
    if (std::exchange(lost_writer_, false)) {
      json told = {{"type", "writer"}, {"writer", false}};
      co_await say(std::move(told));
    } else if (!stdin_.empty()) {
      std::string bytes = std::move(stdin_.front());
      stdin_.pop_front();
      const std::size_t size = bytes.size();
      const bool taken = co_await write_piece(std::move(bytes));
      waiting_ -= std::min(waiting_, size);
      if (!taken) stdin_.clear();
      changed_->notify();
    } else if (close_stdin_) {
      close_stdin_ = false;
      const Outcome<void> closed = process_->close_stdin();
      if (closed) continue;
      std::string code(supervisor::code_name(closed.error().code));
      std::string what = closed.error().error.what;
      co_await refuse(std::move(code), std::move(what));
    } else {
      co_await changed_->wait();
    }
  }
}

Awaitable<bool> Attach::write_piece(std::string bytes) {
  while (!over_ && writes()) {
    std::string copy = bytes;
    const auto taken = co_await process_->write_stdin(std::move(copy), std::nullopt);
    if (taken) co_return true;
    if (taken.error().code == Code::kBusy) {  // Another, by `stdin`.
      co_await changed_->wait_until(after(kAgain));
      continue;
    }
    std::string code(supervisor::code_name(taken.error().code)), what = taken.error().error.what;
    co_await refuse(std::move(code), std::move(what));
    break;
  }
  co_return false;
}

// --- the operation

/// Refuses before the upgrade what can be refused.
std::optional<Response> check(const V1Context& context, const Writers& writers, Request& head) {
  const auto process = context.process(head);
  if (!process) return context.no_process(head);
  if (!lists_word(head.headers.find("sec-websocket-protocol").value_or(""), kProtocol))
    return problem_response(
        head, Problem(400, "subprotocol", std::string("offer the sub-protocol ") + kProtocol));
  Wish wish;
  if (auto problem = read_wish(head, *process, wish))
    return problem_response(head, *std::move(problem));
  if (wish.writer.value_or(false) && !wish.takeover && writers.contains(process.get()))
    return problem_response(head, Problem(409, "writer_present",
                                          "another client writes stdin: takeover=true moves it"));
  return std::nullopt;
}

Awaitable<void> attach(const V1Context& context, std::shared_ptr<Writers> writers,
                       const Request& request, WebSocket& client) {
  Request head = request;
  const auto session = context.session(head);
  const auto process = context.process(head);
  Wish wish;
  if (!process || read_wish(head, *process, wish)) {
    co_await client.close(kFailed, "the process has gone");
    co_return;
  }
  const auto attachment = session->attach();
  const auto attached =
      std::make_shared<Attach>(context, std::move(writers), request, process, wish, client);
  co_await attached->run();
}

}  // namespace

void add_attach_operations(Router& router, const V1Context& context) {
  const auto writers = std::make_shared<Writers>();
  Operation operation("attach", "GET", "/v1/sessions/{session}/processes/{process}/attach");
  operation.takes_query = true;
  operation.check = [&context, writers](Request& head) { return check(context, *writers, head); };
  operation.upgrade = [&context, writers](const Request& request, WebSocket& client) {
    return attach(context, writers, request, client);
  };
  operation.most_message = kMostMessage;
  operation.protocol = kProtocol;
  router.add(std::move(operation));
}

}  // namespace belljar::api
