#include <sys/stat.h>

#include <cerrno>

#include "launcher/controls/facts.hpp"
#include "launcher/controls/paths.hpp"
#include "launcher/record.hpp"

namespace belljar::launcher {
namespace {

std::string value_of(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& entry : environment)
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return entry.substr(name.size() + 1);
  return {};
}

/// Where execvp would look: the name itself when it holds a slash, otherwise every absolute entry
/// of the sandbox's own PATH. A relative or empty entry would mean the current directory, which the
/// payload can write, so it is left out.
std::vector<std::string> candidates(const std::string& program, const std::string& path) {
  if (program.find('/') != std::string::npos) return {program};
  std::vector<std::string> found;
  std::string_view rest = path;
  while (!rest.empty()) {
    const std::size_t colon = rest.find(':');
    const std::string_view entry = rest.substr(0, colon);
    if (entry.starts_with("/")) found.push_back(join(entry, program));
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  return found;
}

/// Where the command starts when nothing says so.
std::string default_directory(const policy::Policy& policy, const Host& host) {
  const std::string workspace = workspace_path(policy, host);
  return workspace.empty() ? "/" : workspace;
}

constexpr Fact kFacts[] = {
    {"directory", "the command starts in another directory",
     [](const std::string& expected) {
       struct stat here {
       }, there{};
       if (stat(".", &here) != 0 || stat(expected.c_str(), &there) != 0)
         return unseen(expected + ": " + errno_name(errno));
       const bool same = here.st_dev == there.st_dev && here.st_ino == there.st_ino;
       return same ? holds() : differs("it is not " + expected);
     },
     [](const Made& made) {
       return std::vector<Fact::Expected>{
           {default_directory(made.policy, made.host), "filesystem.workspace.path"}};
     }},
};

Status plan(PlanBuilder& builder) {
  const Command& command = builder.command;
  const bool named = !command.argv.empty() && !command.argv.front().empty();
  if (!named && !command.stands_by)
    return fail({ErrorKind::kInvalid,
                 0,
                 "there is no command to run",
                 {},
                 "write it after --: belljar run -- python3 agent.py"});
  builder.argv = command.argv;
  builder.directory = command.directory;
  const std::string workspace = workspace_path(builder.policy, builder.host);
  if (builder.directory.empty())
    builder.directory = default_directory(builder.policy, builder.host);
  builder.add(Phase::kDirectory, ChangeDirectory{builder.directory},
              command.directory.empty() && !workspace.empty() ? "filesystem.workspace.path" : "");
  if (command.stands_by) {
    builder.add(Phase::kExec, StandBy{});
    return {};
  }
  builder.add(Phase::kExec,
              Exec{candidates(command.argv.front(), value_of(builder.environment, "PATH"))});
  return {};
}

std::string remedy(const FailedStep& failed, const policy::Policy&, const Host&) {
  if (std::holds_alternative<ChangeDirectory>(failed.step->action))
    return "the directory must exist inside the sandbox and be open to its uid: choose another "
           "with "
           "-w DIR, or show it with -v DIR:DIR";
  return {};
}

}  // namespace

// Comes last in the table: it needs the environment that the others made.
const Control kCommand = {
    "command", "what runs, and where", nothing_required, plan, nullptr, {}, remedy, kFacts};

}  // namespace belljar::launcher
