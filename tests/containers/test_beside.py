"""beside-belljard, the worker's entry point: with a belljard that does as told."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "container" / "beside-belljard"

SERVES = """#!/usr/bin/python3
import socket, sys, time
path = next(word for word in sys.argv if word.startswith("--listen=unix:")).removeprefix("--listen=unix:")
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
{then}
"""


class Beside(unittest.TestCase):
    def start(self, belljard, *command):
        place = pathlib.Path(tempfile.mkdtemp(prefix="beside-"))
        self.addCleanup(shutil.rmtree, place)
        (place / "belljard").write_text(belljard)
        (place / "belljard").chmod(0o755)
        # A pipe that the daemon holds too: at its end both are gone.
        process = subprocess.Popen(["/bin/sh", SCRIPT, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   start_new_session=True,
                                   env={"PATH": f"{place}:/usr/bin:/bin", "DAEMON_SOCKET": f"{place}/socket"})
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        try:
            os.killpg(process.pid, 9)  # As the end of a container does with the daemon.
        except ProcessLookupError:
            pass
        process.stdout.close()
        process.stderr.close()
        process.wait()

    def test_the_command_starts_when_the_socket_is_there_and_its_status_is_the_containers(self):
        process = self.start(SERVES.format(then="time.sleep(600)"), "/bin/sh", "-c", 'test -S "$DAEMON_SOCKET" && exit 7')
        self.assertEqual(process.wait(60), 7)

    def test_a_daemon_that_does_not_start_ends_it_without_the_command(self):
        process = self.start("#!/bin/sh\nexit 1\n", "/bin/sh", "-c", "echo ran")
        self.assertNotEqual(process.wait(60), 0)
        self.assertEqual(process.stdout.read(), "")

    def test_a_daemon_that_ends_takes_the_command_along(self):
        process = self.start(SERVES.format(then="time.sleep(1)"), "/bin/sleep", "600")
        self.assertEqual(process.wait(60), -15)
        self.assertIn("belljard has ended", process.stderr.readline())

    def test_without_a_command_it_says_so(self):
        process = self.start(SERVES.format(then="time.sleep(600)"))
        self.assertEqual(process.wait(60), 125)


if __name__ == "__main__":
    unittest.main()
