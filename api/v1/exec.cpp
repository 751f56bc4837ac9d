// exec and run: one call that starts a command, waits for its end, and answers with all of it.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/v1/bodies.hpp"
#include "api/v1/operations.hpp"
#include "api/v1/processes.hpp"
#include "api/v1/sessions.hpp"
#include "api/v1/shapes.hpp"
#include "api/v1/starting.hpp"

namespace belljar::api {
namespace {

using supervisor::Milliseconds;
using supervisor::Notifier;
using supervisor::Outcome;
using supervisor::Session;
using supervisor::ShellCommand;
using supervisor::ShellResult;

constexpr std::size_t kMostBody = std::size_t{64} << 20, kMostExecBody = std::size_t{1} << 20;
constexpr Milliseconds kLongestWait{3600000};
/// How often a wait looks whether its client is still there.
constexpr Milliseconds kGlance{500};
constexpr Milliseconds kClearing{2000};

/// 200 with everything once it has ended; otherwise 202 with what there is so far.
Response exec_answer(const Request& request, const supervisor::Process& process) {
  const bool ended = process.end_record().has_value();
  Response response =
      json_response(ended ? 200 : 202, exec_json(request, request.session, process));
  if (!ended) response.headers.add("location", process_path(request.session, process.id()));
  return response;
}

/// Who hangs up changes nothing: the command goes on, and its session lists it.
Awaitable<Response> exec(const V1Context& context, Request& request) {
  const auto session = context.session(request);
  if (!session) co_return context.no_session(request);
  Query query(request.query);
  const Milliseconds wait = query.duration("wait").value_or(kLongestWait);
  if (auto problem = query.finish()) co_return problem_response(request, *std::move(problem));
  if (wait > kLongestWait) co_return too_long(request, "wait", kLongestWait);
  const auto tree = parse_body(request);
  if (!tree) co_return problem_response(request, tree.error());
  auto body = read_further(*tree, FurtherUse::kProgram);
  if (!body) co_return problem_response(request, body.error());
  const bool background = body->background.value_or(false);
  const auto claimed = co_await claim_first(session, body->claim);
  if (!claimed) co_return problem_response(request, claimed.error());
  const auto started = co_await start_further(session, std::move(body->spec));
  if (!started) co_return start_failed(request, started.error());
  const auto process = *started;
  if (background)
    co_return created(process_path(session->id(), process->id()),
                      process_json(request, session->id(), *process));
  (void)co_await process->wait(wait);
  co_return exec_answer(request, *process);
}

Awaitable<void> end_run(const V1Context& context, std::shared_ptr<Session> session) {
  std::string id = session->id();
  (void)co_await context.supervisor->end(std::move(id), supervisor::EndedBy::kClient);
}

/// What the shell of a run has come to, for the coroutine that waits for its client too.
struct ShellRun {
  std::shared_ptr<Notifier> changed;
  std::optional<Outcome<ShellResult>> result;
};

Awaitable<void> run_in_shell(std::shared_ptr<Session> session, ShellCommand command,
                             std::shared_ptr<ShellRun> run) {
  auto result = co_await session->run_in_shell(std::move(command));
  run->result = std::move(result);
  run->changed->notify();
}

/// A run whose command is a shell's: the sandbox has no command of its own, and goes with it.
Awaitable<Response> run_with_state(const V1Context& context, Request& request, SessionBody body) {
  ShellCommand command;
  command.process = *std::move(body.spec.command);
  body.spec.command.reset();
  command.text = std::move(command.process.argv.back());
  command.state = std::move(body.state->from);
  auto spec = with_operators_part(context, request, std::move(body.spec));
  const auto made = co_await context.supervisor->create(std::move(spec));
  if (!made) co_return start_failed(request, made.error());
  const auto session = *made;
  request.session = session->id();
  const auto within = within_limits(*session, command.process);
  if (!within) {
    co_await end_run(context, session);
    co_return problem_response(request, within.error());
  }
  command.process.directory = directory_in(session->workspace(), command.process.directory);
  const auto executor = co_await boost::asio::this_coro::executor;
  const std::shared_ptr<supervisor::Clock> clock = context.supervisor->clock();
  const auto shell = std::make_shared<ShellRun>();
  shell->changed = std::make_shared<Notifier>(executor, clock);
  boost::asio::co_spawn(executor, run_in_shell(session, std::move(command), shell),
                        boost::asio::detached);
  while (!shell->result && !is_abandoned(request))
    co_await shell->changed->wait_until(clock->now() + kGlance);
  co_await end_run(context, session);
  if (!shell->result) co_return abandoned(request);
  if (!*shell->result) co_return start_failed(request, shell->result->error());
  co_return json_response(200, shell_json(request, **shell->result, /*tells_state=*/true));
}

/// Nothing of a run is kept, so that of one whose client has hung up nothing need go on.
Awaitable<Response> run(const V1Context& context, Request& request) {
  const auto tree = parse_body(request);
  if (!tree) co_return problem_response(request, tree.error());
  auto body = read_run(*tree);
  if (!body) co_return problem_response(request, body.error());
  request.body = {};
  if (body->state) {
    SessionBody shell = std::move(*body);
    co_return co_await run_with_state(context, request, std::move(shell));
  }
  auto spec = with_operators_part(context, request, std::move(body->spec));
  const auto made = co_await context.supervisor->create(std::move(spec));
  if (!made) co_return start_failed(request, made.error());
  const auto session = *made;
  request.session = session->id();
  const auto process = session->process(0);
  bool ended = co_await process->wait(kGlance);
  while (!ended && !is_abandoned(request)) ended = co_await process->wait(kGlance);
  if (ended) {
    // So that its place is free for who is told of its end.
    (void)co_await session->wait_ended(kClearing);
    co_return exec_answer(request, *process);
  }
  co_await end_run(context, session);
  co_return abandoned(request);
}

}  // namespace

void add_exec_operations(Router& router, const V1Context& context) {
  Operation one("exec", "POST", "/v1/sessions/{session}/exec");
  one.takes_query = true;
  one.body_limit = kMostExecBody;
  add_start(router, context, std::move(one), exec);
  Operation shot("run", "POST", "/v1/run");
  shot.body_limit = kMostBody;
  add_start(router, context, std::move(shot), run);
}

}  // namespace belljar::api
