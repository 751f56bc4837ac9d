// GET /v1/sessions/{session}/processes/{process}/output: what a process has written and writes,
// from one journal in three forms.
//
// Query: stream=stdout|stderr|both (both; of octets: stdout), offset=N (of one stream) or stdout=N
// and stderr=N, follow=true|false (false).
//
// application/x-ndjson, one of these a line:
//   {"type":"output","stream":"stdout","offset":0,"time":RFC3339,"text":"..."}, or "base64" in
//   place of
//     "text" where it is no UTF-8; `offset` is that of its first byte
//   {"type":"gap","stream":"stdout","from":65536,"to":90000}: these bytes are gone
//   {"type":"heartbeat","offsets":{"stdout":N,"stderr":N}}: nothing new; and, without `follow`, the
//   last
//     line of a process that still runs
//   {"type":"end","cause":"exited","exit_code":0,"signal":null,"record":{...}}: the last line, once
//   it has
//     ended. A stream without it was cut short; go on from the offsets.
// text/event-stream: the same objects as events named by their type. The id of each says where to
// go
//   on, and comes back as Last-Event-ID; heartbeats are comments. After `end` such a request gets
//   204.
// application/octet-stream: the bytes of one stream; Range, 206 and 416. Octets cannot say that
// some are
//   missing: 409 `gap`, or, while following, the connection is cut.
#include <nlohmann/json.hpp>

#include "api/v1/body.hpp"
#include "api/v1/line_stream.hpp"
#include "api/v1/operations.hpp"
#include "api/v1/output_reader.hpp"
#include "api/v1/shapes.hpp"
#include "policy/base64.hpp"
#include "policy/utf8.hpp"

namespace belljar::api {
namespace {

using nlohmann::json;
using supervisor::Journal;
using supervisor::Milliseconds;
using supervisor::Piece;
using supervisor::Process;
using Kind = Piece::Kind;

constexpr std::size_t kPiece = std::size_t{32} << 10;
const std::string kEndId = "end";

/// What a request asks for.
struct Wish {
  enum class Form { kLines, kEvents, kOctets };
  Form form = Form::kLines;
  OutputReader::Wanted wanted;
  Offsets from;
  bool follow = false;
  bool ended = false;  ///< An EventSource that has seen the end and asks again.
};

/// Without liberties: an offset that nobody has written yet is of another process, or a mistake.
void check_offset(std::uint64_t offset, const Journal& journal, std::string_view name,
                  std::vector<ProblemItem>& problems) {
  if (offset > journal.size())
    problems.push_back({'?' + std::string(name), "is beyond what has been written, " +
                                                     std::to_string(journal.size()) + " bytes"});
}

std::optional<Wish::Form> form_of(const Request& request) {
  const auto chosen = choose_type(
      request, {"application/x-ndjson", "text/event-stream", "application/octet-stream"});
  if (!chosen) return std::nullopt;
  return *chosen == 0   ? Wish::Form::kLines
         : *chosen == 1 ? Wish::Form::kEvents
                        : Wish::Form::kOctets;
}

/// Which streams, and from where; a problem says why not.
std::optional<Problem> read_offsets(Query& query, const Request& request, Wish& wish) {
  const bool octets = wish.form == Wish::Form::kOctets;
  const std::string stream = query.text("stream").value_or(octets ? "stdout" : "both");
  const auto offset = query.number("offset", 0, UINT64_MAX);
  wish.from.out = query.number("stdout", 0, UINT64_MAX).value_or(0);
  wish.from.err = query.number("stderr", 0, UINT64_MAX).value_or(0);
  wish.follow = query.boolean("follow").value_or(false) && request.method != "HEAD";
  if (auto problem = query.finish()) return problem;
  const bool both = stream == "both";
  if (!both && stream != "stdout" && stream != "stderr")
    return invalid_body({{"?stream", "expected stdout, stderr or both"}});
  if (both && octets) return invalid_body({{"?stream", "octets are of one stream"}});
  if (both && offset)
    return invalid_body({{"?offset", "is of one stream: name it, or give stdout= and stderr="}});
  wish.wanted.out = stream != "stderr";
  wish.wanted.err = stream != "stdout";
  if (offset) (wish.wanted.out ? wish.from.out : wish.from.err) = *offset;
  if (wish.form != Wish::Form::kEvents) return std::nullopt;
  const std::string_view last = request.headers.find("last-event-id").value_or("");
  wish.ended = last == kEndId;
  if (last.empty() || wish.ended) return std::nullopt;
  const auto resumed = parse_offsets(last);
  if (!resumed) return Problem(400, "malformed", "a Last-Event-ID that is none of ours");
  wish.from = *resumed;
  return std::nullopt;
}

std::optional<Problem> read_wish(const Request& request, const Process& process, Wish& wish) {
  const auto form = form_of(request);
  if (!form)
    return Problem(406, "not_acceptable",
                   "output comes as application/x-ndjson, text/event-stream or "
                   "application/octet-stream");
  wish.form = *form;
  Query query(request.query);
  if (auto problem = read_offsets(query, request, wish)) return problem;
  std::vector<ProblemItem> problems;
  if (!wish.wanted.out && process.err() == process.out())
    problems.push_back({"?stream", "stderr goes where stdout goes: they are one stream"});
  if (wish.wanted.out) check_offset(wish.from.out, *process.out(), "stdout", problems);
  if (wish.wanted.err && process.err() != process.out())
    check_offset(wish.from.err, *process.err(), "stderr", problems);
  if (problems.empty()) return std::nullopt;
  return invalid_body(std::move(problems));
}

/// One answer in lines or events.
class Telling {
 public:
  Telling(const V1Context& context, Exchange& exchange, std::shared_ptr<Process> process,
          const Wish& wish, const asio::any_io_executor& executor)
      : context_(context),
        exchange_(exchange),
        process_(std::move(process)),
        wish_(wish),
        lines_(exchange, wish.form == Wish::Form::kEvents ? LineStream::Form::kEvents
                                                          : LineStream::Form::kLines),
        told_(wish.from),
        reader_(executor, context.supervisor, process_, wish.from, wish.wanted) {}

  Awaitable<void> run();

 private:
  Awaitable<bool> tell_what_comes();
  Awaitable<bool> tell_end();
  void show(const OutputReader::Next& next);
  void show_bytes(OutputStream stream, const std::string& bytes, const Piece& piece, bool text);
  void give_up_torn(OutputStream stream);
  void line(const json& members) { lines_.line(members, offsets_text(told_)); }
  void heartbeat() {
    lines_.heartbeat(
        {{"type", "heartbeat"}, {"offsets", {{"stdout", told_.out}, {"stderr", told_.err}}}});
  }
  [[nodiscard]] std::uint64_t& told(OutputStream stream) {
    return stream == OutputStream::kOut ? told_.out : told_.err;
  }
  [[nodiscard]] std::string& torn(OutputStream stream) {
    return torn_[stream == OutputStream::kOut ? 0 : 1];
  }

  const V1Context& context_;
  Exchange& exchange_;
  std::shared_ptr<Process> process_;
  const Wish& wish_;
  LineStream lines_;
  Offsets told_;                     ///< From here who is cut off goes on.
  std::array<std::string, 2> torn_;  ///< The beginning of a character, after `told_`.
  OutputReader reader_;
};

Awaitable<void> Telling::run() {
  const bool begun = co_await lines_.begin();
  if (!begun) co_return;
  const bool complete = co_await tell_what_comes();
  if (complete) co_await exchange_.finish();
}

/// Whether all has been said.
Awaitable<bool> Telling::tell_what_comes() {
  for (;;) {
    const OutputReader::Next next = reader_.next(kPiece);
    if (next.piece.kind == Kind::kEnd) {
      const bool told = co_await tell_end();
      co_return told;
    }
    if (next.piece.kind != Kind::kNothing) {
      show(next);
      if (lines_.pending() < kPiece) continue;
    } else if (!wish_.follow) {
      if (process_->end_record()) {  // What it has left behind may go on writing all the same.
        const bool told = co_await tell_end();
        co_return told;
      }
      heartbeat();
      co_return co_await lines_.flush();
    }
    if (!co_await lines_.flush()) co_return false;
    if (next.piece.kind != Kind::kNothing) continue;
    const bool came = co_await reader_.wait(context_.options.heartbeat);
    if (exchange_.gone()) co_return false;
    if (!came) heartbeat();
  }
}

/// Only from how it really ended: what nobody knows is not made up, and the stream has no end then.
Awaitable<bool> Telling::tell_end() {
  give_up_torn(OutputStream::kOut);
  give_up_torn(OutputStream::kErr);
  while (!process_->end_record()) {
    if (process_->state() == Process::State::kEnded) co_return false;
    if (!wish_.follow) {
      heartbeat();
      co_return co_await lines_.flush();
    }
    if (!co_await lines_.flush()) co_return false;
    const bool ended = co_await process_->wait(context_.options.heartbeat);
    if (exchange_.gone()) co_return false;
    if (!ended) heartbeat();
  }
  const supervisor::End& end = *process_->end_record();
  json members = {{"type", "end"}, {"cause", end.cause}};
  members["exit_code"] = end.exit_code ? json(*end.exit_code) : json();
  members["signal"] = end.signal ? json(*end.signal) : json();
  members["record"] = record_json(exchange_.request(), end);
  lines_.line(members, kEndId);
  co_return co_await lines_.flush();
}

void Telling::show(const OutputReader::Next& next) {
  const Piece& piece = next.piece;
  if (piece.kind == Kind::kGap) {
    give_up_torn(next.stream);
    told(next.stream) = piece.to;
    line({{"type", "gap"},
          {"stream", stream_name(next.stream)},
          {"from", piece.from},
          {"to", piece.to}});
    return;
  }
  std::string bytes = std::exchange(torn(next.stream), {}) + piece.data;
  const std::size_t whole = policy::whole_characters(bytes);
  torn(next.stream) = bytes.substr(whole);
  bytes.resize(whole);
  if (!bytes.empty()) show_bytes(next.stream, bytes, piece, policy::is_utf8(bytes));
}

void Telling::show_bytes(OutputStream stream, const std::string& bytes, const Piece& piece,
                         bool text) {
  json members = {{"type", "output"},
                  {"stream", stream_name(stream)},
                  {"offset", told(stream)},
                  {"time", time_text(piece.time)}};
  members[text ? "text" : "base64"] = text ? bytes : policy::base64(bytes);
  told(stream) += bytes.size();
  line(members);
}

/// The rest of a character will not come.
void Telling::give_up_torn(OutputStream stream) {
  const std::string bytes = std::exchange(torn(stream), {});
  Piece piece;
  piece.time = context_.supervisor->clock()->wall();
  if (!bytes.empty()) show_bytes(stream, bytes, piece, false);
}

// --- octets

Problem gap_problem(std::uint64_t from, std::uint64_t to) {
  return Problem(409, "gap",
                 "the bytes from " + std::to_string(from) + " to " + std::to_string(to) +
                     " are gone: ask for others by Range, or for application/x-ndjson");
}

/// From one offset of one stream to its end; a gap cuts it.
Awaitable<void> follow_octets(const V1Context& context, Exchange& exchange,
                              std::shared_ptr<Journal> journal, std::uint64_t from) {
  Response head;
  head.content_type = "application/octet-stream";
  head.headers.add("cache-control", "no-store");
  supervisor::Cursor cursor(std::move(journal), from);
  bool goes_on = co_await exchange.begin(std::move(head), std::nullopt);
  while (goes_on) {
    Piece piece = cursor.read(kPiece);
    if (piece.kind == Kind::kGap) co_return;
    if (piece.kind == Kind::kEnd) co_return co_await exchange.finish();
    if (piece.kind == Kind::kData) {
      goes_on = co_await exchange.write(std::move(piece.data));
      continue;
    }
    co_await cursor.wait(context.options.heartbeat);
    goes_on = !exchange.gone();
  }
}

/// What is there now, of a range or all of it: known to be without a gap before a byte is sent.
Awaitable<void> send_octets(Exchange& exchange, std::shared_ptr<Journal> journal,
                            std::uint64_t from) {
  const std::uint64_t size = journal->size();
  RangeWish range = wanted_range(exchange.request(), size);
  Response head;
  head.content_type = "application/octet-stream";
  head.headers.add("cache-control", "no-store");
  head.headers.add("accept-ranges", "bytes");
  if (range.kind == RangeWish::Kind::kNone) {
    Problem none(416, "range", "there are " + std::to_string(size) + " bytes");
    Response refused = problem_response(exchange.request(), std::move(none));
    refused.headers.add("content-range", "bytes */" + std::to_string(size));
    co_return co_await exchange.answer(std::move(refused));
  }
  if (range.kind == RangeWish::Kind::kPart) {
    head.status = 206;
    const auto known = journal->finished() ? std::optional(size) : std::nullopt;
    head.headers.add("content-range", content_range(range.from, range.to, known));
  } else {
    range.from = from;
    range.to = size;
  }
  // Nothing may come between the look and the copy: a journal moves on while a peer is waited for.
  std::string bytes;
  while (range.from + bytes.size() < range.to) {
    const std::uint64_t at = range.from + bytes.size();
    const Piece piece = journal->read(at, static_cast<std::size_t>(range.to - at));
    if (piece.kind != Kind::kData) {
      Problem gap = gap_problem(piece.from, piece.to);
      Response refused = problem_response(exchange.request(), std::move(gap));
      co_return co_await exchange.answer(std::move(refused));
    }
    bytes += piece.data;
  }
  head.body = std::move(bytes);
  co_await exchange.answer(std::move(head));
}

Awaitable<void> output(const V1Context& context, Exchange& exchange) {
  Request& request = exchange.request();
  const auto session = context.session(request);
  const auto process = context.process(request);
  if (!process) co_return co_await exchange.answer(context.no_process(request));
  Wish wish;
  if (auto problem = read_wish(request, *process, wish)) {
    Response refused = problem_response(request, *std::move(problem));
    co_return co_await exchange.answer(std::move(refused));
  }
  if (wish.ended) {
    co_return co_await exchange.answer(no_content());
  }
  const auto attachment = session->attach();
  if (wish.form != Wish::Form::kOctets) {
    Telling telling(context, exchange, process, wish, co_await asio::this_coro::executor);
    co_return co_await telling.run();
  }
  const auto journal = wish.wanted.out ? process->out() : process->err();
  const std::uint64_t from = wish.wanted.out ? wish.from.out : wish.from.err;
  if (wish.follow)
    co_await follow_octets(context, exchange, journal, from);
  else
    co_await send_octets(exchange, journal, from);
}

}  // namespace

void add_output_operations(Router& router, const V1Context& context) {
  Operation operation("readOutput", "GET", "/v1/sessions/{session}/processes/{process}/output");
  operation.takes_query = true;
  operation.stream = [&context](Exchange& exchange) { return output(context, exchange); };
  router.add(std::move(operation));
}

}  // namespace belljar::api
