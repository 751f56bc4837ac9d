// GET /v1/events: what happened to all sessions, from a ring of the last 10,000 events.
//
// Query: after=ID (0: all that are still there; "last": only what comes), follow=true|false
// (false), session=ID.
//
// application/x-ndjson, one of these a line:
//   {"type":"session.ended","id":17,"time":RFC3339,"session":"...","client":"...","process":0,
//     "cause":"exited","record":{...}}; without the members that an event has not
//   {"type":"gap","from":1,"to":9}: the events [from, to) are gone
//   {"type":"reset","last":3}: `after` is an id that this daemon has not given yet: it was
//   restarted.
//     What follows begins at 1
//   {"type":"heartbeat","last":17}: nothing new after this id; without `follow`, the last line
// text/event-stream: the same, named by type; the id comes back as Last-Event-ID, heartbeats are
//   comments.
#include <nlohmann/json.hpp>

#include "api/v1/body.hpp"
#include "api/v1/line_stream.hpp"
#include "api/v1/media.hpp"
#include "api/v1/operations.hpp"
#include "api/v1/shapes.hpp"
#include "policy/units.hpp"

namespace belljar::api {
namespace {

using nlohmann::json;
using supervisor::Event;

constexpr std::size_t kPage = 64;

struct Wish {
  LineStream::Form form = LineStream::Form::kLines;
  bool follow = false;
  std::uint64_t after = 0;
  std::optional<std::string> session;
};

std::optional<Problem> read_wish(const Request& request, std::uint64_t last, Wish& wish) {
  const auto form = choose_type(request, {"application/x-ndjson", "text/event-stream"});
  if (!form)
    return Problem(406, "not_acceptable",
                   "events come as application/x-ndjson or text/event-stream");
  if (*form == 1) wish.form = LineStream::Form::kEvents;
  Query query(request.query);
  std::string after = query.text("after").value_or("0");
  wish.follow = query.boolean("follow").value_or(false) && request.method != "HEAD";
  wish.session = query.text("session");
  if (auto problem = query.finish()) return problem;
  if (*form == 1) after = std::string(request.headers.find("last-event-id").value_or(after));
  const auto id = policy::parse_decimal(after);
  if (!id && after != "last")
    return invalid_body({{"?after", "expected the id of an event, or \"last\""}});
  wish.after = id.value_or(last);
  return std::nullopt;
}

class Telling {
 public:
  Telling(const V1Context& context, Exchange& exchange, Wish wish)
      : context_(context),
        exchange_(exchange),
        wish_(std::move(wish)),
        lines_(exchange, wish_.form),
        at_(wish_.after) {}

  Awaitable<void> run();

 private:
  Awaitable<bool> tell_what_comes();
  bool take_page();
  void show(const Event& event);
  void line(const json& members) { lines_.line(members, std::to_string(at_)); }

  const V1Context& context_;
  Exchange& exchange_;
  Wish wish_;
  LineStream lines_;
  std::uint64_t at_;  ///< The last event that has been looked at.
};

Awaitable<void> Telling::run() {
  const bool begun = co_await lines_.begin();
  if (!begun) co_return;
  const bool complete = co_await tell_what_comes();
  if (complete) co_await exchange_.finish();
}

/// Whether all has been said: never, while it is followed.
Awaitable<bool> Telling::tell_what_comes() {
  supervisor::Events& events = context_.supervisor->events();
  if (at_ > events.last()) {
    at_ = 0;
    line({{"type", "reset"}, {"last", events.last()}});
  }
  for (;;) {
    const bool more = take_page();
    if (!more && !wish_.follow) lines_.heartbeat({{"type", "heartbeat"}, {"last", at_}});
    if (!co_await lines_.flush()) co_return false;
    if (more) continue;
    if (!wish_.follow) co_return true;
    const bool came = co_await events.wait_after(at_, context_.options.heartbeat);
    if (exchange_.gone()) co_return false;
    if (!came) lines_.heartbeat({{"type", "heartbeat"}, {"last", at_}});
  }
}

/// Whether there was anything.
bool Telling::take_page() {
  const supervisor::Events::Page page = context_.supervisor->events().after(at_, kPage);
  if (page.gap) {
    at_ = page.gap->second - 1;
    line({{"type", "gap"}, {"from", page.gap->first}, {"to", page.gap->second}});
  }
  for (const Event& event : page.events) {
    at_ = event.id;
    if (!wish_.session || event.session == *wish_.session) show(event);
  }
  return !page.events.empty();
}

void Telling::show(const Event& event) {
  json members = {{"type", event.type}, {"id", event.id}, {"time", time_text(event.time)}};
  if (!event.session.empty()) members["session"] = event.session;
  if (!event.client.empty()) members["client"] = event.client;
  if (event.process) members["process"] = *event.process;
  if (!event.cause.empty()) members["cause"] = event.cause;
  const std::string detail = shown_record(exchange_.request(), event.detail);
  if (json tree = json::parse(detail, /*cb=*/nullptr, false); tree.is_object())
    members["record"] = std::move(tree);
  else if (!tree.is_discarded() && told_in_full(exchange_.request()))
    members["degraded"] = std::move(tree);
  line(members);
}

Awaitable<void> events(const V1Context& context, Exchange& exchange) {
  Request& request = exchange.request();
  Wish wish;
  if (auto problem = read_wish(request, context.supervisor->events().last(), wish)) {
    Response refused = problem_response(request, *std::move(problem));
    co_return co_await exchange.answer(std::move(refused));
  }
  Telling telling(context, exchange, std::move(wish));
  co_await telling.run();
}

}  // namespace

void add_event_operations(Router& router, const V1Context& context) {
  Operation operation("readEvents", "GET", "/v1/events");
  operation.takes_query = true;
  operation.stream = [&context](Exchange& exchange) { return events(context, exchange); };
  router.add(std::move(operation));
}

}  // namespace belljar::api
