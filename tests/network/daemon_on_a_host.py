"""belljard on a host made of namespaces, and a client of its unix socket."""

import contextlib
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "daemon"))
from harness import descendants
from daemon import POOL_SIZE, UID_BASE, processes_of, wait_until
from network.hosts import PORT, PrivateNetworkTest, with_reach
from v1 import V1Test

SHELL = ("--session-policy=builtin:shell@1",)


class DaemonOnAHost(PrivateNetworkTest, V1Test):
    starts_daemon = False

    def prefix(self, groups=()):
        return [*(self.host.enter() if self.starts_daemon else []), *super().prefix(groups)]

    def daemon(self, *arguments, **options):
        self.starts_daemon = True
        try:
            return super().daemon(*arguments, **options)
        finally:
            self.starts_daemon = False

    def check_that_it_ends(self, daemon):
        """As for every daemon, but for the processes that hold its host."""
        if daemon.process.poll() is None:
            wait_until(lambda: not [path for path in daemon.root.iterdir() if path.name.startswith("selftest-")], 30)
            daemon.stop()
        self.check_nothing_left(daemon)

    def check_nothing_left(self, daemon):
        self.assertTrue(wait_until(lambda: not self.left(), 20), f"{self.left()} are left\n{daemon.log}")
        for uid in range(UID_BASE, UID_BASE + POOL_SIZE):
            self.assertEqual(processes_of(uid), [], daemon.log)

    @staticmethod
    def left():
        """What lives below this process but for what holds the host; what was orphaned is this process's to reap."""
        for pid, state, _ in descendants():
            if state == "Z":
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
        return [one for one in descendants() if one[2] not in ("sleep", "unshare", "sh")]

    def reached_by(self, v1, session, *addresses):
        """Who answers a command of the session's, or the refusal, in that order."""
        code = "import errno, json, socket\n" + with_reach(f"print(json.dumps([reach(a, {PORT}) for a in {addresses!r}]))")
        ended = v1.exec(session, argv=["/usr/bin/python3", "-c", code])
        self.assertEqual(ended["stderr"], "", ended)
        return json.loads(ended["stdout"])
