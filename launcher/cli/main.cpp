#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "launcher/bwrap/command.hpp"
#include "launcher/cli/convert_command.hpp"
#include "launcher/cli/doctor_command.hpp"
#include "launcher/cli/options.hpp"
#include "launcher/cli/policy_command.hpp"
#include "launcher/cli/selftest_command.hpp"
#include "launcher/cli/service_command.hpp"
#include "launcher/cli/test_command.hpp"
#include "launcher/sys/descriptors.hpp"
#include "launcher/sys/signals.hpp"
#include "policy/command_line.hpp"
#include "policy/suggest.hpp"

namespace belljar::launcher {
namespace {

constexpr const char* kRunExamples = R"(
Examples:
  belljar run -- python3 script.py
      The host read-only, this directory writable, no network.
  belljar run --policy builtin:agent@1 --workspace /srv/job -- python3 agent.py
      An agent in its own directory, with the host's network.
  belljar run --policy agent.json -v ./data:/data:ro -e TERM --timeout 30s -- make test
      A policy of your own, with more shown and less time.
  belljar run --record out.json -- ./program; jq .cause out.json
      Why it ended: exited, signaled, wall_time, cpu_time, syscall, setup, ...
  belljar run --explain-denials -- ./program
      What it was refused, by which line, and the change that allows it. Slower.

Exit status: the command's own; 128+n for signal n; 124 out of time; 125 belljar
refused or failed (it says why); 126 not executable; 127 not found.)";

constexpr const char* kExplainExamples = R"(
Prints every step of the launch, who carries it out, and the policy line that asked
for it. Nothing is run.

Examples:
  belljar explain
  belljar explain --policy agent.json -- python3 agent.py
  belljar explain --can write:/etc/hosts --can connect:1.1.1.1:53
      What the command could do, and which line or file decides. Exit status: 0 yes to
      all, 1 no, 3 what only a run can tell.
  belljar explain --exposure --policy agent.json
      Sockets, devices, secrets, ... in its view, each with the line that shows it and
      the change that hides it. Exit status: 0, or 3 when not all could be looked at.)";

std::string policy_complaint(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* policy = app.get_subcommands().front();
  constexpr std::array<std::string_view, 5> kCommands = {"init", "check", "show", "diff", "schema"};
  if (policy->get_subcommands().empty()) {
    const std::vector<std::string> rest = policy->remaining();
    if (rest.empty()) return "policy: a command is missing: init, check, show, diff, or schema";
    return policy::with_suggestion("policy: there is no command " + rest.front(), rest.front(),
                                   kCommands);
  }
  const CLI::App* command = policy->get_subcommands().front();
  const std::string name = "policy " + command->get_name();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
    return name + ": does not know what to do with " + command->remaining().front();
  if (command->get_name() == "diff") return name + ": expected two policies";
  return name + ": expected a policy file, or builtin:NAME";
}

/// CLI11's own texts name its exceptions; ours name the word that was typed.
std::string complaint(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  if (dynamic_cast<const CLI::ValidationError*>(&error) != nullptr) return error.what();
  if (!app.get_subcommands().empty() && app.get_subcommands().front()->get_name() == "policy")
    return policy_complaint(app, error);
  const bool in_subcommand = !app.get_subcommands().empty();
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr || !in_subcommand) {
    if (argc < 2)
      return "a command is missing: run, explain, policy, selftest, doctor, test, convert, or "
             "bwrap";
    const std::string word = argv[1];
    if (word.starts_with("-")) return "unknown option " + policy::option_word(word);
    constexpr std::array<std::string_view, 8> kCommands = {
        "run", "explain", "policy", "selftest", "doctor", "test", "convert", "bwrap"};
    return policy::with_suggestion("there is no command " + word, word, kCommands);
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
    for (const std::string& extra : app.get_subcommands().front()->remaining())
      if (extra != "--") return policy::unknown_option(*app.get_subcommands().front(), extra);
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr)
    return "--status-fd: expected the number of an open descriptor";
  return error.what();
}

class RunCommand final : public Subcommand {
 public:
  [[nodiscard]] const char* name() const override { return "run"; }
  [[nodiscard]] int run() const override { return run_command(options_, report_); }

 private:
  void add_to(CLI::App& app) override {
    app.description("Run a command in a sandbox");
    options_.declare(app);
    app.add_option("--record", report_.record, "Write the record, one JSON object, here at the end")
        ->type_name("FILE|fd:N");
    app.add_option("--status-fd", report_.status_fd,
                   "Write started, stopped and record as JSON lines here")
        ->type_name("N");
    app.add_flag("--explain-denials", report_.explain_denials,
                 "Say at the end what was refused, by which line, and what would allow it");
    app.footer(kRunExamples);
  }

  PolicyOptions options_;
  ReportOptions report_;
};

class ExplainCommand final : public Subcommand {
 public:
  [[nodiscard]] const char* name() const override { return "explain"; }
  [[nodiscard]] int run() const override { return explain_command(options_, asked_); }

 private:
  void add_to(CLI::App& app) override {
    app.description("Show what run would do, step by step, and why");
    options_.declare(app);
    app.add_option("--can", asked_.questions,
                   "Ask read:/PATH, write:/PATH, exec:/PATH or connect:ADDR:PORT")
        ->type_name("QUESTION")
        ->allow_extra_args(false);
    CLI::Option* exposure =
        app.add_flag("--exposure", asked_.exposure,
                     "List what the command could reach that it should perhaps not");
    exposure->excludes("--can");
    app.add_flag("--json", asked_.json, "Print the exposure as JSON")->needs(exposure);
    app.footer(kExplainExamples);
  }

  PolicyOptions options_;
  ExplainOptions asked_;
};

/// Belljar's own, for its probes: in no help.
class ProbeCommand final : public Subcommand {
 public:
  [[nodiscard]] const char* name() const override { return "probe"; }
  [[nodiscard]] int run() const override { return probe_command(options_); }

 private:
  void add_to(CLI::App& app) override {
    app.group("");
    app.add_option("name", options_.names);
    app.add_option("--try", options_.attempt);
    app.add_option("--reach", options_.reach);
    app.add_option("--exceed", options_.exceed);
  }

  ProbeOptions options_;
};

/// The command that is typed, or all where none is: then help or a complaint is about all of them.
void declare(CLI::App& app, std::span<Subcommand* const> commands, std::string_view typed) {
  const auto asked = std::find_if(commands.begin(), commands.end(), [&](const Subcommand* command) {
    return command->name() == typed;
  });
  if (asked != commands.end()) return (*asked)->declare(app);
  for (Subcommand* command : commands) command->declare(app);
  app.add_flag_callback(
      "--selftest", [] {}, "The same as `belljar selftest`");
}

constexpr int kNotFoundOut = 3;

/// Whether all that was printed has arrived: who never got the answer must not take the exit status
/// for it.
bool answer_arrived() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return true;
  std::perror("belljar: the answer could not be written to standard output");
  return false;
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("Runs code that nobody has read, in a sandbox that one file describes.", "belljar");
  app.set_version_flag("--version", "belljar " BELLJAR_VERSION);
  app.require_subcommand(1);
  app.footer("`belljar run --help` has examples.");

  std::string first = argc > 1 ? argv[1] : "";
  if (first == "--selftest") {
    first = "selftest";
    argv[1] = first.data();
  }
  RunCommand run;
  ExplainCommand explain;
  PolicyCommand policies;
  SelftestCommand selftest;
  DoctorCommand doctor;
  TestCommand test;
  ConvertCommand convert;
  ProbeCommand probe;
  ServiceCommand service;
  const std::array<Subcommand*, 9> commands = {&run,  &explain, &policies, &selftest, &doctor,
                                               &test, &convert, &probe,    &service};
  declare(app, commands, first);

  try {
    app.parse(argc, argv);
    policy::refuse_empty_values({argv, static_cast<std::size_t>(argc)});
    policy::refuse_empty_values(app);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "belljar: %s\nbelljar: see belljar %s--help\n",
                 complaint(app, error, argc, argv).c_str(),
                 app.get_subcommands().empty()
                     ? ""
                     : (app.get_subcommands().front()->get_name() + " ").c_str());
    return run.parsed() || app.get_subcommands().empty() ? kBelljarFailed : 2;
  }
  const auto chosen = std::find_if(commands.begin(), commands.end(),
                                   [](const Subcommand* command) { return command->parsed(); });
  const int status = (*chosen)->run();
  return answer_arrived() ? status : kNotFoundOut;
}

}  // namespace
}  // namespace belljar::launcher

int main(int argc, char** argv) {
  // One launch a process: memory is taken in one piece and never given back before the end.
  mallopt(M_TOP_PAD, 512 << 10);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  if (!belljar::sys::guard_descriptors() || !belljar::sys::expect_children())
    return belljar::launcher::kBelljarFailed;
  // Its options are bwrap's, and so are its errors.
  if (argc > 1 && std::string_view(argv[1]) == "bwrap")
    return belljar::launcher::bwrap::run(std::string(argv[0]) + " bwrap", {argv + 2, argv + argc});
  return belljar::launcher::parse_and_run(argc, argv);
}
