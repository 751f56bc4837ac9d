"""What the cases of this directory stand on.

A case is one file, named after its id, with one class of that name. The class says in a sentence what is
attacked, and its `program` is the attack: Python that runs inside and says {door: "open" or why not}.
Every case becomes two tests for each caller and back end: under the case's policy no door is open, and
with the control off, which the case names, the same program finds `control_opens` open.

The program is also what report.py runs under bubblewrap, the way existing users run it.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "sandbox"))
from harness import (AS_ROOT, BACK_ENDS, BELLJAR, CALLERS, PYTHON_INSIDE, SESSION_GID, SESSION_UID, TOOLS_STAGED,
                     SandboxTest, as_root, environment, main, merge, python_command, wait_for_no_descendants)

NO_FILTER = {"syscalls": {"base": "none"}}
EVERYTHING = os.environ.get("BELLJAR_ALL") == "1"


def rounds(short, everything):
    """How often a race is run."""
    return everything if EVERYTHING else short


def opened(doors):
    return {name for name, answer in doors.items() if answer == "open"}


def bind(source, **more):
    return {"type": "bind", "source": str(source), **more}


class Case(SandboxTest):
    """One case; see the top of this file."""

    policy_changes = {}           # What the case needs of a policy, over the base.
    control = {}                  # What else is changed for the control.
    verdicts = None               # {door: errno}, where exactly this refusal matters.
    control_opens = None          # Doors that the control must open; None: at least one.
    callers_of_attack = callers_of_control = CALLERS
    back_ends_of_attack = back_ends_of_control = BACK_ENDS
    root_prepares = False         # The host is prepared as root: no such tests when the suite is a plain user's.
    bubblewrap = True             # Whether the program makes sense under bubblewrap.
    inside_bubblewrap = False     # Whether it is there now.
    without = ()                  # A belljar of which a part is left out, to execute belljar (test_break_a_layer.py).

    def __init_subclass__(cls, abstract=False, **kwargs):
        if abstract:
            return
        for name in ("test_no_door_is_open", "test_with_the_control_off_the_attack_succeeds"):
            if name not in vars(cls):
                setattr(cls, name, _test(getattr(cls, "check" + name[4:])))
            if cls.root_prepares:
                as_root(vars(cls)[name])
        cls.test_no_door_is_open.callers = cls.callers_of_attack
        cls.test_no_door_is_open.back_ends = cls.back_ends_of_attack
        cls.test_with_the_control_off_the_attack_succeeds.callers = cls.callers_of_control
        cls.test_with_the_control_off_the_attack_succeeds.back_ends = cls.back_ends_of_control
        super().__init_subclass__(**kwargs)

    def setUp(self):
        super().setUp()
        self.prepare()

    def start(self, *arguments, wrap=(), **options):
        return super().start(*arguments, wrap=[*wrap, *self.without], **options)

    # --- what a case overrides -------------------------------------------------------------------

    def prepare(self):
        """What the host holds before the attack."""

    def program(self):
        """The attack, as Python code."""
        raise NotImplementedError

    def variants(self):
        """The policies under which no door may be open."""
        return [self.policy_changes]

    def attack(self, changes, **more):
        """{door: answer} of the attack under a policy."""
        run = self.inside(self.program(), policy=changes, **more)
        self.check_exited(run)
        return run.json()

    def attack_with_control_off(self):
        return self.attack(merge(self.policy_changes, self.control))

    # --- the two tests ---------------------------------------------------------------------------

    def check_no_door_is_open(self):
        for changes in self.variants():
            doors = self.attack(changes)
            self.assertTrue(doors, "nothing was tried")
            self.assertEqual(opened(doors), set(), doors)
            if self.verdicts is not None:
                self.assertEqual(doors, self.verdicts)

    def check_with_the_control_off_the_attack_succeeds(self):
        doors = self.attack_with_control_off()
        if self.control_opens is None:
            self.assertNotEqual(opened(doors), set(), doors)
        else:
            self.assertLessEqual(set(self.control_opens), opened(doors), doors)

    # --- the same attack elsewhere ---------------------------------------------------------------

    def on_this_host(self, code, uid=None, before=()):
        """The doors that a program finds that no sandbox holds, as root or as `uid`."""
        words = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if AS_ROOT and uid else []
        done = subprocess.run([*before, *words, *host_command(code)], cwd=self.work, env=environment(), timeout=60,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done)
        return json.loads(done.stdout)

    def bubblewrap_options(self):
        return []

    def under_bubblewrap(self, way, before=(), **more):
        """The doors that the program finds under bubblewrap: way "P", "U" or "R" (report.py). None where
        bubblewrap does not start it."""
        self.inside_bubblewrap = True
        command = bubblewrap_command(way, self.work, self.bubblewrap_options(), host_command(self.program()))
        options = {"env": environment(), "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, **more}
        try:
            said = subprocess.run([*before, *command], cwd=self.work, timeout=10, stderr=subprocess.DEVNULL,
                                  **options).stdout
        except subprocess.TimeoutExpired as late:  # Its init may be what the attack has stopped.
            said = late.stdout
        with contextlib.suppress(ValueError):
            return json.loads(said or b"")
        return None


def _test(function):
    return lambda self: function(self)


def host_command(code):
    """A program of `python_command` with the tools at their place on the host."""
    return [word.replace("'/tools'", repr(str(TOOLS_STAGED))) for word in python_command(code)]


def bubblewrap_command(way, work, options, command):
    """P: root, the uid dropped inside. U: the uid dropped before. R: root as it is."""
    drop = ["setpriv", "--reuid", str(SESSION_UID), "--regid", str(SESSION_GID), "--clear-groups"]
    files = ["--ro-bind", "/", "/", "--tmpfs", "/tmp", "--proc", "/proc", "--dev", "/dev",
             "--bind", str(work), str(work), "--chdir", str(work), *map(str, options)]
    some = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup"]
    if way == "P":
        return ["bwrap", *some, *files, "--", *drop, *command]
    return [*(drop if way == "U" else []), "bwrap", "--unshare-all", *files, "--", *command]


class HostileLaunch(Case, abstract=True):
    """A case whose attack is on the launch itself: `attempts` answers {door: answer} with launches of its own."""

    bubblewrap = False

    def attempts(self):
        raise NotImplementedError

    def control_attempts(self):
        raise NotImplementedError

    def attack(self, changes, **more):
        return self.attempts()

    def attack_with_control_off(self):
        return self.control_attempts()

    def left_after(self, code, kill, **options):
        """"open" when a process of the sandbox that runs `code` outlives `kill(running, its init)`."""
        running = self.start_inside(code, status=True, **options)
        init = running.wait_until_started()
        running.wait_for_output("ready")
        kill(running, init)
        running.process.wait(10)
        left = wait_for_no_descendants(2.0)
        running.stop()
        return "open" if left else "gone"

    def outcome(self, run):
        """"refused" when belljar started nothing."""
        if run.code == 125 and (run.record is None or run.record["cause"] == "setup"):
            return "refused"
        self.check_exited(run, run.code)
        return "open"
