"""What sessions of the daemon cost, beside the same work without it, in interleaved rounds of one run.

    sessions.py --build DIR [--rounds N] [--only PART,...]

Parts: start (a session until its first output, and a run, beside bare programs), command (in a running session
and in its shell, beside bare ones, a fresh sandbox, and bubblewrap with a Python supervisor), kill (while twenty
sessions start), relay (of messages, beside a plain echo), memory (of idle sessions, after a thousand others).
Only relations mean anything: absolute times belong to one machine at one moment.
"""

import argparse
import base64
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid

from report import note, print_table, title

UID_BASE, POOL, PORT_BASE = 1_420_000_000, 210, 21000
SHELL = {"policy": "builtin:shell@1", "network": "none"}
SUPERVISOR = ("import json, subprocess, sys\nfor line in sys.stdin:\n    run = subprocess.run(['bash', '-c', json.loads(line)], "
              "capture_output=True)\n    print(json.dumps({'code': run.returncode}), flush=True)\n")


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=120)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Daemon:
    def __init__(self, build, directory):
        self.socket, self.root = f"{directory}/belljard.sock", f"{directory}/sessions"
        self.log = open(f"{directory}/log", "w+")
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "BELLJAR_LAUNCHER": f"{build}/launcher/belljar",
                       "AGENT_SIMULATOR_COMMAND": "python3 agent.py", "AGENT_SIMULATOR_MAX_SESSIONS": str(POOL),
                       "AGENT_SIMULATOR_SESSION_UID_BASE": str(UID_BASE),
                       "AGENT_SIMULATOR_PORT_POOL_START": str(PORT_BASE), "AGENT_SIMULATOR_API_TOKEN": "0" * 32}
        self.process = subprocess.Popen([f"{build}/api/belljard", "--simulator", f"--listen=unix:{self.socket}",
                                         f"--sessions-root={self.root}"], env=environment, cwd="/",
                                        stdout=self.log, stderr=self.log)
        for _ in range(200):
            time.sleep(0.05)
            if "ready" in pathlib.Path(self.log.name).read_text():
                return
        raise SystemExit("belljard is not ready: " + pathlib.Path(self.log.name).read_text())

    def connect(self):
        return Unix(self.socket)

    def call(self, method, path, body=None, connection=None):
        used = connection or self.connect()
        used.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
        answer = used.getresponse()
        data = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {data[:500]}")
        return json.loads(data) if data else None

    def session(self, **body):
        return "/v1/sessions/" + self.call("POST", "/v1/sessions", body)["id"]

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def timed(work):
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def rounds(count, contenders):
    """{name: sorted times in ms} of contenders that take turns."""
    times = {name: [] for name in contenders}
    for number in range(count + 2):
        for name, work in contenders.items():
            took = timed(work)
            if number >= 2:
                times[name].append(took)
    return {name: sorted(values) for name, values in times.items()}


def at(values, part):
    return values[min(len(values) - 1, int(len(values) * part))]


def show(times, base):
    rows = []
    for name, values in times.items():
        ratio = statistics.median(values) / statistics.median(times[base])
        rows.append([name, *(f"{at(values, part):.2f}" for part in (0.5, 0.95, 0.99)), f"{ratio:.2f}"])
    print_table(["ms", "p50", "p95", "p99", f"/ {base}"], rows)


# --- parts --------------------------------------------------------------------------------------------------

def bench_start(daemon, settings):
    title("until the first output, and one-shot runs")
    hello = ["python3", "-c", "print('x', flush=True); import time; time.sleep(60)"]

    def session_until_output():
        path = daemon.session(policy="builtin:agent@1", command={"argv": hello})
        connection = daemon.connect()
        connection.request("GET", f"{path}/processes/0/output?follow=true")
        while b'"output"' not in connection.getresponse().readline():
            pass
        connection.close()
        daemon.call("DELETE", path)

    def bare_until_output():
        with subprocess.Popen(hello, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            process.kill()

    show(rounds(settings.rounds, {
        "bare python3 -c": bare_until_output, "session with it, and its end": session_until_output}), "bare python3 -c")
    show(rounds(settings.rounds * 4, {
        "bare true": lambda: subprocess.run(["true"]),
        "/v1/run true": lambda: daemon.call("POST", "/v1/run", {"argv": ["true"]}),
        "GET /livez": lambda: daemon.call("GET", "/livez")}), "bare true")


def bench_command(daemon, settings):
    title("a command in a running session")
    session, kept = daemon.session(**SHELL), daemon.connect()
    belljar = f"{settings.build}/launcher/belljar"
    bwrap = ["bwrap", "--ro-bind", "/", "/", "--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev",
             "python3", "-I", "-S", "-c", SUPERVISOR]

    def original():
        """A supervisor in Python, started for one command as the worker does past its cap."""
        subprocess.run(bwrap, input=json.dumps("true") + "\n", text=True, capture_output=True, check=True)

    running = subprocess.Popen(bwrap, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def running_original():
        running.stdin.write(json.dumps("true") + "\n")
        running.stdout.readline()

    show(rounds(settings.rounds * 4, {
        "bare true": lambda: subprocess.run(["true"]),
        "exec true": lambda: daemon.call("POST", session + "/exec", {"argv": ["true"]}, kept),
        "bare bash -c true": lambda: subprocess.run(["bash", "-c", "true"]),
        "shell command true": lambda: daemon.call("POST", session + "/shell/commands", {"shell": "true"}, kept),
        "belljar run, fresh": lambda: subprocess.run([belljar, "run", "--policy", "builtin:shell@1", "--set", "network.mode=none", "--",
                                                      "bash", "-c", "true"], cwd=settings.directory, capture_output=True),
        "bwrap and python, running": running_original,
        "bwrap and python, fresh": original,
        "GET /livez": lambda: daemon.call("GET", "/livez", None, kept)}), "bare bash -c true")
    running.stdin.close()
    running.wait()
    note("exec and shell times hold one HTTP request each, which GET /livez shows alone")
    daemon.call("DELETE", session)


def bench_kill(daemon, settings):
    title("ending a command while twenty sessions start")

    def kill_one():
        session = daemon.session(**SHELL)
        process = daemon.call("POST", session + "/processes", {"argv": ["sleep", "600"]})["id"]
        starters = [threading.Thread(target=lambda: daemon.call("DELETE", daemon.session(**SHELL))) for _ in range(20)]
        for starter in starters:
            starter.start()
        took = timed(lambda: daemon.call("POST", f"{session}/processes/{process}/signal", {"signal": "KILL"}))
        for starter in starters:
            starter.join()
        daemon.call("DELETE", session)
        return took

    times = sorted(kill_one() for _ in range(max(3, settings.rounds // 4)))
    print_table(["ms", "p50", "worst"], [["signal KILL", f"{at(times, 0.5):.2f}", f"{times[-1]:.2f}"]])


AGENT = ("import base64, os\nopen('echo', 'wb').write(base64.b64decode(open('echo.b64').read()))\nos.chmod('echo', 0o700)\n"
         "os.execv('./echo', ['echo', 'serve', os.environ['BESSER_WS_PORT']])\n")


def bench_relay(daemon, settings):
    title("messages through a relay, beside a plain echo")
    stripped = f"{settings.directory}/ws_echo"
    shutil.copy(f"{settings.build}/tests/bench/ws_echo", stripped)
    subprocess.run(["strip", stripped], check=True)
    name = str(uuid.uuid4())
    daemon.call("POST", "/sessions", {"session_id": name, "agent_code": AGENT, "config_yaml": "agent: {}\n", "env_vars": {}, "event_list": [],
                                      "support_files": {"echo.b64": base64.b64encode(pathlib.Path(stripped).read_bytes()).decode()},
                                      "workspace_paths": []})
    port = PORT_BASE + POOL + 7
    plain = subprocess.Popen([stripped, "serve", str(port)])
    try:
        time.sleep(0.5)
        for size, count, window in ((100, 20000, 32), (65536, 2000, 8), (100, 2000, 1)):
            results = {"plain echo": [], "relay": []}
            for _ in range(max(3, settings.rounds // 4)):
                for contender, where, target in (("plain echo", str(port), "/"), ("relay", daemon.socket, f"/sessions/{name}/ws")):
                    done = subprocess.run([stripped, "drive", where, target, str(size), str(count), str(window)], capture_output=True, text=True)
                    if done.returncode != 0:
                        raise SystemExit(f"{contender}: {done}")
                    results[contender].append(float(done.stdout))
            rate = {contender: count / statistics.median(values) for contender, values in results.items()}
            print_table([f"{size} bytes, {window} on their way", "messages/s", "/ plain"],
                        [[contender, f"{value:.0f}", f"{value / rate['plain echo']:.2f}"] for contender, value in rate.items()])
        note("with one on its way a relay doubles the way: 0.5 is what adding nothing gives")
    finally:
        plain.kill()
        plain.wait()
        daemon.call("DELETE", f"/sessions/{name}")


def bench_memory(daemon, settings):
    title("memory of idle sessions, after a thousand others")
    for _ in range(0 if settings.rounds < 5 else 1000):
        daemon.call("DELETE", daemon.session(command={"argv": ["sleep", "600"]}))
    sessions = [daemon.session(command={"argv": ["sleep", "600"]}) for _ in range(50)]
    time.sleep(2)
    children = lambda pid: [int(x) for x in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    service = children(daemon.process.pid)[0]
    monitors = sorted(children(service))[1:]
    pss = lambda pid: next(int(line.split()[1]) for line in open(f"/proc/{pid}/smaps_rollup") if line.startswith("Pss:"))
    each = sorted((pss(pid), pss(children(pid)[0])) for pid in monitors if children(pid))
    print_table(["KiB", "monitor", "init", "both", "budget"],
                [["PSS, median of 50", *(str(int(statistics.median(values))) for values in
                                         ([a for a, _ in each], [b for _, b in each], [a + b for a, b in each])), "200"]])
    for session in sessions:
        daemon.call("DELETE", session)


PARTS = {"start": bench_start, "command": bench_command, "kill": bench_kill, "relay": bench_relay, "memory": bench_memory}


def main():
    parser = argparse.ArgumentParser(description="Measures the daemon's sessions.")
    parser.add_argument("--build", type=lambda text: str(pathlib.Path(text).resolve()), required=True)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--only", default=",".join(PARTS))
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="belljar-bench-", dir="/var/tmp") as directory:
        os.chmod(directory, 0o755)
        settings.directory = directory
        daemon = Daemon(settings.build, directory)
        try:
            print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs, Linux {os.uname().release}, {settings.rounds} rounds")
            for part in settings.only.split(","):
                PARTS[part](daemon, settings)
        finally:
            daemon.stop()
            with contextlib.suppress(OSError):
                shutil.rmtree(daemon.root)


if __name__ == "__main__":
    sys.exit(main())
