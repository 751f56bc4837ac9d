// An answer that goes on: JSON objects, a line or an event each.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "api/http/exchange.hpp"

namespace belljar::api {

/// application/x-ndjson or text/event-stream, by what the client has asked for. Objects have a
/// `type`, which is the event's name. What is said waits for `flush`.
class LineStream {
 public:
  enum class Form { kLines, kEvents };
  LineStream(Exchange& exchange, Form form) : exchange_(exchange), form_(form) {}

  [[nodiscard]] supervisor::Awaitable<bool> begin();
  /// `id` is the event's: where to go on after it.
  void line(const nlohmann::json& members, const std::string& id);
  /// A line; among events a comment, which clients never see.
  void heartbeat(const nlohmann::json& members);
  [[nodiscard]] std::size_t pending() const { return pending_.size(); }
  /// False: the peer has gone.
  [[nodiscard]] supervisor::Awaitable<bool> flush();

 private:
  Exchange& exchange_;
  Form form_;
  std::string pending_;
};

}  // namespace belljar::api
