// The daemon's settings: one table, three places to set each.
#include "policy/settings.hpp"

#include <set>
#include <string>

#include "loading.hpp"
#include "temporary_directory.hpp"

namespace belljar::policy {
namespace {

using testing::contains;
using testing::TemporaryDirectory;

std::string errors_of(const SettingSources& sources) {
  const auto settings = load_settings(sources);
  std::string out;
  if (!settings)
    for (const Diagnostic& diagnostic : settings.error())
      out += (out.empty() ? "" : "\n") + diagnostic.text();
  return out;
}

Settings load(const SettingSources& sources) {
  auto settings = load_settings(sources);
  INFO(errors_of(sources));
  REQUIRE(settings.has_value());
  return std::move(*settings);
}

/// A settings file in a directory of its own.
class File {
 public:
  explicit File(const std::string& text, const std::string& name = "belljar.json")
      : path_(directory_.write(name, text)) {}
  [[nodiscard]] SettingSources sources() const { return {path_, {}, {}}; }
  [[nodiscard]] std::string errors() const {
    std::string text = errors_of(sources());
    for (std::size_t at = text.find(path_); at != std::string::npos; at = text.find(path_))
      text.replace(at, path_.size(), "F");
    return text;
  }

 private:
  TemporaryDirectory directory_;
  std::string path_;
};

TEST_CASE("without any source the pool of a host holds, and the last uid is kept for self-tests") {
  const Settings settings = load({});
  CHECK(settings.uid_base == 70000);
  CHECK(settings.max_sessions == 999);
  CHECK(settings.self_test_uid() == 70999);
  CHECK(settings.policy == "builtin:agent@1");
  CHECK(settings.origin("policy") == "the default");
}

TEST_CASE("a flag beats a variable, a variable beats the file") {
  const File file(R"({"uid_base": 30000, "max_sessions": 7, "policy": "builtin:shell@1"})");
  SettingSources sources = file.sources();
  sources.environment = {{"BELLJAR_UID_BASE", "40000"}, {"BELLJAR_MAX_SESSIONS", "8"}};
  sources.flags = {{"--uid-base", "50000"}};
  const Settings settings = load(sources);
  CHECK(settings.uid_base == 50000);
  CHECK(settings.origin("uid_base") == "--uid-base");
  CHECK(settings.max_sessions == 8);
  CHECK(settings.origin("max_sessions") == "BELLJAR_MAX_SESSIONS");
  CHECK(settings.policy == "builtin:shell@1");
  CHECK(contains(settings.origin("policy"), "belljar.json:1:50"));
}

TEST_CASE("a list is replaced by the next source, not continued") {
  const File file(R"({"listen": ["unix:/run/a.sock", "tcp:127.0.0.1:1"]})");
  SettingSources sources = file.sources();
  CHECK(load(sources).listen.size() == 2);
  sources.environment = {{"BELLJAR_LISTEN", "unix:/run/b.sock, tcp:[::1]:9"}};
  CHECK(load(sources).listen == std::vector<std::string>{"unix:/run/b.sock", "tcp:[::1]:9"});
  sources.flags = {{"--listen", "unix:/run/c.sock"}, {"--listen", "unix:/run/d.sock"}};
  CHECK(load(sources).listen == std::vector<std::string>{"unix:/run/c.sock", "unix:/run/d.sock"});
}

TEST_CASE("every error of the file comes at once, with its line and column") {
  const File file("{\n  \"uid_bsae\": 1,\n  \"uid_base\": \"x\",\n  \"listen\": [\"udp:1\"]\n}");
  CHECK(file.errors() ==
        "F:2:3: uid_bsae: unknown setting; did you mean \"uid_base\"?\n"
        "F:3:15: uid_base: expected a number, got the string \"x\"\n"
        "F:4:13: listen: expected unix:/PATH or tcp:ADDRESS:PORT, got \"udp:1\"");
}

TEST_CASE("a file that is no object, has a syntax error, or cannot be read is refused") {
  CHECK(File("[1]").errors() == "F:1:1: expected an object of settings, got an array");
  CHECK(contains(File("{\"policy\": }").errors(), "F:1:12"));
  CHECK(errors_of({"/nonexistent/belljar.json", {}, {}}) ==
        "/nonexistent/belljar.json: cannot read the settings: No such file or directory (ENOENT)");
  CHECK(contains(File("// no\n{}").errors(), "F:1:1"));
  CHECK(File("// yes\n{}", "belljar.jsonc").errors().empty());
}

TEST_CASE("BELLJAR_CONFIG names the file where --config does not") {
  const File file(R"({"uid_base": 31000})");
  CHECK(load({"", {}, {{"BELLJAR_CONFIG", file.sources().config}}}).uid_base == 31000);
  CHECK(
      contains(errors_of({"", {}, {{"BELLJAR_CONFIG", "/nonexistent"}}}), "/nonexistent: cannot"));
}

TEST_CASE("unknown variables and flags are refused with the nearest known name") {
  CHECK(errors_of({"", {}, {{"BELLJAR_UID_BSAE", "1"}}}) ==
        "BELLJAR_UID_BSAE: unknown variable; did you mean \"BELLJAR_UID_BASE\"?");
  CHECK(errors_of({"", {{"--uid-bsae", "1"}}, {}}) ==
        "--uid-bsae: unknown flag; did you mean \"--uid-base\"?");
  CHECK(errors_of({"", {}, {{"BELLJAR_BACK_END", "legacy"}, {"OTHER", "1"}}}).empty());
}

TEST_CASE("a scalar flag is given once") {
  CHECK(errors_of({"", {{"--uid-base", "1"}, {"--uid-base", "2"}}, {}}) ==
        "--uid-base: given more than once");
}

TEST_CASE("numbers have bounds: uid 0 is never in the pool, and the pool has an end") {
  CHECK(contains(errors_of({"", {{"--uid-base", "0"}}, {}}), "at least 1 and at most 4294967294"));
  CHECK(contains(errors_of({"", {{"--max-sessions", "0"}}, {}}), "at least 1"));
  CHECK(contains(errors_of({"", {{"--uid-base", "4294967294"}}, {}}), "ends beyond the highest"));
  CHECK(contains(errors_of({"", {{"--uid-base", "0x10"}}, {}}), "expected a number"));
  CHECK(contains(errors_of({"", {{"--sessions-root", "here"}}, {}}), "expected an absolute path"));
  CHECK(contains(errors_of({"", {{"--rlimit-as", "4"}}, {}}), "4"));
  CHECK(contains(errors_of({"", {{"--simulator", "maybe"}}, {}}), "expected true or false"));
}

TEST_CASE("an empty variable is none") {
  CHECK(load({"", {}, {{"BELLJAR_UID_BASE", " "}}}).uid_base == 70000);
}

TEST_CASE("the agent simulator has its own defaults and variables, without units") {
  SettingSources sources{"", {{"--simulator", "true"}}, {}};
  Settings settings = load(sources);
  CHECK(settings.uid_base == 20000);
  CHECK(settings.self_test_uid() == 20005);
  CHECK(settings.sessions_root == "/tmp/sessions");
  CHECK(settings.listen == std::vector<std::string>{"tcp:0.0.0.0:8001"});
  CHECK(settings.limits().empty());
  sources.environment = {{"AGENT_SIMULATOR_MAX_SESSIONS", "9"},
                         {"AGENT_SIMULATOR_SESSION_UID_BASE", "21000"},
                         {"AGENT_SIMULATOR_SESSION_LIFETIME_SECONDS", "60"},
                         {"AGENT_SIMULATOR_RLIMIT_AS_GB", "2"},
                         {"AGENT_SIMULATOR_RLIMIT_CPU_SEC", "30"},
                         {"AGENT_SIMULATOR_RLIMIT_FSIZE_MB", "10"},
                         {"AGENT_SIMULATOR_RLIMIT_NPROC", "32"},
                         {"AGENT_SIMULATOR_RLIMIT_NOFILE", ""},
                         {"AGENT_SIMULATOR_API_TOKEN", "t"},
                         {"AGENT_SIMULATOR_COMMAND", "python3 -u agent.py"},
                         {"AGENT_SIMULATOR_TERM_GRACE_SECONDS", "3"},
                         {"AGENT_SIMULATOR_URL", "http://elsewhere"}};
  settings = load(sources);
  CHECK(settings.self_test_uid() == 21009);
  CHECK(settings.session_ttl == std::chrono::seconds(60));
  CHECK(settings.token == "t");
  CHECK(settings.agent_command == "python3 -u agent.py");
  CHECK(settings.term_grace == std::chrono::seconds(3));
  CHECK(settings.limits() ==
        std::vector<std::pair<std::string, std::string>>{{"limits.rlimits.as", "2147483648B"},
                                                         {"limits.rlimits.cpu", "30000ms"},
                                                         {"limits.rlimits.fsize", "10485760B"},
                                                         {"limits.rlimits.nproc", "32"}});
}

TEST_CASE("belljar's own variable beats the simulator's, which beats the file") {
  const File file(R"({"simulator": true, "uid_base": 1000})");
  SettingSources sources = file.sources();
  sources.environment = {{"AGENT_SIMULATOR_SESSION_UID_BASE", "2000"}};
  CHECK(load(sources).uid_base == 2000);
  sources.environment["BELLJAR_UID_BASE"] = "3000";
  CHECK(load(sources).uid_base == 3000);
}

TEST_CASE("the simulator's variables say nothing where it is not asked for") {
  const std::map<std::string, std::string> environment = {{"AGENT_SIMULATOR_MAX_SESSIONS", "9"}};
  CHECK(load({"", {}, environment}).max_sessions == 999);
  CHECK(mentions_simulator(environment));
  CHECK_FALSE(mentions_simulator({{"AGENT_SIMULATOR_URL", "http://x"}}));
}

TEST_CASE("garbage and unknown names of the simulator's are refused") {
  const SettingSources bad{
      "",
      {{"--simulator", "true"}},
      {{"AGENT_SIMULATOR_MAX_SESSIONS", "five"}, {"AGENT_SIMULATOR_RLIMIT_NPORC", "64"}}};
  CHECK(errors_of(bad) ==
        "AGENT_SIMULATOR_RLIMIT_NPORC: unknown variable; did you mean "
        "\"AGENT_SIMULATOR_RLIMIT_NPROC\"?\n"
        "AGENT_SIMULATOR_MAX_SESSIONS: expected a number, got \"five\"");
}

TEST_CASE("the session policy's network is a word, and auto is private where it can be had") {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  CHECK(load({"", {}, {}}).network_settings().empty());
  CHECK(load({"", {{"--session-network", "none"}}, {}}).network_settings() ==
        Pairs{{"network.mode", "none"}, {"network.enforce", "require"}});
  CHECK(load({"", {{"--session-network", "auto"}}, {}}).network_settings() ==
        Pairs{{"network.mode", "private"}, {"network.enforce", "prefer"}});
  CHECK(contains(errors_of({"", {{"--session-network", "on"}}, {}}), "expected \"auto\""));
  CHECK(contains(errors_of({"", {{"--session-network", "private"}, {"--sandbox", "off"}}, {}}),
                 "no network but the host's"));
  SettingSources sources{"", {{"--simulator", "true"}}, {}};
  sources.environment["AGENT_SIMULATOR_NETWORK"] = "Private";
  CHECK(load(sources).network == "private");
  CHECK(load(sources).warnings.empty());
  sources.environment["AGENT_SIMULATOR_NETWORK"] = "yes";
  CHECK(load(sources).network == "auto");
  CHECK(load(sources).warnings.size() == 1);
}

TEST_CASE("the simulator's sandbox is off for the word off alone; any other word warns") {
  SettingSources sources{"", {{"--simulator", "true"}}, {}};
  const auto with = [&sources](const char* word) {
    sources.environment["AGENT_SIMULATOR_SANDBOX"] = word;
    return load(sources);
  };
  CHECK(with(" OFF ").sandbox == "off");
  CHECK(with("Auto").sandbox == "auto");
  CHECK(with("Auto").warnings.empty());
  CHECK(with("no").sandbox == "auto");
  CHECK(with("no").warnings.size() == 1);
  CHECK(contains(errors_of({"", {{"--sandbox", "no"}}, {}}), "expected \"auto\" or \"off\""));
}

TEST_CASE("each setting has one name, one flag and one variable, and none is used twice") {
  std::set<std::string_view> seen;
  for (const SettingRow& row : setting_rows()) {
    CAPTURE(row.variable);
    CHECK(row.variable.starts_with("BELLJAR_"));
    CHECK(row.name.empty() == row.flag.empty());
    for (const std::string_view name : {row.name, row.flag, row.variable, row.simulator})
      if (!name.empty()) CHECK(seen.insert(name).second);
    CHECK_FALSE(row.description.empty());
  }
}

}  // namespace
}  // namespace belljar::policy
