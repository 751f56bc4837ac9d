#include "api/gate.hpp"

namespace belljar::api {
namespace {

constexpr std::string_view kSimulatorToken = "x-agent-simulator-token";

/// The token that a request carries in the way that its face has; empty when in none, or in two.
std::string_view token_of(const Request& head, bool simulator) {
  if (simulator && head.headers.count(kSimulatorToken) > 0)
    return head.headers.find(kSimulatorToken).value_or("");
  const std::string_view authorization = head.headers.find("authorization").value_or("");
  constexpr std::string_view kBearer = "Bearer ";
  if (authorization.size() <= kBearer.size() ||
      !same_name(authorization.substr(0, kBearer.size()), kBearer))
    return {};
  return authorization.substr(kBearer.size());
}

}  // namespace

Response Gate::turn_away(Request& head, int status, std::string_view code,
                         std::string_view why) const {
  if (simulator_ != nullptr && !is_v1(head)) return simulator_error(status, why);
  return problem_response(head, Problem(status, std::string(code), std::string(why)));
}

std::optional<Response> Gate::authenticate(Request& head) const {
  if (is_v1(head) && v1_->open(head)) return std::nullopt;
  if (head.peer.local) {  // The socket's mode has let only the right ones in.
    head.client = head.peer.address;
    return std::nullopt;
  }
  if (tokens_.empty())
    return turn_away(head, 503, "no_token", "The service has no token configured");
  const bool simulator = simulator_ != nullptr && SimulatorFace::owns(head);
  const std::string_view token = token_of(head, simulator);
  const auto client = tokens_.client_of(token);
  if (client && !token.empty()) {
    head.client = *client;
    return std::nullopt;
  }
  Response refused = turn_away(head, 401, "unauthorized", "Missing or wrong token");
  refused.headers.add("www-authenticate", "Bearer");
  return refused;
}

/// Browsers name the page that asks; no page of a browser has business here.
std::optional<Response> Gate::check_origin(Request& head) const {
  if (!head.upgrade || head.headers.count("origin") == 0) return std::nullopt;
  return turn_away(head, 403, "origin", "Browser origins are refused");
}

/// The simulator's clients know it by names that nobody tells us.
std::optional<Response> Gate::check_host(Request& head) const {
  if (!is_v1(head) || head.peer.local) return std::nullopt;
  const std::string_view host = head.headers.find("host").value_or("");
  if (hosts_.take(host)) return std::nullopt;
  return turn_away(head, 421, "misdirected",
                   "This host has no such name; its operator can give it one with --host");
}

Verdict Gate::judge(Request& head) {
  Verdict verdict;
  verdict.refuse = check_host(head);
  if (!verdict.refuse) verdict.refuse = authenticate(head);
  if (!verdict.refuse) verdict.refuse = check_origin(head);
  if (!verdict.refuse) return route(head);
  // Clients of the simulator know a refused upgrade by this status and nothing else.
  if (head.upgrade && simulator_ != nullptr && !is_v1(head))
    verdict.refuse = Response{403, {}, {}, {}};
  return verdict;
}

Verdict Gate::route(Request& head) {
  Verdict verdict;
  if (metrics_ && head.method == "GET" && head.path == std::vector<std::string>{"metrics"}) {
    verdict.refuse = Response{200, metrics_(), "text/plain; version=0.0.4", {}};
    return verdict;
  }
  if (is_v1(head)) return v1_->route(head);
  if (simulator_ != nullptr) return simulator_->route(head);
  verdict.refuse = turn_away(head, 404, "not_found", "Not Found");
  return verdict;
}

Response Gate::refusal(const Refusal& why) {
  Request unread;
  const bool large = why.status == 413 || why.status == 414 || why.status == 431;
  const char* code = large ? "too_large" : why.status == 408 ? "timeout" : "malformed";
  return turn_away(unread, why.status, code, why.why);
}

}  // namespace belljar::api
