"""What the presets let a program write and reach, against the golden lists; and that the comparison
notices a policy that opens more."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from world import PRESETS, PYTHON, ProgramTest, give, reach, under_each

import harness

WIDE_OPEN = {
    "version": 1,
    "name": "wide-open",
    "filesystem": {
        "root": "empty",
        "mounts": {
            "/": {"type": "bind", "source": "/", "readonly": False, "nosuid": False, "nodev": False},
            "/proc": {"type": "proc"},
        },
        "workspace": {"path": "."},
    },
    "network": {"mode": "shared"},
    "syscalls": {"base": "none"},
    "env": {"pass": ["*"]},
}

# One option that opens one thing, and the line that it adds.
OPENINGS = [
    (["--network", "shared"], "the host's 127.0.0.1: connects"),
    (["--network", "shared", "--set", "landlock.scopes=[]"], "the host's socket @abstract: connects"),
    (["-v", "{neighbour}:{neighbour}"], "create files in $NEIGHBOUR (disk)"),
    (["-v", "{neighbour}:{neighbour}:ro"], "the host's socket $NEIGHBOUR/host.sock: connects"),
    (["--set", "filesystem.hide[/home]=null"], "read $NEIGHBOUR/shared.txt"),
    (["-v", "{home}/.ssh:{home}/.ssh:ro"], "read $HOME/.ssh/id_ed25519"),
    (["--set", "syscalls.base=none"], "seccomp mode: 0"),
    (["--set", 'filesystem.mounts["/opt"]={"type": "tmpfs", "mode": "1777"}'], "create files in /opt (tmpfs)"),
    (["-e", "GITHUB_TOKEN"], "environment GITHUB_TOKEN"),
    (["--set", "filesystem.hide[/srv]=null"], "see /srv"),
]


class Reach(ProgramTest):
    @under_each(*PRESETS)
    def test_the_preset_opens_what_its_list_says(self, preset):
        self.check_reach(preset)

    @harness.callers("user")
    @under_each(*PRESETS)
    def test_a_wide_open_policy_is_not_taken_for_the_preset(self, preset):
        policy = self.make_file("wide-open.json", json.dumps(WIDE_OPEN))
        findings = self.reach_under("--policy", policy, walker=reach())
        with self.assertRaises(AssertionError) as raised:
            self.compare_reach(preset, findings)
        for line in ("+see /boot", "+read $HOME/.ssh/id_ed25519", "+environment GITHUB_TOKEN"):
            self.assertIn(line, str(raised.exception).splitlines())

    @harness.callers("user")
    @harness.back_ends("modern")
    def test_each_single_opening_is_noticed(self):
        for options, line in OPENINGS:
            places = {"{neighbour}": str(self.neighbour), "{home}": str(self.home)}
            for name, path in places.items():
                options = [word.replace(name, path) for word in options]
            with self.subTest(options=options), self.assertRaises(AssertionError) as raised:
                self.check_reach("dev@1", *options)
            self.assertIn(f"+{line}", str(raised.exception).splitlines())


class Root(ProgramTest):
    """Root without another uid runs programs as nobody."""

    @harness.callers("root", "five")
    def test_a_project_of_nobody_is_written_by_nobody(self):
        nobody = 65534
        give(self.project, nobody)
        for place in (self.home, self.neighbour):
            give(place, 0)
        code = "import os; open('out.txt', 'w').write(str(os.getuid())); print(os.getuid(), os.getgroups())"
        run = self.belljar("run", "--", PYTHON, "-c", code, env=self.persons_environment(), cwd=self.project)
        self.assertEqual((run.code, run.out, run.err), (0, f"{nobody} []\n", ""), str(run))
        self.assertEqual((self.project / "out.txt").stat().st_uid, nobody)

    @harness.callers("root", "five")
    def test_a_project_of_root_is_only_read_and_that_is_said(self):
        give(self.project, 0)
        run = self.belljar("run", "--", PYTHON, "-c", "open('out.txt', 'w')", env=self.persons_environment(),
                           cwd=self.project)
        self.assertEqual(run.code, 1, str(run))
        self.assertTrue(run.err.startswith(f"belljar: note: uid 65534 can only read {self.project}, so it is "
                                           "read-only inside; chown it, or --set identity.uid=N\n"), run.err)
        self.assertIn("Read-only file system: 'out.txt'", run.err)
