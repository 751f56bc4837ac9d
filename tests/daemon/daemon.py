"""belljard under test, and an independent client: http.client and websockets, as a backend has them.

A test class derives from `DaemonTest`; `self.daemon(…)` starts belljard as the test's caller on
loopback with a pool, ports and a sessions root of its own. It is stopped at the end of the test, and
nothing may be left then: no process of the pool's uids, no directory, no listening port."""

import asyncio
import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import uuid

import websockets

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import harness
from harness import BELLJAR, BELLJAR_SOURCE, SandboxTest, back_ends, callers, wait_for_no_descendants

# The daemon is dynamic, so it may be where the build has it; the stage holds what sandboxes see.
BELLJARD = pathlib.Path(os.environ.get("BELLJARD", BELLJAR_SOURCE.parent.parent / "api" / "belljard")).resolve()
BELLJARCTL = pathlib.Path(os.environ.get("BELLJARCTL", BELLJARD.with_name("belljarctl"))).resolve()

TOKEN = "0123456789abcdef0123456789abcdef"
TOKEN_HEADER = "X-Agent-Simulator-Token"
POOL_SIZE = 5
# A pool for each test process, away from the uids of every other test and above every Debian range.
UID_BASE = 1_400_000_000 + os.getpid() % 100_000 * 16
PORT_BASE = 12000 + os.getpid() % 1500 * 10

# As the real framework does: the port is read from config.yaml. What it is sent, it does.
AGENT = '''
import asyncio, json, logging, os, sys, yaml, websockets
with open("config.yaml") as file:
    server = yaml.safe_load(file)["platforms"]["websocket"]

async def talk(connection, *_):
    print("a client is here", flush=True)
    async for message in connection:
        if message.startswith("run "):
            scope = {"answer": None, "os": os, "sys": sys}
            try:
                exec(message[4:], scope)
                await connection.send(json.dumps(scope["answer"], default=repr))
            except Exception as error:
                await connection.send(json.dumps(repr(error)))
        elif message == "binary":
            await connection.send(b"caf\\xc3\\xa9 \\xff")
        elif message == "close":
            return
        elif message.startswith("size "):
            await connection.send("m" * int(message[5:]))
        else:
            await connection.send("echo " + message)

async def main():
    async with websockets.serve(talk, server["host"], server["port"], max_size=None):
        await asyncio.Future()

asyncio.run(main())
'''


def as_shipped(function):
    """Runs the test as containers run the daemon: five capabilities, and mostly the legacy back end."""
    return callers("five")(back_ends("legacy")(function))


def new_id():
    return str(uuid.uuid4())


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Answer:
    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.body[:500]!r}>"


class Relay:
    """The backend's end of a WebSocket, spoken to in steps."""

    def __init__(self, url, headers, **options):
        self.loop = asyncio.new_event_loop()
        async def connected():
            return await websockets.connect(url, extra_headers=headers, open_timeout=15, **options)
        self.socket = self._do(connected(), 20)

    def _do(self, what, timeout=15):
        async def waited():
            return await asyncio.wait_for(what, timeout)
        return self.loop.run_until_complete(waited())

    def send(self, message):
        self._do(self.socket.send(message))

    def receive(self, timeout=15):
        return self._do(self.socket.recv(), timeout)

    def frames_until(self, wanted, timeout=20):
        """All frames up to the first that `wanted` holds for."""
        frames = []
        until = time.monotonic() + timeout
        while not frames or not wanted(frames[-1]):
            frames.append(self.receive(max(0.1, until - time.monotonic())))
        return frames

    def answer_to(self, message):
        """What the agent says to `message`; what the service says in between is passed over."""
        self.send(message)
        return self.frames_until(lambda frame: not is_ours(frame))[-1]

    def run(self, code):
        """Runs Python in the agent, and returns its `answer`."""
        return json.loads(self.answer_to("run " + code))

    def rest(self, timeout=20):
        """All frames that still come, and then the closing code."""
        frames = []
        try:
            while True:
                frames.append(self.receive(timeout))
        except websockets.ConnectionClosed:
            return frames, self.socket.close_code

    def close(self):
        if self.loop.is_closed():
            return
        with contextlib.suppress(Exception):
            self._do(self.socket.close())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


def is_ours(frame):
    """Whether a frame is the service's own, not relayed."""
    try:
        return json.loads(frame).get("type") in ("stdout", "state_change", "error", "exit")
    except (ValueError, AttributeError):
        return False


class Daemon:
    def __init__(self, test, arguments, variables, token, simulator=True, pool=POOL_SIZE, prefix=(), root=None):
        self.test, self.port, self.token = test, free_port(), token
        owner = test.uid if not test.privileged else None
        self.root = root or (test.dir / "sessions" if test.privileged else test.make_directory("sessions", owner, 0o711))
        self.log_path = test.dir / f"log-{self.port}"
        self.environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8",
            "BELLJAR_LAUNCHER": os.environ.get("FAKE_LAUNCHER", str(BELLJAR)),
            "AGENT_SIMULATOR_COMMAND": "python3 agent.py",
            "AGENT_SIMULATOR_MAX_SESSIONS": str(pool),
            "AGENT_SIMULATOR_SESSION_UID_BASE": str(UID_BASE),
            "AGENT_SIMULATOR_PORT_POOL_START": str(PORT_BASE),
            **({"AGENT_SIMULATOR_API_TOKEN": token} if token else {}), **variables}
        command = [*prefix, BELLJARD, *(["--simulator"] if simulator else []), f"--listen=tcp:127.0.0.1:{self.port}",
                   f"--sessions-root={self.root}", *arguments]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(list(map(str, command)), env=self.environment, cwd="/",
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    @property
    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait_ready(self, timeout=20):
        until = time.monotonic() + timeout
        while "info ready" not in self.log and '"message":"ready"' not in self.log:
            if self.process.poll() is not None or time.monotonic() > until:
                self.test.fail(f"belljard is not ready:\n{self.log}")
            time.sleep(0.02)
        return self

    def headers(self, token=...):
        token = self.token if token is ... else token
        return {} if token is None else {TOKEN_HEADER: token}

    def request(self, method, path, body=None, token=..., headers=None, timeout=120):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            given = {**self.headers(token), **(headers or {})}
            if body is not None and not isinstance(body, (bytes, str)):
                body, given = json.dumps(body), {"Content-Type": "application/json", **given}
            connection.request(method, path, body, given)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def create(self, code=AGENT, session_id=None, config="agent: {name: a}\n", **members):
        """POST /sessions; the answer, whatever it is."""
        body = {"session_id": session_id or new_id(), "agent_code": code, "config_yaml": config, "env_vars": {},
                "event_list": [], "support_files": {}, "workspace_paths": [], **members}
        return self.request("POST", "/sessions", body)

    def session(self, *arguments, **members):
        """The id of a session that has been created."""
        answer = self.create(*arguments, **members)
        self.test.assertEqual(answer.status, 200, f"{answer}\n{self.log}")
        return answer.json()["session_id"]

    def delete(self, session_id, **options):
        return self.request("DELETE", f"/sessions/{session_id}", **options)

    def files(self, session_id):
        return self.request("GET", f"/sessions/{session_id}/files")

    def listed(self, session_id):
        """{path: content} of a session's files, and its directories."""
        answer = self.files(session_id)
        self.test.assertEqual(answer.status, 200, repr(answer))
        return {file["path"]: file["content"] for file in answer.json()["files"]}, answer.json()["directories"]

    def relay(self, session_id, token=..., **options):
        relay = Relay(f"ws://127.0.0.1:{self.port}/sessions/{session_id}/ws", self.headers(token), **options)
        self.test.addCleanup(relay.close)
        return relay

    def health(self):
        return self.request("GET", "/health").json()

    def workspaces(self):
        """Names of what sessions have in the sessions root."""
        return sorted(path.name for path in self.root.iterdir() if not path.name.startswith("selftest-"))

    def send_raw(self, data, timeout=10):
        """The bytes that come back to `data`, until the end of the connection or a pause."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.sendall(data)
            return read_all(connection)

    def stop(self, number=signal.SIGTERM, timeout=20):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def read_all(connection):
    data = b""
    with contextlib.suppress(TimeoutError, ConnectionResetError):
        while piece := connection.recv(65536):
            data += piece
    return data


def processes_of(uid):
    """[(pid, state, command line)] of everything that has this real uid."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            status = (entry / "status").read_text()
            ids = [line.split()[1] for line in status.splitlines() if line.startswith("Uid:")]
            if ids == [str(uid)]:
                state = status.partition("State:\t")[2][0]
                found.append((int(entry.name), state, (entry / "cmdline").read_bytes()))
    return found


def most_resident_kib(pid):
    """The most that the process has ever had in memory."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def wait_until(condition, timeout=10):
    """Whether it comes to hold: of what takes its time, and is no matter of time."""
    until = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


class DaemonTest(SandboxTest):
    def daemon(self, *arguments, token=TOKEN, ready=True, **options):
        """`before` is executed with the suite's rights, to execute the rest."""
        variables, before = options.pop("variables", {}), options.pop("before", ())
        daemon = Daemon(self, arguments, variables, token, prefix=[*before, *self.prefix()], **options)
        self.addCleanup(self.check_that_it_ends, daemon)
        return daemon.wait_ready() if ready else daemon

    def check_that_it_ends(self, daemon):
        if daemon.process.poll() is None:
            daemon.stop()
        if self.privileged:
            for uid in range(UID_BASE, UID_BASE + POOL_SIZE):
                self.assertEqual(processes_of(uid), [], f"processes of the pool are left\n{daemon.log}")
        self.assertEqual(wait_for_no_descendants(3.0), [], "processes are left")
        left = list(daemon.root.iterdir()) if daemon.root.exists() else []
        self.assertEqual(left, [], "workspaces are left")

    def refused_upgrade(self, daemon, path, token):
        """The HTTP status of an upgrade that is not accepted."""
        url = f"ws://127.0.0.1:{daemon.port}{path}"
        try:
            relay = Relay(url, daemon.headers(token))
        except websockets.InvalidStatusCode as refusal:
            return refusal.status_code
        relay.close()
        return 101
