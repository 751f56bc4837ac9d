// Processes: started, listed, waited for, signalled, written to and ended.
#include "api/v1/processes.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/v1/bodies.hpp"
#include "api/v1/operations.hpp"
#include "api/v1/shapes.hpp"
#include "api/v1/starting.hpp"

namespace belljar::api {

using nlohmann::json;
using supervisor::Milliseconds;
using supervisor::Outcome;
using supervisor::Process;
using supervisor::ProcessSpec;
using supervisor::Session;

namespace {

constexpr std::size_t kSmallBody = std::size_t{64} << 10;
constexpr std::size_t kMostStdin = std::size_t{1} << 20;
constexpr Milliseconds kLongestPoll{300000}, kLongestWrite{30000};

using ProcessPtr = std::shared_ptr<Process>;
using SessionPtr = std::shared_ptr<Session>;

json shown(Request& request, const Process& process) {
  return process_json(request, request.session, process);
}

Awaitable<Response> start_process(const V1Context& context, Request& request) {
  const SessionPtr session = context.session(request);
  if (!session) co_return context.no_session(request);
  const auto tree = parse_body(request);
  if (!tree) co_return problem_response(request, tree.error());
  auto body = read_further(*tree, FurtherUse::kProgram);
  if (body && body->background == false)
    body =
        tl::unexpected(Problem(422, "invalid", "/background: .../exec waits, and this does not"));
  if (!body) co_return problem_response(request, body.error());
  const auto claimed = co_await claim_first(session, body->claim);
  if (!claimed) co_return problem_response(request, claimed.error());
  const auto started = co_await start_further(session, std::move(body->spec));
  if (!started) co_return start_failed(request, started.error());
  co_return created(process_path(session->id(), (*started)->id()), shown(request, **started));
}

Awaitable<Response> list_processes(const V1Context& context, Request& request) {
  const SessionPtr session = context.session(request);
  if (!session) co_return context.no_session(request);
  json list = json::array();
  for (const ProcessPtr& process : session->processes()) list.push_back(shown(request, *process));
  co_return json_response(200, {{"processes", std::move(list)}});
}

Awaitable<Response> get_process(const V1Context& context, Request& request) {
  const ProcessPtr process = context.process(request);
  if (!process) co_return context.no_process(request);
  Query query(request.query);
  const auto wait = query.duration("wait");
  if (auto problem = query.finish()) co_return problem_response(request, *std::move(problem));
  if (wait > kLongestPoll) co_return too_long(request, "wait", kLongestPoll);
  if (wait) (void)co_await process->wait(*wait);
  co_return json_response(200, shown(request, *process));
}

Awaitable<Response> end_process(const V1Context& context, Request& request) {
  const ProcessPtr process = context.process(request);
  if (!process) co_return context.no_process(request);
  const auto ended = co_await process->end();
  if (!ended) co_return problem_response(request, ended.error());
  if (*ended) co_return no_content();
  co_return json_response(202, shown(request, *process));
}

struct Signal {
  int number = 0;
  Process::Target target = Process::Target::kLeader;
};

tl::expected<Signal, Problem> read_signal(const json& tree) {
  Signal signal;
  std::vector<ProblemItem> problems;
  Members members(tree, "", problems);
  const json* given = members.any("signal");
  std::optional<int> number;
  if (given != nullptr && given->is_string())
    number = supervisor::signal_number(given->get<std::string>());
  else if (given != nullptr && given->is_number_unsigned() && *given < 65U)
    number = given->get<int>();
  if (!number || *number == 0)
    members.wrong("signal", "expected the name or number of a signal: \"TERM\", \"SIGTERM\", 15");
  signal.number = number.value_or(0);
  const std::string target = members.text("target").value_or("leader");
  if (target == "group")
    signal.target = Process::Target::kGroup;
  else if (target == "tree")
    signal.target = Process::Target::kTree;
  else if (target != "leader")
    members.wrong("target", "expected \"leader\", \"group\" or \"tree\"");
  members.finish();
  if (!problems.empty()) return tl::unexpected(invalid_body(std::move(problems)));
  return signal;
}

Response done(Request& request, const Outcome<void>& outcome) {
  return outcome ? no_content() : problem_response(request, outcome.error());
}

Awaitable<Response> signal_process(const V1Context& context, Request& request) {
  const ProcessPtr process = context.process(request);
  if (!process) co_return context.no_process(request);
  const auto tree = parse_body(request);
  if (!tree) co_return problem_response(request, tree.error());
  const auto signal = read_signal(*tree);
  if (!signal) co_return problem_response(request, signal.error());
  const auto sent = co_await process->signal(signal->number, signal->target);
  co_return done(request, sent);
}

/// For as long as it lives, a write is stopped when its time is over.
class WriteLimit {
 public:
  WriteLimit(std::shared_ptr<supervisor::Clock> clock, const ProcessPtr& process)
      : clock_(std::move(clock)) {
    const std::weak_ptr<Process> weak = process;
    ticket_ = clock_->call_at(clock_->now() + kLongestWrite, [weak] {
      if (const auto late = weak.lock()) late->stop_writing();
    });
  }
  WriteLimit(const WriteLimit&) = delete;
  WriteLimit& operator=(const WriteLimit&) = delete;
  ~WriteLimit() { clock_->cancel(ticket_); }

 private:
  std::shared_ptr<supervisor::Clock> clock_;
  supervisor::Clock::Ticket ticket_;
};

Awaitable<Response> write_stdin(const V1Context& context, Request& request) {
  const ProcessPtr process = context.process(request);
  if (!process) co_return context.no_process(request);
  Query query(request.query);
  const auto offset = query.number("offset", 0, INT64_MAX);
  if (auto problem = query.finish()) co_return problem_response(request, *std::move(problem));
  const WriteLimit limit(context.supervisor->clock(), process);
  const auto written = co_await process->write_stdin(std::move(request.body), offset);
  if (!written) co_return problem_response(request, written.error());
  co_return json_response(200, {{"offset", *written}});
}

Awaitable<Response> close_stdin(const V1Context& context, Request& request) {
  const ProcessPtr process = context.process(request);
  if (!process) co_return context.no_process(request);
  co_return done(request, process->close_stdin());
}

Awaitable<Response> resize(const V1Context& context, Request& request) {
  const ProcessPtr process = context.process(request);
  if (!process) co_return context.no_process(request);
  const auto tree = parse_body(request);
  if (!tree) co_return problem_response(request, tree.error());
  std::vector<ProblemItem> problems;
  Members members(*tree, "", problems);
  for (const char* name : {"cols", "rows"})
    if (!members.has(name)) members.wrong(name, "is required");
  supervisor::TerminalSize size;
  size.columns = static_cast<std::uint16_t>(members.number("cols", 1, 65535).value_or(80));
  size.rows = static_cast<std::uint16_t>(members.number("rows", 1, 65535).value_or(24));
  members.finish();
  if (!problems.empty()) co_return problem_response(request, invalid_body(std::move(problems)));
  const auto resized = co_await process->resize(size);
  co_return done(request, resized);
}

}  // namespace

/// What its policy and its settings allow counts for each further process as for its own command.
Outcome<void> within_limits(const Session& session, const ProcessSpec& spec) {
  const auto refuse = [](const char* member, std::uint64_t most) {
    Outcome<void> refused = supervisor::refuse(
        supervisor::Code::kBeyondMaximum, std::string(member) + " is beyond the session's own");
    refused.error().limit = most;
    refused.error().error.where = "/" + std::string(member);
    return refused;
  };
  const Session::Limits& most = session.limits();
  if (most.output && spec.output.value_or(0) > *most.output) return refuse("output", *most.output);
  if (most.wall_time && spec.wall_time.value_or(Milliseconds(0)) > *most.wall_time)
    return refuse("wall_time", static_cast<std::uint64_t>(most.wall_time->count() / 1000));
  for (const auto& [name, value] : spec.environment) {
    const auto fixed = most.fixed_variables.find(name);
    if (fixed == most.fixed_variables.end() || fixed->second == value) continue;
    Outcome<void> refused =
        supervisor::refuse(supervisor::Code::kRefused, name + " is set by the policy");
    refused.error().error.where = "/env";
    return refused;
  }
  return {};
}

Awaitable<Outcome<void>> claim_first(SessionPtr session, bool wanted) {
  if (!wanted) co_return Outcome<void>();
  co_return co_await session->claim();
}

Awaitable<Outcome<ProcessPtr>> start_further(SessionPtr session, ProcessSpec spec) {
  const Outcome<void> within = within_limits(*session, spec);
  if (!within) co_return tl::unexpected<supervisor::Failure>(within.error());
  spec.directory = directory_in(session->workspace(), spec.directory);
  co_return co_await session->start(std::move(spec));
}

Response too_long(Request& request, const std::string& parameter, Milliseconds most) {
  Problem problem(422, "beyond_maximum", parameter + " is " + duration_text(most) + " at most");
  problem.limit = static_cast<std::uint64_t>(most.count() / 1000);
  ProblemItem item;
  item.pointer = '?' + parameter;
  item.what = problem.detail;
  problem.errors.push_back(std::move(item));
  return problem_response(request, std::move(problem));
}

void add_process_operations(Router& router, const V1Context& context) {
  const std::string all = "/v1/sessions/{session}/processes", one = all + "/{process}";
  const auto with_body = [](const char* id, const std::string& path, std::size_t limit) {
    Operation operation(id, "POST", path);
    operation.body_limit = limit;
    return operation;
  };
  add_start(router, context, with_body("startProcess", all, kMostStdin), start_process);
  add_answer(router, context, Operation("listProcesses", "GET", all), list_processes);
  Operation get("getProcess", "GET", one);
  get.takes_query = true;
  add_answer(router, context, std::move(get), get_process);
  add_answer(router, context, Operation("endProcess", "DELETE", one), end_process);
  add_answer(router, context, with_body("signalProcess", one + "/signal", kSmallBody),
             signal_process);
  Operation write = with_body("writeStdin", one + "/stdin", kMostStdin);
  write.takes_query = true;
  add_answer(router, context, std::move(write), write_stdin);
  add_answer(router, context, Operation("closeStdin", "POST", one + "/stdin/close"), close_stdin);
  add_answer(router, context, with_body("resizeTerminal", one + "/resize", kSmallBody), resize);
}

}  // namespace belljar::api
