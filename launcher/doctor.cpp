#include "launcher/doctor.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace belljar::launcher {
namespace {

const char* weight_name(Weight weight) {
  switch (weight) {
    case Weight::kMissing:
      return "missing";
    case Weight::kWeaker:
      return "weaker";
    case Weight::kNote:
      break;
  }
  return "note";
}

/// Trying one by one is close to a launch, but the launch has the last word.
void weigh_by_launch(std::vector<HostFinding>& findings, const SelftestReport& report) {
  if (report.ok()) {
    for (HostFinding& finding : findings)
      if (finding.weight == Weight::kMissing) finding.weight = Weight::kNote;
    return;
  }
  for (const NotInForce& item : report.controls.missing) {
    const bool explained = std::any_of(findings.begin(), findings.end(), [&](const HostFinding& f) {
      return f.weight == Weight::kMissing && f.control == item.control;
    });
    if (explained) continue;
    const Control* control = find_control(item.control);
    findings.push_back({"launch",
                        control == nullptr ? "host" : control->name,
                        Weight::kMissing,
                        item.what + (item.policy.empty() ? "" : ", asked for by " + item.policy),
                        item.remedy,
                        {}});
  }
}

/// What a person may do about a control that the policy goes without.
std::string remedy_without(const std::string& control) {
  if (control == kIdentity.name)
    return "run belljar as root, or without those groups: setpriv --clear-groups belljar ...";
  if (control == kSeccomp.name) return "take \"mode\": \"log\" out of syscalls";
  return "write \"enforce\": \"require\" there, and the refusal names what to change";
}

/// What the launch went without because the policy only prefers it, and no finding says so.
void add_degraded(std::vector<HostFinding>& findings, const std::vector<Degraded>& degraded) {
  const std::vector<HostFinding> looked_at = findings;
  for (const Degraded& item : degraded) {
    const bool explained = std::any_of(looked_at.begin(), looked_at.end(), [&](const auto& f) {
      return f.weight == Weight::kWeaker && f.control == item.control;
    });
    if (explained) continue;
    const Control* control = find_control(item.control);
    findings.push_back({"degraded",
                        control == nullptr ? "host" : control->name,
                        Weight::kWeaker,
                        item.what,
                        remedy_without(item.control),
                        {}});
  }
}

}  // namespace

Diagnosis diagnose(const SessionSetting& setting, const policy::Settings& settings) {
  return diagnose(setting, settings, selftest(setting));
}

Diagnosis diagnose(const SessionSetting& setting, const policy::Settings& settings,
                   const SelftestReport& report) {
  Facts facts = observe_facts(setting.ids, setting.caller, setting.workspace_root);
  facts.sessions = settings.max_sessions;
  Diagnosis diagnosis;
  diagnosis.policy_name = setting.policy.name;
  diagnosis.back_end = back_end_text(facts);
  diagnosis.findings = find(facts, setting.policy);
  weigh_by_launch(diagnosis.findings, report);
  add_degraded(diagnosis.findings, report.controls.degraded);
  for (const NotInForce& item : report.controls.unknown)
    diagnosis.not_found_out.push_back(item.control + ": " + item.what);
  std::stable_sort(diagnosis.findings.begin(), diagnosis.findings.end(),
                   [](const HostFinding& a, const HostFinding& b) { return a.weight < b.weight; });
  return diagnosis;
}

namespace {

/// Paths in it may hold anything: a newline would end a comment, and escapes move the cursor.
std::string on_one_line(std::string text) {
  for (char& letter : text)
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) letter = ' ';
  return text;
}

}  // namespace

bool Diagnosis::good() const {
  return std::none_of(findings.begin(), findings.end(), [](const HostFinding& finding) {
    return finding.weight == Weight::kMissing;
  });
}

std::string Diagnosis::text() const {
  std::string out = "back end: " + back_end + "\n";
  for (const HostFinding& finding : findings)
    out += std::string(weight_name(finding.weight)) + ": " + std::string(finding.id) + " (" +
           std::string(finding.control) + "): " + on_one_line(finding.evidence) + "\n" +
           (finding.remedy.empty() ? "" : "  remedy: " + on_one_line(finding.remedy) + "\n");
  for (const std::string& item : not_found_out) out += "unknown: " + on_one_line(item) + "\n";
  const bool weaker = std::any_of(findings.begin(), findings.end(), [](const HostFinding& finding) {
    return finding.weight == Weight::kWeaker;
  });
  if (good() && not_found_out.empty())
    out += "this host has what " + policy_name + " needs" +
           (weaker ? ", and not all that it prefers\n" : "\n");
  return out;
}

std::string Diagnosis::json() const {
  using Json = nlohmann::ordered_json;
  Json out{
      {"ok", good()}, {"policy", policy_name}, {"back_end", back_end}, {"findings", Json::array()}};
  if (!not_found_out.empty()) out["not_found_out"] = not_found_out;
  for (const HostFinding& finding : findings)
    out["findings"].push_back({{"id", finding.id},
                               {"control", finding.control},
                               {"weight", weight_name(finding.weight)},
                               {"evidence", finding.evidence},
                               {"remedy", finding.remedy},
                               {"fix", finding.fix}});
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Diagnosis::fix_script() const {
  std::string out =
      "#!/bin/sh\n# Written by belljar doctor, which runs none of it. Read it first.\n";
  out += "set -eu\n";
  for (const HostFinding& finding : findings) {
    out += "\n# " + std::string(finding.id) + ": " + on_one_line(finding.evidence) + "\n";
    if (finding.fix.empty()) out += "# by hand: " + on_one_line(finding.remedy) + "\n";
    for (const std::string& line : finding.fix)
      out += (line.starts_with('#') ? on_one_line(line) : line) + "\n";
  }
  return out;
}

void explain_with_host(SelftestReport& report, const Diagnosis& diagnosis) {
  std::vector<NotInForce>& lines = report.controls.missing;
  for (const HostFinding& finding : diagnosis.findings) {
    if (finding.weight != Weight::kMissing || finding.id == "launch") continue;
    const auto same = std::find_if(lines.begin(), lines.end(), [&](const NotInForce& line) {
      return line.control == finding.control;
    });
    if (same == lines.end()) {
      lines.push_back({std::string(finding.control), finding.evidence, {}, finding.remedy});
    } else if (same->remedy.find(finding.remedy) == std::string::npos) {
      same->what += "; " + finding.evidence;
      same->remedy = finding.remedy;
    }
  }
}

}  // namespace belljar::launcher
