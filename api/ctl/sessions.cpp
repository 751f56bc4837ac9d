// ps, create, rm, top: sessions, and what runs in them.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <map>
#include <thread>

#include "api/ctl/bodies.hpp"
#include "api/ctl/commands.hpp"
#include "api/ctl/table.hpp"
#include "api/ctl/terminal.hpp"
#include "policy/base/result.hpp"
#include "policy/units.hpp"

namespace belljar::ctl {
namespace {

constexpr std::size_t kCommandWidth = 60;

/// Seconds since the epoch, of "2026-11-30T12:00:00.000Z".
std::optional<long> time_of(const std::string& text) {
  std::tm parts{};
  if (text.empty() || strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) == nullptr)
    return std::nullopt;
  return timegm(&parts);
}

std::string since(const Json& tree, const char* key) {
  const auto then = time_of(text_of(tree, key));
  return then ? age_text(std::time(nullptr) - *then) : "-";
}

std::string until(const Json& tree, const char* key) {
  const auto then = time_of(text_of(tree, key));
  return then ? age_text(*then - std::time(nullptr)) : "never";
}

std::string text_of_number(const Json& member) {
  return member.is_number_integer() ? std::to_string(member.get<long>()) : std::string();
}

/// "running", "ended: exited 3"
std::string state_of(const Json& thing) {
  std::string state = text_of(thing, "state");
  const Json& record = member_of(thing, "record");
  const std::string cause = text_of(record, "cause");
  if (cause.empty()) return state;
  state += ": " + cause;
  if (cause == "exited") state += ' ' + text_of_number(member_of(record, "exit_code"));
  if (const std::string signal = text_of(record, "signal"); !signal.empty()) state += ' ' + signal;
  return state;
}

std::string labels_of(const Json& session) {
  std::string text;
  const Json& labels = member_of(session, "labels");
  if (!labels.is_object()) return text;
  for (const auto& [name, value] : labels.items())
    if (value.is_string())
      text += (text.empty() ? "" : ",") + name + '=' + value.get<std::string>();
  return text;
}

std::vector<std::string> argv_of(const Json& process) {
  std::vector<std::string> argv;
  const Json& list = member_of(process, "argv");
  if (list.is_array())
    for (const Json& word : list)
      if (word.is_string()) argv.push_back(word.get<std::string>());
  return argv;
}

std::uint64_t output_of(const Json& process) {
  const Json& offsets = member_of(process, "offsets");
  return number_of(offsets, "stdout") + number_of(offsets, "stderr");
}

/// All pages of the sessions that `query` names.
Outcome<std::vector<Json>> list_sessions(const Client& client, const std::string& query) {
  std::vector<Json> all;
  std::string cursor;
  do {
    std::string target = "/v1/sessions?limit=1000" + query;
    if (!cursor.empty()) target += "&cursor=" + path_part(cursor);
    const Json page = BELLJAR_TRY(client.get(target));
    const Json& sessions = member_of(page, "sessions");
    if (!sessions.is_array())
      return failed(FailureKind::kBroken, "GET " + target + ": the answer has no sessions");
    all.insert(all.end(), sessions.begin(), sessions.end());
    cursor = text_of(page, "next");
  } while (!cursor.empty());
  return all;
}

Outcome<std::vector<Json>> list_processes(const Client& client, const std::string& session) {
  const Json page = BELLJAR_TRY(client.get(session_path(session) + "/processes"));
  const Json& processes = member_of(page, "processes");
  if (!processes.is_array()) return failed(FailureKind::kBroken, "the list of processes is none");
  return std::vector<Json>(processes.begin(), processes.end());
}

Outcome<int> print_list(const std::vector<Json>& list, const ListOptions& asked, const Table& table,
                        const char* json_key) {
  std::string text;
  if (asked.json)
    text = dumped({{json_key, list}}) + '\n';
  else if (!asked.quiet)
    text = table.text();
  else
    for (const Json& one : list) {
      const Json& id = member_of(one, "id");
      text += (id.is_string() ? visible(id.get<std::string>()) : dumped(id)) + '\n';
    }
  BELLJAR_CHECK(print(text));
  return 0;
}

Outcome<int> ps_of_session(const Client& client, const ListOptions& asked) {
  std::vector<Json> processes = BELLJAR_TRY(list_processes(client, asked.session));
  if (!asked.all && asked.state.empty())
    std::erase_if(processes, [](const Json& one) { return text_of(one, "state") == "ended"; });
  if (!asked.state.empty())
    std::erase_if(processes, [&](const Json& one) { return text_of(one, "state") != asked.state; });
  Table table({"PROCESS", "STATE", "STARTED", "OUTPUT", "COMMAND"});
  for (const Json& process : processes)
    table.add({text_of_number(member_of(process, "id")), state_of(process),
               since(process, "started"), policy::size_text(output_of(process)),
               command_text(argv_of(process), kCommandWidth)});
  return print_list(processes, asked, table, "processes");
}

// --- top

struct Seen {
  std::uint64_t output = 0;
  std::chrono::steady_clock::time_point when;
};
using Memory = std::map<std::string, Seen>;

struct Row {
  Json process;
  std::string session;
  double rate = 0;  ///< Bytes of output a second.
};

/// What runs in every session that is not over. One that ends meanwhile is left out.
Outcome<std::vector<Row>> look(const Client& client, Memory& before) {
  std::vector<Row> rows;
  Memory now;
  for (const Json& session : BELLJAR_TRY(list_sessions(client, "&state=running"))) {
    const std::string id = text_of(session, "id");
    const auto processes = list_processes(client, id);
    if (!processes && processes.error().status == 404) continue;
    if (!processes) return tl::unexpected(processes.error());
    for (const Json& process : *processes) {
      if (text_of(process, "state") == "ended") continue;
      Row row{process, id, 0};
      const std::string key = id + '/' + dumped(member_of(process, "id"));
      const Seen seen{output_of(process), std::chrono::steady_clock::now()};
      if (const auto earlier = before.find(key); earlier != before.end()) {
        const std::chrono::duration<double> gone = seen.when - earlier->second.when;
        const auto more = static_cast<double>(seen.output - earlier->second.output);
        if (gone.count() > 0) row.rate = more / gone.count();
      }
      now.emplace(key, seen);
      rows.push_back(std::move(row));
    }
  }
  before = std::move(now);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.rate > b.rate; });
  return rows;
}

std::string top_text(const std::vector<Row>& rows) {
  Table table({"SESSION", "PROCESS", "STATE", "TIME", "OUTPUT", "PER SECOND", "COMMAND"});
  for (const Row& row : rows)
    table.add({row.session, text_of_number(member_of(row.process, "id")),
               text_of(row.process, "state"), since(row.process, "started"),
               policy::size_text(output_of(row.process)),
               policy::size_text(static_cast<std::uint64_t>(row.rate)),
               command_text(argv_of(row.process), kCommandWidth)});
  return table.text();
}

std::string top_json(const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) {
    Json process = row.process;
    process["session"] = row.session;
    process["output_per_s"] = static_cast<std::uint64_t>(row.rate);
    list.push_back(std::move(process));
  }
  return dumped({{"processes", list}}) + '\n';
}

}  // namespace

Done print(std::string_view text) {
  const int error = write_all(STDOUT_FILENO, text);
  if (error != 0) return call_failed(error, "write to standard output");
  return {};
}

Outcome<int> ps(const Client& client, const ListOptions& asked) {
  if (!asked.session.empty()) return ps_of_session(client, asked);
  std::string query = asked.state.empty() ? "" : "&state=" + path_part(asked.state);
  const Json labels = BELLJAR_TRY(pairs_of(asked.labels, "--label"));
  for (const auto& [name, value] : labels.items())
    query += "&label." + path_part(name) + '=' + path_part(value.get<std::string>());
  std::vector<Json> sessions = BELLJAR_TRY(list_sessions(client, query));
  if (!asked.all && asked.state.empty())
    std::erase_if(sessions, [](const Json& one) { return text_of(one, "state") == "ended"; });
  Table table({"SESSION", "STATE", "POLICY", "CREATED", "EXPIRES", "PROCESSES", "LABELS"});
  for (const Json& session : sessions) {
    const bool ended = text_of(session, "state") == "ended";
    table.add({text_of(session, "id"), state_of(session), text_of(session, "policy"),
               since(session, "created"), ended ? "-" : until(session, "expires"),
               std::to_string(member_of(session, "processes").size()), labels_of(session)});
  }
  return print_list(sessions, asked, table, "sessions");
}

Outcome<int> create(const Client& client, const CreateOptions& asked) {
  Json body = Json::object();
  BELLJAR_CHECK(add_session(body, asked.session));
  const Json process = BELLJAR_TRY(process_body(asked.process));
  if (!asked.process.command.empty()) {
    body["command"] = process;
    if (asked.process.interactive) body["command"]["stdin"] = "open";
  } else if (process.contains("env")) {
    body["env"] = process["env"];
  }
  const Json labels = BELLJAR_TRY(pairs_of(asked.labels, "--label"));
  if (!labels.empty()) body["labels"] = labels;
  if (!asked.ttl.empty()) body["ttl"] = asked.ttl;
  if (!asked.idle.empty()) body["idle"] = asked.idle;
  if (asked.ready_port) body["ready"]["port"] = *asked.ready_port;
  const Json session = BELLJAR_TRY(client.start("/v1/sessions", body));
  BELLJAR_CHECK(print((asked.json ? dumped(session) : visible(text_of(session, "id"))) + '\n'));
  return 0;
}

Outcome<int> rm(const Client& client, const RemoveOptions& asked) {
  for (const std::string& session : asked.sessions) {
    // 202 while it ends, 204 when it has gone.
    for (int attempt = 0;; ++attempt) {
      const Answer answer = BELLJAR_TRY(client.call(Call("DELETE", session_path(session))));
      if (answer.status != 202) break;
      if (attempt == 100)
        return failed(FailureKind::kProblem, "the session " + session + " has not ended yet",
                      "belljarctl ps, and its log");
      std::this_thread::sleep_for(std::chrono::milliseconds(std::min(20 * (attempt + 1), 500)));
    }
  }
  return 0;
}

Outcome<int> top(const Client& client, const TopOptions& asked) {
  const auto interval = policy::parse_duration(asked.interval);
  if (!interval) return failed(FailureKind::kUsage, "--interval: " + interval.error());
  const bool screen = isatty(STDOUT_FILENO) == 1 && !asked.json;
  Memory memory;
  for (;;) {
    const std::vector<Row> rows = BELLJAR_TRY(look(client, memory));
    // Home, and what is below goes: no colour, and nothing that has to be put back.
    if (screen && !asked.once) BELLJAR_CHECK(print("\x1b[H\x1b[J"));
    BELLJAR_CHECK(print(asked.json ? top_json(rows) : top_text(rows)));
    if (asked.once || !screen) return 0;
    std::this_thread::sleep_for(*interval);
  }
}

}  // namespace belljar::ctl
