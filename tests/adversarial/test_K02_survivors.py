"""K02 (daemons, stopped, traced and deaf processes)"""

import os
import signal
import subprocess

from adversarial.case import NO_FILTER, HostileLaunch, main
from harness import descendants, wait_for, wait_for_no_descendants
from test_death import DAEMON, STOPPED, WAIT

TRACED = """
    child = os.fork() or signal.pause()
    if os.fork() == 0:
        libc().ptrace(16, child, None, None)
        signal.pause()
"""


class K02(HostileLaunch):
    """A daemon in a session of its own, a stopped, a traced or a deaf process outlives the kill of the launcher."""

    control_opens = {"daemon"}
    callers_of_control = ("root",)
    back_ends_of_control = ("modern",)

    def survive(self, code, kill):
        return self.left_after(code + WAIT, kill, policy=NO_FILTER)

    def attempts(self):
        doors = {}
        for name, code in (("daemon", DAEMON), ("stopped", STOPPED), ("traced", TRACED)):
            doors[f"{name}, launcher killed"] = self.survive(code, lambda running, init: running.process.kill())
            doors[f"{name}, init killed"] = self.survive(code, lambda running, init: os.kill(init, signal.SIGKILL))
        return doors

    def control_attempts(self):
        """Outside a sandbox a daemon outlives the process that started it."""
        started = subprocess.Popen(["sh", "-c", "setsid sleep 60 & sleep 60"])
        wait_for(lambda: len(descendants(started.pid)) == 2, what="a daemon")
        started.kill()
        started.wait()
        left = [name for _, state, name in descendants() if state != "Z"]
        wait_for_no_descendants(0)
        return {"daemon": "open" if "sleep" in left else "gone"}


if __name__ == "__main__":
    main()
