"""L07 (runc CVE-2021-30465)"""

import ctypes

from adversarial.case import HostileLaunch, bind, main, rounds
from harness import while_doing

LIBC = ctypes.CDLL(None)
RENAME_EXCHANGE = 2


class L07(HostileLaunch):
    """A thread that an earlier run left exchanges a directory and a link while the next launch binds and mounts."""

    control_opens = {"by a plain path"}

    def prepare(self):
        self.host = self.make_directory("host", owner=self.uid)
        self.make_file("host/secret")
        self.make_directory("work/data", owner=self.uid)
        self.make_file("work/data/harmless")
        self.make_link("work/trap", self.host, owner=self.uid)
        self.before = self.look()

    def look(self):
        return sorted(path.name for path in self.host.iterdir()), self.host.stat().st_mtime_ns

    def swap(self, stop):
        one, other = str(self.work / "data").encode(), str(self.work / "trap").encode()
        while not stop.is_set():
            for _ in range(200):
                LIBC.renameat2(-100, one, -100, other, RENAME_EXCHANGE)

    def attempts(self):
        mounts = {"/data": bind(self.work / "data"), f"{self.work}/data": {"type": "tmpfs", "mode": "0777"}}
        policy = self.policy({"filesystem": {"mounts": mounts}})
        # (exit code, output): what the directory holds, or a refusal.
        expected = {(0, "harmless\n"), (125, "")}
        runs = while_doing(self.swap, lambda: [self.sandbox("ls", "-A", "/data", policy=policy)
                                               for _ in range(rounds(20, 1000))])
        wrong = [str(run) for run in runs if (run.code, run.out) not in expected]
        self.assertEqual(wrong, [])
        return {"what the link points to": "open" if any("secret" in run.out for run in runs) else "never seen",
                "the host's directory": "as before" if self.look() == self.before else "open"}

    def control_attempts(self):
        """Who lists the same path without care sees both."""
        def look_until_seen():
            seen = set()
            while not {"harmless", "secret"} <= seen:
                seen.update(path.name for path in (self.work / "data").iterdir())
            return seen
        return {"by a plain path": "open" if "secret" in while_doing(self.swap, look_until_seen) else "never"}


if __name__ == "__main__":
    main()
