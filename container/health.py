#!/usr/bin/python3
"""The container's health check: red when the daemon does not answer, and when sandboxes cannot be had.

With a token of the agent simulator's face its /health is asked, which is 200 when it is degraded, too; otherwise
/readyz on the daemon's socket. One line says why."""

import http.client
import json
import os
import socket
import sys

SOCKET = os.environ.get("DAEMON_SOCKET", "/run/belljar/belljard.sock")
PORT = int(os.environ.get("DAEMON_HEALTH_PORT", "8001"))


class UnixConnection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(SOCKET)


def ask(connection, path, headers):
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode(errors="replace")


def simulator(token):
    status, body = ask(http.client.HTTPConnection("127.0.0.1", PORT, timeout=10), "/health",
                       {"X-Agent-Simulator-Token": token})
    health = json.loads(body) if status == 200 else {}
    return status == 200 and health.get("status") == "ok", f"{status} {body.strip()}"


def daemon():
    status, body = ask(UnixConnection("localhost", timeout=10), "/readyz", {})
    return status == 200, f"{status} {body.strip()}"


def main():
    token = os.environ.get("AGENT_SIMULATOR_API_TOKEN", "").strip()
    try:
        good, said = simulator(token) if token else daemon()
    except (OSError, ValueError, http.client.HTTPException) as error:
        good, said = False, f"the daemon does not answer: {error}"
    print(said)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
