#include "api/v1/starting.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/v1/shapes.hpp"
#include "policy/digest.hpp"

namespace belljar::api {
namespace {

using nlohmann::json;
using supervisor::Failure;
using supervisor::IdempotencyStore;
using supervisor::StoredAnswer;
using supervisor::Supervisor;

constexpr const char* kKeyField = "idempotency-key";
constexpr std::size_t kLongestKey = 255;
/// How long a request waits for another one with its key.
constexpr supervisor::Milliseconds kKeyLimit{60000};

/// A key that is being used: free again, unless an answer was kept for it.
class Claim {
 public:
  Claim(std::shared_ptr<Supervisor> supervisor, IdempotencyStore::Key key)
      : supervisor_(std::move(supervisor)), key_(std::move(key)) {}
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  ~Claim() {
    if (!kept_) supervisor_->idempotency().abandon(key_);
  }

  /// What has come to nothing may be tried again with the same key.
  void keep(const Response& response) {
    if (response.status >= 300) return;
    StoredAnswer answer;
    answer.status = response.status;
    answer.location = response.headers.find("location").value_or("");
    answer.body = response.body;
    supervisor_->idempotency().finish(key_, std::move(answer));
    kept_ = true;
  }

 private:
  std::shared_ptr<Supervisor> supervisor_;
  IdempotencyStore::Key key_;
  bool kept_ = false;
};

Response again(const StoredAnswer& stored) {
  Response response;
  response.status = stored.status;
  response.body = stored.body;
  if (!stored.location.empty()) response.headers.add("location", stored.location);
  response.headers.add("idempotency-replayed", "true");
  return response;
}

std::optional<Response> beyond_rate(const V1Context& context, Request& request) {
  const auto wait = context.rate->take(request.client);
  if (!wait) return std::nullopt;
  Problem problem(429, "rate",
                  "client \"" + request.client + "\" may start " +
                      std::to_string(context.rate->a_minute()) + " a minute");
  problem.limit = context.rate->a_minute();
  problem.retry_after_s = wait->count();
  return problem_response(request, std::move(problem));
}

bool is_key(std::string_view text) {
  return !text.empty() && text.size() <= kLongestKey &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 127; });
}

Awaitable<Response> start_once(const V1Context& context, Start start, Request& request) {
  IdempotencyStore::Key key;
  key.client = request.client;
  key.key = request.headers.find(kKeyField).value_or("");
  if (!is_key(key.key))
    co_return problem_response(
        request, Problem(400, "malformed", "an idempotency key is 1 to 255 visible characters"));
  std::string digest =
      policy::sha256_digest(request.method + ' ' + request.target + '\n' + request.body);
  const auto supervisor = context.supervisor;
  const auto known = co_await supervisor->idempotency().claim(key, std::move(digest), kKeyLimit);
  if (!known) co_return problem_response(request, known.error());
  if (*known) co_return again(**known);
  Claim claim(supervisor, key);
  if (auto refused = beyond_rate(context, request)) co_return *std::move(refused);
  Response response = co_await start(context, request);
  claim.keep(response);
  co_return response;
}

Awaitable<Response> start_some(const V1Context& context, Start start, Request& request) {
  if (request.headers.count(kKeyField) > 0) co_return co_await start_once(context, start, request);
  if (auto refused = beyond_rate(context, request)) co_return *std::move(refused);
  co_return co_await start(context, request);
}

std::string member_of(const json& setup, const char* name) {
  const auto found = setup.find(name);
  return found != setup.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// The pointer into the body that stands for a path of the policy: "/limits/memory".
std::string pointer_of(const std::string& path) {
  if (path == "environment" || path.starts_with("env.")) return "/env";
  if (path.starts_with("network.")) return "/network";
  std::string pointer = "/" + path;
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  return pointer;
}

/// Nothing where the host is at fault.
std::optional<Problem> fault_of_request(const Request& request, const Failure& failure) {
  const json setup = json::parse(failure.setup, nullptr, false);
  if (!setup.is_object()) return std::nullopt;
  const std::string control = member_of(setup, "control"), path = member_of(setup, "policy");
  const std::string reason = told_in_full(request) ? ": " + member_of(setup, "reason") : "";
  if (control == "command")
    return Problem(422, "not_executable",
                   "the command could not be started in its sandbox" + reason);
  if (control != "policy") return std::nullopt;
  const bool limit = path.starts_with("limits.");
  Problem problem(422, limit ? "beyond_maximum" : "refused",
                  "the policy does not allow the request's " + path + reason);
  ProblemItem item;
  item.pointer = pointer_of(path.starts_with("env.set") ? "env" : path);
  item.what = limit ? "is beyond the policy's own" : "is not what the policy allows";
  if (!path.empty()) problem.errors.push_back(std::move(item));
  return problem;
}

}  // namespace

void add_answer(Router& router, const V1Context& context, Operation operation, Start answer) {
  operation.answer = [&context, answer](Request& request) { return answer(context, request); };
  router.add(std::move(operation));
}

void add_start(Router& router, const V1Context& context, Operation operation, Start start) {
  operation.answer = [&context, start](Request& request) {
    return start_some(context, start, request);
  };
  router.add(std::move(operation));
}

bool is_abandoned(const Request& request) {
  return request.gone && request.gone() && request.headers.count(kKeyField) == 0;
}

Response abandoned(Request& request) {
  return problem_response(request, Problem(408, "client_gone", "the client has hung up"));
}

Response start_failed(Request& request, const Failure& failure) {
  auto fault = fault_of_request(request, failure);
  if (!fault) return problem_response(request, failure);
  fault->remedy = failure.error.remedy;
  fault->setup = failure.setup;
  fault->exit_code = failure.exit_code;
  return problem_response(request, *std::move(fault));
}

Response created(const std::string& path, const json& body) {
  Response response = json_response(201, body);
  response.headers.add("location", path);
  return response;
}

}  // namespace belljar::api
