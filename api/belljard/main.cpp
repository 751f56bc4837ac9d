// belljard: agent sessions over HTTP and WebSocket. Its privileges go to the launch service, which
// it starts first; what it hears from strangers it hears without any.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "api/belljard/confinement.hpp"
#include "api/belljard/daemon.hpp"
#include "api/belljard/listen.hpp"
#include "api/belljard/privileges.hpp"
#include "api/belljard/service_process.hpp"
#include "api/log.hpp"
#include "policy/settings_options.hpp"
#include "policy/suggest.hpp"

namespace {

using namespace belljar;
using namespace belljar::api;

constexpr int kWrongUsage = 2;

int complain(const Error& error) {
  std::string line = "belljard: " + error.what;
  if (error.sys_errno != 0) line += std::string(": ") + std::strerror(error.sys_errno);
  if (!error.where.empty()) line += " (" + error.where + ')';
  std::fprintf(stderr, "%s\n", line.c_str());
  if (!error.remedy.empty()) std::fprintf(stderr, "belljard: try: %s\n", error.remedy.c_str());
  return 1;
}

/// What the service is to read as we did.
std::vector<std::string> service_arguments(const policy::SettingSources& sources) {
  std::vector<std::string> arguments;
  if (!sources.config.empty()) arguments.push_back("--config=" + sources.config);
  for (const auto& [flag, value] : sources.flags)
    arguments.push_back(flag == "--simulator" ? flag : flag + '=' + value);
  return arguments;
}

/// As many connections as the host lets us have.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/// What systemd has opened stands for every unix socket of ours.
Result<std::vector<UniqueFd>> open_listeners(const policy::Settings& settings) {
  std::vector<UniqueFd> listeners = activated_listeners();
  std::vector<std::string> addresses = settings.listen;
  if (!listeners.empty())
    std::erase_if(addresses,
                  [](const std::string& address) { return address.starts_with("unix:"); });
  else if (addresses.empty())
    addresses.emplace_back("unix:/run/belljar/belljard.sock");
  for (const std::string& address : addresses) listeners.push_back(BELLJAR_TRY(listen_at(address)));
  return listeners;
}

Result<UniqueFd> open_audit(const std::string& path) {
  if (path.empty()) return UniqueFd();
  UniqueFd file(open(path.c_str(),
                     O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0640));
  if (!file.valid()) return sys_failure(errno, "open the audit file " + path);
  return file;
}

/// Everything that takes privileges or can be refused, in the order in which it is given up.
Result<Inheritance> prepare(policy::Settings settings, const std::vector<std::string>& arguments) {
  const bool privileged = is_privileged();
  Inheritance inheritance;
  DaemonUser user;
  if (privileged) {
    user = BELLJAR_TRY(daemon_user(settings));
    BELLJAR_CHECK(check_pool(settings));
  }
  inheritance.tokens = BELLJAR_TRY(load_tokens(settings));
  inheritance.listeners = BELLJAR_TRY(open_listeners(settings));
  inheritance.audit = BELLJAR_TRY(open_audit(settings.audit));
  const std::string launcher = BELLJAR_TRY(find_launcher());
  ServiceProcess service = BELLJAR_TRY(start_service(launcher, arguments));
  inheritance.service = std::move(service.socket);
  inheritance.signals = BELLJAR_TRY(take_signals());
  raise_descriptor_limit();
  if (privileged) BELLJAR_CHECK(become(user));
  BELLJAR_CHECK(drop_capabilities());
  BELLJAR_CHECK(install_filter());
  inheritance.settings = std::move(settings);
  return inheritance;
}

int run(const policy::SettingSources& sources, bool only_check) {
  auto settings = policy::load_settings(sources);
  if (!settings) {
    for (const policy::Diagnostic& wrong : settings.error())
      std::fprintf(stderr, "belljard: %s\n", wrong.text().c_str());
    return kWrongUsage;
  }
  set_log_format(settings->log == "json" ? LogFormat::kJson : LogFormat::kText);
  for (const std::string& warning : settings->warnings) log(Level::kWarning, warning);
  if (only_check) {
    const auto tokens = load_tokens(*settings);
    if (!tokens) return complain(tokens.error());
    std::puts("the settings are good");
    return 0;
  }
  tell(observe_confinement());
  auto inheritance = prepare(*std::move(settings), service_arguments(sources));
  if (!inheritance) return complain(inheritance.error());
  for (const std::string& warning : inheritance->tokens.warnings()) log(Level::kWarning, warning);
  if (inheritance->tokens.empty())
    log(Level::kError, "no token is configured: everything that comes over TCP is refused");
  return serve(*std::move(inheritance));
}

/// Without the value that may be glued to an option: it can be a secret.
std::string complaint(const CLI::App& app, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return error.what();
  const std::string word = app.remaining().front();
  const std::string option = word.starts_with("-") ? word.substr(0, word.find('=')) : word;
  std::vector<std::string> names;
  for (const CLI::Option* known : app.get_options())
    for (const std::string& name : known->get_lnames()) names.push_back("--" + name);
  return policy::with_suggestion("unknown option " + option, option,
                                 std::vector<std::string_view>(names.begin(), names.end()));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Agent sessions over HTTP and WebSocket.", "belljard");
  app.set_version_flag("--version", "belljard " BELLJAR_VERSION);
  policy::SettingsOptions options;
  options.declare(app);
  bool only_check = false;
  app.add_flag("--check-config", only_check, "Say whether the settings are good, and end");
  // For docs/configuration.md; in no group, and so in no help.
  bool only_table = false;
  app.add_flag("--settings-table", only_table)->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::fprintf(stderr, "belljard: %s\nbelljard: see belljard --help\n",
                 complaint(app, error).c_str());
    return kWrongUsage;
  }
  if (only_table) return std::fputs(policy::settings_table().c_str(), stdout) < 0 ? 1 : 0;
  return run(options.sources(), only_check);
}
