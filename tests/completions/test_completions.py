"""Shell completions: no option or command of the help is missing in any of them, and bash's answers."""

import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import BELLJAR, ROOT, SandboxTest, main, once

FILES = {shell: ROOT / "completions" / name
         for shell, name in (("bash", "belljar.bash"), ("zsh", "_belljar"), ("fish", "belljar.fish"))}
DRIVER = """
    source "$1"
    COMP_LINE=$2 COMP_POINT=${#2}
    _belljar
    [[ ${#COMPREPLY[@]} -eq 0 ]] || printf '%s\\n' "${COMPREPLY[@]}"
"""


def help_of(*command):
    return subprocess.run([BELLJAR, *command, "--help"], capture_output=True, text=True, check=True).stdout


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


def complete(line, cwd):
    done = subprocess.run(["bash", "--norc", "-c", DRIVER, "bash", FILES["bash"], line], cwd=cwd, text=True,
                          capture_output=True)
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
        for command in ("run", "explain", "selftest", "doctor", "test"):
            self.assertEqual(complete(f"belljar {command} -", self.work),
                             sorted([*options_of(help_of(command)), "--"]))


class Bash(SandboxTest):

    def answers(self, line, *expected):
        self.assertEqual(complete(line, self.work), sorted(expected), line)

    @once
    def test_commands_and_words_are_completed(self):
        self.answers("belljar r", "run")
        self.answers("belljar ", "run", "explain", "policy", "selftest", "doctor", "test", "--selftest", "--help",
                     "--version")
        self.answers("belljar policy i", "init")
        self.answers("belljar selftest --uid-b", "--uid-base")
        self.answers("belljar doctor --sandbox ", "auto", "off")
        self.answers("belljar run --time", "--timeout")
        self.answers("belljar run --network ", "none", "shared")
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


if __name__ == "__main__":
    main()
