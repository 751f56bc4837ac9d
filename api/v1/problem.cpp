#include "api/v1/problem.hpp"

#include <nlohmann/json.hpp>

#include "policy/quote.hpp"

namespace belljar::api {
namespace {

using nlohmann::json;
using supervisor::Code;
using supervisor::Failure;

std::string dumped(const json& tree) {
  return tree.dump(-1, ' ', false, json::error_handler_t::replace);
}

int status_of(Code code) {
  switch (code) {
    case Code::kInvalid:
    case Code::kBeyondMaximum:
      return 422;
    case Code::kExists:
    case Code::kConflict:
    case Code::kShellBusy:
    case Code::kEnded:
      return 409;
    case Code::kNotFound:
      return 404;
    case Code::kPrecondition:
      return 412;
    case Code::kQuota:
      return 429;
    case Code::kCapacity:
    case Code::kBusy:
    case Code::kDraining:
    case Code::kUnavailable:
    case Code::kSandbox:
      return 503;
    case Code::kRefused:
    case Code::kDenied:
      return 403;
    case Code::kTooLarge:
      return 413;
    case Code::kNoSpace:
      return 507;
    case Code::kTimeout:
      return 504;
    case Code::kPortClosed:
    case Code::kLost:
      return 502;
    case Code::kSystem:
      break;
  }
  return 500;
}

/// Whether a failure is about the host rather than about what was asked for.
bool is_the_hosts(Code code) {
  return code == Code::kSandbox || code == Code::kSystem || code == Code::kUnavailable ||
         code == Code::kLost || code == Code::kNoSpace;
}

std::string brief(Code code) {
  if (code == Code::kSandbox) return "the sandbox could not be built";
  if (code == Code::kUnavailable || code == Code::kLost) return "the launch service is gone";
  if (code == Code::kNoSpace) return "there is no space left for it";
  return "the host refused it";
}

}  // namespace

Response problem_response(Request& request, Problem problem) {
  if (problem.session.empty()) problem.session = request.session;
  json tree = {{"type", "urn:belljar:problem:" + problem.code},
               {"title", reason_phrase(problem.status)},
               {"status", problem.status},
               {"code", problem.code},
               {"detail", problem.detail},
               {"instance", request.id}};
  if (!told_in_full(request)) {
    if (!problem.setup.empty())
      request.failure += (request.failure.empty() ? "" : " ") + problem.setup;
    problem.setup.clear();
    problem.remedy.clear();
  }
  if (!problem.remedy.empty()) tree["remedy"] = problem.remedy;
  if (!problem.errors.empty()) {
    json& errors = tree["errors"] = json::array();
    for (const ProblemItem& item : problem.errors)
      errors.push_back({{"pointer", item.pointer}, {"detail", item.what}});
  }
  if (problem.limit) tree["limit"] = *problem.limit;
  if (problem.exit_code) tree["exit_code"] = *problem.exit_code;
  if (!problem.session.empty()) tree["session"] = problem.session;
  if (!problem.setup.empty())
    if (json setup = json::parse(problem.setup, nullptr, false); !setup.is_discarded())
      tree["setup"] = std::move(setup);
  Response response;
  if (!problem.retry_after_s && (problem.status == 429 || problem.status == 503))
    problem.retry_after_s = 5;
  if (problem.retry_after_s) {
    tree["retry_after_s"] = *problem.retry_after_s;
    response.headers.add("retry-after", std::to_string(*problem.retry_after_s));
  }
  response.status = problem.status;
  response.content_type = "application/problem+json";
  response.body = dumped(tree);
  return response;
}

Response problem_response(Request& request, const Failure& failure) {
  // What names a member of the request is the request's fault.
  const bool of_member = failure.error.where.starts_with('/');
  const bool invalid = of_member && failure.code == Code::kRefused;
  Problem problem(invalid ? 422 : status_of(failure.code),
                  std::string(supervisor::code_name(failure.code)), failure.error.what);
  problem.remedy = failure.error.remedy;
  if (of_member) problem.errors.push_back({failure.error.where, failure.error.what});
  problem.limit = failure.limit;
  if (failure.retry_after) problem.retry_after_s = failure.retry_after->count();
  problem.setup = failure.setup;
  problem.exit_code = failure.exit_code;
  if (is_the_hosts(failure.code) && !told_in_full(request)) {
    request.failure = failure.error.what;
    problem.detail = brief(failure.code);
  }
  return problem_response(request, std::move(problem));
}

Response no_such(Request& request, std::string_view kind, std::string_view name) {
  return problem_response(
      request, Problem(404, "not_found",
                       "there is no " + std::string(kind) + ' ' + policy::in_quotes(name)));
}

std::string shown_record(const Request& request, const std::string& record) {
  if (told_in_full(request)) return record;
  json tree = json::parse(record, nullptr, false);
  if (!tree.is_object()) return record;
  tree.erase("setup");
  tree.erase("degraded");
  return dumped(tree);
}

}  // namespace belljar::api
