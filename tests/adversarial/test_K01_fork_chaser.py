"""K01 (measured: one pass over /proc missed a chaser in 5 of 25 runs)"""

import os
import signal

from adversarial.case import HostileLaunch, main, rounds
from harness import descendants
from test_death import CHASER, WAIT


class K01(HostileLaunch):
    """Generations that fork and exit without end outlive the kill of the launcher, of init, or of the command."""

    control_opens = {"its first process"}

    def attempts(self):
        kills = {"the launcher": lambda running, init: running.process.kill(),
                 "init": lambda running, init: os.kill(init, signal.SIGKILL),
                 "the command": lambda running, init: os.kill(descendants(init)[0][0], signal.SIGKILL)}
        doors = {}
        for name, kill in kills.items():
            answers = {self.left_after(CHASER + WAIT, kill) for _ in range(rounds(2, 100))}
            doors[name] = "open" if "open" in answers else "gone"
        return doors

    def control_attempts(self):
        """The chaser outlives its own first process: it is the end of the sandbox that ends it."""
        run = self.inside("""
            child = os.fork()
            if child == 0:
                if os.fork() == 0:
                    while True:
                        if os.fork(): os._exit(0)
                signal.pause()
            time.sleep(0.05)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            # A listing may miss each generation; the numbers that go on do not.
            def newest():
                child = os.fork() or os._exit(0)
                os.waitpid(child, 0)
                return child
            before, end = newest(), time.monotonic() + 10
            while newest() == before + 1 and time.monotonic() < end: before += 1
            say("open" if time.monotonic() < end else "gone")
        """)
        return {"its first process": run.json()}


if __name__ == "__main__":
    main()
