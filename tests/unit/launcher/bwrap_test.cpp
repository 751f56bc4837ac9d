#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "launcher/bwrap/drop_in.hpp"

using namespace belljar::launcher;
using namespace belljar::launcher::bwrap;
using belljar::Result;

namespace {

using Words = std::vector<std::string>;

/// Descriptors and what they hold; each can be read once.
using Held = std::map<int, std::string>;

Result<Options> parsed(const Words& words, Held held = {}) {
  return parse(words, [held](int fd) mutable -> Result<std::string> {
    const auto found = held.find(fd);
    if (found == held.end()) return belljar::sys_failure(EBADF, "read");
    std::string data = found->second;
    held.erase(found);
    return data;
  });
}

std::string refusal_of(const Words& words, Held held = {}) {
  const Result<Options> options = parsed(words, std::move(held));
  return options ? "accepted" : options.error().what;
}

std::string check_of(const Words& words, bool root = true) {
  const Result<Options> options = parsed(words);
  REQUIRE(options.has_value());
  const uid_t uid = root ? 0 : 1000;
  const auto checked = check(*options, uid, uid);
  return checked ? "accepted" : checked.error().what;
}

Plan plan_of(const Words& words, uid_t uid = 1000) {
  Host host;
  host.uid = host.gid = uid;
  if (uid == 0) host.capabilities = ~std::uint64_t{0} >> 23;
  Inherited inherited;
  inherited.descriptors = {3, 7};
  inherited.environment = {"HOME=/home/me", "PATH=/bin::/opt"};
  inherited.directory = "/here";
  const Result<Options> options = parsed(words);
  REQUIRE(options.has_value());
  Result<Plan> made = belljar::launcher::bwrap::plan(*options, host, inherited);
  REQUIRE(made.has_value());
  return std::move(*made);
}

template <class Action>
std::vector<const Action*> all(const Plan& plan) {
  std::vector<const Action*> found;
  for (const Step& step : plan.steps)
    if (const auto* action = std::get_if<Action>(&step.action)) found.push_back(action);
  return found;
}

}  // namespace

TEST_CASE("bwrap: the first word that is no option begins the command") {
  const auto options = parsed({"--unshare-pid", "prog", "--unshare-net", "x"});
  REQUIRE(options.has_value());
  CHECK(options->pid);
  CHECK_FALSE(options->net);
  CHECK(options->command == Words{"prog", "--unshare-net", "x"});
  CHECK(parsed({"--", "--odd", "y"})->command == Words{"--odd", "y"});
}

TEST_CASE("bwrap: an unknown option and a missing value are refused") {
  CHECK(refusal_of({"--bnid", "a", "b"}) == "Unknown option --bnid");
  CHECK(refusal_of({"-x"}) == "Unknown option -x");
  CHECK(refusal_of({"--bind", "/a"}) == "--bind takes two arguments");
  CHECK(refusal_of({"--tmpfs"}) == "--tmpfs takes an argument");
}

TEST_CASE("bwrap: file operations keep their order") {
  const auto options = parsed({"--tmpfs", "/a", "--ro-bind", "/b", "/c", "--dir", "/d", "true"});
  REQUIRE(options.has_value());
  REQUIRE(options->files.size() == 3);
  CHECK(options->files[0].kind == FileKind::kTmpfs);
  CHECK(options->files[1].text() == "--ro-bind /b /c");
  CHECK(options->files[2].target == "/d");
}

TEST_CASE("bwrap: --perms and --size are about the next operation alone") {
  const auto options =
      parsed({"--perms", "1750", "--size", "0x1000", "--tmpfs", "/a", "--tmpfs", "/b", "true"});
  REQUIRE(options.has_value());
  CHECK(options->files[0].mode == 01750U);
  CHECK(options->files[0].size == 4096);
  CHECK_FALSE(options->files[1].mode.has_value());
  CHECK(options->files[1].size == 0);
  CHECK(refusal_of({"--perms", "0700", "--perms", "0700", "--dir", "/a"}) ==
        "--perms given twice for the same action");
  CHECK(refusal_of({"--perms", "10000", "--dir", "/a"}) ==
        "--perms takes an octal argument <= 07777");
  CHECK(refusal_of({"--perms", "0700", "--bind", "/a", "/b"}) ==
        "--perms must be followed by an option that creates a file");
  CHECK(refusal_of({"--size", "5", "--dir", "/a"}) == "--size must be followed by --tmpfs");
  CHECK(refusal_of({"--size", "5", "--perms", "0700", "--dir", "/a"}) ==
        "--size must be followed by --tmpfs");
  CHECK(parsed({"--perms", "0700", "true"}).has_value());
}

TEST_CASE("bwrap: a size is a whole positive number of bytes that a file can have") {
  for (const char* wrong : {"0", "123bogus", "", "-12345678", " -12345678", "18446744073709551616",
                            "9223372036854775809"})
    CHECK_MESSAGE(refusal_of({"--size", wrong, "--tmpfs", "/a", "x"}) != "accepted", wrong);
  CHECK(refusal_of({"--size", "9223372036854775807", "--tmpfs", "/a", "x"}) == "accepted");
}

TEST_CASE("bwrap: --args takes NUL-separated options, and nothing behind the last of them") {
  const std::string data("--tmpfs\0/a\0--\0no\0--tmpfs\0/b\0", 28);
  const auto options = parsed({"--args", "5", "--dir", "/c", "true"}, {{5, data}});
  REQUIRE(options.has_value());
  CHECK(options->files.size() == 2);
  CHECK(options->command == Words{"true"});
  CHECK(refusal_of({"--args", "5"}, {{5, std::string("--args\0006\0", 9)}}) ==
        "--args not supported in arguments file");
  CHECK(refusal_of({"--args", "9"}) == "Can't read --args data");
  CHECK(refusal_of({"--args", "0a"}) == "Invalid fd: 0a");
}

TEST_CASE("bwrap: more than 9000 words are refused, those of --args among them") {
  CHECK(refusal_of(Words(9001, "--unshare-pid")) == "Exceeded maximum number of arguments 9000");
  CHECK(refusal_of(Words(9000, "--unshare-pid")) == "accepted");
  std::string many;
  for (int i = 0; i < 9000; ++i) many += std::string("--unshare-pid") + '\0';
  CHECK(refusal_of({"--args", "5"}, {{5, many}}) != "accepted");
}

TEST_CASE("bwrap: the last of an option that counts once is taken, with a warning") {
  const auto options = parsed({"--chdir", "/a", "--chdir", "/b", "x"});
  REQUIRE(options.has_value());
  CHECK(options->directory == "/b");
  CHECK(options->warnings == Words{"Only the last --chdir option will take effect"});
  CHECK(refusal_of({"--argv0", "a", "--argv0", "b"}) != "accepted");
}

TEST_CASE("bwrap: the two ways to hand filters over exclude each other") {
  CHECK(refusal_of({"--seccomp", "5", "--add-seccomp-fd", "6"}, {{6, "x"}}) ==
        "--add-seccomp-fd cannot be combined with --seccomp");
  CHECK(refusal_of({"--add-seccomp-fd", "6", "--seccomp", "5"}, {{6, "x"}}) ==
        "--seccomp cannot be combined with --add-seccomp-fd");
  CHECK(refusal_of({"--add-seccomp-fd", "6", "--add-seccomp-fd", "6"}, {{6, "x"}}) ==
        "Can't read seccomp data");
}

TEST_CASE("bwrap: a layer belongs to the overlay that follows it") {
  CHECK(refusal_of({"--overlay-src", "/a", "--tmpfs", "/b", "x"}) ==
        refusal_of({"--overlay-src", "/a"}));
  CHECK(refusal_of({"--overlay", "/u", "/w", "/d"}) ==
        "--overlay requires at least one --overlay-src");
  CHECK(refusal_of({"--overlay-src", "/a", "--ro-overlay", "/d"}) ==
        "--ro-overlay requires at least two --overlay-src");
  const auto options =
      parsed({"--overlay-src", "/a", "--overlay-src", "/b", "--tmp-overlay", "/d"});
  REQUIRE(options.has_value());
  CHECK(options->files[0].layers == Words{"/a", "/b"});
}

TEST_CASE("bwrap: what contradicts or lacks another option is refused") {
  CHECK(check_of({"--uid", "5", "x"}) == "Specifying --uid requires --unshare-user or --userns");
  CHECK(check_of({"--uid", "5", "x"}, /*root=*/false) == "accepted");
  CHECK(check_of({"--uid", "0", "x"}) == "accepted");
  CHECK(check_of({"--hostname", "h", "x"}) == "Specifying --hostname requires --unshare-uts");
  CHECK(check_of({"--as-pid-1", "x"}) == "Specifying --as-pid-1 requires --unshare-pid");
  CHECK(check_of({"--unshare-pid", "--as-pid-1", "--lock-file", "/x", "x"}) != "accepted");
  CHECK(check_of({"--userns", "5", "--unshare-user", "x"}) ==
        "--userns not compatible --unshare-user");
  CHECK(check_of({"--disable-userns", "x"}) == "--disable-userns requires --unshare-user");
  CHECK(check_of({"--unshare-user", "--userns-block-fd", "5", "x"}) ==
        "--userns-block-fd requires --info-fd");
}

TEST_CASE("bwrap: the environment changes in the order of the options") {
  const std::vector<const char*> callers = {"A=1", "B=2"};
  const auto after = [&](const Words& words) {
    Words command = words;
    command.emplace_back("x");
    return *environment_after(parsed(command)->environment, callers);
  };
  CHECK(after({"--setenv", "C", "3", "--unsetenv", "A"}) == Words{"B=2", "C=3"});
  CHECK(after({"--setenv", "C", "3", "--clearenv"}).empty());
  CHECK(after({"--clearenv", "--setenv", "C", "3"}) == Words{"C=3"});
  CHECK(refusal_of({"--setenv", "a=b", "c"}) != "accepted");
}

TEST_CASE("bwrap: steps come in the order of the arguments, and a bind of / covers the root") {
  const Plan plan = plan_of({"--tmpfs", "/z", "--bind", "/", "//", "--tmpfs", "/a", "true"});
  std::vector<std::string> texts;
  bool covers = false;
  for (const Step& step : plan.steps) {
    if (step.because.starts_with("--")) texts.push_back(step.because);
    covers |= step.covers_root && std::holds_alternative<BindMount>(step.action);
  }
  CHECK(texts == Words{"--tmpfs /z", "--bind / //", "--tmpfs /a"});
  CHECK(covers);
  CHECK(std::holds_alternative<Exec>(plan.steps.back().action));
}

TEST_CASE("bwrap: a plain caller gets a user namespace and no capability, root keeps its own") {
  CHECK(all<MapIds>(plan_of({"true"})).size() == 1);
  REQUIRE(all<SetCapabilities>(plan_of({"true"})).size() == 1);
  CHECK(all<SetCapabilities>(plan_of({"true"}))[0]->keep == 0);
  CHECK(all<MapIds>(plan_of({"true"}, 0)).empty());
  CHECK(all<SetCapabilities>(plan_of({"true"}, 0)).empty());
  const Plan dropped = plan_of({"--cap-drop", "ALL", "--cap-add", "CAP_KILL", "true"}, 0);
  REQUIRE(all<SetCapabilities>(dropped).size() == 1);
  CHECK(all<SetCapabilities>(dropped)[0]->keep == 1U << 5);
}

TEST_CASE("bwrap: the command takes init's place where nobody has to reap") {
  CHECK(plan_of({"true"}).drop_in->direct);
  CHECK(plan_of({"--unshare-pid", "--as-pid-1", "true"}).drop_in->direct);
  CHECK_FALSE(plan_of({"--unshare-pid", "true"}).drop_in->direct);
  CHECK_FALSE(plan_of({"--sync-fd", "7", "true"}).drop_in->direct);
  CHECK(plan_of({"--unshare-pid", "true"}).drop_in->lingers);
  CHECK_FALSE(plan_of({"--unshare-pid", "--die-with-parent", "true"}).drop_in->lingers);
}

TEST_CASE("bwrap: descriptors that options name do not reach the command, all others do") {
  const auto kept = [](const Words& words) {
    return all<CloseDescriptors>(plan_of(words))[0]->keep;
  };
  CHECK(kept({"true"}) == std::vector<int>{3, 7});
  CHECK(kept({"--block-fd", "7", "true"}) == std::vector<int>{3});
  CHECK(kept({"--file", "3", "/x", "true"}) == std::vector<int>{7});
}

TEST_CASE("bwrap: filters come last, and each is loaded by prctl") {
  Host host;
  host.uid = host.gid = 1000;
  Options options = *parsed({"true"});
  options.filters = {std::string(16, '\0'), std::string(8, '\0')};
  const Plan plan = *belljar::launcher::bwrap::plan(options, host, Inherited());
  const auto installed = all<InstallFilter>(plan);
  REQUIRE(installed.size() == 2);
  CHECK(installed[0]->alone);
  CHECK(std::holds_alternative<InstallFilter>(plan.steps[plan.steps.size() - 2].action));
  options.filters = {"seven b"};
  CHECK_FALSE(read_filters(options, {}).has_value());
}

TEST_CASE("bwrap: who may not read a file may not look into the directories made for it") {
  const auto parents = [](const char* mode) {
    for (const Step& step : plan_of({"--perms", mode, "--dir", "/a/b", "true"}).steps)
      if (std::holds_alternative<MakeDirectory>(step.action)) return step.parents;
    return mode_t{0};
  };
  CHECK(parents("0755") == 0755U);
  CHECK(parents("0700") == 0700U);
  CHECK(parents("0710") == 0750U);
  CHECK(parents("0701") == 0705U);
  CHECK(parents("7777") == 0755U);
}

TEST_CASE("bwrap: the command is looked for as execvp does") {
  const Plan plan = plan_of({"prog", "x"});
  CHECK(std::get<Exec>(plan.steps.back().action).candidates ==
        Words{"/bin/prog", "prog", "/opt/prog"});
  CHECK(std::get<Exec>(plan_of({"./prog"}).steps.back().action).candidates == Words{"./prog"});
}

TEST_CASE("bwrap: an empty source is nothing, and never the root") {
  for (const char* option : {"--bind", "--bind-try", "--ro-bind-try", "--dev-bind-try"}) {
    Options options = *parsed({option, "", "/x", "true"});
    CHECK_FALSE(resolve_sources(options).has_value());
  }
  Options options = *parsed({"--bind-try", "/is/not/there", "/x", "true"});
  REQUIRE(resolve_sources(options).has_value());
  CHECK(options.files.empty());
}

TEST_CASE("bwrap: each option of the help is one that is taken") {
  const std::string help = help_text("bwrap");
  CHECK(help.starts_with("usage: bwrap [OPTIONS...]"));
  int options = 0;
  for (std::size_t at = help.find("    --"); at != std::string::npos;
       at = help.find("    --", at + 1)) {
    const std::string name = help.substr(at + 4, help.find(' ', at + 4) - at - 4);
    CHECK_MESSAGE(!refusal_of({name}).starts_with("Unknown"), name);
    ++options;
  }
  CHECK(options == 68);
}
