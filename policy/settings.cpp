#include "policy/settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "policy/policy_file.hpp"
#include "policy/quote.hpp"
#include "policy/reader.hpp"
#include "policy/suggest.hpp"
#include "policy/units.hpp"

namespace belljar::policy {
namespace {

using Form = SettingRow::Form;
using std::chrono::milliseconds;

constexpr std::uint64_t kHighestId = 4294967294;
constexpr std::string_view kOurs = "BELLJAR_", kSimulators = "AGENT_SIMULATOR_";

constexpr SettingRow kRows[] = {
    {"listen", "--listen", "BELLJAR_LISTEN", Form::kAddress, &Settings::listen,
     "Where requests come in: unix:PATH or tcp:ADDRESS:PORT"},
    {"hosts", "--host", "BELLJAR_HOSTS", Form::kText, &Settings::hosts,
     "A name of this host's that requests over TCP may be sent to, beside addresses and localhost"},
    {"token_file", "--token-file", "BELLJAR_TOKEN_FILE", Form::kPath, &Settings::token_file,
     "The file, or directory of files, that clients' tokens are in"},
    {"", "", "BELLJAR_TOKEN", Form::kText, &Settings::token, "A token, for the environment only",
     "AGENT_SIMULATOR_API_TOKEN"},
    {"sessions_root", "--sessions-root", "BELLJAR_SESSIONS_ROOT", Form::kPath,
     &Settings::sessions_root, "Where sessions have their workspaces"},
    {"workspace_roots", "--workspace-root", "BELLJAR_WORKSPACE_ROOTS", Form::kPath,
     &Settings::workspace_roots, "Below these a session may have a directory of the caller's"},
    {"uid_base", "--uid-base", "BELLJAR_UID_BASE", Form::kCount, &Settings::uid_base,
     "The first uid of the pool; never 0", "AGENT_SIMULATOR_SESSION_UID_BASE", SimulatorUnit::kNone,
     1, kHighestId},
    {"max_sessions", "--max-sessions", "BELLJAR_MAX_SESSIONS", Form::kCount,
     &Settings::max_sessions, "How many sessions there may be, and uids in the pool",
     "AGENT_SIMULATOR_MAX_SESSIONS", SimulatorUnit::kNone, 1, 1000000},
    {"user", "--user", "BELLJAR_USER", Form::kText, &Settings::user,
     "Whom the daemon becomes; by default the uid below the pool"},
    {"policy_dirs", "--policy-dir", "BELLJAR_POLICY_DIRS", Form::kPath, &Settings::policy_dirs,
     "Where policies are that sessions can name; the first that has one counts"},
    {"policy", "--session-policy", "BELLJAR_POLICY", Form::kText, &Settings::policy,
     "The policy of sessions that name none: builtin:NAME, a name in policy_dirs, or a file"},
    {"inline_ceiling", "--inline-ceiling", "BELLJAR_INLINE_CEILING", Form::kText,
     &Settings::inline_ceiling,
     "A policy, named as the one above, within which launches may bring policies of their own; "
     "belljard's clients cannot send any yet"},
    {"simulator", "--simulator", "BELLJAR_SIMULATOR", Form::kSwitch, &Settings::simulator,
     "Take the agent simulator's place, and read AGENT_SIMULATOR_*"},
    {"sandbox", "--sandbox", "BELLJAR_SANDBOX", Form::kSandbox, &Settings::sandbox,
     "auto, or off: sessions are not sandboxed at all", "AGENT_SIMULATOR_SANDBOX"},
    {"network", "--session-network", "BELLJAR_NETWORK", Form::kNetwork, &Settings::network,
     "The session policy's network: auto, private, none, or shared. auto: private where it can be "
     "had, or the host's",
     "AGENT_SIMULATOR_NETWORK"},
    {"port_base", "--port-base", "BELLJAR_PORT_BASE", Form::kCount, &Settings::port_base,
     "The first port of sessions", "AGENT_SIMULATOR_PORT_POOL_START", SimulatorUnit::kNone, 1,
     65535},
    {"session_ttl", "--session-ttl", "BELLJAR_SESSION_TTL", Form::kDuration, &Settings::session_ttl,
     "How old a session may become", "AGENT_SIMULATOR_SESSION_LIFETIME_SECONDS",
     SimulatorUnit::kSeconds, 1},
    {"max_ttl", "--max-ttl", "BELLJAR_MAX_TTL", Form::kDuration, &Settings::max_ttl,
     "How old one may become whose client asks for it; by default as session_ttl", "",
     SimulatorUnit::kNone, 1000},
    {"max_runs", "--max-runs", "BELLJAR_MAX_RUNS", Form::kCount, &Settings::max_runs,
     "How many of the sessions may be runs, of one command each", "", SimulatorUnit::kNone, 1,
     1000000},
    {"sessions_of_a_client", "--sessions-of-a-client", "BELLJAR_SESSIONS_OF_A_CLIENT", Form::kCount,
     &Settings::sessions_of_a_client, "How many sessions one client may have at once; 0: any", "",
     SimulatorUnit::kNone, 0, 1000000},
    {"starts_a_minute", "--starts-a-minute", "BELLJAR_STARTS_A_MINUTE", Form::kCount,
     &Settings::starts_a_minute,
     "How many sessions and commands one client may start in a minute; 0: any", "",
     SimulatorUnit::kNone, 0, 1000000},
    {"retention", "--retention", "BELLJAR_RETENTION", Form::kDuration, &Settings::retention,
     "How long an ended session can be asked for its record and output", "", SimulatorUnit::kNone,
     0},
    {"agent_command", "--agent-command", "BELLJAR_AGENT_COMMAND", Form::kText,
     &Settings::agent_command, "What the agent simulator runs in each session: words, no quoting",
     "AGENT_SIMULATOR_COMMAND"},
    {"term_grace", "--term-grace", "BELLJAR_TERM_GRACE", Form::kDuration, &Settings::term_grace,
     "Between asking a session to end and ending it; at most 4s",
     "AGENT_SIMULATOR_TERM_GRACE_SECONDS", SimulatorUnit::kSeconds, 0, 4000},
    {"drain_timeout", "--drain-timeout", "BELLJAR_DRAIN_TIMEOUT", Form::kDuration,
     &Settings::drain_timeout, "How long sessions may go on when the daemon is asked to end"},
    {"log", "--log", "BELLJAR_LOG", Form::kLog, &Settings::log,
     "text, or json: how each line of the log is written"},
    {"audit", "--audit", "BELLJAR_AUDIT", Form::kPath, &Settings::audit,
     "A file that gets a line of JSON for each creation, end and refusal"},
    {"rlimit_as", "--rlimit-as", "BELLJAR_RLIMIT_AS", Form::kSize, &Settings::rlimit_as,
     "Address space of a process", "AGENT_SIMULATOR_RLIMIT_AS_GB", SimulatorUnit::kGibibytes, 1},
    {"rlimit_cpu", "--rlimit-cpu", "BELLJAR_RLIMIT_CPU", Form::kDuration, &Settings::rlimit_cpu,
     "Processor time of a process", "AGENT_SIMULATOR_RLIMIT_CPU_SEC", SimulatorUnit::kSeconds,
     1000},
    {"rlimit_fsize", "--rlimit-fsize", "BELLJAR_RLIMIT_FSIZE", Form::kSize, &Settings::rlimit_fsize,
     "Size of a file", "AGENT_SIMULATOR_RLIMIT_FSIZE_MB", SimulatorUnit::kMebibytes, 1},
    {"rlimit_nproc", "--rlimit-nproc", "BELLJAR_RLIMIT_NPROC", Form::kCount,
     &Settings::rlimit_nproc, "Processes and threads of a uid", "AGENT_SIMULATOR_RLIMIT_NPROC",
     SimulatorUnit::kNone, 1},
    {"rlimit_nofile", "--rlimit-nofile", "BELLJAR_RLIMIT_NOFILE", Form::kCount,
     &Settings::rlimit_nofile, "Open files of a process", "AGENT_SIMULATOR_RLIMIT_NOFILE",
     SimulatorUnit::kNone, 1},
};

/// Variables with our prefix that are no settings of the daemon.
constexpr std::array<std::string_view, 5> kOtherVariables = {
    "BELLJAR_CONFIG", "BELLJAR_BACK_END", "BELLJAR_LAUNCHER", "BELLJAR_BUILD_SHA", "BELLJAR_PASTA"};

/// What the simulator's backend and its compose file read, and the service never did.
constexpr std::array<std::string_view, 11> kBackendVariables = {
    "AGENT_SIMULATOR_URL",
    "AGENT_SIMULATOR_REQUIRE_AUTH",
    "AGENT_SIMULATOR_RESTRICT_CUSTOM_CODE",
    "AGENT_SIMULATOR_RATE_LIMIT_WINDOW_SECONDS",
    "AGENT_SIMULATOR_RATE_LIMIT_MAX_REQUESTS",
    "AGENT_SIMULATOR_RATE_LIMIT_MAX_KEYS",
    "AGENT_SIMULATOR_MAX_SESSIONS_PER_ACTOR",
    "AGENT_SIMULATOR_QUOTA_ENABLED",
    "AGENT_SIMULATOR_MEMORY_MB",
    "AGENT_SIMULATOR_CPU_CORES",
    "AGENT_SIMULATOR_DISK_MB"};

bool is_list(const SettingRow& row) {
  return std::holds_alternative<std::vector<std::string> Settings::*>(row.member);
}

std::vector<std::string_view> names_of(std::string_view SettingRow::*column) {
  std::vector<std::string_view> names;
  for (const SettingRow& row : kRows)
    if (!(row.*column).empty()) names.push_back(row.*column);
  return names;
}

const SettingRow* find_row(std::string_view SettingRow::*column, std::string_view name) {
  for (const SettingRow& row : kRows)
    if (!name.empty() && row.*column == name) return &row;
  return nullptr;
}

std::string trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t from = text.find_first_not_of(kBlanks);
  if (from == std::string_view::npos) return {};
  return std::string(text.substr(from, text.find_last_not_of(kBlanks) - from + 1));
}

// One value, from its text.

Parsed<std::uint64_t> parse_count(const SettingRow& row, std::string_view text) {
  const std::optional<std::uint64_t> number = parse_decimal(text);
  if (!number) return tl::unexpected("expected a number, got " + in_quotes(text));
  if (*number < row.least || *number > row.most) {
    std::string range = "at least " + std::to_string(row.least);
    if (row.most != UINT64_MAX) range += " and at most " + std::to_string(row.most);
    return tl::unexpected("expected a number of " + range + ", got " + std::string(text));
  }
  return *number;
}

/// "unix:/PATH" or "tcp:ADDRESS:PORT"; the address in brackets where it holds colons.
bool is_address(std::string_view text) {
  if (text.starts_with("unix:")) return text.size() > 6 && text[5] == '/';
  const std::size_t colon = text.rfind(':');
  if (!text.starts_with("tcp:") || colon < 5) return false;
  const std::optional<std::uint64_t> port = parse_decimal(text.substr(colon + 1));
  return port && *port > 0 && *port <= 65535;
}

Parsed<std::string> parse_text(Form form, std::string text) {
  if (text.empty()) return tl::unexpected<std::string>("expected a value, got nothing");
  if (form == Form::kPath) {
    Parsed<std::string> path = normalise_path(text);
    if (!path) return tl::unexpected("expected an absolute path: " + path.error());
    return path;
  }
  if (form == Form::kAddress && !is_address(text))
    return tl::unexpected("expected unix:/PATH or tcp:ADDRESS:PORT, got " + in_quotes(text));
  if (form == Form::kSandbox && text != "auto" && text != "off")
    return tl::unexpected("expected \"auto\" or \"off\", got " + in_quotes(text));
  if (form == Form::kNetwork && text != "auto" && text != "private" && text != "none" &&
      text != "shared")
    return tl::unexpected("expected \"auto\", \"private\", \"none\" or \"shared\", got " +
                          in_quotes(text));
  if (form == Form::kLog && text != "text" && text != "json")
    return tl::unexpected("expected \"text\" or \"json\", got " + in_quotes(text));
  return text;
}

Parsed<bool> parse_switch(std::string_view text) {
  if (text == "true" || text == "1") return true;
  if (text == "false" || text == "0") return false;
  return tl::unexpected("expected true or false, got " + in_quotes(text));
}

Parsed<milliseconds> parse_time(const SettingRow& row, std::string_view text) {
  Parsed<milliseconds> time = parse_duration(text);
  if (time && time->count() < static_cast<std::int64_t>(row.least))
    return tl::unexpected("expected at least " + std::to_string(row.least) + "ms, got " +
                          in_quotes(text));
  if (time && static_cast<std::uint64_t>(time->count()) > row.most)
    return tl::unexpected("expected at most " + std::to_string(row.most) + "ms, got " +
                          in_quotes(text));
  return time;
}

/// Carries one value over into the settings.
struct Assign {
  const SettingRow& row;
  Settings& settings;
  const std::string& text;

  Parsed<bool> operator()(std::string Settings::*member) const {
    return put(member, parse_text(row.form, text));
  }
  Parsed<bool> operator()(std::vector<std::string> Settings::*member) const {
    Parsed<std::string> value = parse_text(row.form, text);
    if (!value) return tl::unexpected(value.error());
    (settings.*member).push_back(std::move(*value));
    return true;
  }
  Parsed<bool> operator()(bool Settings::*member) const { return put(member, parse_switch(text)); }
  Parsed<bool> operator()(std::uint64_t Settings::*member) const {
    return put(member, parse_count(row, text));
  }
  Parsed<bool> operator()(std::optional<std::uint64_t> Settings::*member) const {
    if (row.form != Form::kSize) return put(member, parse_count(row, text));
    const Parsed<std::uint64_t> size = parse_size(text);
    if (size && *size < row.least) return tl::unexpected<std::string>("expected more than nothing");
    return put(member, size);
  }
  Parsed<bool> operator()(std::optional<milliseconds> Settings::*member) const {
    return put(member, parse_time(row, text));
  }

  template <class Member, class Value>
  Parsed<bool> put(Member member, const Parsed<Value>& value) const {
    if (!value) return tl::unexpected(value.error());
    settings.*member = *value;
    return true;
  }
};

/// Reads the sources, lowest first, each over the one before.
class SettingsReader {
 public:
  explicit SettingsReader(const SettingSources& sources) : sources_(sources) {}

  tl::expected<Settings, Diagnostics> read() {
    decide_about_simulator();
    read_file();
    if (settings_.simulator) read_simulator_variables();
    read_variables();
    read_flags();
    check_whole();
    if (!wrong_.empty()) return tl::unexpected(std::move(wrong_));
    return std::move(settings_);
  }

 private:
  void complain(Location where, std::string path, std::string message) {
    wrong_.push_back({std::move(where), std::move(path), std::move(message)});
  }

  [[nodiscard]] std::optional<std::string> variable(std::string_view name) const {
    const auto found = sources_.environment.find(std::string(name));
    if (found == sources_.environment.end()) return std::nullopt;
    return found->second;
  }

  /// Values of a list come one by one; the first from a source replaces what a lower one said.
  void assign(const SettingRow& row, const Location& where, const std::string& path,
              const std::vector<std::string>& texts) {
    if (const auto* list = std::get_if<std::vector<std::string> Settings::*>(&row.member))
      (settings_.*(*list)).clear();
    bool good = true;
    for (const std::string& text : texts) {
      const Parsed<bool> done = std::visit(Assign{row, settings_, text}, row.member);
      if (!done) complain(where, path, done.error());
      good &= done.has_value();
    }
    const std::string_view name = row.name.empty() ? row.variable : row.name;
    if (good) settings_.origins[std::string(name)] = where.text();
  }

  /// Whether it is on decides which defaults hold and what else is read, so it comes first.
  void decide_about_simulator() {
    config_ = sources_.config;
    if (config_.empty()) config_ = variable("BELLJAR_CONFIG").value_or("");
    const bool named = !config_.empty();
    // Only a file that is not there means the defaults; one that cannot be read is told of.
    if (!named && (access(kSettingsFile, F_OK) == 0 || errno != ENOENT)) config_ = kSettingsFile;
    if (!config_.empty()) parse_file();
    const Member* in_file = tree_ ? tree_->find("simulator") : nullptr;
    bool on = in_file != nullptr && in_file->value.boolean;
    if (const auto value = variable("BELLJAR_SIMULATOR")) on = parse_switch(*value).value_or(on);
    for (const auto& [flag, value] : sources_.flags)
      if (flag == "--simulator") on = parse_switch(value).value_or(on);
    if (!on) return;
    settings_.simulator = true;
    settings_.listen = {"tcp:0.0.0.0:8001"};
    settings_.sessions_root = "/tmp/sessions";
    settings_.uid_base = 20000;
    settings_.max_sessions = 5;
    settings_.session_ttl = std::chrono::seconds(900);
  }

  void parse_file() {
    const Parsed<PolicyFile> file = read_policy_file(config_, FileKinds::kRegular);
    if (!file) {
      // The reason stands behind the first colon.
      const std::string reason = file.error().substr(file.error().find(": ") + 2);
      return complain({config_, 0, 0}, {}, "cannot read the settings: " + reason);
    }
    Findings findings;
    tree_ = parse_json(file->text, 0, comments_of(config_), findings);
    for (const Finding& finding : findings)
      complain(place(finding.place), finding.path, finding.message);
    if (tree_ && tree_->kind != Node::Kind::kObject) {
      complain(place(tree_->place), {},
               "expected an object of settings, got " + found_text(*tree_));
      tree_.reset();
    }
  }

  [[nodiscard]] Location place(const Place& at) const { return {config_, at.line, at.column}; }

  void read_file() {
    if (!tree_) return;
    for (const Member& member : tree_->members) {
      if (member.key == "$schema" || member.key.starts_with("x-")) continue;
      const SettingRow* row = find_row(&SettingRow::name, member.key);
      if (row == nullptr)
        complain(place(member.key_place), member.key,
                 with_suggestion("unknown setting", member.key, names_of(&SettingRow::name)));
      else
        read_node(*row, member);
    }
    std::stable_sort(wrong_.begin(), wrong_.end(), [](const Diagnostic& a, const Diagnostic& b) {
      return std::pair(a.where.line, a.where.column) < std::pair(b.where.line, b.where.column);
    });
  }

  /// What kind of JSON value a setting is written as; its text then says the same as a flag.
  static std::optional<std::string> text_of(const SettingRow& row, const Node& node) {
    using Kind = Node::Kind;
    if (row.form == Form::kSwitch) {
      if (node.kind != Kind::kBoolean) return std::nullopt;
      return node.boolean ? "true" : "false";
    }
    if (row.form == Form::kCount) {
      if (node.kind != Kind::kUnsigned) return std::nullopt;
      return std::to_string(node.number);
    }
    if (node.kind != Kind::kString) return std::nullopt;
    return node.text;
  }

  void read_node(const SettingRow& row, const Member& member) {
    const Node& node = member.value;
    const bool list = is_list(row);
    const char* kind = list                          ? "an array of strings"
                       : row.form == Form::kSwitch   ? "true or false"
                       : row.form == Form::kCount    ? "a number"
                       : row.form == Form::kSize     ? "a size such as \"4GiB\""
                       : row.form == Form::kDuration ? "a duration such as \"30s\""
                                                     : "a string";
    std::vector<std::string> texts;
    bool good = !list || node.kind == Node::Kind::kArray;
    for (const Node& element : list ? node.elements : std::vector<Node>{node}) {
      const std::optional<std::string> text = text_of(row, element);
      good &= text.has_value();
      if (text) texts.push_back(*text);
    }
    if (!good)
      return complain(place(node.place), member.key,
                      std::string("expected ") + kind + ", got " + found_text(node));
    assign(row, place(node.place), member.key, texts);
  }

  void refuse_unknown_variables(std::string_view prefix, std::string_view SettingRow::*column,
                                std::span<const std::string_view> others) {
    std::vector<std::string_view> known = names_of(column);
    for (const auto& [name, value] : sources_.environment) {
      const bool other = std::find(others.begin(), others.end(), name) != others.end();
      if (!name.starts_with(prefix) || other || find_row(column, name) != nullptr) continue;
      complain({name, 0, 0}, {}, with_suggestion("unknown variable", name, known));
    }
  }

  static std::vector<std::string> split(const SettingRow& row, const std::string& text) {
    if (!is_list(row)) return {text};
    std::vector<std::string> parts;
    for (std::size_t from = 0; from <= text.size();) {
      const std::size_t to = std::min(text.find(',', from), text.size());
      parts.push_back(trimmed(std::string_view(text).substr(from, to - from)));
      from = to + 1;
    }
    return parts;
  }

  /// Set and empty is not set, as the simulator has it and as compose files produce it.
  void read_variables() {
    refuse_unknown_variables(kOurs, &SettingRow::variable, kOtherVariables);
    for (const SettingRow& row : kRows)
      if (const auto value = variable(row.variable); value && !trimmed(*value).empty())
        assign(row, {std::string(row.variable), 0, 0}, {}, split(row, trimmed(*value)));
  }

  void read_simulator_variables() {
    refuse_unknown_variables(kSimulators, &SettingRow::simulator, kBackendVariables);
    for (const SettingRow& row : kRows) {
      const auto value = variable(row.simulator);
      if (!value || trimmed(*value).empty()) continue;
      const std::string text = row.form == Form::kSandbox   ? sandbox_word(*value)
                               : row.form == Form::kNetwork ? network_word(*value)
                                                            : with_unit(row, trimmed(*value));
      assign(row, {std::string(row.simulator), 0, 0}, {}, {text});
    }
  }

  static std::string with_unit(const SettingRow& row, const std::string& text) {
    const bool number = parse_decimal(text).has_value();
    if (!number || row.unit == SimulatorUnit::kNone) return text;
    return text + (row.unit == SimulatorUnit::kSeconds     ? "s"
                   : row.unit == SimulatorUnit::kMebibytes ? "MiB"
                                                           : "GiB");
  }

  static std::string lower_case(std::string word) {
    std::transform(word.begin(), word.end(), word.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return word;
  }

  /// Any word but "off" means "auto", which is the safe side, and is told.
  std::string sandbox_word(const std::string& value) {
    const std::string word = lower_case(trimmed(value));
    if (word == "off" || word == "auto") return word;
    settings_.warnings.push_back("AGENT_SIMULATOR_SANDBOX: " + in_quotes(value) +
                                 " is neither \"auto\" nor \"off\", and means \"auto\"");
    return "auto";
  }

  /// As the service that this stands in for has it: an unknown word means "auto", and is told.
  std::string network_word(const std::string& value) {
    const std::string word = lower_case(trimmed(value));
    if (word == "private" || word == "none" || word == "shared" || word == "auto") return word;
    settings_.warnings.push_back("AGENT_SIMULATOR_NETWORK: " + in_quotes(value) +
                                 " is none of \"auto\", \"private\", \"none\" and \"shared\", and "
                                 "means \"auto\"");
    return "auto";
  }

  void read_flags() {
    std::map<std::string, std::vector<std::string>> given;
    for (const auto& [flag, value] : sources_.flags) given[flag].push_back(value);
    for (const auto& [flag, values] : given) {
      const SettingRow* row = find_row(&SettingRow::flag, flag);
      if (row == nullptr)
        complain({flag, 0, 0}, {},
                 with_suggestion("unknown flag", flag, names_of(&SettingRow::flag)));
      else if (values.size() > 1 && !is_list(*row))
        complain({flag, 0, 0}, {}, "given more than once");
      else
        assign(*row, {flag, 0, 0}, {}, values);
    }
  }

  /// Who chose the one of two settings, or the other where that is as it always is.
  [[nodiscard]] std::string set_by(const char* one, const char* other) const {
    return settings_.origins.contains(one) ? settings_.origin(one) : settings_.origin(other);
  }

  void check_whole() {
    if (settings_.sandbox == "off" && !settings_.inline_ceiling.empty())
      complain({set_by("inline_ceiling", "sandbox"), 0, 0}, {},
               "without a sandbox nothing holds the policies that clients send; remove it");
    if (settings_.sandbox == "off" &&
        (settings_.network == "private" || settings_.network == "none"))
      complain({set_by("network", "sandbox"), 0, 0}, {},
               "without a sandbox there is no network but the host's: use \"shared\", or \"auto\"");
    if (settings_.self_test_uid() > kHighestId)
      complain({set_by("max_sessions", "uid_base"), 0, 0}, {},
               "the pool of uids ends beyond the highest one; lower uid_base or max_sessions");
    if (settings_.port_base + settings_.max_sessions - 1 > 65535 && settings_.simulator)
      complain({set_by("port_base", "max_sessions"), 0, 0}, {},
               "the ports of sessions end beyond 65535; lower port_base or max_sessions");
    if (settings_.session_ttl && settings_.max_ttl && *settings_.session_ttl > *settings_.max_ttl)
      complain({set_by("session_ttl", "max_ttl"), 0, 0}, {},
               "session_ttl is longer than max_ttl, which no session may outlive");
  }

  const SettingSources& sources_;
  std::string config_;
  std::optional<Node> tree_;
  Settings settings_;
  Diagnostics wrong_;
};

}  // namespace

std::string Settings::origin(std::string_view name) const {
  const auto found = origins.find(std::string(name));
  return found == origins.end() ? "the default" : found->second;
}

std::vector<std::pair<std::string, std::string>> Settings::network_settings() const {
  if (network.empty() || sandbox == "off") return {};
  const bool automatic = network == "auto";
  return {{"network.mode", automatic ? "private" : network},
          {"network.enforce", automatic ? "prefer" : "require"}};
}

std::vector<std::pair<std::string, std::string>> Settings::limits() const {
  std::vector<std::pair<std::string, std::string>> found;
  const auto add = [&found](const char* name, const auto& value, auto text) {
    if (value) found.emplace_back(std::string("limits.rlimits.") + name, text(*value));
  };
  const auto bytes = [](std::uint64_t value) { return std::to_string(value) + "B"; };
  const auto count = [](std::uint64_t value) { return std::to_string(value); };
  add("as", rlimit_as, bytes);
  add("cpu", rlimit_cpu, [](milliseconds value) { return std::to_string(value.count()) + "ms"; });
  add("fsize", rlimit_fsize, bytes);
  add("nproc", rlimit_nproc, count);
  add("nofile", rlimit_nofile, count);
  return found;
}

std::span<const SettingRow> setting_rows() { return kRows; }

tl::expected<Settings, Diagnostics> load_settings(const SettingSources& sources) {
  return SettingsReader(sources).read();
}

bool mentions_simulator(const std::map<std::string, std::string>& environment) {
  return std::any_of(std::begin(kRows), std::end(kRows), [&environment](const SettingRow& row) {
    return !row.simulator.empty() && environment.contains(std::string(row.simulator));
  });
}

}  // namespace belljar::policy
