"""The unit of belljard and what the daemon owes to it: readiness, a watchdog, and the socket that systemd has opened."""

import http.client
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "daemon"))
from daemon import BELLJARD, DaemonTest
from harness import BELLJAR, ROOT, once

UNITS = ROOT / "packaging" / "debian"


class Units(DaemonTest):
    def manager(self, timeout=30):
        """NOTIFY_SOCKET's other end."""
        path = self.dir / "notify"
        end = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(end.close)
        end.bind(str(path))
        path.chmod(0o777)
        end.settimeout(timeout)
        return path, end

    def activated(self, listener, **variables):
        """belljard, with a socket that is already there and no address of its own."""
        root = self.make_directory("sessions", None, 0o711) if not self.privileged else self.dir / "sessions"
        words = [BELLJARD, f"--sessions-root={root}", "--uid-base=1450000000", "--max-sessions=2"]
        def place():
            os.dup2(listener.fileno(), 3)
            os.set_inheritable(3, True)
        process = subprocess.Popen(
            ["/bin/sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", *map(str, words)], preexec_fn=place, pass_fds=[3],
            env={"PATH": "/usr/bin:/bin", "BELLJAR_LAUNCHER": str(BELLJAR), "LISTEN_FDS": "1", **variables},
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        return process

    @once
    def test_it_says_that_it_is_ready_feeds_the_watchdog_and_says_that_it_stops(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        path, end = self.manager()
        process = self.activated(listener, NOTIFY_SOCKET=str(path), WATCHDOG_USEC="200000")
        self.assertEqual([end.recv(100) for _ in range(4)], [b"READY=1", *[b"WATCHDOG=1"] * 3])
        process.terminate()
        while (said := end.recv(100)) == b"WATCHDOG=1":
            pass
        self.assertEqual(said, b"STOPPING=1")

    @once
    def test_without_a_watchdog_it_feeds_none(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        path, end = self.manager()
        process = self.activated(listener, NOTIFY_SOCKET=str(path))
        self.assertEqual(end.recv(100), b"READY=1")
        process.terminate()
        self.assertEqual(end.recv(100), b"STOPPING=1")

    @once
    def test_it_serves_on_the_socket_that_was_opened_and_on_no_other(self):
        place = self.dir / "activated.sock"
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(str(place))
        listener.listen()
        path, end = self.manager()
        self.activated(listener, NOTIFY_SOCKET=str(path), BELLJAR_LISTEN=f"unix:{self.dir}/other.sock")
        self.assertEqual(end.recv(100), b"READY=1")
        connection = http.client.HTTPConnection("localhost", timeout=20)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(place))
        connection.request("GET", "/livez")
        answer = connection.getresponse()
        self.assertEqual((answer.status, answer.read() != b""), (200, True))
        self.assertFalse((self.dir / "other.sock").exists())

    @once
    def test_systemd_has_nothing_to_say_against_the_units(self):
        with tempfile.TemporaryDirectory() as directory:
            for name in ("belljard.service", "belljard.socket"):
                text = (UNITS / name).read_text().replace("/usr/lib/belljar/in-leaf /usr/bin/belljard", "/bin/true")
                (pathlib.Path(directory) / name).write_text(text)
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no",
                                   f"{directory}/belljard.service", f"{directory}/belljard.socket"],
                                  capture_output=True, text=True)
        ours = [line for line in done.stderr.splitlines() if "belljard" in line]
        self.assertEqual((done.returncode, ours), (0, []), done.stderr)

    @once
    def test_the_exposure_by_systemds_own_count_does_not_grow(self):
        """Of 10: what is left is what a launcher of sandboxes does: namespaces, other users, the network."""
        with tempfile.TemporaryDirectory() as directory:
            shutil.copy(UNITS / "belljard.service", directory)
            done = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--threshold=51", "--no-pager",
                                   f"{directory}/belljard.service"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout[-300:] + done.stderr)

    @once
    def test_in_leaf_runs_the_program_with_its_words_and_status(self):
        done = subprocess.run([ROOT / "packaging" / "in-leaf", "/bin/sh", "-c", 'echo "$1"; exit 3', "sh", "a b"],
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (3, "a b\n"), done.stderr)


if __name__ == "__main__":
    import harness
    harness.main()
