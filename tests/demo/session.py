"""The daemon's round trip: an agent session is made from files, talked to, looked at, and gone."""
import asyncio
import http.client
import json
import os
import pathlib
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import uuid

import websockets

TOKEN = uuid.uuid4().hex
UID_BASE = 1_500_000_000
AGENT = '''
import asyncio, yaml, websockets
server = yaml.safe_load(open("config.yaml"))["platforms"]["websocket"]

async def talk(connection, *_):
    print("INFO - [greeting] Running body hello", flush=True)
    async for message in connection:
        open("heard.txt", "a").write(message + "\\n")
        await connection.send("You said: " + message)

async def main():
    async with websockets.serve(talk, server["host"], server["port"]):
        await asyncio.Future()

asyncio.run(main())
'''


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def request(port: int, method: str, path: str, body: dict | None = None) -> dict:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"X-Agent-Simulator-Token": TOKEN, "Content-Type": "application/json"}
    connection.request(method, path, json.dumps(body) if body is not None else None, headers)
    answer = connection.getresponse()
    text = answer.read()
    print(f"$ {method} {path}\n  {answer.status} {text.decode()[:300]}", flush=True)
    if answer.status != 200:
        sys.exit(1)
    return json.loads(text)


def ctl(belljarctl: str, socket_path: str, *arguments: str) -> None:
    """The same sessions, from a shell."""
    done = subprocess.run([belljarctl, f"--socket={socket_path}", *arguments], capture_output=True, text=True, timeout=60)
    print("\n".join([f"$ belljarctl {shlex.join(arguments)}",
                     *(f"  {line}" for line in (done.stdout + done.stderr).splitlines())]), flush=True)
    if done.returncode != 0:
        sys.exit(1)


def wait_for_port(port: int, daemon: subprocess.Popen) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until and daemon.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit("belljard did not start")


async def talk(port: int, session: str) -> None:
    url = f"ws://127.0.0.1:{port}/sessions/{session}/ws"
    print(f"$ connect {url}", flush=True)
    async with websockets.connect(url, extra_headers={"X-Agent-Simulator-Token": TOKEN}) as agent:
        await agent.send("hello")
        frame = ""
        while not frame.startswith("You said"):
            frame = await asyncio.wait_for(agent.recv(), 30)
            print(f"  < {frame}", flush=True)


def left_over(root: pathlib.Path, pool: range) -> list[str]:
    """Processes of the pool's uids, and directories of sessions."""
    found = [str(path) for path in root.iterdir()]
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and entry.stat().st_uid in pool:
                found.append(f"process {entry.name}")
        except FileNotFoundError:
            continue
    return found


def main() -> None:
    belljard, belljar = map(os.path.abspath, sys.argv[1:3])
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="belljar-demo-", dir="/var/tmp") as directory:
        os.chmod(directory, 0o755)
        root = pathlib.Path(directory) / "sessions"
        environment = {"PATH": os.environ["PATH"], "BELLJAR_LAUNCHER": belljar, "AGENT_SIMULATOR_API_TOKEN": TOKEN,
                       "AGENT_SIMULATOR_COMMAND": "/usr/bin/python3 agent.py"}
        local = f"{directory}/belljard.sock"
        command = [belljard, "--simulator", f"--listen=tcp:127.0.0.1:{port}", f"--listen=unix:{local}",
                   f"--sessions-root={root}",
                   f"--uid-base={UID_BASE}", f"--port-base={free_port()}", "--max-sessions=1"]
        print("\n$ " + " ".join(["belljard", *command[1:]]), flush=True)
        daemon = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        try:
            wait_for_port(port, daemon)
            request(port, "GET", "/health")
            session = str(uuid.uuid4())
            request(port, "POST", "/sessions", {"session_id": session, "agent_code": AGENT,
                                                "config_yaml": "nlp: {openai: {api_key: sk-demo}}"})
            asyncio.run(talk(port, session))
            request(port, "GET", f"/sessions/{session}/files")
            belljarctl = os.path.join(os.path.dirname(belljard), "belljarctl")
            ctl(belljarctl, local, "ps")
            ctl(belljarctl, local, "exec", session, "--", "sh", "-c", "id -u; cat heard.txt")
            ctl(belljarctl, local, "logs", session)
            request(port, "DELETE", f"/sessions/{session}")
            left = left_over(root, range(UID_BASE, UID_BASE + 1) if os.getuid() == 0 else range(0))
        finally:
            daemon.terminate()
            daemon.wait(20)
        print("Left of it: " + (", ".join(left) or "no process, no uid, no directory."))
        if left:
            sys.exit(1)


if __name__ == "__main__":
    main()
