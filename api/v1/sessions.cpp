// Sessions: made, listed, looked at, changed, kept and ended.
#include "api/v1/sessions.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/v1/bodies.hpp"
#include "api/v1/operations.hpp"
#include "api/v1/shapes.hpp"
#include "api/v1/starting.hpp"
#include "policy/units.hpp"

namespace belljar::api {

using nlohmann::json;
using supervisor::Code;
using supervisor::Milliseconds;
using supervisor::Outcome;
using supervisor::Session;
using supervisor::SessionSpec;

namespace {

constexpr std::size_t kMostBody = std::size_t{64} << 20;
constexpr std::size_t kSmallBody = std::size_t{64} << 10;
constexpr std::uint64_t kMostListed = 1000, kUsuallyListed = 100;
/// How often a wait looks whether its client is still there.
constexpr Milliseconds kGlance{500};

using SessionPtr = std::shared_ptr<Session>;

enum class Ready { kYes, kLate, kEnded, kAbandoned };

Awaitable<Ready> wait_ready(const V1Context& context, const Request& request, SessionPtr session,
                            std::uint16_t port, Milliseconds limit) {
  const auto deadline = context.supervisor->clock()->now() + limit;
  for (;;) {
    const auto left =
        std::chrono::ceil<Milliseconds>(deadline - context.supervisor->clock()->now());
    const Milliseconds glance = std::clamp(left, Milliseconds(0), kGlance);
    const Outcome<void> listens = co_await session->wait_listening(port, glance);
    if (listens) co_return Ready::kYes;
    if (listens.error().code != Code::kTimeout) co_return Ready::kEnded;
    if (is_abandoned(request)) co_return Ready::kAbandoned;
    if (left <= kGlance) co_return Ready::kLate;
  }
}

std::string end_text(const Session& session) {
  const auto& end = session.end_record();
  if (!end) return "it is ending";
  std::string text = "it ended: " + end->cause;
  if (end->exit_code) text += ", exit code " + std::to_string(*end->exit_code);
  return text;
}

Response not_ready(Request& request, const Session& session, std::uint16_t port, Ready how) {
  const std::string where = "nothing of the session listens on port " + std::to_string(port);
  if (how == Ready::kLate)
    return problem_response(request, Problem(504, "timeout", where + " in time"));
  return problem_response(request, Problem(409, "ended", where + ", and " + end_text(session)));
}

Awaitable<Response> create_session(const V1Context& context, Request& request) {
  const auto tree = parse_body(request);
  if (!tree) co_return problem_response(request, tree.error());
  auto body = read_session(*tree);
  if (!body) co_return problem_response(request, body.error());
  request.body = {};
  const auto executor = co_await boost::asio::this_coro::executor;
  auto owner =
      owner_of(body->die_with, request, *context.leases, executor, context.supervisor->clock());
  if (!owner) co_return problem_response(request, owner.error());
  SessionSpec spec = with_operators_part(context, request, std::move(body->spec));
  spec.owner = *std::move(owner);
  const auto made = co_await context.supervisor->create(std::move(spec));
  if (!made) co_return start_failed(request, made.error());
  const SessionPtr session = *made;
  request.session = session->id();
  Ready ready = Ready::kYes;
  const std::uint16_t port = body->ready_port == 0 ? session->port() : body->ready_port;
  if (body->wait_ready)
    ready = co_await wait_ready(context, request, session, port, body->ready_limit);
  if (ready == Ready::kYes && is_abandoned(request)) ready = Ready::kAbandoned;
  if (ready == Ready::kYes)
    co_return created(session_path(session->id()),
                      session_json(request, *context.supervisor, *session));
  // Of a session that nobody was told of nothing may be left running.
  std::string id = session->id();
  (void)co_await context.supervisor->end(std::move(id), supervisor::EndedBy::kClient);
  if (ready == Ready::kAbandoned) co_return abandoned(request);
  co_return not_ready(request, *session, port, ready);
}

// A page of the list goes on behind a place in time, so that what ends in between changes nothing.

struct Place {
  std::int64_t created = 0;
  std::string id;
  friend auto operator<=>(const Place&, const Place&) = default;
};

Place place_of(const Session& session) {
  Place place;
  place.created =
      std::chrono::duration_cast<std::chrono::microseconds>(session.created().time_since_epoch())
          .count();
  place.id = session.id();
  return place;
}

std::optional<Place> place_of(const std::string& cursor) {
  const std::size_t dot = cursor.find('.');
  if (dot == std::string::npos) return std::nullopt;
  const auto created = policy::parse_decimal(std::string_view(cursor).substr(0, dot));
  if (!created || *created > INT64_MAX) return std::nullopt;
  Place place;
  place.created = static_cast<std::int64_t>(*created);
  place.id = cursor.substr(dot + 1);
  return place;
}

std::string cursor_of(const Session& session) {
  const Place place = place_of(session);
  return std::to_string(place.created) + '.' + place.id;
}

struct Wanted {
  std::optional<std::string> state, workspace;
  std::map<std::string, std::string> labels;
  Place after;
  std::uint64_t limit = kUsuallyListed;

  [[nodiscard]] bool fits(const Session& session) const {
    if (state && *state != state_name(session.state())) return false;
    if (workspace && *workspace != session.workspace()) return false;
    const auto& has = session.labels();
    return std::all_of(labels.begin(), labels.end(), [&](const auto& label) {
      const auto found = has.find(label.first);
      return found != has.end() && found->second == label.second;
    });
  }
};

tl::expected<Wanted, Problem> read_wanted(const std::string& text) {
  Wanted wanted;
  Query query(text);
  std::vector<ProblemItem> wrong;
  wanted.state = query.text("state");
  wanted.labels = query.prefixed("label.");
  wanted.limit = query.number("limit", 1, kMostListed).value_or(kUsuallyListed);
  if (const auto cursor = query.text("cursor")) {
    const auto place = place_of(*cursor);
    if (!place) wrong.push_back({"?cursor", "expected the \"next\" of a page before"});
    wanted.after = place.value_or(Place());
  }
  wanted.workspace = query.text("workspace");
  constexpr std::string_view kStates[] = {"starting", "running", "ending", "ended"};
  if (wanted.state &&
      std::find(std::begin(kStates), std::end(kStates), *wanted.state) == std::end(kStates))
    wrong.push_back({"?state", "expected starting, running, ending or ended"});
  if (auto problem = query.finish()) return tl::unexpected(*std::move(problem));
  if (!wrong.empty()) return tl::unexpected(invalid_body(std::move(wrong)));
  return wanted;
}

Awaitable<Response> list_sessions(const V1Context& context, Request& request) {
  const auto wanted = read_wanted(request.query);
  if (!wanted) co_return problem_response(request, wanted.error());
  std::vector<SessionPtr> all = context.supervisor->list();
  std::stable_sort(all.begin(), all.end(), [](const SessionPtr& a, const SessionPtr& b) {
    return place_of(*a) < place_of(*b);
  });
  json shown = json::array(), next;
  const Session* last = nullptr;
  for (const SessionPtr& session : all) {
    if (place_of(*session) <= wanted->after || !wanted->fits(*session)) continue;
    if (shown.size() == wanted->limit) {
      next = cursor_of(*last);
      break;
    }
    shown.push_back(session_json(request, *context.supervisor, *session));
    last = session.get();
  }
  co_return json_response(200, {{"sessions", std::move(shown)}, {"next", std::move(next)}});
}

Awaitable<Response> get_session(const V1Context& context, Request& request) {
  const SessionPtr session = context.session(request);
  if (!session) co_return context.no_session(request);
  co_return json_response(200, session_json(request, *context.supervisor, *session));
}

// A merge patch (RFC 7396): what is absent stays, null takes away.

struct Patch {
  std::optional<std::map<std::string, std::string>> labels;
  std::optional<std::optional<Milliseconds>> ttl, idle;
};

std::optional<std::optional<Milliseconds>> read_patched(Members& members, const json& tree,
                                                        const char* key) {
  const auto value = members.duration(key);
  if (!tree.is_object() || !tree.contains(key)) return std::nullopt;
  if (value && *value <= Milliseconds(0)) members.wrong(key, "expected more than nothing");
  return std::optional<std::optional<Milliseconds>>(value);
}

std::map<std::string, std::string> merged(std::map<std::string, std::string> labels,
                                          const json& patch, Members& members) {
  for (const auto& [name, value] : patch.items()) {
    if (value.is_null())
      labels.erase(name);
    else if (value.is_string())
      labels[name] = value.get<std::string>();
    else
      members.wrong(name, "expected a string, or null to take it away");
  }
  return labels;
}

tl::expected<Patch, Problem> read_patch(const json& tree, const Session& session) {
  Patch patch;
  std::vector<ProblemItem> problems;
  Members members(tree, "", problems);
  members.allow_null();
  patch.ttl = read_patched(members, tree, "ttl");
  patch.idle = read_patched(members, tree, "idle");
  if (auto labels = members.object("labels")) {
    patch.labels = merged(session.labels(), tree["labels"], *labels);
    check_labels(*patch.labels, members);
  } else if (tree.is_object() && tree.contains("labels")) {
    patch.labels.emplace();
  }
  members.finish();
  if (!problems.empty()) return tl::unexpected(invalid_body(std::move(problems)));
  return patch;
}

/// What can fail comes first: a patch is applied whole, or not at all.
Outcome<void> apply(const Patch& patch, Session& session) {
  if (patch.ttl) {
    const Outcome<void> set = session.set_ttl(*patch.ttl);
    if (!set) return set;
  }
  if (patch.idle) {
    const Outcome<void> set = session.set_idle(*patch.idle);
    if (!set) return set;
  }
  if (patch.labels) session.set_labels(*patch.labels);
  return {};
}

Awaitable<Response> patch_session(const V1Context& context, Request& request) {
  const SessionPtr session = context.session(request);
  if (!session) co_return context.no_session(request);
  const auto tree = parse_body(request);
  if (!tree) co_return problem_response(request, tree.error());
  const auto patch = read_patch(*tree, *session);
  if (!patch) co_return problem_response(request, patch.error());
  const Outcome<void> applied = apply(*patch, *session);
  if (!applied) co_return problem_response(request, applied.error());
  co_return json_response(200, session_json(request, *context.supervisor, *session));
}

Awaitable<Response> keep_session(const V1Context& context, Request& request) {
  const SessionPtr session = context.session(request);
  if (!session) co_return context.no_session(request);
  const auto tree = parse_body(request);
  if (!tree) co_return problem_response(request, tree.error());
  std::vector<ProblemItem> problems;
  Members members(*tree, "", problems);
  const auto time = members.duration("for");
  if (!members.has("for")) members.wrong("for", "is required");
  members.finish();
  if (!problems.empty()) co_return problem_response(request, invalid_body(std::move(problems)));
  const Outcome<void> kept = session->keep_alive(*time);
  if (!kept) co_return problem_response(request, kept.error());
  co_return json_response(200, session_json(request, *context.supervisor, *session));
}

Awaitable<Response> end_session(const V1Context& context, Request& request) {
  const SessionPtr session = context.session(request);
  if (!session) co_return context.no_session(request);
  std::string id = session->id();
  const auto ended = co_await context.supervisor->end(std::move(id), supervisor::EndedBy::kClient);
  if (!ended) co_return problem_response(request, ended.error());
  if (*ended) co_return no_content();
  co_return json_response(202, session_json(request, *context.supervisor, *session));
}

}  // namespace

SessionSpec with_operators_part(const V1Context& context, const Request& request,
                                SessionSpec spec) {
  spec.client = request.client;
  spec.settings.insert(spec.settings.begin(), context.options.settings.begin(),
                       context.options.settings.end());
  spec.complete = [](SessionSpec& session, const supervisor::Place& place) -> Outcome<void> {
    session.environment.emplace("BELLJAR_PORT", std::to_string(place.port));
    if (session.command)
      session.command->directory = directory_in(place.workspace, session.command->directory);
    return {};
  };
  return spec;
}

void add_session_operations(Router& router, const V1Context& context) {
  Operation create("createSession", "POST", "/v1/sessions");
  create.body_limit = kMostBody;
  add_start(router, context, std::move(create), create_session);
  Operation list("listSessions", "GET", "/v1/sessions");
  list.takes_query = true;
  add_answer(router, context, std::move(list), list_sessions);
  const std::string one = "/v1/sessions/{session}";
  add_answer(router, context, Operation("getSession", "GET", one), get_session);
  Operation patch("patchSession", "PATCH", one);
  patch.body_limit = kSmallBody;
  add_answer(router, context, std::move(patch), patch_session);
  add_answer(router, context, Operation("endSession", "DELETE", one), end_session);
  Operation keep("keepSession", "POST", one + "/keepalive");
  keep.body_limit = kSmallBody;
  add_answer(router, context, std::move(keep), keep_session);
}

}  // namespace belljar::api
