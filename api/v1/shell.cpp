// shell/commands: one shell a session, whose directory and exported variables carry over.
#include <nlohmann/json.hpp>

#include "api/v1/bodies.hpp"
#include "api/v1/operations.hpp"
#include "api/v1/processes.hpp"
#include "api/v1/shapes.hpp"
#include "api/v1/starting.hpp"

namespace belljar::api {
namespace {

using nlohmann::json;
using supervisor::ShellCommand;

constexpr std::size_t kMostBody = std::size_t{4} << 20;

/// What only a program of its own can have.
std::optional<Problem> refuse_own(const json& body) {
  std::vector<ProblemItem> wrong;
  for (const char* name : {"argv", "stdin", "tty"})
    if (body.is_object() && body.contains(name))
      wrong.push_back({"/" + std::string(name),
                       "a shell command has none: give \"shell\", or use .../processes"});
  if (wrong.empty()) return std::nullopt;
  return invalid_body(std::move(wrong));
}

tl::expected<FurtherBody, Problem> read_command(const json& tree) {
  if (auto problem = refuse_own(tree)) return tl::unexpected(*std::move(problem));
  return read_further(tree, FurtherUse::kShell);
}

/// Who hangs up changes nothing: the command goes on, and the next one begins where it ends.
Awaitable<Response> run_command(const V1Context& context, Request& request) {
  const auto session = context.session(request);
  if (!session) co_return context.no_session(request);
  const auto tree = parse_body(request);
  if (!tree) co_return problem_response(request, tree.error());
  auto body = read_command(*tree);
  if (!body) co_return problem_response(request, body.error());
  const auto within = within_limits(*session, body->spec);
  if (!within) co_return problem_response(request, within.error());
  const auto claimed = co_await claim_first(session, body->claim);
  if (!claimed) co_return problem_response(request, claimed.error());
  ShellCommand command;
  command.text = std::move(body->spec.argv.back());
  command.background = body->background.value_or(false);
  body->spec.directory = directory_in(session->workspace(), body->spec.directory);
  command.process = std::move(body->spec);
  const bool tells_state = body->state.has_value();
  if (tells_state) command.state = std::move(body->state->from);
  const bool background = command.background;
  const auto result = co_await session->run_in_shell(std::move(command));
  if (!result) co_return start_failed(request, result.error());
  if (background)
    co_return created(process_path(session->id(), result->process->id()),
                      process_json(request, session->id(), *result->process));
  co_return json_response(200, shell_json(request, *result, tells_state));
}

/// Of the session's processes those that are the shell's.
Awaitable<Response> list_commands(const V1Context& context, Request& request) {
  const auto session = context.session(request);
  if (!session) co_return context.no_session(request);
  json list = json::array();
  for (const auto& process : session->processes())
    if (process->of_shell()) list.push_back(process_json(request, session->id(), *process));
  co_return json_response(200, {{"processes", std::move(list)}});
}

}  // namespace

void add_shell_operations(Router& router, const V1Context& context) {
  const std::string path = "/v1/sessions/{session}/shell/commands";
  Operation run("runShellCommand", "POST", path);
  run.body_limit = kMostBody;
  add_start(router, context, std::move(run), run_command);
  add_answer(router, context, Operation("listShellCommands", "GET", path), list_commands);
}

}  // namespace belljar::api
