"""Cgroups of version 1 in which a test's belljar may make its own, for every caller."""

import os
import pathlib
import signal

from harness import SESSION_UID, as_root, leave_out, wait_for

ROOT = pathlib.Path("/sys/fs/cgroup")
CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
HERE = f"belljar-tests-{os.getpid()}"
HAS_V1 = all(os.access(ROOT / name / "cgroup.procs", os.W_OK) for name in CONTROLLERS)


def with_v1(function):
    """The test exists where places can be made."""
    return leave_out(as_root(function), not HAS_V1)


def remove_cgroup(place):
    """With what a failed test has left in it."""
    for child in [path for path in place.iterdir() if path.is_dir()]:
        for pid in (child / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        wait_for(lambda: (child / "cgroup.procs").read_text() == "", what="an empty cgroup")
        child.rmdir()
    place.rmdir()


class Places:
    """What a SandboxTest mixes in. Made as root, where the hierarchies of version 1 are."""

    def make_places(self):
        self.places = [ROOT / name / HERE for name in CONTROLLERS]
        for place in self.places:
            place.mkdir()
            self.addCleanup(remove_cgroup, place)
            for path in (place, place / "cgroup.procs"):
                os.chown(path, SESSION_UID if self.caller == "user" else 0, -1)
        self.addCleanup(self.check_that_no_cgroup_is_left)

    def check_that_no_cgroup_is_left(self):
        self.assertEqual(self.cgroups(), [], "cgroups are left")

    def cgroups(self):
        return sorted(path.name for place in self.places for path in place.iterdir() if path.is_dir())

    def placed(self):
        """A `before` that moves belljar to where it may make cgroups."""
        moves = "".join(f"echo $$ > {place}/cgroup.procs; " for place in self.places)
        return ["sh", "-ec", moves + 'exec "$@"', "sh"]
