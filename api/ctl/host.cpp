// policies, version, events: the daemon itself, and what happens in it.
#include <unistd.h>

#include "api/ctl/commands.hpp"
#include "api/ctl/follow.hpp"
#include "api/ctl/table.hpp"
#include "policy/base/result.hpp"

namespace belljar::ctl {
namespace {

/// One event for a person: when, what, whose.
std::string event_text(const Json& event) {
  std::string text = visible(text_of(event, "time")) + "  " + visible(text_of(event, "type"));
  if (const std::string session = text_of(event, "session"); !session.empty())
    text += "  " + visible(session);
  if (const Json& process = member_of(event, "process"); process.is_number_integer())
    text += "/" + dumped(process);
  if (const std::string cause = text_of(event, "cause"); !cause.empty())
    text += "  " + visible(cause);
  const Json& record = member_of(event, "record");
  if (const Json& code = member_of(record, "exit_code"); code.is_number_integer())
    text += ' ' + dumped(code);
  if (const std::string signal = text_of(record, "signal"); !signal.empty())
    text += ' ' + visible(signal);
  return text + '\n';
}

class EventReader {
 public:
  EventReader(const Client& client, const EventsOptions& asked)
      : client_(client), asked_(asked), after_(asked.after) {}

  /// One connection's worth.
  Done read() {
    std::string target = "/v1/events?follow=" + std::string(asked_.follow ? "true" : "false");
    if (!after_.empty()) target += "&after=" + path_part(after_);
    if (!asked_.session.empty()) target += "&session=" + path_part(asked_.session);
    Call call("GET", target);
    call.headers.emplace_back("Accept", "application/x-ndjson");
    call.silence = std::chrono::seconds(60);
    LineReader lines;
    bool whole = true, stopped = false;
    call.sink = [&](std::string_view bytes) {
      reached_ = true;
      whole = lines.feed(
          bytes, [&](std::string_view line) { return take(line); }, stopped);
      return whole && !stopped;
    };
    const Outcome<Answer> answer = client_.call(call);
    if (!answer) return tl::unexpected(answer.error());
    if (!whole) return failed(FailureKind::kLocal, "the daemon sends a line without an end");
    if (!printed_) return tl::unexpected(printed_.error());
    return {};
  }
  [[nodiscard]] bool reached() const { return reached_; }
  /// Whether something came since this was asked last.
  bool progressed() { return std::exchange(progressed_, false); }

 private:
  bool take(std::string_view text) {
    const Json line = Json::parse(text, nullptr, false);
    const std::string type = text_of(line, "type");
    if (type.empty() || type == "heartbeat") return true;
    if (type == "gap")
      say("the events " + dumped(member_of(line, "from")) + " to " + dumped(member_of(line, "to")) +
          " are gone");
    if (type == "reset") {
      say("the daemon was started anew: events count from 1 again");
      after_ = "0";
    }
    const bool event = member_of(line, "id").is_number_integer();
    if (event) after_ = dumped(member_of(line, "id"));
    progressed_ = true;
    if (!event && !asked_.json) return true;
    printed_ = print(asked_.json ? std::string(text) + '\n' : event_text(line));
    return printed_.has_value();
  }

  const Client& client_;
  const EventsOptions& asked_;
  std::string after_;
  Done printed_;
  bool reached_ = false, progressed_ = false;
};

}  // namespace

Outcome<int> events(const Client& client, const EventsOptions& asked) {
  EventReader reader(client, asked);
  Patience patience;
  for (;;) {
    Done read = reader.read();
    if (read && !asked.follow) return 0;
    if (read) read = failed(FailureKind::kBroken, "the stream of events ended");
    if (!asked.follow || !reader.reached()) return tl::unexpected(read.error());
    if (reader.progressed()) patience.settle();
    if (!patience.again(read.error())) return tl::unexpected(read.error());
  }
}

Outcome<int> policies(const Client& client, bool json) {
  const Json answer = BELLJAR_TRY(client.get("/v1/policies"));
  const Json& list = member_of(answer, "policies");
  Table table({"POLICY", "NETWORK", "DIGEST"});
  for (const Json& policy : list)
    table.add({text_of(policy, "name"), text_of(policy, "network"), text_of(policy, "digest")});
  BELLJAR_CHECK(print(json ? dumped(answer) + '\n' : table.text()));
  return 0;
}

Outcome<int> version(const Client& client, bool json) {
  // Ours is known whether or not the daemon answers.
  if (!json) BELLJAR_CHECK(print("belljarctl " BELLJAR_VERSION "\n"));
  const Json answer = BELLJAR_TRY(client.get("/v1/version"));
  if (json) {
    BELLJAR_CHECK(print(dumped({{"belljarctl", BELLJAR_VERSION}, {"belljard", answer}}) + '\n'));
    return 0;
  }
  std::string text = "belljard   " + visible(text_of(answer, "version"));
  if (const std::string commit = text_of(answer, "commit"); !commit.empty())
    text += " (" + visible(commit) + ')';
  BELLJAR_CHECK(print(text + '\n'));
  return 0;
}

}  // namespace belljar::ctl
