#include "api/metrics.hpp"

#include <initializer_list>
#include <utility>

namespace belljar::api {
namespace {

enum class Kind { kGauge, kCounter };

/// One metric with its labelled values.
void add(std::string& text, const char* name, Kind kind, const char* help,
         std::initializer_list<std::pair<const char*, std::uint64_t>> values) {
  const std::string full = std::string("belljar_") + name;
  text += "# HELP " + full + ' ' + help + "\n# TYPE " + full;
  text += kind == Kind::kGauge ? " gauge\n" : " counter\n";
  for (const auto& [labels, value] : values) {
    text += full;
    if (*labels != '\0') text += '{' + std::string(labels) + '}';
    text += ' ' + std::to_string(value) + '\n';
  }
}

}  // namespace

std::string Metrics::text(const supervisor::Supervisor& supervisor, std::size_t connections,
                          std::uint64_t audit_lost) const {
  const supervisor::Counts counts = supervisor.counts();
  std::string text;
  add(text, "sessions", Kind::kGauge, "Sessions by state.",
      {{"state=\"starting\"", counts.starting},
       {"state=\"running\"", counts.running},
       {"state=\"ending\"", counts.ending},
       {"state=\"ended\"", counts.ended}});
  add(text, "slots", Kind::kGauge, "Uids and ports of the pool.",
      {{"state=\"free\"", counts.slots_free},
       {"state=\"leased\"", counts.slots_leased},
       {"state=\"quarantined\"", counts.slots_quarantined}});
  add(text, "starts", Kind::kGauge, "Sessions that are being started.",
      {{"state=\"waiting\"", counts.starts_waiting},
       {"state=\"under_way\"", counts.starts_under_way}});
  add(text, "sessions_created_total", Kind::kCounter, "Sessions that ran.", {{"", counts.created}});
  add(text, "sessions_failed_total", Kind::kCounter, "Sessions that did not start.",
      {{"", counts.failed}});
  add(text, "sessions_lost_total", Kind::kCounter, "Sessions whose end nobody told.",
      {{"", counts.lost}});
  add(text, "processes", Kind::kGauge, "Processes that run.", {{"", counts.processes}});
  add(text, "connections", Kind::kGauge, "Connections of clients.", {{"", connections}});
  add(text, "answers_total", Kind::kCounter, "Answers by class of status.",
      {{"class=\"1xx\"", answers_[1]},
       {"class=\"2xx\"", answers_[2]},
       {"class=\"3xx\"", answers_[3]},
       {"class=\"4xx\"", answers_[4]},
       {"class=\"5xx\"", answers_[5]}});
  add(text, "audit_lines_lost_total", Kind::kCounter, "Lines of the audit that were not written.",
      {{"", audit_lost}});
  add(text, "sandboxed", Kind::kGauge, "0 where the operator has switched the sandbox off.",
      {{"", supervisor.service().sandboxed ? 1u : 0u}});
  return text;
}

}  // namespace belljar::api
