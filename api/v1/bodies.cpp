#include "api/v1/bodies.hpp"

#include <algorithm>
#include <array>

#include "policy/base64.hpp"
#include "policy/quote.hpp"
#include "policy/units.hpp"

namespace belljar::api {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using supervisor::ProcessSpec;
using supervisor::SessionSpec;
using supervisor::WorkspaceFile;

constexpr std::size_t kMostFiles = 10000, kMostLabels = 64, kLongestLabel = 255;

bool holds_nul(std::string_view text) { return text.find('\0') != std::string_view::npos; }

std::string written(milliseconds duration) { return std::to_string(duration.count()) + "ms"; }
std::string written(std::uint64_t bytes) { return std::to_string(bytes) + 'B'; }

std::map<std::string, std::string> read_environment(Members& members) {
  auto found = members.map("env");
  auto variables = members.object("env");
  for (const auto& [name, value] : found) {
    if (name.empty() || name.find('=') != std::string::npos || holds_nul(name))
      variables->wrong(name, "is no name of a variable");
    else if (holds_nul(value))
      variables->wrong(name, "holds a NUL");
  }
  return found;
}

std::vector<std::string> read_argv(Members& members) {
  auto argv = members.texts("argv");
  auto shell = members.text("shell");
  if (argv && shell) members.wrong("shell", "\"argv\" and \"shell\" exclude each other");
  if (!argv && !shell) members.wrong("argv", "either \"argv\" or \"shell\" is required");
  std::vector<std::string> words;
  const char* member = shell ? "shell" : "argv";
  if (shell) words = {"/bin/bash", "-c", *std::move(shell)};
  if (argv) {
    words = *std::move(argv);
    if (words.empty() || words[0].empty()) members.wrong("argv", "names no program");
  }
  if (std::any_of(words.begin(), words.end(), [](const auto& word) { return holds_nul(word); }))
    members.wrong(member, "holds a NUL");
  return words;
}

/// "none", "open", or the text; {"text": …} and {"base64": …} for what these words cannot say.
void read_stdin(Members& members, ProcessSpec& spec) {
  const json* value = members.any("stdin");
  if (value == nullptr) return;
  if (value->is_string()) {
    const auto& text = value->get_ref<const std::string&>();
    if (text == "open") spec.stdin_mode = ProcessSpec::Stdin::kOpen;
    if (text != "open" && text != "none") spec.stdin_text = text;
    return;
  }
  auto content = members.object("stdin");
  if (!content) return;
  const auto text = content->text("text"), base64 = content->text("base64");
  content->finish();
  if (text.has_value() == base64.has_value())
    return members.wrong("stdin", "expected \"none\", \"open\", a text, or one of text and base64");
  const auto bytes = base64 ? policy::decode_base64(*base64) : text;
  if (!bytes) return members.wrong("stdin", "is no base64");
  spec.stdin_text = *bytes;
}

void read_terminal(Members& members, ProcessSpec& spec) {
  auto terminal = members.object("tty");
  if (!terminal) return;
  supervisor::TerminalSize size;
  size.columns = static_cast<std::uint16_t>(terminal->number("cols", 1, 65535).value_or(80));
  size.rows = static_cast<std::uint16_t>(terminal->number("rows", 1, 65535).value_or(24));
  terminal->finish();
  spec.terminal = size;
}

std::optional<milliseconds> read_wall_time(Members& members) {
  const auto given = members.duration("wall_time"), alias = members.duration("timeout");
  if (given && alias) members.wrong("timeout", "is the same as \"wall_time\": give one of them");
  const auto limit = given ? given : alias;
  if (limit && *limit <= milliseconds(0))
    members.wrong(given ? "wall_time" : "timeout", "expected more than nothing");
  return limit;
}

// The session's.

bool is_octal_mode(const std::string& text, WorkspaceFile& file) {
  const auto mode = policy::parse_octal(text, 0777);
  if (mode) file.mode = *mode;
  return mode.has_value();
}

/// Relative, and without empty, "." and ".." parts.
bool is_sound_path(std::string_view path) {
  if (path.empty() || path.size() > 4095 || holds_nul(path)) return false;
  for (std::size_t from = 0; from <= path.size();) {
    const std::size_t to = std::min(path.find('/', from), path.size());
    const std::string_view part = path.substr(from, to - from);
    if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
    from = to + 1;
  }
  return true;
}

/// One of text, base64 and directory, with its mode.
void read_file_object(Members file, Members& files, WorkspaceFile& into) {
  auto text = file.text("text");
  const auto base64 = file.text("base64");
  const bool directory = file.boolean("directory").value_or(false);
  if (const auto mode = file.text("mode"); mode && !is_octal_mode(*mode, into))
    file.wrong("mode", "expected octal digits, at most \"0777\"");
  file.finish();
  if ((text ? 1 : 0) + (base64 ? 1 : 0) + (directory ? 1 : 0) != 1)
    return files.wrong(into.path, "expected one of \"text\", \"base64\" and \"directory\"");
  into.directory = directory;
  if (text) into.content = *std::move(text);
  if (!base64) return;
  auto bytes = policy::decode_base64(*base64);
  if (!bytes) return file.wrong("base64", "is no base64");
  into.content = *std::move(bytes);
}

std::vector<WorkspaceFile> read_files(Members& members) {
  std::vector<WorkspaceFile> list;
  auto files = members.object("files");
  if (!files) return list;
  const json& tree = *members.any("files");
  if (tree.size() > kMostFiles) {
    members.wrong("files", "at most " + std::to_string(kMostFiles) + " files");
    return list;
  }
  for (const auto& [path, content] : tree.items()) {
    WorkspaceFile file;
    file.path = path;
    file.mode = 0644;
    if (!is_sound_path(path))
      files->wrong(path, "expected a path below the workspace, without empty, . and .. parts");
    else if (content.is_string())
      file.content = content.get<std::string>();
    else if (content.is_null())
      files->wrong(path, "expected a text, or an object, got null");
    else if (auto object = files->object(path.c_str()))
      read_file_object(*std::move(object), *files, file);
    list.push_back(std::move(file));
  }
  return list;
}

void read_network(Members& members, std::vector<std::string>& settings) {
  const auto mode = members.text("network");
  if (!mode) return;
  if (*mode == "auto") {
    settings.emplace_back("network.mode=private");
    settings.emplace_back("network.enforce=prefer");
  } else if (*mode == "none" || *mode == "shared" || *mode == "private") {
    settings.push_back("network.mode=" + *mode);
  } else {
    members.wrong("network", "expected \"none\", \"private\", \"shared\" or \"auto\"");
  }
}

/// "4GiB", "60s" or a number; a number of bytes where the limit is one.
void read_rlimits(Members& limits, std::vector<std::string>& settings) {
  constexpr std::array<std::string_view, 7> kBytes = {"as",      "core", "data", "fsize",
                                                      "memlock", "rss",  "stack"};
  const json* tree = limits.any("rlimits");
  auto rlimits = limits.object("rlimits");
  if (!rlimits) return;
  for (const auto& [name, value] : tree->items()) {
    const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char letter) {
      return letter >= 'a' && letter <= 'z';
    });
    if (!plain) {
      rlimits->wrong(name, "is no name of a limit");
    } else if (value.is_string()) {
      settings.push_back("limits.rlimits." + name + '=' + value.get<std::string>());
    } else if (value.is_number_unsigned()) {
      const bool bytes = std::find(kBytes.begin(), kBytes.end(), name) != kBytes.end();
      settings.push_back("limits.rlimits." + name + '=' + value.dump() + (bytes ? "B" : ""));
    } else {
      rlimits->wrong(name, "expected a number or a string");
    }
  }
}

void read_limits(Members& members, std::vector<std::string>& settings) {
  auto limits = members.object("limits");
  if (!limits) return;
  for (const char* name : {"wall_time", "cpu_time"})
    if (const auto value = limits->duration(name))
      settings.push_back(std::string("limits.") + name + '=' + written(*value));
  for (const char* name : {"output", "disk", "memory", "swap"})
    if (const auto value = limits->size(name))
      settings.push_back(std::string("limits.") + name + '=' + written(*value));
  if (const auto value = limits->number("processes", 1, UINT32_MAX))
    settings.push_back("limits.processes=" + std::to_string(*value));
  if (const json* value = limits->any("cpus")) {
    if (value->is_number())
      settings.push_back("limits.cpus=" + value->dump());
    else
      limits->wrong("cpus", "expected a number");
  }
  read_rlimits(*limits, settings);
  limits->finish();
}

/// Of a body whose limits are those of the whole session: a command's own are at most these.
void check_within(Members& members, const json& command, const json& tree) {
  const auto given = tree.is_object() ? tree.find("limits") : tree.end();
  if (given == tree.end() || !given->is_object() || !command.is_object()) return;
  std::vector<ProblemItem> told;  // They have been told.
  Members limits(*given, "", told), own(command, "", told);
  const auto check = [&members](const char* name, const char* limit, const auto& wanted,
                                const auto& most) {
    if (wanted && most && *wanted > *most)
      members.wrong(name, std::string("is more than limits.") + limit + " of the same request");
  };
  check("wall_time", "wall_time", own.duration("wall_time"), limits.duration("wall_time"));
  check("timeout", "wall_time", own.duration("timeout"), limits.duration("wall_time"));
  check("cpu_time", "cpu_time", own.duration("cpu_time"), limits.duration("cpu_time"));
  check("output", "output", own.size("output"), limits.size("output"));
}

/// true, or an answer's.
std::optional<WantedState> read_state(Members& members) {
  const json* value = members.any("state");
  if (value == nullptr || *value == false) return std::nullopt;
  WantedState wanted;
  if (value->is_boolean()) return wanted;
  if (value->is_string()) wanted.from = policy::decode_base64(value->get<std::string>());
  if (!wanted.from) members.wrong("state", "expected true, or what the answer to a command had");
  return wanted;
}

/// A directory of the caller's own. HOME is one of the session's, beside it, and goes with it.
void read_workspace(Members& members, SessionSpec& spec) {
  auto workspace = members.object("workspace");
  if (!workspace) return;
  supervisor::ExistingWorkspace existing;
  existing.path = workspace->required_text("path");
  if (holds_nul(existing.path) || (!existing.path.empty() && existing.path[0] != '/'))
    workspace->wrong("path", "expected an absolute path");
  const std::string owner = workspace->text("owner").value_or("keep");
  existing.chown = owner == "chown";
  if (owner != "chown" && owner != "keep")
    workspace->wrong("owner", "expected \"keep\" or \"chown\"");
  if (workspace->text("home").value_or("beside") != "beside")
    workspace->wrong("home", "expected \"beside\": HOME is a directory of the session's own");
  if (workspace->boolean("remove").value_or(false))
    workspace->wrong("remove", "expected false: the directory is the caller's, and stays");
  workspace->finish();
  spec.workspace = std::move(existing);
}

/// What a session and a run have in common.
void read_common(Members& members, SessionSpec& spec) {
  if (const json* policy = members.any("policy")) {
    if (policy->is_string())
      spec.policy = policy->get<std::string>();
    else if (policy->is_object())
      members.wrong("policy",
                    "a policy of the client's own is not offered: name one of "
                    "GET /v1/policies");
    else
      members.wrong("policy", "expected the name of a policy");
  }
  spec.variables = members.map("vars");
  spec.files = read_files(members);
  read_workspace(members, spec);
  if (spec.workspace && !spec.files.empty())
    members.wrong("files",
                  "are for workspaces that are made: write them into the one that is there");
  read_network(members, spec.settings);
  read_limits(members, spec.settings);
}

/// "client", or {"lease": ID}.
void read_die_with(Members& members, DieWith& die_with) {
  const json* value = members.any("die_with");
  if (value == nullptr) return;
  if (value->is_string()) {
    die_with.client = *value == "client";
    if (!die_with.client) members.wrong("die_with", "expected \"client\" or {\"lease\": ID}");
  } else if (auto lease = members.object("die_with")) {
    die_with.lease = lease->required_text("lease");
    lease->finish();
  }
}

void read_ready(Members& members, SessionBody& body) {
  auto ready = members.object("ready");
  if (!ready) return;
  body.wait_ready = true;
  body.ready_port = static_cast<std::uint16_t>(ready->number("port", 1, 65535).value_or(0));
  if (const auto limit = ready->duration("timeout")) body.ready_limit = *limit;
  if (body.ready_limit > std::chrono::minutes(10)) ready->wrong("timeout", "10m at most");
  ready->finish();
}

void read_times(Members& members, SessionSpec& spec) {
  spec.ttl = members.duration("ttl");
  if (spec.ttl && *spec.ttl <= milliseconds(0)) members.wrong("ttl", "expected more than nothing");
  spec.idle = members.duration("idle");
  if (spec.idle && *spec.idle <= milliseconds(0))
    members.wrong("idle", "expected more than nothing");
}

}  // namespace

ProcessSpec read_process(Members& members, ProcessUse use, std::vector<std::string>& settings) {
  ProcessSpec spec;
  spec.argv = read_argv(members);
  spec.environment = read_environment(members);
  spec.directory = members.text("cwd").value_or("");
  if (holds_nul(spec.directory)) members.wrong("cwd", "holds a NUL");
  read_stdin(members, spec);
  read_terminal(members, spec);
  spec.wall_time = read_wall_time(members);
  spec.output = members.size("output");
  if (spec.output && *spec.output == 0) members.wrong("output", "expected more than nothing");
  if (const auto limit = members.duration("cpu_time")) {
    if (use == ProcessUse::kFurther)
      members.wrong("cpu_time", "is a limit of whole sessions: give it when the session is made");
    else
      settings.push_back("limits.cpu_time=" + written(*limit));
  }
  return spec;
}

std::string directory_in(const std::string& workspace, const std::string& directory) {
  if (directory.empty() || directory.starts_with('/')) return directory;
  return workspace + '/' + directory;
}

void check_labels(const std::map<std::string, std::string>& labels, Members& members) {
  if (labels.size() > kMostLabels)
    members.wrong("labels", "at most " + std::to_string(kMostLabels) + " labels");
  for (const auto& [name, value] : labels)
    if (name.empty() || name.size() > kLongestLabel || value.size() > kLongestLabel)
      members.wrong("labels", "names of 1 to " + std::to_string(kLongestLabel) +
                                  " bytes, values of at most as many");
}

tl::expected<SessionBody, Problem> read_session(const json& tree) {
  SessionBody body;
  std::vector<ProblemItem> problems;
  Members members(tree, "", problems);
  read_common(members, body.spec);
  if (auto command = members.object("command")) {
    body.spec.command = read_process(*command, ProcessUse::kCommand, body.spec.settings);
    check_within(*command, tree["command"], tree);
    command->finish();
  }
  body.spec.environment = read_environment(members);
  body.spec.labels = members.map("labels");
  check_labels(body.spec.labels, members);
  read_times(members, body.spec);
  read_ready(members, body);
  read_die_with(members, body.die_with);
  members.finish();
  if (!problems.empty()) return tl::unexpected(invalid_body(std::move(problems)));
  return body;
}

tl::expected<SessionBody, Problem> read_run(const json& tree) {
  SessionBody body;
  std::vector<ProblemItem> problems;
  Members members(tree, "", problems);
  read_common(members, body.spec);
  body.spec.command = read_process(members, ProcessUse::kRun, body.spec.settings);
  check_within(members, tree, tree);
  if (body.spec.command->stdin_mode == ProcessSpec::Stdin::kOpen)
    members.wrong("stdin", "nobody could write to it: give the text, or make a session");
  body.state = read_state(members);
  if (body.state)
    for (const char* name : {"argv", "stdin", "tty"})
      if (members.has(name)) members.wrong(name, "a shell's command has none: give \"shell\"");
  members.finish();
  body.spec.one_shot = true;
  if (!problems.empty()) return tl::unexpected(invalid_body(std::move(problems)));
  return body;
}

tl::expected<FurtherBody, Problem> read_further(const json& tree, FurtherUse use) {
  FurtherBody body;
  std::vector<ProblemItem> problems;
  std::vector<std::string> none;
  Members members(tree, "", problems);
  body.spec = read_process(members, ProcessUse::kFurther, none);
  body.background = members.boolean("background");
  body.claim = members.boolean("claim").value_or(false);
  if (use == FurtherUse::kShell) body.state = read_state(members);
  if (body.state && body.background.value_or(false))
    members.wrong("state", "a command in the background keeps what it does to itself");
  members.finish();
  if (!problems.empty()) return tl::unexpected(invalid_body(std::move(problems)));
  return body;
}

}  // namespace belljar::api
