// The shell of a session, with real bash in real sandboxes.
#include <doctest/doctest.h>

#include "supervisor/session_impl.hpp"
#include "supervisor/shell.hpp"
#include "tests/unit/supervisor/real_service.hpp"

namespace belljar::supervisor {
namespace {

/// One session without a command of its own, and what its shell says.
class RealShell : public Real {
 public:
  RealShell() {
    SessionSpec spec;
    spec.id = "shell";
    auto made = run(supervisor->create(std::move(spec)));
    if (!made) FAIL(made.error().error.what << made.error().setup);
    session = *made;
  }
  ~RealShell() {
    (void)run(supervisor->end("shell", EndedBy::kClient));
    turn_until([this] { return session->state() == Session::State::kEnded; });
  }
  RealShell(const RealShell&) = delete;
  RealShell& operator=(const RealShell&) = delete;

  ShellResult command(ShellCommand wanted) {
    wanted.process.environment["PATH"] = "/usr/bin:/bin";
    auto result = run(session->run_in_shell(std::move(wanted)));
    if (!result) FAIL(result.error().error.what << result.error().setup);
    return *std::move(result);
  }
  ShellResult command(const std::string& text) {
    ShellCommand wanted;
    wanted.text = text;
    return command(std::move(wanted));
  }
  static std::string out(const ShellResult& result) {
    return result.process->out()->tail(1 << 20).substr(0, result.process->end_offsets().out);
  }
  static std::string err(const ShellResult& result) {
    return result.process->err()->tail(1 << 20).substr(0, result.process->end_offsets().err);
  }
  std::string says(const std::string& text) { return out(command(text)); }

  std::shared_ptr<Session> session;
};

TEST_CASE("directory and exported variables carry over, and nothing else") {
  RealShell shell;
  const std::string root = shell.session->workspace();
  CHECK(shell.says("pwd") == root + "\n");
  shell.command(
      "mkdir -p a/b; cd a/b; export GREETING='hi \"there\" $x `y` \\ '$'\\n\\t\\001end'; mine=1; "
      "f() { :; }");
  CHECK(shell.command("true").directory == root + "/a/b");
  CHECK(shell.says("pwd; printf %s \"$GREETING\"") ==
        root + "/a/b\nhi \"there\" $x `y` \\ \n\t\001end");
  CHECK(shell.says("echo ${mine-none}; type f 2>/dev/null || echo none") == "none\nnone\n");
  CHECK(shell.says("cd - >/dev/null; pwd") == root + "\n");
  CHECK(shell.says("pwd") == root + "\n");
}

TEST_CASE("a variable that is unset stays so, also one that the policy has set") {
  RealShell shell;
  CHECK(shell.says("echo ${HOME:+set}; export A=1 B=2") == "set\n");
  shell.command("unset HOME A");
  CHECK(shell.says("echo ${HOME-none} ${A-none} $B; export -p | grep -c -e HOME -e ' A='") ==
        "none none 2\n0\n");
}

TEST_CASE("a variable that bash cannot export is refused, not left out") {
  RealShell shell;
  ShellCommand wanted;
  wanted.text = "true";
  wanted.process.environment["my-variable"] = "1";
  const auto refused = shell.run(shell.session->run_in_shell(std::move(wanted)));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Code::kInvalid);
  CHECK(refused.error().error.where == "/env");
  ShellCommand good;
  good.text = "echo $A_1";
  good.process.environment["A_1"] = "it's \"here\"";
  CHECK(RealShell::out(shell.command(std::move(good))) == "it's \"here\"\n");
}

TEST_CASE("exit keeps the state, and its code is the command's") {
  RealShell shell;
  const ShellResult left = shell.command("mkdir d; cd d; export X=5; exit 7");
  CHECK(left.process->end_record()->exit_code == 7);
  CHECK(left.notes.empty());
  CHECK(shell.says("echo $X ${PWD##*/}") == "5 d\n");
  CHECK(shell.command("set -eu; false; echo not here").process->end_record()->exit_code == 1);
  CHECK(shell.command("nonsense_that_is_not_there").process->end_record()->exit_code == 127);
}

TEST_CASE("a command that replaces bash, its trap, or is killed leaves the state as it was") {
  RealShell shell;
  shell.command("mkdir d; export X=before");
  for (const char* text :
       {"export X=after; cd d; exec true", "export X=after; cd d; trap 'echo mine' EXIT",
        "export X=after; cd d; kill -9 $$", "export X=after; cd d; exec 250>&-"}) {
    CAPTURE(text);
    shell.command(text);
    CHECK(shell.says("echo $X; pwd") == "before\n" + shell.session->workspace() + "\n");
  }
  CHECK(shell.command("kill -9 $$").process->end_record()->signal == 9);
}

TEST_CASE("names that a command has given to builtins do not mislead the shell") {
  RealShell shell;
  shell.command(
      "export X=1; printf() { echo no; }; pwd() { echo /; }; export() { :; }; trap() { :; }; "
      "eval() { :; }; declare -x Y=2; set -efux; IFS=xyz; shopt -s nocasematch; mkdir d; cd d");
  CHECK(shell.says("echo $X $Y ${PWD##*/}") == "1 2 d\n");
  CHECK(RealShell::err(shell.command("set -x; true")) == "++ true\n");
}

TEST_CASE("errors name the command's own lines") {
  RealShell shell;
  CHECK(RealShell::err(shell.command("true\nnot_there_1\n")) ==
        "bash: line 2: not_there_1: command not found\n");
  shell.command("export X=$'a\\nb'");
  CHECK(RealShell::err(shell.command("not_there_2")) ==
        "bash: line 1: not_there_2: command not found\n");
  const ShellResult broken = shell.command("export X=lost; if");
  CHECK(broken.process->end_record()->exit_code.value_or(0) != 0);
  CHECK(RealShell::err(broken).find("syntax error") != std::string::npos);
}

TEST_CASE("a directory that has gone or lies outside gives the workspace, and a note") {
  RealShell shell;
  const std::string root = shell.session->workspace();
  const ShellResult ended = shell.command("mkdir d; cd d; rmdir ../d");
  REQUIRE(ended.notes.size() == 1);
  CHECK(ended.notes[0] ==
        "the command ended in a directory that is gone; the next one begins in the workspace");
  CHECK(shell.command("mkdir e; cd e").directory == root + "/e");
  CHECK(shell.run(shell.session->remove("e", Session::Recursive::kYes, "")));
  const ShellResult after = shell.command("pwd; echo $PWD");
  CHECK(RealShell::out(after) == root + "\n" + root + "\n");
  REQUIRE(after.notes.size() == 1);
  CHECK(after.notes[0] == "the directory was gone; the command ran in the workspace");
  const ShellResult outside = shell.command("cd /usr");
  REQUIRE(outside.notes.size() == 1);
  CHECK(outside.notes[0].find("/usr, outside of the workspace") != std::string::npos);
  CHECK(outside.directory == root);
  CHECK(shell.command("pwd").notes.empty());
}

TEST_CASE("a command's own directory does not move the shell") {
  RealShell shell;
  const std::string root = shell.session->workspace();
  shell.command("mkdir a b; cd a");
  ShellCommand there;
  there.text = "pwd; echo $PWD; export X=kept";
  there.process.directory = root + "/b";
  const ShellResult result = shell.command(std::move(there));
  CHECK(RealShell::out(result) == root + "/b\n" + root + "/b\n");
  CHECK(result.directory == root + "/a");
  CHECK(shell.says("pwd; echo $X") == root + "/a\nkept\n");
}

TEST_CASE("a state goes on in another session, and one that is none is refused") {
  RealShell shell;
  ShellCommand first;
  first.text = "mkdir -p d; cd d; export A='1 2' P=$HOME/bin; unset LANG";
  const ShellResult left = shell.command(std::move(first));
  shell.command("cd ..; export A=3");
  ShellCommand again;
  again.text = "pwd; echo $A $P ${LANG-none}";
  again.state = left.state;
  const std::string root = shell.session->workspace();
  CHECK(RealShell::out(shell.command(std::move(again))) ==
        root + "/d\n1 2 " + root + "/bin none\n");
  // As if it were of a session that had another directory.
  ShellCommand moved;
  moved.text = "pwd; echo $P";
  moved.state = left.state;
  for (std::size_t at = 0; (at = moved.state->find("/shell", at)) != std::string::npos;)
    moved.state->replace(at, 6, "/earlier-one");
  CHECK(RealShell::out(shell.command(std::move(moved))) == root + "/d\n" + root + "/bin\n");
  // What a short name of another's directory would become, again and again.
  const std::string neighbour = root.substr(0, root.rfind('/')) + "/x";
  std::string longer = neighbour + std::string(3, '\0');
  while (longer.size() < 520'000) longer += neighbour;
  for (const std::string& wrong :
       {longer, std::string("x"), std::string("\0\0", 2), std::string("\0x\0\0", 4),
        std::string(5, '\0'), std::string(3'000'000, '\0'),
        std::string(3, '\0') + std::string(600'000, 'x')}) {
    ShellCommand bad;
    bad.text = "true";
    bad.state = wrong;
    const auto refused = shell.run(shell.session->run_in_shell(std::move(bad)));
    REQUIRE_FALSE(refused);
    CHECK(refused.error().error.where == "/state");
  }
}

TEST_CASE("more variables than are kept leave those before, and a note says so") {
  RealShell shell;
  shell.command("export X=before");
  const ShellResult many =
      shell.command("export X=after; for i in $(seq 1100); do export V$i=1; done");
  REQUIRE(many.notes.size() == 1);
  CHECK(many.notes[0].starts_with("the exported variables were not kept: 11"));
  CHECK(shell.says("echo $X ${V1-none}") == "before none\n");
  CHECK(shell.command("export BIG=$(head -c 300000 /dev/zero | tr '\\0' a)").notes.size() == 1);
  CHECK(shell.says("echo $X ${BIG-none}") == "before none\n");
  shell.command(
      "export BIG=$(head -c 120000 /dev/zero | tr '\\0' a); for i in $(seq 900); do export V$i=1; "
      "done");
  CHECK(shell.says("echo ${#BIG} $V900") == "120000 1\n");
}

/// Puts `report`, an expression of Python's, in the place of bash's own.
std::string forging(const std::string& report) {
  return "python3 -c 'import os; at = os.fstat(250).st_size - (1 << 20); data = " + report +
         "; os.pwrite(250, data, at); os.lseek(250, at + len(data), 0)'";
}

TEST_CASE("what a command tells in place of bash is kept within the same bounds") {
  RealShell shell;
  const auto session = std::static_pointer_cast<SessionImpl>(shell.session);
  const std::size_t before = session->memory();
  const ShellResult names = shell.command(forging(R"(b"N" + b"a\n" * 500000 + b"\0")"));
  REQUIRE(names.notes.size() == 1);
  CHECK(names.notes[0].starts_with("the names of the first exported variables were not kept"));
  const ShellResult longer = shell.command(forging(R"(b"N" + b"a" * 900000 + b"\n\0")"));
  CHECK(longer.notes.size() == 1);
  const ShellResult far = shell.command(
      forging(R"(b"D" + os.getcwd().encode() + b"/x" * 400000 + b"\n\0E\0.\0"; print(len(data)))"));
  REQUIRE(far.notes.size() == 1);
  CHECK(far.notes[0].starts_with("the directory's path is longer"));
  CHECK(session->memory() < before + (std::size_t{64} << 10));
  shell.command("export X=kept");
  CHECK(shell.says("echo $X") == "kept\n");
}

TEST_CASE("what a shell keeps counts as its session's, and goes with it") {
  RealShell shell;
  const auto session = std::static_pointer_cast<SessionImpl>(shell.session);
  const std::size_t before = session->memory();
  shell.command("export BIG=$(head -c 100000 /dev/zero | tr '\\0' a)");
  CHECK(session->memory() > before + 100000);
  session->request_end(EndedBy::kClient);
  CHECK(shell.run(session->wait_ended(Milliseconds(20000))));
  CHECK(session->memory() < before + 50000);
}

TEST_CASE("a server that one command starts answers the next, and its output is kept") {
  RealShell shell;
  const ShellResult server =
      shell.command("(while :; do echo tick; sleep 0.02; done) & echo $! > pid; echo up");
  CHECK(RealShell::out(server).find("up\n") != std::string::npos);
  CHECK(server.process->state() == Process::State::kEnded);
  CHECK(shell.says("kill -0 $(cat pid) && echo alive") == "alive\n");
  const std::uint64_t then = server.process->out()->size();
  CHECK(shell.turn_until([&] { return server.process->out()->size() > then + 20; }));
  CHECK(shell.command("true").process->out()->size() == 0);
  // What is left of an ended command can be ended too.
  (void)shell.run(server.process->end());
  CHECK(shell.turn_until([&] { return server.process->out()->finished(); }));
  CHECK(shell.says("kill -0 $(cat pid) 2>/dev/null || echo gone") == "gone\n");
}

TEST_CASE("time out ends the command's tree, setsid or not, and no server of an earlier one") {
  RealShell shell;
  shell.command("(exec -a server sleep 1000) & echo $! > server; export X=kept");
  ShellCommand slow;
  slow.text =
      "export X=lost; echo partial; setsid sh -c 'echo $$ > escaped; sleep 1000' & sleep 1000";
  slow.process.wall_time = Milliseconds(700);
  const ShellResult result = shell.command(std::move(slow));
  CHECK(result.process->end_record()->cause == "wall_time");
  CHECK(RealShell::out(result) == "partial\n");
  CHECK(shell.says("kill -0 $(cat escaped) 2>/dev/null || echo gone; kill -0 $(cat server) && echo "
                   "alive; echo $X") == "gone\nalive\nkept\n");
}

TEST_CASE("a flood ends its command alone") {
  RealShell shell;
  ShellCommand loud;
  loud.text = "yes";
  loud.process.output = 100000;
  const ShellResult result = shell.command(std::move(loud));
  CHECK(result.process->end_record()->cause == "output");
  CHECK(shell.says("echo on") == "on\n");
}

TEST_CASE("commands wait for each other, and no more than a few do") {
  RealShell shell;
  std::vector<std::shared_ptr<std::optional<Outcome<ShellResult>>>> results;
  for (std::size_t i = 0; i < Shell::kMostWaiting + 2; ++i) {
    results.push_back(std::make_shared<std::optional<Outcome<ShellResult>>>());
    ShellCommand next;
    next.text = "echo $((++N)); export N; sleep 0.05";
    asio::co_spawn(
        shell.loop, shell.session->run_in_shell(std::move(next)),
        [result = results.back()](const std::exception_ptr&, Outcome<ShellResult> value) {
          *result = std::move(value);
        });
  }
  CHECK(shell.turn_until([&] {
    return std::ranges::all_of(results, [](const auto& result) { return result->has_value(); });
  }));
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Outcome<ShellResult>& result = **results[i];
    if (i <= Shell::kMostWaiting) {
      REQUIRE(result);
      CHECK(RealShell::out(*result) == std::to_string(i + 1) + "\n");
    } else {
      CHECK(result.error().code == Code::kShellBusy);
    }
  }
}

TEST_CASE("a command in the background runs beside the others and can be read and ended") {
  RealShell shell;
  shell.command("mkdir d; cd d; export X=1");
  ShellCommand background;
  background.text = "echo $X ${PWD##*/}; export X=2; cd ..; sleep 1000";
  background.background = true;
  const ShellResult started = shell.command(std::move(background));
  CHECK(started.process->state() == Process::State::kRunning);
  CHECK(shell.prints(started.process, "1 d\n"));
  CHECK(shell.says("echo $X ${PWD##*/}") == "1 d\n");
  CHECK(shell.run(started.process->end()).value());
  CHECK(started.process->end_record()->cause != "exited");
  CHECK(
      started.process->argv() ==
      std::vector<std::string>{"bash", "-c", "echo $X ${PWD##*/}; export X=2; cd ..; sleep 1000"});
}

TEST_CASE("what is no report is none") {
  using namespace std::string_literals;
  const auto whole =
      parse_shell_report("NHOME\nA B\nPATH\n\0L\0D/w\n\0Edeclare -x A=\"1\"\n\0.\0\0\0"s);
  CHECK(whole.first_names == std::vector<std::string>{"HOME", "PATH"});
  CHECK(whole.directory_lost);
  CHECK(whole.directory == "/w");
  CHECK(whole.exports == "declare -x A=\"1\"\n");
  CHECK_FALSE(parse_shell_report("D/w\n\0Edeclare -x A=\"1\"\n\0"s).exports);
  CHECK_FALSE(parse_shell_report("D/w\n\0Edeclare -x A"s).directory);
  CHECK_FALSE(parse_shell_report("Drelative\n\0E\0.\0"s).directory);
  CHECK_FALSE(parse_shell_report("garbage"s).exports);
  CHECK_FALSE(parse_shell_report(""s).directory);
  CHECK(shell_quoted("it's $x") == "'it'\\''s $x'");
}

}  // namespace
}  // namespace belljar::supervisor
