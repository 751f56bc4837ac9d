"""What belljard says at its start of the container that it is in, and the container's health check."""

import json
import pathlib
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from container import Container, shipped_filter

from harness import AS_ROOT, BELLJAR_SOURCE, ROOT

TestCase = unittest.TestCase if AS_ROOT else object
BELLJARD = BELLJAR_SOURCE.parent.parent / "api" / "belljard"

# Starts the daemon, waits until it is ready and has tested itself, asks the health check, and shows both.
START = """
import os, subprocess, sys, time
environment = {"PATH": "/usr/bin:/bin", "BELLJAR_LAUNCHER": "/belljar", "AGENT_SIMULATOR_COMMAND": "/usr/bin/python3 a.py",
               "AGENT_SIMULATOR_API_TOKEN": "0123456789abcdef"}
daemon = subprocess.Popen(["/belljard", "--simulator", "--log=json"], env=environment, stderr=subprocess.PIPE, text=True)
seen = []
for line in daemon.stderr:
    seen.append(line)
    if '"message":"ready"' in line:
        break
health = subprocess.run(["/usr/bin/python3", "/health.py"], env=environment, capture_output=True, text=True)
print("".join(seen) + "health " + str(health.returncode) + " " + health.stdout + health.stderr)
daemon.terminate()
daemon.wait()
gone = subprocess.run(["/usr/bin/python3", "/health.py"], env=environment, capture_output=True, text=True)
print("gone " + str(gone.returncode) + " " + gone.stdout)
"""


# The daemon on its socket, as in the worker.
ON_SOCKET = """
import subprocess, time
environment = {"PATH": "/usr/bin:/bin", "BELLJAR_LAUNCHER": "/belljar", "DAEMON_SOCKET": "/tmp/d.sock"}
def health():
    done = subprocess.run(["/usr/bin/python3", "/health.py"], env=environment, capture_output=True, text=True)
    print(done.returncode, done.stdout.strip(), done.stderr.strip())
health()
daemon = subprocess.Popen(["/belljard", "--listen=unix:/tmp/d.sock", "--sessions-root=/srv/sessions"],
                          env={key: value for key, value in environment.items() if key != "DAEMON_SOCKET"},
                          stderr=subprocess.PIPE, text=True)
for line in daemon.stderr:
    if " ready " in line:
        break
health()
daemon.terminate()
daemon.wait()
"""


class Start(TestCase):
    def start(self, mark="/.dockerenv", **settings):
        made = Container(**settings)
        self.addCleanup(made.remove)
        shutil.copy(BELLJARD, made.root / "belljard")
        shutil.copy(ROOT / "container" / "health.py", made.root / "health.py")
        if mark:
            (made.root / mark[1:]).touch()
        done = made.execute("/usr/bin/python3", "-c", START)
        self.assertEqual(done.returncode, 0, f"{done.stdout}\n{done.stderr}")
        self.lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        self.health = next(line for line in done.stdout.splitlines() if line.startswith("health "))
        self.gone = next(line for line in done.stdout.splitlines() if line.startswith("gone "))
        return done

    def said(self, message):
        return [line for line in self.lines if line["message"] == message]

    def test_the_shipped_setting_is_said_to_be_narrow_and_the_container_healthy(self):
        self.start(filter=shipped_filter("seccomp.json"))
        (line,) = self.said("the container")
        self.assertEqual((line["setting"], line["filter"], line["proc"], line["no_new_privs"]),
                         ("narrow", "yes", "protected", "yes"))
        self.assertEqual(self.said("the container is open"), [])
        self.assertTrue(self.health.startswith("health 0 200"), self.health)

    def test_the_existing_deployments_setting_is_said_to_be_open_with_each_price(self):
        self.start(filter=None, masks=False, hidden_helper=False)
        (line,) = self.said("the container")
        self.assertEqual((line["setting"], line["filter"], line["proc"]), ("open", "no", "writable"))
        prices = " ".join(line["price"] for line in self.said("the container is open"))
        self.assertIn("core_pattern is writable", prices)
        self.assertIn("no system call filter", prices)

    def test_a_helper_that_a_path_leads_to_is_told(self):
        self.start(filter=shipped_filter("seccomp.json"), hidden_helper="uncovered")
        (line,) = self.said("the container is open")
        self.assertIn("/hide/p shows the host's processes", line["price"])

    def test_outside_a_container_nothing_is_said(self):
        self.start(mark=None, filter=None, masks=False, hidden_helper=False)
        self.assertEqual(self.said("the container"), [])

    def test_the_health_check_is_red_when_sandboxes_cannot_be_had(self):
        without = shipped_filter("seccomp.json", without=["pivot_root"])
        self.start(filter=without)
        self.assertTrue(self.health.startswith("health 1 200"), self.health)
        self.assertIn("unavailable", self.health)

    def test_on_the_daemons_socket_the_health_check_asks_whether_it_is_ready(self):
        for without, expected in ((), "0 200"), (["pivot_root"], "1 503"):
            with self.subTest(without=without):
                made = Container(filter=shipped_filter("seccomp.json", without))
                self.addCleanup(made.remove)
                shutil.copy(BELLJARD, made.root / "belljard")
                shutil.copy(ROOT / "container" / "health.py", made.root / "health.py")
                done = made.execute("/usr/bin/python3", "-c", ON_SOCKET)
                before, after = done.stdout.splitlines()
                self.assertTrue(before.startswith("1 the daemon does not answer"), f"{before}{done.stderr}")
                self.assertTrue(after.startswith(expected), f"{after}\n{done.stderr}")

    def test_the_health_check_is_red_when_nobody_answers(self):
        self.start(filter=shipped_filter("seccomp.json"))
        self.assertTrue(self.gone.startswith("gone 1 the daemon does not answer"), self.gone)


if __name__ == "__main__":
    unittest.main()
