"""A client of /v1 that knows nothing of belljard's: http.client over the unix socket or TCP."""

import http.client
import json
import pathlib
import socket
import sys
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import POOL_SIZE, PORT_BASE, TOKEN, UID_BASE, Answer, DaemonTest, as_shipped, wait_until  # noqa: F401

JSON = {"Content-Type": "application/json"}


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class V1:
    """`call` answers whatever comes; the other methods expect that it works."""

    def __init__(self, test, daemon, socket_path=None):
        self.test, self.daemon, self.socket_path = test, daemon, socket_path

    def connection(self, timeout=120):
        if self.socket_path:
            return UnixConnection(self.socket_path, timeout)
        return http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=timeout)

    def headers(self, given=None):
        token = {} if self.socket_path or self.daemon.token is None else {
            "Authorization": f"Bearer {self.daemon.token}"}
        return {**token, **(given or {})}

    def call(self, method, path, body=None, headers=None, timeout=120):
        connection = self.connection(timeout)
        try:
            given = self.headers(headers)
            if body is not None and not isinstance(body, (bytes, str)):
                body, given = json.dumps(body), {**JSON, **given}
            connection.request(method, path, body, given)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def expect(self, status, method, path, body=None, **options):
        answer = self.call(method, path, body, **options)
        self.test.assertEqual(answer.status, status, f"{method} {path}: {answer}\n{self.daemon.log}")
        return answer.json() if answer.body else None

    def problem(self, status, code, method, path, body=None, **options):
        """The problem that a call is refused with."""
        answer = self.call(method, path, body, **options)
        self.test.assertEqual(answer.status, status, f"{method} {path}: {answer}\n{self.daemon.log}")
        self.test.assertEqual(answer.headers["content-type"], "application/problem+json")
        problem = answer.json()
        self.test.assertEqual((problem["code"], problem["status"], problem["type"]),
                              (code, status, f"urn:belljar:problem:{code}"))
        return problem

    def create(self, **body):
        return self.expect(201, "POST", "/v1/sessions", body)

    def session(self, **body):
        """The path of a new session."""
        return "/v1/sessions/" + self.create(**body)["id"]

    def exec(self, session, shell=None, **body):
        return self.expect(200, "POST", session + "/exec", {**({"shell": shell} if shell else {}), **body})

    def start(self, session, shell=None, **body):
        """The path of a new process."""
        body = {**({"shell": shell} if shell else {}), **body}
        return f"{session}/processes/{self.expect(201, 'POST', session + '/processes', body)['id']}"

    def wait(self, process, wait="60s"):
        ended = self.expect(200, "GET", f"{process}?wait={wait}")
        self.test.assertEqual(ended["state"], "ended")
        return ended


def pointers(problem):
    return {item["pointer"] for item in problem["errors"]}


def quoted(text):
    return urllib.parse.quote(text, safe="")


class V1Test(DaemonTest):
    def v1(self, *arguments, **options):
        """belljard without the simulator's face, and a client of its unix socket."""
        path = self.dir / "v1.sock"
        variables = {"BELLJAR_TOKEN": TOKEN, "BELLJAR_UID_BASE": str(UID_BASE), "BELLJAR_MAX_SESSIONS": str(POOL_SIZE),
                     "BELLJAR_PORT_BASE": str(PORT_BASE), "BELLJAR_DRAIN_TIMEOUT": "1ms", **options.pop("variables", {})}
        daemon = self.daemon(f"--listen=unix:{path}", *arguments, simulator=False, variables=variables, **options)
        client = V1(self, daemon, path)
        client.call("GET", "/readyz")  # The self-test of the start has a directory, which is gone then.
        return client

    def over_tcp(self, client):
        return V1(self, client.daemon)
