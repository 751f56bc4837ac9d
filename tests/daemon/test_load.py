"""Load on loopback: many sessions at once, many one after another, and clients that do not read."""

import asyncio
import concurrent.futures
import os
import pathlib
import re
import socket
import sys
import time

import websockets

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import daemon as daemons
from daemon import TOKEN, TOKEN_HEADER, DaemonTest, as_shipped, processes_of, wait_until
from harness import ROOT, long, main, processes

MANY = 100
LOUD = "import time\nwhile True:\n    print('x' * 60000, flush=True)\n    time.sleep(0.001)\n"


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident(pid):
    """KiB that are the process's own."""
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(("Private_Dirty:", "Private_Clean:")))


def children(pid):
    return sorted(child for child, (parent, _, _) in processes().items() if parent == pid)


class Load(DaemonTest):

    def pool_is_empty(self, count):
        return all(processes_of(uid) == [] for uid in range(daemons.UID_BASE, daemons.UID_BASE + count))

    @as_shipped
    @long
    def test_100_agents_at_once_each_with_an_open_relay_answer_and_leave_nothing(self):
        # Ports and uids of this many reach into those of other test processes: run alone.
        daemon = self.daemon(pool=MANY, variables={"AGENT_SIMULATOR_PORT_POOL_START": "30000",
                                                   "AGENT_SIMULATOR_SESSION_UID_BASE": "1390000000"})
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            made = list(threads.map(lambda _: daemon.create(), range(MANY)))
        self.assertEqual({answer.status for answer in made}, {200})
        names = [answer.json()["session_id"] for answer in made]
        self.assertEqual(len({answer.json()["port"] for answer in made}), MANY)

        async def talk(name):
            url = f"ws://127.0.0.1:{daemon.port}/sessions/{name}/ws"
            async with websockets.connect(url, extra_headers=daemon.headers(), open_timeout=60) as relay:
                opened.add(name)
                while len(opened) < MANY:
                    await asyncio.sleep(0.05)
                await relay.send("hello " + name)
                while True:
                    frame = await asyncio.wait_for(relay.recv(), 120)
                    if not daemons.is_ours(frame):
                        return frame

        async def talk_to_all():
            return await asyncio.gather(*(talk(name) for name in names))

        opened = set()
        self.assertEqual(asyncio.run(talk_to_all()), ["echo hello " + name for name in names])
        self.assertEqual(daemon.health()["sessions"], MANY)
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            self.assertEqual({answer.status for answer in threads.map(daemon.delete, names)}, {200})
        self.assertEqual(daemon.workspaces(), [])
        self.assertTrue(wait_until(lambda: all(processes_of(1390000000 + n) == [] for n in range(MANY))))

    @as_shipped
    def test_a_session_takes_no_more_descriptors_than_the_doctor_counts(self):
        code = (ROOT / "launcher" / "findings.cpp").read_text()
        counted = {name: int(re.search(rf"{name} = (\d+)", code)[1])
                   for name in ("kDescriptorsOfTheDaemon", "kDescriptorsOfASession")}
        daemon = self.daemon()
        at_rest = max(descriptors(pid) for pid in (daemon.process.pid, *children(daemon.process.pid)))
        self.assertLessEqual(at_rest, counted["kDescriptorsOfTheDaemon"])
        relays = []
        for number in range(daemons.POOL_SIZE):
            relays.append(daemon.relay(daemon.session()))
            self.assertEqual(relays[-1].answer_to("hello"), "echo hello")
            now = {pid: descriptors(pid) for pid in (daemon.process.pid, *children(daemon.process.pid))}
            most = counted["kDescriptorsOfTheDaemon"] + (number + 1) * counted["kDescriptorsOfASession"]
            self.assertLessEqual(max(now.values()), most, now)

    @as_shipped
    @long
    def test_1000_sessions_one_after_another_leave_no_process_descriptor_mount_or_memory(self):
        daemon = self.daemon()
        service = children(daemon.process.pid)[0]
        zygote = children(service)[0]
        family = (daemon.process.pid, service, zygote)
        seen = []
        # First as many as fill the ring of events and the list of ended sessions, which are bounded.
        for count in range(3500):
            name = daemon.session("print('here', flush=True)\nimport time\ntime.sleep(60)")
            self.assertEqual(daemon.delete(name).status, 200)
            if count in (2499, 3499):
                self.assertTrue(wait_until(lambda: children(service) == [zygote]), "a monitor is left")
                mounts = pathlib.Path(f"/proc/{service}/mountinfo").read_text().count("\n")
                seen.append(([descriptors(pid) for pid in family], mounts, [resident(pid) for pid in family]))
        (descriptors_then, mounts_then, memory_then), (descriptors_now, mounts_now, memory_now) = seen
        self.assertEqual((descriptors_now, mounts_now), (descriptors_then, mounts_then))
        for then, now in zip(memory_then, memory_now):
            self.assertLess(now, then * 1.03 + 256, f"memory has grown: {memory_then} KiB, then {memory_now}")
        self.assertEqual(daemon.workspaces(), [])
        self.assertTrue(self.pool_is_empty(daemons.POOL_SIZE))

    def stalled(self, daemon, session):
        """A client that has upgraded, and reads nothing."""
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect(("127.0.0.1", daemon.port))
        self.addCleanup(reader.close)
        reader.sendall((f"GET /sessions/{session}/ws HTTP/1.1\r\nHost: localhost\r\n{TOKEN_HEADER}: {TOKEN}\r\n"
                        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                        "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n").encode())
        return reader

    @as_shipped
    def test_200_readers_that_stall_hold_up_nobody_and_cost_bounded_memory(self):
        daemon = self.daemon()
        loud = daemon.session(LOUD)
        for _ in range(200):
            self.stalled(daemon, loud)
        time.sleep(2)
        self.assertEqual(daemon.health()["status"], "ok")
        other = daemon.session()
        self.assertEqual(daemon.relay(other).answer_to("x"), "echo x")
        self.assertLess(resident(daemon.process.pid), 200 << 10, "KiB of the daemon")
        self.assertEqual(daemon.delete(loud, timeout=5).status, 200)
        self.assertEqual(daemon.delete(other, timeout=5).status, 200)

    @as_shipped
    @long
    def test_1500_idle_connections_hold_up_nobody(self):
        daemon = self.daemon()
        held = []
        for _ in range(1500):
            connection = socket.create_connection(("127.0.0.1", daemon.port))
            self.addCleanup(connection.close)
            held.append(connection)
        self.assertEqual(daemon.health()["status"], "ok")


if __name__ == "__main__":
    main()
