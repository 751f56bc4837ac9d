"""Sessions of belljard and their private network: auto, private and shared, and what becomes of a pasta that dies."""

import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import callers, back_ends, main
from network.daemon_on_a_host import SHELL, DaemonOnAHost, wait_until
from network.hosts import PUBLIC, SECOND


def as_root(function):
    return callers("root")(back_ends("modern")(function))


class Sessions(DaemonOnAHost):

    @as_root
    def test_auto_is_a_private_network_where_it_can_be_had(self):
        v1 = self.v1(*SHELL, "--session-network=auto")
        made = v1.create()
        self.assertEqual((made["network"], made["degraded"] or None), ("private", None), made)
        session = "/v1/sessions/" + made["id"]
        self.assertEqual(self.reached_by(v1, session, PUBLIC, SECOND), ["internet", "ECONNREFUSED"])
        self.assertEqual(len(self.pastas()), 1)
        v1.expect(204, "DELETE", session)
        self.assertEqual(self.pastas(), [])

    @as_root
    def test_auto_has_the_hosts_network_elsewhere_and_says_degraded(self):
        self.host.run("chmod", "600", "/dev/net/tun")
        v1 = self.v1(*SHELL, "--session-network=auto")
        made = v1.create()
        self.assertIn("chmod 666 /dev/net/tun", str(made["degraded"]), made)
        self.assertEqual(self.reached_by(v1, "/v1/sessions/" + made["id"], SECOND), ["host"])

    @as_root
    def test_private_refuses_and_tries_nothing_else(self):
        v1 = self.v1(*SHELL, "--session-network=private", variables={"BELLJAR_PASTA": "/bin/false"})
        answer = v1.call("POST", "/v1/sessions", {})
        self.assertGreaterEqual(answer.status, 400, answer)
        self.assertNotIn("token", answer.body.decode())
        self.assertEqual(v1.expect(200, "GET", "/v1/sessions")["sessions"], [])
        self.assertEqual(self.pastas(), [])

    @as_root
    def test_shared_asks_nothing_of_pasta(self):
        v1 = self.v1(*SHELL, "--session-network=shared", variables={"BELLJAR_PASTA": "/nonexistent"})
        made = v1.create()
        self.assertEqual((made["network"], made["degraded"] or None), ("shared", None), made)
        self.assertEqual(self.reached_by(v1, "/v1/sessions/" + made["id"], SECOND), ["host"])

    @as_root
    def test_the_setting_is_that_of_the_session_policy_alone(self):
        v1 = self.v1(*SHELL, "--session-network=shared", variables={"BELLJAR_PASTA": "/nonexistent"})
        self.assertEqual(v1.create(policy="builtin:validator@1")["network"], "none")

    @as_root
    def test_an_unknown_mode_is_refused_and_not_taken_for_another(self):
        daemon = self.daemon(*SHELL, "--session-network=sometimes", simulator=False, ready=False)
        self.assertNotEqual(daemon.process.wait(20), 0)
        self.assertIn("sometimes", daemon.log)

    @as_root
    def test_a_session_whose_pasta_dies_ends_and_the_next_has_a_network(self):
        v1 = self.v1(*SHELL, "--session-network=private")
        first = v1.session()
        os.kill(self.pastas()[0], signal.SIGKILL)
        self.assertTrue(wait_until(lambda: v1.expect(200, "GET", first)["state"] == "ended", 60), v1.daemon.log)
        self.assertIn("network_lost", str(v1.expect(200, "GET", first)))
        self.assertEqual(self.reached_by(v1, v1.session(), PUBLIC), ["internet"])

    @as_root
    def test_two_sessions_serve_one_port_and_see_only_their_own(self):
        v1 = self.v1(*SHELL, "--session-network=private")
        sessions = [v1.session() for _ in range(2)]
        serve = ("import socket; s = socket.create_server(('0.0.0.0', 8000)); print('up', flush=True)\n"
                 "while True: s.accept()[0].sendall(%r)")
        ask = "import socket; print(socket.create_connection(('127.0.0.1', 8000)).recv(9).decode())"
        for name, session in zip((b"one", b"two"), sessions):
            v1.start(session, argv=["/usr/bin/python3", "-c", serve % name])
        retry = "import time\nwhile True:\n  try: %s; break\n  except OSError: time.sleep(0.05)" % ask
        said = [v1.exec(session, argv=["/usr/bin/python3", "-c", retry])["stdout"] for session in sessions]
        self.assertEqual(said, ["one\n", "two\n"])


if __name__ == "__main__":
    main()
