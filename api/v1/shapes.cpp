#include "api/v1/shapes.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>

#include "api/v1/problem.hpp"
#include "policy/base64.hpp"
#include "policy/utf8.hpp"

namespace belljar::api {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using supervisor::Journal;
using supervisor::Piece;
using supervisor::Process;
using supervisor::Session;

constexpr std::size_t kPiece = std::size_t{64} << 10;

template <class T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

/// The one control that gives a network of its own up says so, and then the host's is used.
bool shares_network(const Session& session) {
  const json degraded = json::parse(session.degraded(), nullptr, false);
  return degraded.is_array() && std::any_of(degraded.begin(), degraded.end(), [](const json& item) {
           return item.is_object() && item.value("control", "") == "network";
         });
}

/// The mode that was asked for, or the policy's; what it has come to, where that is another.
std::string network_of(const supervisor::Supervisor& supervisor, const Session& session) {
  constexpr std::string_view kMode = "network.mode=";
  std::string found;
  for (const auto& policy : supervisor.service().policies)
    if (policy.name == session.policy()) found = policy.network;
  for (const std::string& setting : session.settings())
    if (setting.starts_with(kMode)) found = setting.substr(kMode.size());
  if (shares_network(session)) found = "shared";
  return found;
}

json processes_of(const Session& session) {
  json ids = json::array();
  for (const auto& process : session.processes()) ids.push_back(process->id());
  return ids;
}

/// What a journal still has, and how many bytes of the stream are not in it.
struct Kept {
  std::string bytes;
  std::uint64_t dropped = 0;
};

/// A character that the gap cut goes with it, so that text stays text.
Kept kept_of(const Journal& journal) {
  Kept kept;
  for (std::uint64_t at = 0;;) {
    Piece piece = journal.read(at, kPiece);
    if (piece.kind == Piece::Kind::kGap) {
      const std::size_t whole = policy::whole_characters(kept.bytes);
      kept.dropped += piece.to - piece.from + kept.bytes.size() - whole;
      kept.bytes.resize(whole);
      at = piece.to;
      const std::string behind = journal.read(at, 4).data;
      const std::size_t torn = policy::torn_beginning(behind);
      kept.dropped += torn;
      at += torn;
    } else if (piece.kind == Piece::Kind::kData) {
      kept.bytes += piece.data;
      at = piece.to;
    } else {
      return kept;
    }
  }
}

void add_stream(json& answer, const std::string& name, const Journal& journal) {
  Kept kept = kept_of(journal);
  if (!journal.finished()) kept.bytes.resize(policy::whole_characters(kept.bytes));
  answer["truncated"][name] = kept.dropped;
  if (policy::is_utf8(kept.bytes))
    answer[name] = std::move(kept.bytes);
  else
    answer[name + "_base64"] = policy::base64(kept.bytes);
}

}  // namespace

std::string time_text(supervisor::WallTime time) {
  const auto since = std::chrono::floor<milliseconds>(time.time_since_epoch()).count();
  const std::time_t seconds = since / 1000 - (since % 1000 < 0 ? 1 : 0);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 40> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text.data() + length, text.size() - length, ".%03dZ",
                static_cast<int>(since - seconds * 1000));
  return text.data();
}

std::string duration_text(milliseconds duration) {
  const std::int64_t count = duration.count();
  if (count % 1000 != 0 || count == 0) return std::to_string(count) + "ms";
  if (count % 60'000 != 0) return std::to_string(count / 1000) + 's';
  if (count % 3'600'000 != 0) return std::to_string(count / 60'000) + 'm';
  return std::to_string(count / 3'600'000) + 'h';
}

json session_json(const Request& request, const supervisor::Supervisor& supervisor,
                  const Session& session) {
  const auto expires = session.expires();
  const auto idle = session.idle_after();
  const auto& end = session.end_record();
  json shown = {{"id", session.id()},
                {"state", state_name(session.state())},
                {"policy", session.policy()},
                {"policy_digest", session.policy_digest()},
                {"created", time_text(session.created())},
                {"expires", expires ? json(time_text(*expires)) : json()},
                {"idle_after", idle ? json(duration_text(*idle)) : json()},
                {"labels", session.labels()},
                {"client", session.client()},
                {"uid", session.uid()},
                {"port", session.port()},
                {"network", network_of(supervisor, session)},
                {"sandbox", supervisor.service().sandboxed ? "on" : "off"},
                {"back_end", session.back_end()},
                {"workspace", session.workspace()},
                {"processes", processes_of(session)},
                {"record", end ? record_json(request, *end) : json()}};
  if (told_in_full(request)) shown["degraded"] = json::parse(session.degraded(), nullptr, false);
  return shown;
}

json process_json(const Request& request, const std::string& session, const Process& process) {
  const auto& end = process.end_record();
  json shown = {{"id", process.id()},
                {"session", session},
                {"argv", process.argv()},
                {"state", state_name(process.state())},
                {"started", time_text(process.started())},
                {"ended", end ? json(time_text(end->time)) : json()},
                {"exit_code", end ? or_null(end->exit_code) : json()},
                {"signal", end ? or_null(end->signal) : json()},
                {"cause", end ? json(end->cause) : json()},
                {"record", end ? record_json(request, *end) : json()}};
  // What goes where stdout goes has no offsets of its own.
  const bool one = process.err() == process.out();
  shown["offsets"] = {{"stdout", process.out()->size()},
                      {"stderr", one ? 0 : process.err()->size()}};
  shown["dropped"] = {{"stdout", process.out()->dropped()},
                      {"stderr", one ? 0 : process.err()->dropped()}};
  return shown;
}

json record_json(const Request& request, const supervisor::End& end) {
  return json::parse(shown_record(request, end.record), nullptr, false);
}

json exec_json(const Request& request, const std::string& session, const Process& process) {
  json answer;
  answer["process"] = process_json(request, session, process);
  for (const char* member : {"exit_code", "cause", "record"})
    answer[member] = answer["process"][member];
  answer["truncated"] = {{"stdout", 0}, {"stderr", 0}};
  add_stream(answer, "stdout", *process.out());
  if (process.err() != process.out())
    add_stream(answer, "stderr", *process.err());
  else
    answer["stderr"] = "";
  return answer;
}

json shell_json(const Request& request, const supervisor::ShellResult& result, bool tells_state) {
  json answer = exec_json(request, request.session, *result.process);
  answer["cwd"] = result.directory;
  answer["notes"] = result.notes;
  if (tells_state) answer["state"] = policy::base64(result.state);
  return answer;
}

Response json_response(int status, const json& body) {
  Response response;
  response.status = status;
  response.body = body.dump(-1, ' ', false, json::error_handler_t::replace);
  return response;
}

Response no_content() {
  Response response;
  response.status = 204;
  response.content_type.clear();
  return response;
}

std::string session_path(const std::string& session) { return "/v1/sessions/" + session; }

std::string process_path(const std::string& session, std::uint32_t process) {
  return session_path(session) + "/processes/" + std::to_string(process);
}

const char* state_name(Session::State state) {
  switch (state) {
    case Session::State::kStarting:
      return "starting";
    case Session::State::kRunning:
      return "running";
    case Session::State::kEnding:
      return "ending";
    case Session::State::kEnded:
      break;
  }
  return "ended";
}

const char* state_name(Process::State state) {
  switch (state) {
    case Process::State::kStarting:
      return "starting";
    case Process::State::kRunning:
      return "running";
    case Process::State::kStopped:
      return "stopped";
    case Process::State::kEnded:
      break;
  }
  return "ended";
}

}  // namespace belljar::api
