#include "api/audit.hpp"

#include <unistd.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "policy/digest.hpp"

namespace belljar::api {
namespace {

using nlohmann::json;

/// RFC 3339, in UTC.
std::string time_text(supervisor::WallTime time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(
      time - std::chrono::system_clock::from_time_t(seconds));
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  const std::string fraction = std::to_string(1000 + rest.count()).substr(1);
  return std::string(text, size) + '.' + fraction + 'Z';
}

/// Words apart by NUL, as /proc/PID/cmdline has them.
std::string digest_of(const std::vector<std::string>& argv) {
  std::string text;
  for (const std::string& word : argv) text += word + '\0';
  return policy::sha256_digest(text);
}

const char* what_of(const std::string& type) {
  if (type == "session.running") return "create";
  if (type == "session.failed") return "create_failed";
  if (type == "session.ended") return "end";
  return type == "process.started" ? "exec" : nullptr;
}

std::string text_of(const json& line) {
  return line.dump(-1, ' ', false, json::error_handler_t::replace) + '\n';
}

void add_session(json& line, const supervisor::Session& session, const supervisor::Event& event) {
  line["policy"] = session.policy();
  line["policy_digest"] = session.policy_digest();
  line["uid"] = session.uid();
  if (const auto process = session.process(event.process.value_or(0)))
    line["argv"] = digest_of(process->argv());
}

}  // namespace

std::string_view logged_target(const Request& request) {
  const std::string_view target = request.target;
  return target.substr(0, target.find('?'));
}

void Audit::add(const supervisor::Event& event, const supervisor::Supervisor& supervisor) {
  const char* what = what_of(event.type);
  if (what == nullptr || !file_.valid()) return;
  json line = {{"time", time_text(event.time)},
               {"what", what},
               {"session", event.session},
               {"client", event.client}};
  if (event.process) line["process"] = *event.process;
  if (!event.cause.empty()) line["cause"] = event.cause;
  if (const auto session = supervisor.find(event.session)) add_session(line, *session, event);
  const json record = json::parse(event.detail, nullptr, false);
  if (record.is_object() && record.contains("usage")) line["usage"] = record["usage"];
  write(text_of(line));
}

void Audit::refused(const Request& request, int status) {
  if (!file_.valid()) return;
  const auto now = std::chrono::system_clock::now();
  write(text_of({{"time", time_text(now)},
                 {"what", "refuse"},
                 {"status", status},
                 {"peer", request.peer.address},
                 {"method", request.method},
                 {"target", logged_target(request).substr(0, 256)}}));
}

void Audit::write(const std::string& line) {
  const ssize_t size = ::write(file_.get(), line.data(), line.size());
  if (size != static_cast<ssize_t>(line.size())) ++lost_;
}

}  // namespace belljar::api
