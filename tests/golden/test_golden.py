"""Texts that must be exactly so: what a broken policy or a misused command line gets (errors/), what
explain prints (explain/), and the help (help/).

errors/NAME/ holds
  cmd           the command line; `run --policy policy.json -- true` when it is missing. Lines before
                it: `setup: SHELL COMMANDS` in the directory, `caller: root` for one that only root can make,
                `groups: 4,27` for a caller who is in these
  policy.json   copied to the directory that the command is run in
  expected.txt  the exit code, standard output and standard error

BELLJAR_UPDATE_GOLDEN=1 tests/run.py tests/golden writes down what is printed now, to be read before
it is committed."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

GOLDEN = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(GOLDEN.parent))
import harness
from harness import ROOT, SandboxTest

UPDATE = os.environ.get("BELLJAR_UPDATE_GOLDEN") == "1"


class Case:
    """One directory of errors/."""

    def __init__(self, directory):
        self.directory, self.caller, self.groups, self.setup = directory, "user", (), []
        self.command = "run --policy policy.json -- true"
        cmd = directory / "cmd"
        for line in cmd.read_text().splitlines() if cmd.exists() else []:
            if line.startswith("setup: "):
                self.setup.append(line.removeprefix("setup: "))
            elif line.startswith("groups: "):
                self.groups = line.removeprefix("groups: ").split(",")
            elif line.startswith("caller: "):
                self.caller = line.removeprefix("caller: ")
            elif line:
                self.command = line


class GoldenTest(SandboxTest):
    def compare(self, text, golden):
        """That `text`, with names for what differs from run to run, is the content of a file."""
        text = self.normalise(text)
        if UPDATE:
            golden.write_text(text)
        self.assertMultiLineEqual(golden.read_text() if golden.exists() else "", text, str(golden.relative_to(ROOT)))

    def normalise(self, text):
        text = text.replace(str(self.work), "$WORK").replace(str(self.dir), "$DIR")
        text = re.sub(rf"\b{self.uid}\b", "$UID", text)
        text = re.sub(r"step \d+ of \d+:", "step N of M:", text)
        return re.sub(r"\(\d+ instructions\)", "(N instructions)", text)

    def persons_environment(self):
        home = self.make_directory("home", owner=self.uid)
        return harness.environment(HOME=str(home), TERM="dumb")


def check_case(case):
    def check(self):
        for name in ("policy.json", "policy.jsonc"):
            if (case.directory / name).exists():
                shutil.copy(case.directory / name, self.work)
                harness.give(self.work / name, self.uid)
        environment = self.persons_environment()
        for commands in case.setup:
            subprocess.run(["sh", "-ec", commands], cwd=self.work, check=True, env={"PATH": os.environ["PATH"]})
        words = shlex.split(case.command.replace("$DIR", str(self.dir)))
        if not harness.AS_ROOT and words[0] == "run":
            # A person who runs the tests has groups, which cannot be dropped.
            words[1:1] = ["--set", "identity.enforce=prefer"]
        run = self.belljar(*words, env=environment, groups=case.groups)
        text = f"$ belljar {case.command}\nexit {run.code}\n--- stdout\n{run.out}--- stderr\n{run.err}"
        self.compare(text, case.directory / "expected.txt")
    check.callers, check.back_ends = (case.caller,), ("modern",)
    return check


def errors():
    cases = [Case(path) for path in sorted((GOLDEN / "errors").iterdir()) if path.is_dir()]
    if not harness.AS_ROOT:  # Only root can choose the groups of a caller.
        cases = [case for case in cases if not case.groups]
    return {f"test_{case.directory.name}": check_case(case) for case in cases}


Errors = type("Errors", (GoldenTest,), {"__module__": __name__, **errors()})


class Explain(GoldenTest):
    """The plan of each preset and of the bench's policy."""

    @harness.callers("user", "root")
    @harness.back_ends("modern")
    def test_the_plan_of_each_preset_is_the_written_one(self):
        for preset in ("dev@1", "agent@1", "strict@1"):
            with self.subTest(preset=preset):
                self.explain(f"builtin:{preset}", f"{preset}.{self.caller}.txt")

    if harness.AS_ROOT:  # The policy does not say what becomes of groups, so for a person in some it is refused.
        @harness.callers("user")
        @harness.back_ends("modern")
        def test_the_plan_of_the_benchs_policy_is_the_written_one(self):
            shutil.copy(ROOT / "tests" / "bench" / "launch.json", self.work)
            self.explain("launch.json", "bench.txt")

    def explain(self, policy, name):
        words = ["--set", f"identity.uid={self.uid}"] if self.privileged else []
        if not harness.AS_ROOT:  # A person who runs the tests has groups, which cannot be dropped.
            words = ["--set", "identity.enforce=prefer"]
        run = self.belljar("explain", "--policy", policy, *words, "--", "python3", "agent.py",
                           env=self.persons_environment())
        self.assertEqual((run.code, run.err), (0, ""), str(run))
        text = re.sub(r"^degraded: identity: the caller's supplementary groups .*\n", "",
                      without_what_the_host_has(run.out), flags=re.M)
        # The options above are part of the digest.
        self.compare(re.sub(r"sha256:[0-9a-f]{64}", "sha256:...", text), GOLDEN / "explain" / name)


def without_what_the_host_has(text):
    """Leaves out the steps for top-level directories of this host, and with them the numbers of steps."""
    text = re.sub(r"^ *\d+  \w+ +(bind /[^/\n]+, read-only|link /\w+ to .*)\n +filesystem, \S+ filesystem\.root\n",
                  "", text, flags=re.M)
    return re.sub(r"^ *\d+  (?=belljar|init|payload)", "  N  ", text, flags=re.M)


class Help(GoldenTest):
    @harness.once
    def test_the_help_is_the_written_one(self):
        for name, words in (("belljar", []), ("run", ["run"]), ("explain", ["explain"]), ("policy", ["policy"]),
                            ("selftest", ["selftest"]), ("doctor", ["doctor"]), ("test", ["test"])):
            with self.subTest(name=name):
                run = self.belljar(*words, "--help")
                self.assertEqual((run.code, run.err), (0, ""), str(run))
                self.compare(run.out, GOLDEN / "help" / f"{name}.txt")
