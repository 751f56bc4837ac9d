#include "supervisor/shell.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "policy/paths.hpp"

namespace belljar::supervisor {
namespace {

/// bash gets its preparation and the command through its stdin, a memory file, and writes its state
/// behind them. The first descriptor is out of the way of what people number themselves, the others
/// are for sessions that may not have so many (RLIMIT_NOFILE); without one, or without the command,
/// bash would end with 0 and have done nothing. All of it is one line, so that bash counts the
/// command's own lines; builtins are named as such, since functions of the command's, or files that
/// BASH_ENV names, may have their names. Nothing in it forks.
constexpr const char* kShellScript =
    "for BELLJAR_FD in 250 60 30 12 9 \"\"; do "
    "[[ $BELLJAR_FD ]] || { builtin echo \"belljar: the limit of open files leaves no descriptor "
    "for the shell\" >&2; builtin exit 125; }; "
    "builtin eval \"exec $BELLJAR_FD<&0\" 2>/dev/null && break; done; "
    "exec </dev/null || exec <&-; "
    "IFS= builtin read -r -d \"\" -u $BELLJAR_FD BELLJAR_BEFORE || builtin exit 125; "
    "IFS= builtin read -r -d \"\" -u $BELLJAR_FD BELLJAR_COMMAND || builtin exit 125; "
    "builtin trap \"{ builtin set +efux; } 2>/dev/null; { builtin printf D; builtin pwd -P; "
    "builtin printf '\\0E'; builtin export -p; builtin printf '\\0.\\0'; } "
    ">&$BELLJAR_FD 2>/dev/null\" EXIT; "
    "builtin eval \"$BELLJAR_BEFORE\"; "
    "builtin eval \"builtin unset -v BELLJAR_BEFORE BELLJAR_COMMAND BELLJAR_FD; "
    "$BELLJAR_COMMAND\"";

/// A list that a command has made longer than any that bash would: one name more than are kept is
/// enough to know so.
constexpr std::size_t kMostNames = Shell::kMostVariables + 1;
constexpr std::size_t kMostReport = std::size_t{1} << 20;
/// A command waits for those before it as long as they take; they have limits of their own.
constexpr Milliseconds kPatience = std::chrono::hours(24);

bool is_name(std::string_view text) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !text.empty() && (text[0] < '0' || text[0] > '9') && std::ranges::all_of(text, fits);
}

std::vector<std::string> names_in(std::string_view lines) {
  std::vector<std::string> names;
  for (std::size_t from = 0; from < lines.size() && names.size() < kMostNames;) {
    const std::size_t to = std::min(lines.find('\n', from), lines.size());
    if (const auto name = lines.substr(from, to - from); is_name(name)) names.emplace_back(name);
    from = to + 1;
  }
  return names;
}

/// How many variables `export -p` tells of; a value with lines of its own can only add to it.
std::size_t variables_in(std::string_view exports) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < exports.size();
       at = std::min(exports.find('\n', at), exports.size() - 1) + 1)
    if (exports.substr(at).starts_with("declare -") || exports.substr(at).starts_with("export "))
      ++count;
  return count;
}

/// At most one more than `most`.
std::vector<std::string> split_at_nul(std::string_view text, std::size_t most) {
  std::vector<std::string> fields;
  for (std::size_t from = 0; from <= text.size() && fields.size() <= most;) {
    const std::size_t to = std::min(text.find('\0', from), text.size());
    fields.emplace_back(text.substr(from, to - from));
    from = to + 1;
  }
  return fields;
}

std::string_view parent_of(std::string_view path) { return path.substr(0, path.rfind('/') + 1); }

std::string with_replaced(std::string_view text, std::string_view before, std::string_view now) {
  std::string replaced;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t at = std::min(text.find(before, from), text.size());
    replaced += text.substr(from, at - from);
    if (at == text.size()) break;
    replaced += now;
    from = at + before.size();
  }
  return replaced;
}

/// A memory file that holds `text`, and room for a report and no more.
Outcome<UniqueFd> memory_file(std::string_view text) {
  UniqueFd file(::memfd_create("shell", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return sys_refusal(errno, "make a memory file");
  if (::ftruncate(file.get(), static_cast<off_t>(text.size() + kMostReport)) != 0)
    return sys_refusal(errno, "size a memory file");
  if (::pwrite(file.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    return sys_refusal(errno, "write to a memory file");
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
    return sys_refusal(errno, "seal a memory file");
  return file;
}

/// What bash has written behind `from`: its offset is that of this descriptor too.
std::string report_in(const UniqueFd& file, std::size_t from) {
  const off_t end = ::lseek(file.get(), 0, SEEK_CUR);
  if (end <= static_cast<off_t>(from)) return {};
  std::string text(std::min(static_cast<std::size_t>(end) - from, kMostReport), '\0');
  const ssize_t size = ::pread(file.get(), text.data(), text.size(), static_cast<off_t>(from));
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return text;
}

}  // namespace

std::string shell_quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + '\'';
}

ShellReport parse_shell_report(std::string_view text) {
  ShellReport report;
  std::optional<std::string> directory, exports;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t to = text.find('\0', from);
    if (to == std::string_view::npos || to == from) break;
    const std::string_view field = text.substr(from + 1, to - from - 1);
    switch (text[from]) {
      case 'N':
        if (!report.first_names) report.first_names = names_in(field);
        break;
      case 'L':
        report.directory_lost = true;
        break;
      case 'D':
        if (field.starts_with('/') && field.ends_with('\n'))
          directory = field.substr(0, field.size() - 1);
        break;
      case 'E':
        exports = field;
        break;
      case '.':  // What has no end may have been cut.
        report.directory = directory;
        report.exports = exports;
        return report;
      default:
        return report;
    }
    from = to + 1;
  }
  return report;
}

Shell::Shell(const asio::any_io_executor& executor, std::shared_ptr<Clock> clock,
             std::string own_directory)
    : queue_(executor, std::move(clock), 1, kMostWaiting),
      own_directory_(std::move(own_directory)) {}

std::string Shell::preparation(const Session& session, const ShellCommand& command) const {
  const std::string& where = command.process.directory;
  const std::string wanted = where.empty() ? directory_.value_or(session.workspace()) : where;
  std::string text = "builtin cd -P -- " + shell_quoted(wanted) +
                     " 2>/dev/null || { builtin printf 'L\\0' >&$BELLJAR_FD; builtin cd -P -- " +
                     shell_quoted(session.workspace()) + "; }\n";
  if (!first_names_) {
    text += "{ builtin printf N; builtin compgen -e; builtin printf '\\0'; } >&$BELLJAR_FD\n";
  } else if (!exports_.empty()) {
    text += "builtin unset -v";
    for (const std::string& name : *first_names_) text += ' ' + name;
    // PWD and OLDPWD are among them; where it is somewhere else, PWD is set right.
    text += " 2>/dev/null\n" + exports_ + "\n[[ $PWD -ef . ]] || builtin cd -P .\n";
  }
  for (const auto& [name, value] : command.process.environment)
    text += "builtin export " + name + '=' + shell_quoted(value) + '\n';
  return text;
}

/// The command can write there before bash does, and whatever it likes.
void Shell::take_first_names(const ShellReport& report, std::vector<std::string>& notes) {
  if (first_names_ || !report.first_names) return;
  std::size_t bytes = 0;
  for (const std::string& name : *report.first_names) bytes += name.size() + 1;
  if (report.first_names->size() <= kMostVariables && bytes <= kMostState) {
    first_names_ = report.first_names;
    return;
  }
  notes.emplace_back(
      "the names of the first exported variables were not kept: they are more than " +
      std::to_string(kMostVariables) + ", or than " + std::to_string(kMostState) + " bytes");
}

std::size_t Shell::memory() const {
  std::size_t bytes = own_directory_.capacity() + exports_.capacity();
  if (directory_) bytes += directory_->capacity();
  if (first_names_)
    for (const std::string& name : *first_names_) bytes += sizeof(std::string) + name.capacity();
  return bytes;
}

void Shell::forget() {
  forgotten_ = true;
  directory_.reset();
  first_names_.reset();
  exports_.clear();
  exports_.shrink_to_fit();
}

void Shell::adopt(const Session& session, const ShellReport& report, bool moved,
                  std::vector<std::string>& notes) {
  if (forgotten_) return;
  if (report.directory_lost) {
    notes.emplace_back("the directory was gone; the command ran in the workspace");
    if (!moved) directory_.reset();
  }
  take_first_names(report, notes);
  if (report.exports && !report.directory && !moved) {
    directory_.reset();
    notes.emplace_back(
        "the command ended in a directory that is gone; the next one begins in the workspace");
  }
  if (report.directory && !moved) {
    directory_.reset();
    if (report.directory->size() >= PATH_MAX)
      notes.emplace_back(
          "the directory's path is longer than 4095 bytes; the next command begins in the "
          "workspace");
    else if (policy::is_within(*report.directory, session.workspace()))
      directory_ = report.directory;
    else
      notes.push_back("the command ended in " + *report.directory +
                      ", outside of the workspace; the next one begins in the workspace");
  }
  if (!report.exports) return;
  const std::size_t count = variables_in(*report.exports);
  if (count > kMostVariables || report.exports->size() > kMostState)
    notes.push_back("the exported variables were not kept: " + std::to_string(count) + " of " +
                    std::to_string(report.exports->size()) + " bytes, of at most " +
                    std::to_string(kMostVariables) + " and " + std::to_string(kMostState) +
                    " bytes");
  else
    exports_ = *report.exports;
}

/// It comes from a client, who may run any command inside, and nothing else: what is in it goes to
/// bash alone. Another session's directory and port give way to those of this one.
Outcome<void> Shell::go_on_from(const std::string& state, std::uint16_t port) {
  std::vector<std::string> fields = split_at_nul(state, 4);
  bool sound = fields.size() == 4 && (fields[1].empty() || fields[1][0] == '/') &&
               fields[1].size() < PATH_MAX && fields[2].size() <= kMostState &&
               names_in(fields[2]).size() <= kMostVariables;
  const std::string before = sound ? fields[0] : std::string();
  const bool of_another = before != own_directory_ &&
                          parent_of(before) == parent_of(own_directory_) &&
                          before.size() > parent_of(before).size();
  if (of_another)
    for (const std::size_t at : {1U, 3U})
      fields[at] = with_replaced(fields[at], before, own_directory_);
  // Longer than any that was told, by what has been put in place of another's directory.
  sound = sound && fields[1].size() < 2 * PATH_MAX && fields[3].size() <= 2 * kMostState;
  if (!sound) {
    Outcome<void> refused = refuse(Code::kInvalid, "this is no state that an answer had");
    refused.error().error.where = "/state";
    return refused;
  }
  directory_.reset();
  if (!fields[1].empty()) directory_ = fields[1];
  first_names_.reset();
  if (!fields[2].empty()) first_names_ = names_in(fields[2]);
  exports_ = fields[3];
  if (of_another && exports_.find(" BELLJAR_PORT=") != std::string::npos)
    exports_ += "\nbuiltin export BELLJAR_PORT=" + std::to_string(port);
  return {};
}

/// The session's directory, the shell's or nothing, the first names line by line, and the exports.
std::string Shell::state() const {
  std::string text = own_directory_ + '\0' + directory_.value_or("") + '\0';
  for (const std::string& name : first_names_.value_or(std::vector<std::string>()))
    text += name + '\n';
  return text + '\0' + exports_;
}

Awaitable<Outcome<ShellResult>> Shell::run(std::shared_ptr<Session> session, ShellCommand command) {
  // Whoever runs in the background runs beside the others: he begins where they are, and what he
  // does to directory and variables is his own.
  std::optional<StartQueue::Turn> turn;
  if (!command.background) {
    auto taken = co_await queue_.enter(kPatience);
    if (!taken)
      co_return refuse(Code::kShellBusy, "the shell of session " + session->id() +
                                             " is busy, and " + std::to_string(kMostWaiting) +
                                             " commands wait already");
    turn.emplace(*std::move(taken));
  }
  for (const auto& [name, value] : command.process.environment) {
    if (is_name(name)) continue;
    Outcome<ShellResult> refused =
        refuse(Code::kInvalid,
               "bash exports letters, digits and _ alone: \"" + name + "\" is no name for it");
    refused.error().error.where = "/env";
    co_return refused;
  }
  if (command.state) {
    const Outcome<void> gone_on = go_on_from(*command.state, session->port());
    BELLJAR_CO_TRY(gone_on);
  }
  const bool moved = !command.process.directory.empty();
  std::string input = preparation(*session, command);
  input += '\0';
  input += command.text;
  input += '\0';
  auto made = memory_file(input);
  BELLJAR_CO_TRY(made);
  const auto file = std::make_shared<const UniqueFd>(std::move(*made));
  ProcessSpec spec = std::move(command.process);
  spec.argv = {"bash", "-c", kShellScript, "bash"};
  spec.shown_argv = {"bash", "-c", command.text};
  // One that is asked for has to be there, as for any command; one that carries over may have gone.
  if (!moved) spec.directory.clear();
  spec.environment.clear();
  spec.stdin_file = file;
  spec.keeps_output = true;
  auto process = co_await session->start(std::move(spec));
  BELLJAR_CO_TRY(process);
  ShellResult result;
  result.process = *process;
  if (command.started) command.started(*process);
  result.directory = directory_.value_or(session->workspace());
  if (command.background) co_return result;
  while (!co_await result.process->wait(kPatience)) {
  }
  const auto& end = result.process->end_record();
  if (end && end->cause == "exited")
    adopt(*session, parse_shell_report(report_in(*file, input.size())), moved, result.notes);
  result.directory = directory_.value_or(session->workspace());
  result.state = state();
  co_return result;
}

}  // namespace belljar::supervisor
