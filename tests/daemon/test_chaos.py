"""Chaos: whatever is killed, and whoever vanishes, at whatever moment, nothing is left afterwards.

The moments come from BELLJAR_SEED, which a failure names; without it, from a fixed one."""

import contextlib
import os
import pathlib
import random
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import AGENT, POOL_SIZE, TOKEN, TOKEN_HEADER, UID_BASE, DaemonTest, as_shipped, new_id, processes_of, wait_until
from harness import descendants, long, main, processes

SEED = int(os.environ.get("BELLJAR_SEED", "20261130"))

# An agent that forks, one that ignores TERM, one that prints all the time.
FORKING = "import os\nfor _ in range(3):\n    if os.fork() == 0:\n        os.setsid()\n        break\n" + AGENT
STUBBORN = "import signal\nfor number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)\n" + AGENT
LOUD = "import threading, time\ndef shout():\n    while True:\n        print('x' * 4000, flush=True)\n        time.sleep(0.01)\n" \
       "threading.Thread(target=shout, daemon=True).start()\n" + AGENT


class Cast:
    """Who can be killed, by the part he plays."""

    def __init__(self, daemon):
        self.daemon = daemon.process.pid

    def children(self, pid):
        return sorted(child for child, (parent, _, _) in processes().items() if parent == pid)

    def of_the_pool(self):
        return [pid for uid in range(UID_BASE, UID_BASE + POOL_SIZE) for pid, _, _ in processes_of(uid)]

    def find(self, part):
        service = self.children(self.daemon)
        if part == "daemon":
            return [self.daemon]
        if part == "service" or not service:
            return service
        below = self.children(service[0])
        if part == "zygote":
            return below[:1]
        if part == "monitor":
            return below[1:]
        inits = [child for monitor in below[1:] for child in self.children(monitor)]
        if part == "init":
            return inits
        return [pid for pid in self.of_the_pool() if pid not in inits]  # Agents, and what they forked.


class Chaos(DaemonTest):

    def clients(self, daemon, rng, stop):
        """What goes on while somebody is killed: sessions that come and go, and rude clients."""
        def turn(source):
            while not stop.is_set():
                with contextlib.suppress(Exception):
                    code = source.choice([AGENT, FORKING, STUBBORN, LOUD, "raise SystemExit(3)"])
                    session = daemon.create(code).json().get("session_id", new_id())
                    self.be_rude(daemon, session, source)
                    if source.random() < 0.7:
                        daemon.delete(session, timeout=20)
                time.sleep(source.random() * 0.02)
        threads = [threading.Thread(target=turn, args=(random.Random(rng.random()),)) for _ in range(3)]
        for thread in threads:
            thread.start()
        return threads

    def be_rude(self, daemon, session, source):
        """A client that vanishes in the middle of an upgrade, a frame, or a body."""
        head = f"Host: localhost\r\n{TOKEN_HEADER}: {TOKEN}\r\n"
        upgrade = (f"GET /sessions/{session}/ws HTTP/1.1\r\n{head}Upgrade: websocket\r\nConnection: Upgrade\r\n"
                   "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n")
        body = f"POST /sessions HTTP/1.1\r\n{head}Content-Type: application/json\r\nContent-Length: 5000\r\n\r\n" + "{" * 100
        frame = upgrade.encode() + b"\x81\xfe\x10\x00abcd" + b"z" * 500  # Says 4096 bytes, and has 500.
        data = source.choice([upgrade.encode(), frame, body.encode()])
        with socket.create_connection(("127.0.0.1", daemon.port), timeout=5) as connection:
            connection.sendall(data[:source.randrange(1, len(data) + 1)])
            if source.random() < 0.5:
                connection.settimeout(0.05)
                with contextlib.suppress(OSError):
                    connection.recv(4096)

    def round(self, part, seed):
        rng = random.Random(seed)
        daemon = self.daemon()
        stop = threading.Event()
        threads = self.clients(daemon, rng, stop)
        time.sleep(rng.random() * 0.8)
        cast = Cast(daemon)
        killed = 0
        for pid in rng.sample(found := cast.find(part), k=min(len(found), 1 + rng.randrange(3))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        time.sleep(rng.random() * 0.3)
        if part in ("service", "zygote"):
            self.assertEqual(daemon.process.wait(30), 1, "a daemon without its service ends, and says so by its exit")
        stop.set()
        for thread in threads:
            thread.join()
        self.end(daemon, part)
        return killed

    def end(self, daemon, part):
        if part in ("daemon", "service", "zygote"):
            daemon.process.wait(30)
        else:
            self.every_slot_comes_back(daemon)
            self.assertEqual(daemon.stop(timeout=30), 0, daemon.log)
        cast = Cast(daemon)
        self.assertTrue(wait_until(self.nothing_below, 20), f"processes are left: {descendants()}\n{daemon.log}")
        self.assertEqual(cast.of_the_pool(), [])
        following = self.daemon(root=daemon.root)
        self.assertEqual(following.workspaces(), [], "what the last one had left")
        session = following.session()
        relay = following.relay(session)
        self.assertEqual(relay.answer_to("x"), "echo x")
        relay.close()
        self.assertEqual(following.delete(session).status, 200)
        self.assertEqual(following.stop(), 0)

    def nothing_below(self):
        """What was orphaned is this process's to reap."""
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
        return descendants() == []

    def every_slot_comes_back(self, daemon):
        """Of sessions that were killed from outside too; those that nobody has deleted are deleted here."""
        for name in daemon.workspaces():
            daemon.delete(name)
        def all_free():
            metrics = daemon.request("GET", "/metrics").body.decode()
            return f'slots{{state="free"}} {POOL_SIZE}\n' in metrics
        self.assertTrue(wait_until(all_free, 30), daemon.request("GET", "/metrics").body.decode() + daemon.log)
        self.assertEqual(daemon.workspaces(), [])

    def rounds(self, part, count):
        killed = 0
        for number in range(count):
            seed = f"{SEED}-{part}-{number}"
            with self.subTest(seed=seed):
                killed += self.round(part, seed)
        self.assertGreater(killed, 0, f"control: no {part} was met in {count} rounds")

    @as_shipped
    def test_kill_9_of_the_daemon_leaves_nothing(self):
        self.rounds("daemon", 2)

    @as_shipped
    def test_kill_9_of_the_launch_service_leaves_nothing(self):
        self.rounds("service", 2)

    @as_shipped
    def test_kill_9_of_the_zygote_leaves_nothing(self):
        self.rounds("zygote", 2)

    @as_shipped
    def test_kill_9_of_monitors_leaves_nothing(self):
        self.rounds("monitor", 2)

    @as_shipped
    def test_kill_9_of_inits_leaves_nothing(self):
        self.rounds("init", 2)

    @as_shipped
    def test_kill_9_of_agents_leaves_nothing(self):
        self.rounds("agent", 2)

    @long
    @as_shipped
    def test_sixty_more_rounds(self):
        for part in ("daemon", "service", "zygote", "monitor", "init", "agent"):
            self.rounds(part, 10)


if __name__ == "__main__":
    main()
