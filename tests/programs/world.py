"""What the tests of real programs share: somebody's home with a project in it, things of others that must
not be reached, and the comparison of what a program could write and reach with a golden list."""

import difflib
import functools
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import AS_ROOT, ROOT, STAGE, SandboxTest, environment, give, remove_tree

PROGRAMS = ROOT / "tests" / "programs"
GOLDEN = ROOT / "tests" / "golden" / "reach"
PRESETS = ("dev@1", "agent@1", "strict@1")
WORKING = ("dev@1", "agent@1")

PYTHON = "/usr/bin/python3"


@functools.cache
def reach():
    """The walker (reach.c), built once; static, so that it runs in every root."""
    target = STAGE / f"reach-{os.getpid()}"
    subprocess.run(["cc", "-std=c11", "-O2", "-static", "-Wall", "-Werror", "-o", target,
                    PROGRAMS / "reach.c"], check=True)
    target.chmod(0o755)
    return target


class ProgramTest(SandboxTest):
    """Each test gets a home directory like a person's, at a place like a person's (/home/NAME, for a
    plain user below the own home), and starts in `self.project`, a directory in it."""

    def setUp(self):
        super().setUp()
        above = "/home" if AS_ROOT else os.path.expanduser("~")
        self.home = self.make_place("belljar-tester-", above)
        self.neighbour = self.make_place("belljar-neighbour-", above)
        self.project = self.make_directory(self.home / "project", owner=self.uid)
        self.make_directory(self.home / ".ssh", owner=self.uid, mode=0o700)
        self.secrets = [
            self.make_file(self.home / ".ssh" / "id_ed25519", "a private key\n", owner=self.uid, mode=0o600),
            self.make_file(self.home / "diary.txt", "dear diary\n", owner=self.uid),
            self.make_file(self.neighbour / "shared.txt", "everybody may read this\n"),
            self.make_file("in-var-tmp.txt", "left in /var/tmp\n"),
            pathlib.Path("/etc/shadow"),
        ]

    def make_place(self, prefix, above):
        place = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=above))
        self.addCleanup(remove_tree, place)
        place.chmod(0o755)
        give(place, self.uid)
        return place

    def persons_environment(self):
        return environment(HOME=str(self.home), USER="tester", LOGNAME="tester", TERM="xterm",
                           AWS_SECRET_ACCESS_KEY="secret", GITHUB_TOKEN="secret", SSH_AUTH_SOCK="/run/agent",
                           LC_TOKEN="secret", EDITOR="vi")

    def under(self, preset, *command, options=(), **more):
        """Runs a command in the project, as a person would: `belljar run --policy builtin:PRESET`."""
        words = ["run", "--policy", f"builtin:{preset}", *self.identity_options()]
        more.setdefault("env", self.persons_environment())
        more.setdefault("cwd", self.project)
        return self.start(*words, *options, "--", *command, record=True, **more).finish()

    def identity_options(self):
        if self.privileged:
            return ["--set", f"identity.uid={self.uid}"]
        # A person who runs the tests has groups, which cannot be dropped.
        return [] if AS_ROOT else ["--set", "identity.enforce=prefer"]

    def works(self, preset, *command, **more):
        """The command ran to its end, and the answer is what it printed."""
        run = self.under(preset, *command, **more)
        self.check_exited(run)
        if AS_ROOT:
            self.assertEqual(run.record["degraded"], [])
        return run.out

    def fails(self, preset, *command, code, says="", **more):
        """The command ran, failed by itself with `code`, complained with `says`, and the record has it."""
        run = self.under(preset, *command, **more)
        self.check_exited(run, code)
        self.assertEqual(run.record["exit_code"], code)
        self.assertNotIn("setup", run.record)
        self.assertEqual(run.record["policy"], preset)
        self.assertIn(says, run.err, str(run))
        return run

    # --- what can be written and reached -----------------------------------------------------------

    def check_reach(self, preset, *options):
        """What a program under this preset could write and reach is what the golden list says."""
        self.compare_reach(preset, self.reach_under("--policy", f"builtin:{preset}", *options))

    def reach_under(self, *options, walker="/reach"):
        """The findings of the walker, run with these options, with names for places."""
        with HostListeners(self.neighbour) as host:
            questions = [*host.questions(), f"pid:{os.getpid()}", *(f"read:{path}" for path in self.secrets)]
            words = ["run", *options, *self.identity_options()]
            if walker == "/reach":
                words += ["-v", f"{reach()}:/reach:ro"]
            run = self.belljar(*words, "--", walker, *questions, env=self.persons_environment(),
                               cwd=self.project)
            self.assertEqual(run.code, 0, str(run))
            return self.name_places(run.out)

    def name_places(self, text):
        # The longest first: the project lies in the home.
        places = {self.project: "$PROJECT", self.home: "$HOME", self.neighbour: "$NEIGHBOUR", self.dir: "$VAR_TMP"}
        for path, name in places.items():
            text = re.sub(re.escape(str(path)) + r"(?=[/ :\n]|$)", name, text)
        return sorted(text.splitlines())

    def compare_reach(self, preset, findings):
        expected = (GOLDEN / f"{preset}.txt").read_text().splitlines()
        expected = sorted(line for line in expected if line and line[0] != "#" and self.applies_here(line))
        findings = [line for line in findings if self.applies_here(line)]
        if findings != expected:
            difference = difflib.unified_diff(expected, findings, f"tests/golden/reach/{preset}.txt",
                                              "what the walker found", lineterm="", n=0)
            self.fail("\n".join(difference))

    def applies_here(self, line):
        """Lines about what this host does not have, or has by chance, say nothing about the preset."""
        if line.startswith("connect to the socket /"):
            return line.startswith(("connect to the socket /run/", "connect to the socket /tmp/"))
        if line.startswith("the host's ::1") or line == "sockets of the family inet6":
            return host_has_ipv6()
        return line != "a route out" or host_has_a_route()


class HostListeners:
    """Sockets of the host, which say nothing and only show whether they can be reached."""

    def __init__(self, directory):
        self.directory = directory

    def __enter__(self):
        self.sockets = [socket.socket(socket.AF_INET), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]
        self.path, self.name = str(self.directory / "host.sock"), f"belljar-tests-{os.getpid()}"
        self.sockets[0].bind(("127.0.0.1", 0))
        self.sockets[1].bind(self.path)
        self.sockets[2].bind("\0" + self.name)
        os.chmod(self.path, 0o777)
        if host_has_ipv6():
            self.sockets.append(socket.socket(socket.AF_INET6))
            self.sockets[3].bind(("::1", 0))
        for listener in self.sockets:
            listener.listen(16)
        return self

    def questions(self):
        words = [f"tcp4:{self.sockets[0].getsockname()[1]}", f"unix:{self.path}", f"unix:@{self.name}"]
        return words + [f"tcp6:{listener.getsockname()[1]}" for listener in self.sockets[3:]]

    def __exit__(self, *_):
        for listener in self.sockets:
            listener.close()
        os.unlink(self.path)


@functools.cache
def host_has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@functools.cache
def host_has_a_route():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return False
    return True


def under_each(*presets):
    """Runs a test method once for each preset, as a subtest in a project of its own."""
    def wrap(function):
        @functools.wraps(function)
        def run(self):
            for preset in presets:
                with self.subTest(preset=preset):
                    self.project = self.make_directory(self.home / f"project-{preset}", owner=self.uid)
                    function(self, preset)
        return run
    return wrap

