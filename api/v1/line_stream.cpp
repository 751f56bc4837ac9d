#include "api/v1/line_stream.hpp"

#include "api/v1/media.hpp"

namespace belljar::api {

using nlohmann::json;
using supervisor::Awaitable;

Awaitable<bool> LineStream::begin() {
  Response head;
  head.content_type = form_ == Form::kEvents ? "text/event-stream" : "application/x-ndjson";
  head.headers.add("cache-control", "no-store");
  co_return co_await exchange_.begin(std::move(head), std::nullopt);
}

void LineStream::line(const json& members, const std::string& id) {
  const std::string text = members.dump(-1, ' ', false, json::error_handler_t::replace);
  if (form_ == Form::kEvents)
    pending_ += sse_event(members["type"].get_ref<const std::string&>(), id, text);
  else
    pending_ += text + '\n';
}

void LineStream::heartbeat(const json& members) {
  if (form_ == Form::kEvents)
    pending_ += ": heartbeat\n\n";
  else
    line(members, {});
}

Awaitable<bool> LineStream::flush() {
  if (pending_.empty()) co_return true;
  std::string lines = std::move(pending_);
  pending_.clear();
  co_return co_await exchange_.write(std::move(lines));
}

}  // namespace belljar::api
