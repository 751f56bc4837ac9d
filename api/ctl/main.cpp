// belljarctl: belljard's sessions from a shell. It speaks /v1 alone.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "api/ctl/commands.hpp"
#include "api/ctl/ending.hpp"
#include "api/ctl/terminal.hpp"
#include "api/http/message.hpp"
#include "policy/base/result.hpp"
#include "policy/command_line.hpp"
#include "policy/suggest.hpp"

namespace belljar::ctl {
namespace {

constexpr const char* kSocket = "/run/belljar/belljard.sock";
constexpr int kNo = 1, kWrongUsage = 2, kNotFoundOut = 3;

constexpr const char* kExamples = R"(
Examples:
  belljarctl run -- python3 -c 'print(6 * 7)'
  S=$(belljarctl create --policy builtin:agent@1 --ttl 1h)
  belljarctl exec -it $S -- bash
  belljarctl cp ./project $S:project
  belljarctl exec $S -- make -C project test
  belljarctl logs -f $S 1
  belljarctl rm $S

Exit status of run, exec, attach and wait: the command's own; 128+n for signal n; 124 out
of time; 125 belljarctl, belljard or the sandbox refused or failed; 126 not executable;
127 not found. Of the others: 0 done, 1 refused, 2 usage, 3 it could not be found out.)";

/// How the daemon is reached.
struct Where {
  std::string socket = kSocket, url, token_file;
};

/// The first one that is not blank, without blanks at either end.
std::string first_line(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    line = api::trim(line);
    if (!line.empty()) return std::string(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

Outcome<std::string> read_token(const std::string& path) {
  if (path.empty()) {
    const char* here = std::getenv("BELLJAR_TOKEN");
    return here == nullptr ? std::string() : first_line(here);
  }
  UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!file.valid()) return call_failed(errno, "open the token file " + path);
  std::array<char, 4096> text{};
  const ssize_t got = read(file.get(), text.data(), text.size());
  if (got < 0) return call_failed(errno, "read the token file " + path);
  // One on each line, as the daemon has them: the first is ours.
  std::string token = first_line({text.data(), static_cast<std::size_t>(got)});
  if (!token.empty()) return token;
  return failed(FailureKind::kUsage, "the token file " + path + " has no token");
}

Outcome<Address> address_of(const Where& where) {
  Address address;
  address.socket = where.socket;
  if (where.url.empty()) return address;
  address = BELLJAR_TRY(parse_url(where.url));
  // Over the unix socket it is known who asks.
  if (address.socket.empty()) address.token = BELLJAR_TRY(read_token(where.token_file));
  return address;
}

/// One verb: its options, and what it does.
struct Verb {
  CLI::App* app = nullptr;
  bool has_command = false;  ///< Its exit status is a command's.
  std::function<Outcome<int>(const Client&)> run;
};

class Program {
 public:
  Program() : app_("Belljard's sessions from a shell.", "belljarctl") {
    app_.set_version_flag("--version", "belljarctl " BELLJAR_VERSION);
    app_.require_subcommand(1);
    app_.footer(kExamples);
    app_.add_option("--socket", where_.socket, "The daemon's unix socket")
        ->type_name("PATH")
        ->capture_default_str();
    app_.add_option("--url", where_.url, "The daemon at http://HOST:PORT instead")
        ->type_name("URL")
        ->excludes("--socket");
    app_.add_option("--token-file", where_.token_file,
                    "The token for it; otherwise the variable BELLJAR_TOKEN")
        ->type_name("FILE");
    declare_sessions();
    declare_processes();
    declare_rest();
  }

  int run(int argc, char** argv);

 private:
  CLI::App& add(const char* name, const char* what, bool has_command,
                std::function<Outcome<int>(const Client&)> run) {
    CLI::App* app = app_.add_subcommand(name, what)->fallthrough()->footer("");
    verbs_.push_back({app, has_command, std::move(run)});
    return *app;
  }
  void declare_sessions();
  void declare_processes();
  void declare_rest();

  [[nodiscard]] std::string complaint(const CLI::ParseError& error, int argc, char** argv) const;
  [[nodiscard]] const Verb* asked() const;
  [[nodiscard]] int status_of(const Verb& verb, const Failure& failure) const;

  CLI::App app_;
  Where where_;
  std::vector<Verb> verbs_;
  ListOptions ps_;
  CreateOptions create_;
  RemoveOptions rm_;
  TopOptions top_;
  ExecOptions exec_;
  RunOptions run_;
  LogsOptions logs_;
  AttachOptions attach_;
  WaitOptions wait_;
  KillOptions kill_;
  CopyOptions cp_;
  EventsOptions events_;
  bool policies_json_ = false, version_json_ = false;
};

// --- options

void add_json(CLI::App& app, bool& json, const char* what = "Print JSON, for scripts") {
  app.add_flag("--json", json, what);
}

void add_session(CLI::App& app, std::string& session) {
  app.add_option("session", session, "The session's id")->type_name("SESSION")->required();
}

void add_process(CLI::App& app, std::string& process) {
  app.add_option("process", process, "The process's number; 0 is the session's own command")
      ->type_name("PROCESS")
      ->capture_default_str();
}

void add_process_options(CLI::App& app, ProcessOptions& asked, bool required) {
  app.add_option("-e,--env", asked.environment, "Set an environment variable, or pass the caller's")
      ->type_name("NAME[=VALUE]")
      ->allow_extra_args(false);
  app.add_option("-w,--workdir", asked.directory,
                 "Start in DIR; a relative one is below the workspace")
      ->type_name("DIR");
  app.add_option("--timeout", asked.timeout, "End the command after this time: 30s, 15m")
      ->type_name("DURATION");
  app.add_option("--output", asked.output, "End it when it has written more: 10MiB")
      ->type_name("SIZE");
  app.add_option("command", asked.command, "What to run, after --")
      ->type_name("CMD")
      ->required(required);
}

void add_session_options(CLI::App& app, SessionOptions& asked) {
  app.add_option("-p,--policy", asked.policy, "A policy of the daemon's: see belljarctl policies")
      ->type_name("NAME");
  app.add_option("--network", asked.network, "none, private, shared or auto")->type_name("MODE");
  app.add_option("--var", asked.variables, "Give a variable that the policy declares its value")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  app.add_option("--limit", asked.limits, "As in memory=512MiB or rlimits.nofile=64")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  app.add_option("--workspace", asked.workspace,
                 "Work in this directory of the host's, and leave it there")
      ->type_name("DIR");
  app.add_flag("--chown", asked.chown, "Hand it, and what is in it, over to the session");
  app.add_option("--file", asked.files, "Put a file of this machine's into the workspace first")
      ->type_name("FILE[:PATH]")
      ->allow_extra_args(false);
}

void add_detach_keys(CLI::App& app, std::string& keys) {
  keys = kDetachKeys;
  app.add_option("--detach-keys", keys,
                 "Leave the command alone, at a terminal: these, or \"~.\" after Enter; or none")
      ->type_name("KEYS")
      ->capture_default_str();
}

// --- verbs

void Program::declare_sessions() {
  CLI::App& ps = add("ps", "List sessions, or the processes of one", false,
                     [this](const Client& client) { return ctl::ps(client, ps_); });
  ps.add_option("session", ps_.session, "List its processes")->type_name("SESSION");
  ps.add_flag("-a,--all", ps_.all, "Those that have ended, too");
  ps.add_option("--state", ps_.state, "Those in this state")
      ->check(CLI::IsMember({"starting", "running", "stopped", "ending", "ended"}))
      ->type_name("STATE");
  ps.add_option("-l,--label", ps_.labels, "Sessions that have this label")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  ps.add_flag("-q,--quiet", ps_.quiet, "Only the ids");
  add_json(ps, ps_.json);

  CLI::App& create = add("create", "Make a session, and print its id", false,
                         [this](const Client& client) { return ctl::create(client, create_); });
  add_session_options(create, create_.session);
  add_process_options(create, create_.process, false);
  create.add_flag("-i,--interactive", create_.process.interactive,
                  "The command's standard input stays open, for attach");
  create.add_option("-l,--label", create_.labels, "Give it a label")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  create.add_option("--ttl", create_.ttl, "How old it may become")->type_name("DURATION");
  create.add_option("--idle", create_.idle, "How long nobody may use it")->type_name("DURATION");
  create.add_option("--ready-port", create_.ready_port, "Wait until something in it listens there")
      ->type_name("PORT");
  add_json(create, create_.json);

  CLI::App& rm = add("rm", "End sessions, and wait until nothing is left of them", false,
                     [this](const Client& client) { return ctl::rm(client, rm_); });
  rm.add_option("sessions", rm_.sessions, "Their ids")->type_name("SESSION")->required();

  CLI::App& top = add("top", "Show what runs in all sessions, and how much it writes", false,
                      [this](const Client& client) { return ctl::top(client, top_); });
  top.add_option("--interval", top_.interval, "How often, at a terminal")
      ->type_name("DURATION")
      ->capture_default_str();
  top.add_flag("--once", top_.once, "Once, as without a terminal");
  add_json(top, top_.json);
}

void Program::declare_processes() {
  CLI::App& run = add("run", "Run a command in a fresh sandbox, of which nothing is kept", true,
                      [this](const Client& client) { return ctl::run(client, run_); });
  add_session_options(run, run_.session);
  add_process_options(run, run_.process, true);
  run.add_flag("-i,--interactive", run_.process.interactive,
               "Give it all of standard input, up to 16 MiB");
  add_json(run, run_.json, "Print the answer as JSON, with output and record");

  CLI::App& exec = add("exec", "Run a command in a session", true,
                       [this](const Client& client) { return ctl::exec(client, exec_); });
  add_session(exec, exec_.session);
  add_process_options(exec, exec_.process, true);
  exec.add_flag("-i,--interactive", exec_.process.interactive, "Give it standard input");
  exec.add_flag("-t,--tty", exec_.terminal, "Give it a terminal");
  exec.add_flag("-d,--detach", exec_.background, "Print its number, and leave it alone");
  exec.add_flag("--claim", exec_.claim, "Hand over first what others have added to the workspace");
  add_detach_keys(exec, exec_.detach_keys);
  add_json(exec, exec_.json, "Print the answer as JSON, with output and record");

  CLI::App& logs = add("logs", "Print what a process has written", false,
                       [this](const Client& client) { return ctl::logs(client, logs_); });
  add_session(logs, logs_.session);
  add_process(logs, logs_.process);
  logs.add_flag("-f,--follow", logs_.follow, "And what it writes, until its end");
  logs.add_option("--stream", logs_.stream, "Only this one")
      ->check(CLI::IsMember({"stdout", "stderr"}))
      ->type_name("stdout|stderr");
  logs.add_option("--offset", logs_.offset, "From this byte of it on")->type_name("N");

  CLI::App& attach = add("attach", "Put this terminal, or pipe, on a process", true,
                         [this](const Client& client) { return ctl::attach(client, attach_); });
  add_session(attach, attach_.session);
  add_process(attach, attach_.process);
  attach.add_flag("--takeover", attach_.takeover, "Take its input from who has it");
  attach.add_flag("--read-only", attach_.read_only, "Only show what it writes");
  attach.add_flag("--from-start", attach_.from_start, "And what it has written before");
  add_detach_keys(attach, attach_.detach_keys);

  CLI::App& wait = add("wait", "Wait for the end of a process, and end as it did", true,
                       [this](const Client& client) { return ctl::wait(client, wait_); });
  add_session(wait, wait_.session);
  add_process(wait, wait_.process);

  CLI::App& kill = add("kill", "End a process with all that it has started, or signal it", false,
                       [this](const Client& client) { return ctl::kill(client, kill_); });
  add_session(kill, kill_.session);
  add_process(kill, kill_.process);
  kill.add_option("-s,--signal", kill_.signal, "Send this signal, and nothing else")
      ->type_name("NAME|N");
  kill.add_option("--target", kill_.target, "Of the signal")
      ->check(CLI::IsMember({"leader", "group", "tree"}))
      ->type_name("leader|group|tree")
      ->capture_default_str();
}

void Program::declare_rest() {
  CLI::App& cp = add("cp", "Copy files and directories into a session, or out of one", false,
                     [this](const Client& client) { return ctl::cp(client, cp_); });
  cp.add_option("from", cp_.from, "SESSION:PATH, a path here, or -")->type_name("FROM")->required();
  cp.add_option("to", cp_.to, "The same")->type_name("TO")->required();
  cp.add_flag("--tar", cp_.tar, "\"-\" is a tar of a directory");

  CLI::App& events = add("events", "Print what happened to sessions", false,
                         [this](const Client& client) { return ctl::events(client, events_); });
  events.add_flag("-f,--follow", events_.follow, "And what happens");
  events.add_option("--after", events_.after, "Those after this one; \"last\": none of the past")
      ->type_name("ID");
  events.add_option("--session", events_.session, "Of this session")->type_name("SESSION");
  add_json(events, events_.json, "Print a JSON object a line");

  CLI::App& policies =
      add("policies", "List the policies that sessions can name", false,
          [this](const Client& client) { return ctl::policies(client, policies_json_); });
  add_json(policies, policies_json_);

  CLI::App& version =
      add("version", "Print the versions of belljarctl and belljard", false,
          [this](const Client& client) { return ctl::version(client, version_json_); });
  add_json(version, version_json_);
}

// --- running

const Verb* Program::asked() const {
  for (const Verb& verb : verbs_)
    if (verb.app->parsed()) return &verb;
  return nullptr;
}

std::string Program::complaint(const CLI::ParseError& error, int argc, char** argv) const {
  const Verb* verb = asked();
  // Of an option that nobody knows, however little else is right.
  const bool extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (verb != nullptr)
    for (const std::string& extra : app_.remaining(true))
      if (extra != "--" && (extras || extra.starts_with("-")))
        return policy::unknown_option(*verb->app, extra);
  if (verb != nullptr) return verb->app->get_name() + ": " + error.what();
  std::vector<std::string> names;
  for (const Verb& known : verbs_) names.push_back(known.app->get_name());
  const std::vector<std::string_view> known(names.begin(), names.end());
  if (argc < 2) return policy::with_suggestion("a command is missing", "", known);
  const std::string word = argv[1];
  if (word.starts_with("-")) return policy::unknown_option(app_, word);
  return policy::with_suggestion("there is no command " + word, word, known);
}

int Program::status_of(const Verb& verb, const Failure& failure) const {
  if (verb.has_command) return failure.exit_code != 0 ? failure.exit_code : kFailed;
  if (failure.kind == FailureKind::kUsage) return kWrongUsage;
  return failure.kind == FailureKind::kProblem ? kNo : kNotFoundOut;
}

int Program::run(int argc, char** argv) {
  try {
    app_.parse(argc, argv);
    policy::refuse_empty_values({argv, static_cast<std::size_t>(argc)});
    policy::refuse_empty_values(app_);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app_.exit(error);
    const Verb* verb = asked();
    std::fprintf(stderr, "belljarctl: %s\nbelljarctl: see belljarctl %s--help\n",
                 complaint(error, argc, argv).c_str(),
                 verb == nullptr ? "" : (verb->app->get_name() + ' ').c_str());
    return verb != nullptr && verb->has_command ? kFailed : kWrongUsage;
  }
  const Verb& verb = *asked();
  const Outcome<Address> address = address_of(where_);
  const Outcome<int> status =
      address ? verb.run(Client(*address)) : Outcome<int>(tl::unexpected(address.error()));
  if (status) return *status;
  std::fputs(failure_text(status.error()).c_str(), stderr);
  return status_of(verb, status.error());
}

}  // namespace
}  // namespace belljar::ctl

int main(int argc, char** argv) {
  int status = belljar::ctl::kFailed;
  // Of the names in tars: libarchive gives up those that are not ASCII otherwise.
  (void)std::setlocale(LC_CTYPE, "C.UTF-8");
  try {  // So that a terminal is put back, whatever happens.
    status = belljar::ctl::Program().run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "belljarctl: %s\n", error.what());
  }
  std::fflush(nullptr);
  _exit(status);  // A thread that waits for standard input is not waited for.
}
