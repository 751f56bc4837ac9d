"""Launches of which one system call fails, or at which somebody is killed: what F01, F02 and K07 share.

Here it is a few calls, spread over the launch; tests/sandbox/test_faults.py takes each of them.
"""

import collections
import contextlib
import os
import signal
import subprocess

from adversarial.case import HostileLaunch, rounds
from harness import descendants, wait_for_no_descendants


class FaultedLaunch(HostileLaunch, abstract=True):
    action = None  # Of tests/tools/fault.c.

    def prepare(self):
        self.policy_path = self.policy({"limits": {"rlimits": {"nofile": 100}}, "identity": {"umask": "027"}})

    def launch(self, when, action=None):
        """What came of the launch (a text when it did not end), and what the tool says of the call."""
        read, write = os.pipe()
        try:
            run = self.sandbox("/tools/state", policy=self.policy_path, fds=[write], timeout=5, any_back_end=True,
                               wrap=[self.tool("fault"), when, self.action if action is None else action, write])
        except AssertionError as error:
            run = str(error)
        os.close(write)
        with os.fdopen(read) as pipe:
            return run, pipe.read().splitlines()

    def calls(self):
        """Each call of a launch, as the tool counts: PROCESS.CALL; and the launch itself."""
        run, lines = self.launch("list", 0)
        self.check_exited(run)
        counted, places = collections.Counter(), []
        for line in lines:
            process = line.split()[0]
            counted[process] += 1
            places.append(f"{process}.{counted[process]}")
        return places, run

    def attempts(self):
        places, expected = self.calls()
        self.assertGreater(len(places), 80)
        doors = {}
        for place in places[::rounds(23, 1)]:
            run, hit = self.launch(place)
            if hit != ["none"]:
                doors[f"call {place}, number {hit[0].split()[1]}"] = self.judge(run, expected.out)
        self.assertGreater(len(doors), 3)
        return doors

    def judge(self, run, expected):
        """"open" for a launch that hangs, a command that is less confined, or one of which something is left."""
        if isinstance(run, str) or wait_for_no_descendants(2.0):
            return "open"
        if not run.out:
            return "refused"
        return "the same sandbox" if set(run.out.split("|")) == set(expected.split("|")) else "open"


def outlives_its_starter():
    """Whether a process that nobody ties to its parent is left when that is killed."""
    started = subprocess.Popen(["sh", "-c", "sleep 60 & echo; wait"], stdout=subprocess.PIPE, start_new_session=True)
    with started.stdout:
        started.stdout.readline()
        started.kill()
        started.wait()
        left = [pid for pid, state, _ in descendants() if state != "Z"]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for_no_descendants(2.0)
    return bool(left)
