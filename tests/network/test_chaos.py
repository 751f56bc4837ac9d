"""kill -9 of pasta, its guard, init, the service or the daemon at any moment: no pasta, namespace or tun is left.

The moments come from BELLJAR_SEED, which a failure names; without it, from a fixed one."""

import contextlib
import os
import pathlib
import random
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import back_ends, callers, descendants, long, main, processes
from network.daemon_on_a_host import SHELL, DaemonOnAHost
from daemon import wait_until

SEED = int(os.environ.get("BELLJAR_SEED", "20261130"))
PARTS = ("pasta", "guard", "init", "service", "daemon")


def namespaces(pids):
    """The network namespaces that these processes are in."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/{pid}/ns/net"))
    return found


def is_init(pid):
    """Of a pid namespace of its own."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/status").read_text().partition("NSpid:")[2].split("\n")[0].split()[1:] == ["1"]
    return False


class Chaos(DaemonOnAHost):

    def victims(self, daemon, part):
        parent_of = {pid: about[0] for pid, about in processes().items()}
        below = {daemon.process.pid}
        while more := {pid for pid, parent in parent_of.items() if parent in below} - below:
            below |= more
        pastas = [pid for pid in self.pastas() if pid in below]
        return sorted({"pasta": pastas, "guard": [parent_of[pid] for pid in pastas if pid in parent_of],
                       "init": [pid for pid in below if is_init(pid)],
                       "service": [pid for pid in below if parent_of.get(pid) == daemon.process.pid],
                       "daemon": [daemon.process.pid]}[part])

    def round(self, part, seed):
        source = random.Random(seed)
        v1 = self.v1(*SHELL, "--session-network=private")
        done = threading.Event()

        def use():
            while not done.is_set():
                with contextlib.suppress(Exception):
                    made = v1.call("POST", "/v1/sessions", {}, timeout=20).json()
                    time.sleep(source.random() * 0.2)
                    if source.random() < 0.5:
                        v1.call("DELETE", "/v1/sessions/" + made["id"], timeout=20)

        users = [threading.Thread(target=use) for _ in range(2)]
        for user in users:
            user.start()
        # Not before there is one: then any moment will do.
        self.assertTrue(wait_until(lambda: self.victims(v1.daemon, part), 30), v1.daemon.log)
        time.sleep(source.random() * 0.4)
        used = namespaces(pid for pid, _, _ in descendants(v1.daemon.process.pid)) - namespaces([v1.daemon.process.pid])
        for pid in self.victims(v1.daemon, part)[:1 + source.randrange(2)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(source.random() * 0.2)
        done.set()
        if part in ("service", "daemon"):
            v1.daemon.process.wait(60)
        for user in users:
            user.join()
        v1.daemon.stop(timeout=60)
        self.check_nothing_left(v1.daemon)
        # Of this test's processes: what was orphaned comes to it, and others get the numbers of what is gone.
        self.assertEqual(used & namespaces(pid for pid, _, _ in descendants()), set(), "a namespace is left")
        self.assertNotIn("tun", self.host.run("ip", "-o", "link").stdout)

    def rounds(self, part, count):
        for number in range(count):
            seed = f"{SEED}-{part}-{number}"
            with self.subTest(seed=seed):
                self.round(part, seed)

    @callers("root")
    @back_ends("modern")
    def test_nothing_is_left_after_ten_deaths(self):
        for part in PARTS:
            self.rounds(part, 2)

    @long
    @callers("root")
    @back_ends("modern")
    def test_nothing_is_left_after_two_hundred_deaths(self):
        for part in PARTS:
            self.rounds(part, 40)


if __name__ == "__main__":
    main()
