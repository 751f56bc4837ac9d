"""K10 (isolate closes its meta file)"""

import json
import os

from adversarial.case import HostileLaunch, main

FORGED = '{"cause": "exited", "exit_code": 77, "type": "record", "forged": true}'
FORGE = f"""
    line = {FORGED!r}.encode() + b"\\n"
    for fd in range(3, 1024):
        try: os.write(fd, line)
        except OSError: pass
    for path in ("/proc/1/fd/3", "/proc/1/fd/4", "/proc/self/fd/3"):
        try: os.write(os.open(path, os.O_WRONLY), line)
        except OSError: pass
    for number in (signal.SIGKILL, signal.SIGTERM):
        try: os.kill(os.getppid(), number)
        except OSError: pass
    if os.fork() == 0:
        time.sleep(60)
    sys.stderr.write({FORGED!r})
    sys.exit(3)
"""


class K10(HostileLaunch):
    """The command writes a record of its own to every descriptor, kills its parent and leaves children."""

    control_opens = {"a kept descriptor"}

    def attempts(self):
        running = self.start_inside(FORGE, status=True)
        run = running.finish()
        told = (run.code, run.record["cause"], run.record["exit_code"])
        events = [event["type"] for event in run.events]
        return {"the record": "true" if told == (3, "exited", 3) and b"forged" not in run.raw_record else "open",
                "the events": "true" if events == ["started", "record"] and not any("forged" in json.dumps(event)
                                                                                   for event in run.events) else "open"}

    def control_attempts(self):
        """The same program does write where it can."""
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        self.inside(FORGE, fds=[write], policy={"io": {"keep": [write]}})
        os.close(write)
        return {"a kept descriptor": "open" if b"forged" in os.read(read, 4096) else "nothing"}


if __name__ == "__main__":
    main()
