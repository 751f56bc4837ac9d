"""Shell completions: no option or command of the help is missing in any of them, and bash's answers."""

import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import BELLJAR, BUILD, ROOT, SandboxTest, main, once

BELLJARCTL, BELLJARD = BUILD / "api" / "belljarctl", BUILD / "api" / "belljard"


def files_of(program):
    return {shell: ROOT / "completions" / name
            for shell, name in (("bash", f"{program}.bash"), ("zsh", f"_{program}"), ("fish", f"{program}.fish"))}


FILES = files_of("belljar")
DRIVER = """
    source "$1"
    COMP_LINE=$2 COMP_POINT=${#2}
    _${2%% *} ${2%% *} "${2##* }" "$3"
    [[ ${#COMPREPLY[@]} -eq 0 ]] || printf '%s\\n' "${COMPREPLY[@]}"
"""


def help_of(*command, program=BELLJAR):
    return subprocess.run([program, *command, "--help"], capture_output=True, text=True, check=True).stdout


def options_of(text):
    """["-p", "--policy", ...] of a help."""
    lines = re.findall(r"^  (-\S+)", text, re.MULTILINE)
    return [option for line in lines for option in line.split(",")]


def commands_of(text):
    listed = text.partition("Subcommands:\n")[2].partition("\n\n")[0]
    return re.findall(r"^  (\S+)", listed, re.MULTILINE)


def is_named(option, shell, text):
    """Fish names options without their dashes."""
    name = re.escape(option.lstrip("-"))
    word = rf"-{'l' if option.startswith('--') else 's'} {name}" if shell == "fish" else re.escape(option)
    return re.search(rf"(?<![\w-]){word}(?![\w-])", text) is not None


def complete(line, cwd, file=FILES["bash"], path=None):
    environment = {**os.environ, **({"PATH": f"{path}:{os.environ['PATH']}"} if path else {})}
    words = line.split(" ")
    done = subprocess.run(["bash", "--norc", "-c", DRIVER, "bash", file, line, words[-2] if len(words) > 1 else ""],
                          cwd=cwd, text=True, capture_output=True, env=environment)
    if done.stderr:
        raise AssertionError(done.stderr)
    return sorted(done.stdout.split("\n")[:-1])


class Drift(SandboxTest):

    @once
    def test_each_option_and_command_of_the_help_is_in_each_completion(self):
        commands = commands_of(help_of())
        self.assertLessEqual({"run", "explain"}, set(commands))
        wanted = {option for command in ([], *([name] for name in commands)) for option in options_of(help_of(*command))}
        self.assertLessEqual({"-p", "--policy", "--status-fd", "--version"}, wanted)
        verbs = commands_of(help_of("policy"))
        self.assertLessEqual({"init", "check"}, set(verbs))
        wanted |= {option for verb in verbs for option in options_of(help_of("policy", verb))}
        commands = [*commands, *verbs]
        for shell, file in FILES.items():
            text = file.read_text()
            missing = [word for word in sorted(wanted) if not is_named(word, shell, text)]
            missing += [word for word in commands if not re.search(rf"\b{word}\b", text)]
            self.assertEqual(missing, [], file.name)

    @once
    def test_an_option_that_a_completion_lacks_is_noticed(self):
        for shell, file in FILES.items():
            self.assertFalse(is_named("--no-such", shell, file.read_text()))
            self.assertFalse(is_named("--work", shell, file.read_text()), "the beginning of another one")

    @once
    def test_bash_offers_for_each_command_just_its_own_options(self):
        for command in ("run", "explain", "selftest", "doctor", "test", "convert"):
            self.assertEqual(complete(f"belljar {command} -", self.work),
                             sorted([*options_of(help_of(command)), "--"]))


class Bash(SandboxTest):

    def answers(self, line, *expected):
        self.assertEqual(complete(line, self.work), sorted(expected), line)

    @once
    def test_commands_and_words_are_completed(self):
        self.answers("belljar r", "run")
        self.answers("belljar ", "run", "explain", "policy", "selftest", "doctor", "test", "convert", "bwrap", "--selftest",
                     "--help", "--version")
        self.answers("belljar policy i", "init")
        self.answers("belljar selftest --uid-b", "--uid-base")
        self.answers("belljar doctor --sandbox ", "auto", "off")
        self.answers("belljar run --time", "--timeout")
        self.answers("belljar run --network ", "none", "private", "shared")
        self.answers("belljar explain --network=s", "shared")
        self.answers("belljar run --record x --status-fd ")

    @once
    def test_presets_and_files_are_policies(self):
        self.make_file("work/mine.json")
        self.make_file("work/other.txt")
        self.answers("belljar run --policy m", "mine.json")
        self.answers("belljar run -p b", *(f"builtin:{name}@1" for name in
                       ("dev", "agent", "strict", "shell", "validator", "install", "bwrap")))
        self.make_file("work/commented.jsonc")
        self.answers("belljar policy check c", "commented.jsonc")
        # Readline has broken the word at the colon and keeps what stands before it.
        self.answers("belljar run --policy builtin:a", "agent@1")
        self.answers("belljar run --policy=builtin:st", "strict@1")

    @once
    def test_behind_two_dashes_programs_and_files_are_completed(self):
        self.make_file("work/a file")
        self.assertIn("python3", complete("belljar run -p builtin:dev@1 -- pytho", self.work))
        self.answers("belljar run -- cat a", "a file")

    @once
    def test_the_function_is_bound_to_the_command(self):
        done = subprocess.run(["bash", "--norc", "-c", f"source {FILES['bash']}; complete -p belljar"], text=True,
                              capture_output=True)
        self.assertIn("-F _belljar belljar", done.stdout)


class OfTheDaemon(SandboxTest):
    """belljarctl, and belljard beside it."""
    FILES = files_of("belljarctl")

    def answers(self, line, *expected, path=None):
        self.assertEqual(complete(line, self.work, self.FILES["bash"], path), sorted(expected), line)

    @once
    def test_each_option_and_command_of_belljarctls_help_is_in_each_completion(self):
        commands = commands_of(help_of(program=BELLJARCTL))
        self.assertLessEqual({"run", "exec", "top"}, set(commands))
        wanted = {option for command in ([], *([name] for name in commands))
                  for option in options_of(help_of(*command, program=BELLJARCTL))}
        self.assertLessEqual({"--socket", "-t", "--takeover", "--ready-port"}, wanted)
        for shell, file in self.FILES.items():
            text = file.read_text()
            missing = [word for word in sorted(wanted) if not is_named(word, shell, text)]
            missing += [word for word in commands if not re.search(rf"\b{word}\b", text)]
            self.assertEqual(missing, [], file.name)
            self.assertFalse(is_named("--no-such", shell, text))

    @once
    def test_bash_offers_for_each_command_of_belljarctl_just_its_own_options(self):
        for command in commands_of(help_of(program=BELLJARCTL)):
            own = options_of(help_of(command, program=BELLJARCTL))
            self.assertEqual(complete(f"belljarctl {command} -", self.work, self.FILES["bash"]),
                             sorted([*own, "--", "--socket", "--url", "--token-file"]), command)

    @once
    def test_sessions_processes_and_policies_are_those_of_the_daemon_that_the_line_names(self):
        self.make_directory("bin")
        self.make_file("bin/belljarctl", """#!/bin/sh
            case "$*" in
              "--socket x ps -q" | "--socket x ps -a -q") printf "s-1\\ns-2\\n" ;;
              "--socket x ps -a -q s-2") printf "0\\n7\\n" ;;
              "--socket x policies") printf "POLICY NETWORK\\nbuiltin:agent@1 shared\\nmine none\\n" ;;
              *) exit 1 ;;
            esac
            """, mode=0o755)
        path = os.path.join(self.dir, "bin")
        self.answers("belljarctl --socket x exec ", "s-1", "s-2", path=path)
        self.answers("belljarctl exec ", path=path)
        self.answers("belljarctl --socket x logs -f s-2 ", "0", "7", path=path)
        self.answers("belljarctl --socket x run --policy m", "mine", path=path)
        self.answers("belljarctl --socket x run --policy builtin:a", "agent@1", path=path)
        self.make_file("work/local")
        self.answers("belljarctl --socket x cp l", "local", path=path)
        self.answers("belljarctl --socket x cp local s-", "s-1:", "s-2:", path=path)

    @once
    def test_words_behind_options_and_dashes_are_completed(self):
        self.answers("belljarctl kill --target=g", "group")
        self.answers("belljarctl logs --stream std", "stdout", "stderr")
        self.answers("belljarctl po", "policies")
        self.assertIn("python3", complete("belljarctl exec s -- pytho", self.work, self.FILES["bash"]))

    @once
    def test_belljard_is_asked_for_its_settings(self):
        path = str(BELLJARD.parent)
        everything = complete("belljard --", self.work, self.FILES["bash"], path)
        self.assertEqual(everything, sorted(option for option in options_of(help_of(program=BELLJARD))
                                            if option.startswith("--")))
        self.answers("belljard --log ", "text", "json", path=path)


if __name__ == "__main__":
    main()
