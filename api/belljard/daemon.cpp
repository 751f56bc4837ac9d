#include "api/belljard/daemon.hpp"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "api/audit.hpp"
#include "api/gate.hpp"
#include "api/log.hpp"
#include "api/metrics.hpp"
#include "api/simulator/face.hpp"
#include "policy/units.hpp"
#include "supervisor/supervisor.hpp"

namespace belljar::api {
namespace {

using supervisor::Supervisor;

constexpr std::array kDefaultLimits = {std::pair{"as", "4GiB"}, std::pair{"cpu", "120s"},
                                       std::pair{"fsize", "100MiB"}, std::pair{"nproc", "64"},
                                       std::pair{"nofile", "1024"}};

supervisor::Config config_of(const policy::Settings& settings) {
  supervisor::Config config;
  // Nothing but the operator's setting leads here: no request and no failure does.
  config.policy = settings.sandbox == "off" ? "builtin:off@1" : settings.policy;
  config.port_base = static_cast<std::uint16_t>(settings.port_base);
  if (settings.session_ttl) config.max_ttl = *settings.session_ttl;
  if (settings.max_ttl) config.max_ttl = *settings.max_ttl;
  config.default_ttl = settings.session_ttl;
  config.sessions_of_a_client = settings.sessions_of_a_client;
  if (settings.max_runs) config.max_runs = *settings.max_runs;
  if (settings.retention) config.retention = *settings.retention;
  if (settings.term_grace) config.term_grace = *settings.term_grace;
  return config;
}

/// "limits.rlimits.as=4GiB": the operator's, and without a sandbox, whose policy has none, all
/// five.
std::vector<std::string> session_settings(const policy::Settings& settings) {
  std::map<std::string, std::string> limits;
  if (settings.sandbox == "off")
    for (const auto& [name, value] : kDefaultLimits)
      limits["limits.rlimits." + std::string(name)] = value;
  for (const auto& [path, value] : settings.limits()) limits[path] = value;
  std::vector<std::string> lines;
  for (const auto& [path, value] : limits) lines.push_back(path + '=' + value);
  return lines;
}

std::map<std::string, std::string> own_environment() {
  std::map<std::string, std::string> own;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos)
      own.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return own;
}

/// Everything that lives as long as the loop.
class Daemon {
 public:
  explicit Daemon(Inheritance inheritance)
      : inheritance_(std::move(inheritance)),
        clock_(supervisor::steady_clock(loop_)),
        audit_(std::move(inheritance_.audit)),
        gate_(std::move(inheritance_.tokens),
              [this](const Request& request, int status, std::chrono::microseconds took) {
                told(request, status, took);
              }),
        server_(loop_, gate_, server_options()),
        signals_(loop_, inheritance_.signals.release()) {}

  int run() {
    asio::co_spawn(loop_, begin(), [this](const std::exception_ptr& failure) { ended(failure); });
    asio::co_spawn(loop_, read_signals(), asio::detached);
    loop_.run();
    return status_;
  }

 private:
  [[nodiscard]] const policy::Settings& settings() const { return inheritance_.settings; }

  [[nodiscard]] ServerOptions server_options() const {
    ServerOptions options;
    if (settings().simulator) options.keep_alive = std::chrono::seconds(5);
    return options;
  }

  void ended(const std::exception_ptr& failure) {
    if (!failure) return;
    log(Level::kError, "the daemon failed");
    finish(1);
  }

  void finish(int status) {
    status_ = status;
    server_.stop();
    loop_.stop();
  }

  Awaitable<void> begin();
  Awaitable<void> drain();
  Awaitable<void> report_self_test();
  Awaitable<void> feed_watchdog();
  Awaitable<void> read_signals();
  bool offer_simulator();
  void offer_v1();
  void reload_tokens();
  void told(const Request& request, int status, std::chrono::microseconds took);

  Inheritance inheritance_;
  asio::io_context loop_{1};
  std::shared_ptr<supervisor::Clock> clock_;
  Audit audit_;
  Metrics metrics_;
  Gate gate_;
  Server server_;
  asio::posix::stream_descriptor signals_;
  std::shared_ptr<Supervisor> supervisor_;
  std::shared_ptr<SelfTestCache> self_test_;
  std::unique_ptr<SimulatorFace> simulator_;
  std::unique_ptr<V1Face> v1_;
  bool draining_ = false;
  int status_ = 0;
};

Awaitable<void> Daemon::begin() {
  auto config = config_of(settings());
  auto started =
      co_await Supervisor::start(loop_, std::move(inheritance_.service), std::move(config), clock_);
  if (!started) {
    const Error& error = started.error().error;
    log(Level::kError, "the launch service did not start",
        {{"reason", error.what},
         {"remedy", error.remedy.empty() ? "see what it has said on standard error, before this"
                                         : error.remedy}});
    co_return finish(1);
  }
  supervisor_ = *std::move(started);
  supervisor_->on_service_lost([this] {
    log(Level::kError, "the launch service is gone; every session has ended with it");
    finish(1);
  });
  supervisor_->events().on_event(
      [this](const supervisor::Event& event) { audit_.add(event, *supervisor_); });
  self_test_ = std::make_shared<SelfTestCache>(supervisor_);
  if (!offer_simulator()) co_return finish(1);
  offer_v1();
  gate_.set_metrics(
      [this] { return metrics_.text(*supervisor_, server_.connections(), audit_.lost()); });
  for (UniqueFd& listener : inheritance_.listeners) server_.serve(std::move(listener));
  supervisor::notify_manager("READY=1");
  asio::co_spawn(loop_, feed_watchdog(), asio::detached);
  const auto& service = supervisor_->service();
  log(Level::kInfo, "ready",
      {{"back_end", service.back_end}, {"sessions", std::to_string(service.max_sessions)}});
  if (!service.sandboxed)
    log(Level::kWarning, "UNSANDBOXED: AGENT_SIMULATOR_SANDBOX=off, sessions are not confined");
  co_await report_self_test();
}

Awaitable<void> Daemon::report_self_test() {
  const auto answer = co_await self_test_->ask();
  if (!answer.ok)
    log(Level::kError, "the sandbox does not work here", {{"reason", answer.sandbox}});
}

/// Twice in each time that the unit allows (WatchdogSec=), for as long as the loop turns.
Awaitable<void> Daemon::feed_watchdog() {
  const char* text = std::getenv("WATCHDOG_USEC");
  const auto allowed = policy::parse_decimal(text == nullptr ? "" : text);
  if (!allowed || *allowed == 0) co_return;
  asio::steady_timer pause(loop_);
  for (;;) {
    supervisor::notify_manager("WATCHDOG=1");
    pause.expires_after(std::chrono::microseconds(*allowed / 2));
    co_await pause.async_wait(supervisor::kAsTuple);
  }
}

bool Daemon::offer_simulator() {
  if (!settings().simulator) return true;
  SimulatorOptions options;
  options.settings = session_settings(settings());
  options.environment = agent_environment(own_environment());
  auto command = agent_command(settings().agent_command, options.environment["PATH"]);
  if (!command) {
    log(Level::kError, command.error().what, {{"remedy", command.error().remedy}});
    return false;
  }
  options.command = *std::move(command);
  simulator_ = std::make_unique<SimulatorFace>(supervisor_, self_test_, std::move(options));
  gate_.set_simulator(simulator_.get());
  return true;
}

/// A simulator's token is for its face alone: its clients get more only where the operator says
/// what else is to be listened on.
void Daemon::offer_v1() {
  if (settings().simulator && settings().listen.empty()) return;
  V1Options options;
  options.settings = session_settings(settings());
  options.starts_a_minute = settings().starts_a_minute;
  options.workspaces = !settings().workspace_roots.empty();
  v1_ = std::make_unique<V1Face>(supervisor_, self_test_, std::move(options));
  gate_.set_v1(v1_.get(), Hosts(settings().hosts, settings().listen));
}

Awaitable<void> Daemon::read_signals() {
  for (;;) {
    signalfd_siginfo info{};
    const asio::mutable_buffer space(&info, sizeof info);
    const auto [error, size] = co_await signals_.async_read_some(space, supervisor::kAsTuple);
    if (error) co_return;
    if (info.ssi_signo == SIGHUP) {
      reload_tokens();
    } else if (draining_ || !supervisor_) {
      if (!supervisor_) co_return finish(0);
      log(Level::kInfo, "ending all sessions now");
      supervisor_->hurry();
    } else {
      draining_ = true;
      asio::co_spawn(loop_, drain(), asio::detached);
    }
  }
}

/// Docker kills after ten seconds, and a simulator's sessions are worth nothing without it.
Awaitable<void> Daemon::drain() {
  const std::chrono::milliseconds usual(settings().simulator ? 0 : 30000);
  const auto limit = settings().drain_timeout.value_or(usual);
  log(Level::kInfo, "draining", {{"limit_ms", std::to_string(limit.count())}});
  supervisor::notify_manager("STOPPING=1");
  co_await supervisor_->drain(limit);
  // Relays still have to say why they close.
  asio::steady_timer pause(loop_);
  for (int i = 0; i < 20 && server_.connections() > 0; ++i) {
    server_.stop();
    pause.expires_after(std::chrono::milliseconds(100));
    co_await pause.async_wait(supervisor::kAsTuple);
  }
  log(Level::kInfo, "ended");
  finish(0);
}

void Daemon::reload_tokens() {
  auto tokens = load_tokens(settings());
  if (!tokens) {
    log(Level::kError, "the tokens stay as they were", {{"reason", tokens.error().what}});
    return;
  }
  for (const std::string& warning : tokens->warnings()) log(Level::kWarning, warning);
  log(Level::kInfo, "tokens read again", {{"tokens", std::to_string(tokens->size())}});
  gate_.set_tokens(*std::move(tokens));
}

void Daemon::told(const Request& request, int status, std::chrono::microseconds took) {
  metrics_.count(status);
  if (status == 401 || (status == 403 && request.client.empty())) audit_.refused(request, status);
  Facts facts = {{"request", request.id},
                 {"client", request.client.empty() ? "-" : request.client},
                 {"peer", request.peer.address},
                 {"method", request.method.empty() ? "-" : request.method},
                 {"target", request.target.empty() ? "-" : std::string(logged_target(request))},
                 {"status", std::to_string(status)},
                 {"ms", std::to_string(took.count() / 1000)}};
  if (!request.failure.empty()) facts.emplace_back("reason", request.failure);
  log(status < 500 ? Level::kInfo : Level::kError, "request", facts);
}

}  // namespace

int serve(Inheritance inheritance) { return Daemon(std::move(inheritance)).run(); }

std::vector<UniqueFd> activated_listeners() {
  std::vector<UniqueFd> listeners;
  for (supervisor::ActivatedSocket& socket : supervisor::activated_sockets())
    listeners.push_back(std::move(socket.descriptor));
  return listeners;
}

Result<UniqueFd> take_signals() {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&wanted, number);
  if (sigprocmask(SIG_BLOCK, &wanted, nullptr) != 0) return sys_failure(errno, "block signals");
  UniqueFd signals(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.valid()) return sys_failure(errno, "make a descriptor for signals");
  return signals;
}

std::map<std::string, std::string> agent_environment(
    const std::map<std::string, std::string>& own) {
  std::map<std::string, std::string> agents = {{"PATH", "/bin:/usr/bin"},
                                               {"NLTK_DATA", "/opt/nltk_data"},
                                               {"PYTHONUNBUFFERED", "1"},
                                               {"PYTHONDONTWRITEBYTECODE", "1"},
                                               {"BESSER_TEST_MODE", "1"}};
  for (const char* name : {"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "NLTK_DATA"})
    if (const auto found = own.find(name); found != own.end() && !found->second.empty())
      agents[name] = found->second;
  return agents;
}

Result<std::vector<std::string>> agent_command(const std::string& command,
                                               const std::string& path) {
  std::vector<std::string> words;
  for (std::size_t from = 0; from < command.size();) {
    const std::size_t to = std::min(command.find(' ', from), command.size());
    if (to > from) words.push_back(command.substr(from, to - from));
    from = to + 1;
  }
  const std::string remedy =
      "name a program of the agents' PATH in AGENT_SIMULATOR_COMMAND or --agent-command";
  if (words.empty())
    return fail({ErrorKind::kInvalid, 0, "the agents' command is empty", "agent_command", remedy});
  if (words[0].find('/') != std::string::npos) {
    if (access(words[0].c_str(), X_OK) == 0) return words;
    return fail({ErrorKind::kUnavailable, errno,
                 "the agents' command " + words[0] + " cannot be executed", "agent_command",
                 remedy});
  }
  for (std::size_t from = 0; from <= path.size();) {
    const std::size_t to = std::min(path.find(':', from), path.size());
    if (access((path.substr(from, to - from) + '/' + words[0]).c_str(), X_OK) == 0) return words;
    from = to + 1;
  }
  return fail({ErrorKind::kUnavailable, 0,
               "there is no " + words[0] + " on the agents' PATH, " + path, "agent_command",
               remedy});
}

}  // namespace belljar::api
