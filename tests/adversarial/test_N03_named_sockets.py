"""N03 (docker.sock and its like)"""

import os
import socket

from adversarial.case import TOOLS_STAGED, Case, main
from harness import not_sanitized


class N03(Case):
    """A unix socket or FIFO of the host that everybody may use is reached: a read-only mount stops neither."""

    control_opens = {"connect", "write to a FIFO"}

    def prepare(self):
        # Below /var, where services have theirs.
        where = self.make_directory("services")
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(str(where / "socket"))
        listener.listen()
        os.mkfifo(where / "fifo")
        for name in ("socket", "fifo"):
            (where / name).chmod(0o777)
        reader = os.open(where / "fifo", os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.where = where

    def program(self):
        return f"""
            say({{"connect": attempt(socket.socket(socket.AF_UNIX).connect, "{self.where}/socket"),
                 "write to a FIFO": probe_open("{self.where}/fifo", os.O_WRONLY)}})
        """

    def attack(self, changes, more_options=(), **more):
        options = [*self.session_options(), "-v", f"{TOOLS_STAGED}:/tools:ro", *more_options]
        run = self.inside(self.program(), policy="builtin:agent@1", options=options)
        self.check_exited(run)
        return run.json()

    def attack_with_control_off(self):
        return self.attack({}, more_options=["-v", f"{self.where}:{self.where}:ro"])

    @not_sanitized
    def test_no_door_is_open(self):
        self.check_no_door_is_open()

    @not_sanitized
    def test_with_the_control_off_the_attack_succeeds(self):
        self.check_with_the_control_off_the_attack_succeeds()


if __name__ == "__main__":
    main()
