#include "api/simulator/face.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/simulator/agent_config.hpp"
#include "api/simulator/frames.hpp"
#include "api/simulator/relay.hpp"
#include "api/simulator/uuid.hpp"
#include "policy/quote.hpp"

namespace belljar::api {

using nlohmann::json;
using supervisor::Code;
using supervisor::Failure;
using supervisor::Session;

namespace {

constexpr std::size_t kMostBody = std::size_t{64} << 20;
constexpr std::size_t kMostMessage = std::size_t{16} << 20;
constexpr std::uint64_t kMostFileShown = 524288;
constexpr std::uint64_t kMostFilesShown = std::uint64_t{16} << 20;
constexpr std::size_t kMostFiles = 10000;
constexpr std::string_view kHidden = "tmp";  ///< Directories of that name, at any depth.

constexpr std::uint16_t kUnknownSession = 4004, kBrokenId = 4400;

Response ok(const json& body) {
  Response response;
  response.body = body.dump(-1, ' ', false, json::error_handler_t::replace);
  return response;
}

Response method_not_allowed(const char* allowed) {
  Response response = simulator_error(405, "Method Not Allowed");
  response.headers.add("allow", allowed);
  return response;
}

/// Whether a sandbox stood, and only what was to run in it could not be started.
bool is_spawn_failure(const std::string& setup) {
  const json tree = json::parse(setup, nullptr, false);
  if (!tree.is_object() || !tree.contains("control")) return false;
  return tree["control"] == "command" || tree["control"] == "rlimits";
}

/// What a client may know: what the host lacks, and how a sandbox is built, goes to the log alone.
Response failed(const Failure& failure) {
  switch (failure.code) {
    case Code::kExists:
      return simulator_error(400, "A session with this id already exists");
    case Code::kInvalid:
    case Code::kBeyondMaximum:
    case Code::kConflict:
      return simulator_error(400, failure.error.what);
    case Code::kCapacity:
    case Code::kQuota:
      return simulator_error(429, failure.error.what);
    case Code::kSandbox:
      if (is_spawn_failure(failure.setup)) break;
      return simulator_error(503, "The agent sandbox is unavailable");
    case Code::kRefused:
    case Code::kUnavailable:
    case Code::kLost:
      return simulator_error(503, "The agent sandbox is unavailable");
    case Code::kBusy:
    case Code::kDraining:
    case Code::kTimeout:
      return simulator_error(503, "The agent simulator cannot start a session now");
    case Code::kNotFound:
    case Code::kEnded:
    case Code::kShellBusy:
    case Code::kPrecondition:
    case Code::kDenied:
    case Code::kTooLarge:
    case Code::kNoSpace:
    case Code::kPortClosed:
    case Code::kSystem:
      break;
  }
  return simulator_error(500, "The session could not be started");
}

/// Adds to what a workspace starts with; of two with the same path the later one counts.
class Files {
 public:
  void file(const std::string& path, std::string content) {
    supervisor::WorkspaceFile file;
    file.path = path;
    file.content = std::move(content);
    files_.insert_or_assign(path, std::move(file));
  }
  void directory(const std::string& path) {
    supervisor::WorkspaceFile directory;
    directory.path = path;
    directory.directory = true;
    const auto [found, added] = files_.try_emplace(path, std::move(directory));
    if (!found->second.directory) clash_ = path;
  }
  /// Refused where a file stands where a directory has to be.
  [[nodiscard]] supervisor::Outcome<std::vector<supervisor::WorkspaceFile>> take() {
    for (const auto& [path, file] : files_)
      for (std::size_t at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1))
        if (const auto above = files_.find(path.substr(0, at));
            above != files_.end() && !above->second.directory)
          clash_ = above->first;
    if (!clash_.empty())
      return supervisor::refuse(Code::kSystem,
                                policy::in_quotes(clash_) + " is a file and has to be a directory");
    std::vector<supervisor::WorkspaceFile> list;
    for (auto& [path, file] : files_) list.push_back(std::move(file));
    return list;
  }

 private:
  std::map<std::string, supervisor::WorkspaceFile> files_;
  std::string clash_;
};

/// A request's files, with its paths made sound; otherwise why they are not.
policy::Parsed<std::map<std::string, std::string>> sound_files(
    const std::map<std::string, std::string>& given) {
  std::map<std::string, std::string> files;
  for (const auto& [path, content] : given) {
    auto normal = normalise_workspace_path(path);
    if (!normal) return tl::unexpected(normal.error());
    files.insert_or_assign(*std::move(normal), content);
  }
  return files;
}

policy::Parsed<std::vector<std::string>> sound_paths(const std::vector<std::string>& given) {
  std::vector<std::string> paths;
  for (const std::string& path : given) {
    auto normal = normalise_workspace_path(path);
    if (!normal) return tl::unexpected(normal.error());
    paths.push_back(*std::move(normal));
  }
  return paths;
}

/// Nothing, or what is wrong with a request that has the right shape.
std::string make_sound(CreateRequest& request) {
  auto files = sound_files(request.support_files);
  if (!files) return files.error();
  auto paths = sound_paths(request.workspace_paths);
  if (!paths) return paths.error();
  if (files->size() + paths->size() > kMostFiles) return "too many files and directories";
  for (const auto& [name, value] : request.credentials)
    if (value.find('\0') != std::string::npos) return name + " holds a NUL";
  // Finds out now whether it can be read; the port is filled in when there is one.
  if (const auto config = agent_config(request.config_yaml, 0, request.credentials); !config)
    return config.error();
  request.support_files = *std::move(files);
  request.workspace_paths = *std::move(paths);
  return {};
}

std::string too_large(std::uint64_t size) {
  return "[File too large to display: " + std::to_string(size) + " bytes]";
}

std::string shown_content(const supervisor::Entry& entry, const std::vector<std::string>& secrets) {
  if (entry.too_large || !entry.content) return too_large(entry.size);
  // The one file that credentials are put into, by us.
  if (entry.path == "config.yaml") return without_secrets(*entry.content, secrets);
  return *entry.content;
}

json shown_files(const supervisor::Listing& listing, const std::vector<std::string>& secrets) {
  json files = json::array();
  std::vector<std::string> directories;
  for (const supervisor::Entry& entry : listing.entries) {
    if (entry.type == supervisor::Entry::Type::kDirectory) {
      // The service does not look into these, but says that they are there.
      const bool hidden = entry.path == kHidden || entry.path.ends_with('/' + std::string(kHidden));
      if (!hidden) directories.push_back(entry.path);
    } else if (entry.type == supervisor::Entry::Type::kFile) {
      // What cannot be opened, such as a file with a second name, is left out as it always was.
      if (!entry.content && !entry.too_large) continue;
      files.push_back({{"path", entry.path}, {"content", shown_content(entry, secrets)}});
    }
  }
  std::sort(directories.begin(), directories.end());
  return {{"files", std::move(files)}, {"directories", std::move(directories)}};
}

}  // namespace

Response simulator_error(int status, std::string_view detail) {
  Response response = ok({{"detail", std::string(detail)}});
  response.status = status;
  if (status == 429 || status == 503) response.headers.add("retry-after", "5");
  return response;
}

SimulatorFace::SimulatorFace(std::shared_ptr<supervisor::Supervisor> supervisor,
                             std::shared_ptr<SelfTestCache> self_test, SimulatorOptions options)
    : supervisor_(std::move(supervisor)),
      self_test_(std::move(self_test)),
      options_(std::move(options)) {}

bool SimulatorFace::owns(const Request& head) { return head.path.empty() || head.path[0] != "v1"; }

Verdict SimulatorFace::route(const Request& head) {
  const auto& path = head.path;
  const bool session = path.size() >= 2 && path[0] == "sessions";
  Verdict verdict;
  if (head.upgrade) {
    if (session && path.size() == 3 && path[2] == "ws" && !head.trailing_slash) {
      verdict.most_message = kMostMessage;
      verdict.upgrade = [this, id = path[1]](const Request&, WebSocket& socket) {
        return relay(id, socket);
      };
    } else {
      verdict.refuse = Response{403, {}, {}, {}};
    }
    return verdict;
  }
  if (head.trailing_slash && path == std::vector<std::string>{"sessions"}) {
    verdict.refuse = Response{307, {}, {}, {}};
    verdict.refuse->headers.add("location", "/sessions");
  } else if (path == std::vector<std::string>{"sessions"}) {
    verdict.body_limit = kMostBody;
    verdict.answer = [this](Request& request) { return create(request); };
    if (head.method != "POST") verdict.refuse = method_not_allowed("POST");
  } else if (path == std::vector<std::string>{"health"}) {
    verdict.answer = [this](Request&) { return health(); };
    if (head.method != "GET") verdict.refuse = method_not_allowed("GET");
  } else if (session && path.size() == 2) {
    verdict.answer = [this](Request& request) { return remove(request.path[1]); };
    if (head.method != "DELETE") verdict.refuse = method_not_allowed("DELETE");
  } else if (session && path.size() == 3 && path[2] == "files") {
    verdict.answer = [this](Request& request) { return files(request.path[1]); };
    if (head.method != "GET") verdict.refuse = method_not_allowed("GET");
  } else {
    verdict.refuse = simulator_error(404, "Not Found");
  }
  return verdict;
}

supervisor::SessionSpec SimulatorFace::specify(const Request& request, std::string id,
                                               CreateRequest wanted) const {
  supervisor::SessionSpec spec;
  spec.id = std::move(id);
  spec.client = request.client;
  spec.settings = options_.settings;
  supervisor::ProcessSpec agent;
  agent.argv = options_.command;
  agent.environment = options_.environment;
  for (const auto& [name, value] : wanted.credentials) agent.environment[name] = value;
  agent.merge_output = true;
  spec.command = std::move(agent);
  spec.complete = [wanted = std::move(wanted)](
                      supervisor::SessionSpec& session,
                      const supervisor::Place& place) -> supervisor::Outcome<void> {
    auto config = agent_config(wanted.config_yaml, place.port, wanted.credentials);
    if (!config) return supervisor::refuse(Code::kInvalid, config.error());
    Files files;
    files.file("agent.py", wanted.agent_code);
    files.file("config.yaml", *std::move(config));
    for (const auto& [path, content] : wanted.support_files) files.file(path, content);
    for (const std::string& path : wanted.workspace_paths) files.directory(path);
    files.directory("tmp");
    auto all = files.take();
    if (!all) return tl::unexpected<Failure>(all.error());
    session.files = *std::move(all);
    auto& environment = session.command->environment;
    environment["BESSER_WS_PORT"] = std::to_string(place.port);
    environment["HOME"] = place.workspace;
    environment["TMPDIR"] = place.workspace + "/tmp";
    session.command->directory = place.workspace;
    return {};
  };
  return spec;
}

Awaitable<Response> SimulatorFace::create(Request& request) {
  const auto type = request.headers.find("content-type").value_or("");
  auto wanted = parse_create_request(type, request.body);
  if (!wanted) {
    Response response;
    response.status = 422;
    response.body = wanted.error();
    co_return response;
  }
  request.body = {};
  const auto uuid = parse_uuid(wanted->session_id);
  if (!uuid) co_return simulator_error(400, "session_id is not a UUID");
  const std::string unsound = make_sound(*wanted);
  if (!unsound.empty()) co_return simulator_error(400, unsound);
  std::vector<std::string> secrets;
  for (const auto& [name, value] : wanted->credentials) secrets.push_back(value);
  auto spec = specify(request, *uuid, *std::move(wanted));
  const auto session = co_await supervisor_->create(std::move(spec));
  if (!session) {
    request.failure = session.error().error.what + ' ' + session.error().setup;
    co_return failed(session.error());
  }
  keep_secrets(*uuid, std::move(secrets));
  if (request.gone && request.gone()) {
    // Of a session that nobody was told of nothing may be left running.
    request.failure = "the client has hung up";
    (void)co_await supervisor_->end(*uuid, supervisor::EndedBy::kClient);
  }
  co_return ok({{"session_id", *uuid}, {"port", (*session)->port()}});
}

void SimulatorFace::keep_secrets(const std::string& uuid, std::vector<std::string> secrets) {
  std::erase_if(secrets_, [this](const auto& entry) { return live(entry.first) == nullptr; });
  secrets_.insert_or_assign(uuid, std::move(secrets));
}

std::shared_ptr<Session> SimulatorFace::live(const std::string& uuid) const {
  auto session = supervisor_->find(uuid);
  if (session && session->state() == Session::State::kEnded) return nullptr;
  return session;
}

Awaitable<Response> SimulatorFace::files(std::string id) {
  const auto uuid = parse_uuid(id);
  if (!uuid) co_return simulator_error(400, "Invalid session id");
  const auto session = live(*uuid);
  if (!session) co_return simulator_error(404, "Session not found");
  supervisor::ListRequest wanted;
  wanted.content = kMostFileShown;
  wanted.total = kMostFilesShown;
  wanted.skip.emplace_back(kHidden);
  const auto listing = co_await session->list(std::move(wanted));
  if (listing) co_return ok(shown_files(*listing, secrets_[*uuid]));
  const Code code = listing.error().code;
  if (code == Code::kEnded || code == Code::kNotFound)
    co_return simulator_error(404, "Session not found");
  co_return simulator_error(500, "The files could not be listed");
}

Awaitable<Response> SimulatorFace::remove(std::string id) {
  const auto uuid = parse_uuid(id);
  if (!uuid) co_return simulator_error(400, "Invalid session id");
  // Whatever becomes of it, it goes on behind; clients only look whether they were heard.
  (void)co_await supervisor_->end(*uuid, supervisor::EndedBy::kClient);
  co_return ok({{"ok", true}});
}

Awaitable<Response> SimulatorFace::health() {
  const auto test = co_await self_test_->ask();
  const auto counts = supervisor_->counts();
  json body = {{"status", test.ok ? "ok" : "degraded"},
               {"sessions", counts.starting + counts.running + counts.ending},
               {"sandbox", test.sandbox},
               {"max_sessions", supervisor_->service().max_sessions},
               {"quarantined", counts.slots_quarantined}};
  if (test.age) body["sandbox_age_s"] = test.age->count();
  co_return ok(body);
}

Awaitable<void> SimulatorFace::relay(std::string id, WebSocket& socket) {
  const auto uuid = parse_uuid(id);
  const auto session = uuid ? live(*uuid) : nullptr;
  if (!session) {
    const char* reason = uuid ? "Session not found" : "Invalid session id";
    co_await socket.write(error_frame(reason));
    co_await socket.close(uuid ? kUnknownSession : kBrokenId, reason);
    co_return;
  }
  RelayOptions options;
  options.retry = options_.retry;
  options.attempts = options_.attempts;
  const auto relay = std::make_shared<Relay>(supervisor_, session, socket, options);
  co_await relay->run();
}

}  // namespace belljar::api
