"""A client of belljard for services that run other people's commands.

One file, nothing but the standard library, Python 3.11 or later. It speaks /v1 (docs/api.md) over the unix
socket, or over TCP with a token.

    with Belljar().session(policy="builtin:shell@1") as session:
        result = session.run_command("make test", timeout=300)
        if not result.success:
            print(result.exit_code, result.stderr)

A command that fails is a Result. A sandbox that cannot be had is a SandboxUnavailable, which holds one text for
a model or a user (`str(error)`) and another for the operator (`error.detail`). Nothing runs outside of a sandbox
because one could not be had.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import http.client
import json
import logging
import os
import re
import socket
import threading
import time
import urllib.parse
import uuid
from typing import Any, Callable, Iterator, Mapping

LOG = logging.getLogger("belljar")
DEFAULT_SOCKET = "/run/belljar/belljard.sock"
UNAVAILABLE = "the shell sandbox is unavailable on this server"

# Of causes (docs/api.md), those with which a command has not ended by itself.
CAUSES_OF_LOSS = {"lost", "expired", "idle", "owner_gone", "workspace_gone", "network_lost"}


class BelljarError(Exception):
    """An answer that is a problem (RFC 9457): `code` is stable, `detail` is for people who run the server."""

    def __init__(self, message: str, *, status: int = 0, code: str = "", detail: str = "",
                 problem: dict[str, Any] | None = None):
        super().__init__(message)
        self.status, self.code, self.detail = status, code, detail or message
        self.problem = problem or {}
        self.retry_after = self.problem.get("retry_after_s")


class SandboxUnavailable(BelljarError):
    """No sandbox can be had: the daemon is not there, full, draining, or what it needs is not in force.

    Its text says no more than that, since a model that reads it would try what it says."""

    def __init__(self, detail: str, **more: Any):
        super().__init__(UNAVAILABLE, detail=detail, **more)


class SessionGone(BelljarError):
    """The session has ended, or there never was one of that name."""


class Refused(BelljarError):
    """The command is one of those that this client does not send."""


@dataclasses.dataclass
class Result:
    """How a command ended. `exit_code` is None when it was not the command's own end."""

    success: bool
    exit_code: int | None
    stdout: str
    stderr: str
    cause: str = "exited"
    cwd: str = ""
    notes: list[str] = dataclasses.field(default_factory=list)
    truncated: dict[str, int] = dataclasses.field(default_factory=dict)
    record: dict[str, Any] = dataclasses.field(default_factory=dict)
    process: str = ""

    @property
    def timed_out(self) -> bool:
        return self.cause in ("wall_time", "cpu_time")


@dataclasses.dataclass
class Verdict:
    """What a check has found out: `verified`, `failed`, or `unverified` when nobody could tell, and why."""

    status: str
    reason: str = ""
    result: Result | None = None

    @property
    def verified(self) -> bool:
        return self.status == "verified"


@dataclasses.dataclass
class Output:
    """A piece of output, or bytes that are gone (`gap`)."""

    stream: str
    text: str = ""
    offset: int = 0
    gap: tuple[int, int] | None = None


# What no service wants to have run by accident. Text is no boundary, the sandbox is one: this only says no early.
DENIED = [re.compile(pattern) for pattern in (
    r"(^|[;&|]\s*)sudo\b", r"(^|[;&|]\s*)su\s+-", r"\brm\s+(-\w+\s+)*-\w*[rf]\w*\s+(/|~|\$HOME)\s*($|[;&|])",
    r"\b(curl|wget)\b[^;|&]*\|\s*(ba|z|da)?sh\b", r":\s*\(\s*\)\s*\{.*\};\s*:", r"\bchmod\s+-R\s+777\s+/",
    r">\s*/etc/", r">\s*/dev/[hsv]d[a-z]", r"~/\.ssh\b", r"~/\.aws\b")]


def refuse_denied(command: str) -> None:
    for pattern in DENIED:
        if pattern.search(command):
            raise Refused("this command is not run here", code="denied", detail=f"it matches {pattern.pattern}")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float | None):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Belljar:
    """A daemon. Safe to share between threads: each call has a connection of its own."""

    def __init__(self, url: str = "", *, token: str | None = None, connect_timeout: float = 10.0):
        """`url` is "unix:/path", a path, or "http://host:port"; without one, the default socket."""
        self._url, self._token, self._connect_timeout = url or DEFAULT_SOCKET, token, connect_timeout

    # --- the daemon ----------------------------------------------------------------------------------------

    def version(self) -> dict[str, Any]:
        return self.call("GET", "/v1/version")

    def ready(self) -> bool:
        """Whether a session would be admitted now."""
        try:
            self.call("GET", "/readyz?admit=1")
        except BelljarError:
            return False
        return True

    def unavailable_reason(self) -> str | None:
        """For operators: why no sandbox can be had; None when one can."""
        try:
            self.call("GET", "/readyz?admit=1")
        except BelljarError as error:
            return error.detail
        return None

    def session(self, *, policy: str = "builtin:shell@1", key: str | None = None, **members: Any) -> Session:
        """A new session. It dies with this process, unless `die_with=None` is given; other members are those of
        docs/api.md: files, env, labels, network, limits, ttl, idle, vars, command. The same `key` twice is one
        session. `workspace` is a directory that is there, by its path, or {"path": …, "owner": "chown"}: with chown
        each command first claims what others have added to it."""
        body: dict[str, Any] = {"policy": policy}
        if isinstance(members.get("workspace"), str):
            members["workspace"] = {"path": members["workspace"]}
        if self._unix_path() is not None:
            body["die_with"] = "client"
        body.update(members)
        body = {name: value for name, value in body.items() if value is not None}
        made = self.call("POST", "/v1/sessions", body, headers={"Idempotency-Key": key or str(uuid.uuid4())})
        return Session(self, made["id"], made, claims=body.get("workspace", {}).get("owner") == "chown")

    def attach(self, session_id: str) -> Session:
        """A session that is there already."""
        return Session(self, session_id, self.call("GET", f"/v1/sessions/{_quoted(session_id)}"))

    def run_confined(self, argv: list[str], *, policy: str = "builtin:validator@1", timeout: float | None = None,
                     stdin: str | None = None, **members: Any) -> Verdict:
        """Runs one program in a sandbox of its own, for a check: verified when it ends with 0, failed when it does
        not, unverified when it could not be run to its end. Its stdin is empty, or `stdin`; never this process's."""
        body: dict[str, Any] = {"argv": argv, "policy": policy, **members}
        if timeout is not None:
            body["wall_time"] = _duration(timeout)
        if stdin is not None:
            body["stdin"] = stdin
        try:
            result = _result(self.call("POST", "/v1/run", body, timeout=None))
        except SandboxUnavailable as error:
            return Verdict("unverified", str(error))
        except BelljarError as error:
            return Verdict("unverified", f"it could not be run: {error}")
        if result.exit_code in (126, 127) and result.cause in ("setup", "exited") and not result.stdout:
            return Verdict("unverified", result.stderr.strip() or f"{argv[0]} cannot be run", result)
        if result.cause != "exited" and result.cause != "signaled":
            return Verdict("unverified", f"it did not end by itself: {result.cause}", result)
        return Verdict("verified" if result.success else "failed", "", result)

    # --- the wire ------------------------------------------------------------------------------------------

    def _unix_path(self) -> str | None:
        if self._url.startswith("unix:"):
            return self._url[5:]
        return self._url if self._url.startswith("/") else None

    def _connection(self, timeout: float | None) -> http.client.HTTPConnection:
        path = self._unix_path()
        if path is not None:
            return _UnixConnection(path, timeout)
        parts = urllib.parse.urlsplit(self._url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"expected unix:/path or http://host:port, got {self._url!r}")
        return http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=timeout)

    def _send(self, method: str, path: str, body: Any, headers: dict[str, str], timeout: float | None,
              ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        sent = dict(headers)
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        data: bytes | None = None
        if isinstance(body, bytes):
            data = body
        elif body is not None:
            data, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        connection = self._connection(self._connect_timeout)
        try:
            connection.connect()
            assert connection.sock is not None
            connection.sock.settimeout(timeout)
            connection.request(method, path, data, sent)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise SandboxUnavailable(f"{method} {path} on {self._url}: {error}", code="unreachable") from error
        if response.status >= 400:
            try:
                raise _problem(response.status, response.read())
            finally:
                connection.close()
        return connection, response

    def call(self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None,
             timeout: float | None = 60.0) -> Any:
        """One request; the answer's JSON, or its bytes."""
        connection, response = self._send(method, path, body, headers or {}, timeout)
        with contextlib.closing(connection):
            data = response.read()
        if (response.headers.get_content_type() or "").endswith("json") and data:
            return json.loads(data)
        return data

    def lines(self, path: str, timeout: float | None) -> Iterator[dict[str, Any]]:
        connection, response = self._send("GET", path, None, {"Accept": "application/x-ndjson"}, timeout)
        with contextlib.closing(connection):
            while line := response.readline():
                yield json.loads(line)


class Session:
    """One sandbox. Ends with its `with` block, with `close`, or with this process."""

    def __init__(self, daemon: Belljar, session_id: str, told: dict[str, Any], *, claims: bool = False):
        self._daemon, self.id, self.told, self._claims = daemon, session_id, told, claims
        self._path = f"/v1/sessions/{_quoted(session_id)}"

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BelljarError):
            self.close()

    def close(self) -> None:
        """Ends it, and all that runs in it. Twice is once."""
        with contextlib.suppress(SessionGone):
            self._daemon.call("DELETE", self._path)

    def info(self) -> dict[str, Any]:
        return self._daemon.call("GET", self._path)

    @property
    def degraded(self) -> list[dict[str, Any]]:
        return self.told.get("degraded", [])

    def keep_alive(self, seconds: float) -> None:
        self._daemon.call("POST", f"{self._path}/keepalive", {"for": _duration(seconds)})

    # --- commands ------------------------------------------------------------------------------------------

    def run_command(self, command: str, *, timeout: float | None = 120.0, cwd: str | None = None,
                    env: dict[str, str] | None = None, max_output: int | None = None,
                    deny: Callable[[str], None] | None = refuse_denied) -> Result:
        """A command of the session's shell: it begins in the directory and with the exported variables that the
        one before it left; what it starts in the background stays. It and its whole tree end at `timeout`."""
        if deny is not None:
            deny(command)
        answer = self._daemon.call("POST", f"{self._path}/shell/commands",
                                   self._body(self, command, timeout, cwd, env, max_output), timeout=None)
        return _result(answer)

    def start(self, command: str, *, timeout: float | None = None, cwd: str | None = None,
              env: dict[str, str] | None = None, deny: Callable[[str], None] | None = refuse_denied) -> Process:
        """A command in the background: it can be listed, read and stopped."""
        if deny is not None:
            deny(command)
        body = {**self._body(self, command, timeout, cwd, env, None), "background": True}
        made = self._daemon.call("POST", f"{self._path}/shell/commands", body)
        return Process(self, str(made["id"]))

    def stream(self, command: str, **options: Any) -> Iterator[Output]:
        """A command in the background whose output is read as it comes; left early, the command is stopped."""
        process = self.start(command, **options)
        ended = False
        try:
            yield from process.output()
            ended = True
        finally:
            if not ended:
                with contextlib.suppress(BelljarError):
                    process.stop()

    def execute(self, argv: list[str], *, timeout: float | None = 120.0, stdin: str | None = None,
                **members: Any) -> Result:
        """A program beside the shell, without one."""
        body: dict[str, Any] = {"argv": argv, **members}
        if self._claims:
            body.setdefault("claim", True)
        if timeout is not None:
            body["wall_time"] = _duration(timeout)
        if stdin is not None:
            body["stdin"] = stdin
        return _result(self._daemon.call("POST", f"{self._path}/exec", body, timeout=None))

    def processes(self) -> list[dict[str, Any]]:
        return self._daemon.call("GET", f"{self._path}/processes")["processes"]

    def process(self, process_id: str | int) -> Process:
        return Process(self, str(process_id))

    @staticmethod
    def _body(session: Session | None, command: str, timeout: float | None, cwd: str | None,
              env: dict[str, str] | None, max_output: int | None) -> dict[str, Any]:
        body: dict[str, Any] = {"shell": command}
        if session is not None and session._claims:
            body["claim"] = True
        if timeout is not None:
            body["wall_time"] = _duration(timeout)
        if cwd is not None:
            body["cwd"] = cwd
        if env:
            body["env"] = env
        if max_output is not None:
            body["output"] = max_output
        return body

    # --- files ---------------------------------------------------------------------------------------------

    def read_file(self, path: str) -> bytes:
        data = self._daemon.call("GET", f"{self._path}/files/{_quoted(path)}", headers={"Accept": "*/*"})
        return data if isinstance(data, bytes) else json.dumps(data).encode()

    def write_file(self, path: str, content: bytes | str, *, mode: str = "0644") -> None:
        data = content.encode() if isinstance(content, str) else content
        query = urllib.parse.urlencode({"mode": mode, "parents": "true"})
        self._daemon.call("PUT", f"{self._path}/files/{_quoted(path)}?{query}", data,
                          headers={"Content-Type": "application/octet-stream"})

    def delete_file(self, path: str, *, recursive: bool = False) -> None:
        query = "?recursive=true" if recursive else ""
        self._daemon.call("DELETE", f"{self._path}/files/{_quoted(path)}{query}")


class Shell:
    """The commands of one client's work, one after another: a session that is made when it is needed, again when it
    has ended (idle, lost, or by `stop`), and in its place a sandbox for one command (/v1/run) when there are as many
    sessions as there may be. Directory and exported variables carry over all of these; the result's `notes` say once
    what has not."""

    def __init__(self, daemon: Belljar, *, idle: str | None = "15m", sessions: bool = True, **members: Any):
        """`members` are those of `Belljar.session`; without `sessions` each command has a sandbox of its own."""
        self._daemon, self._sessions, self._members = daemon, sessions, {"idle": idle, **members}
        self._session: Session | None = None
        self._state: str | None = None
        self._notes: list[str] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    def from_environment(cls, daemon: Belljar, variables: Mapping[str, str] = os.environ, **members: Any) -> Shell:
        """With what the worker's variables say: BESSER_LLM_SHELL_NETWORK (auto, private or shared),
        BESSER_LLM_SHELL_SESSION_IDLE_SECONDS (0: never) and BESSER_LLM_SHELL_SESSION_MAX (0: a sandbox for each command;
        otherwise the daemon's --sessions-of-a-client is the cap). A value that is none counts as the default."""
        network = variables.get("BESSER_LLM_SHELL_NETWORK", "auto").strip().lower() or "auto"
        if network not in ("auto", "private", "shared"):
            LOG.warning("BESSER_LLM_SHELL_NETWORK: %r is not auto, private or shared; taken for auto", network)
            network = "auto"
        if variables.get("BESSER_LLM_SHELL_SANDBOX", "auto").strip().lower() not in ("", "auto"):
            LOG.warning("BESSER_LLM_SHELL_SANDBOX is not for clients: only belljard's operator can switch the sandbox off")
        idle = max(0, _whole_number(variables, "BESSER_LLM_SHELL_SESSION_IDLE_SECONDS", 900))
        return cls(daemon, **{"idle": f"{idle}s" if idle else None, "network": network,
                              "sessions": _whole_number(variables, "BESSER_LLM_SHELL_SESSION_MAX", 10) > 0, **members})

    @property
    def session(self) -> Session | None:
        """The one that there is now."""
        return self._session

    def run_command(self, command: str, *, timeout: float | None = 120.0, cwd: str | None = None,
                    env: dict[str, str] | None = None, max_output: int | None = None,
                    deny: Callable[[str], None] | None = refuse_denied) -> Result:
        if deny is not None:
            deny(command)
        with self._lock:
            while True:
                session, fresh = self._have()
                body = Session._body(session, command, timeout, cwd, env, max_output)
                body["state"] = self._state or True if fresh else True
                try:
                    path = f"{session._path}/shell/commands" if session else "/v1/run"
                    answer = self._daemon.call("POST", path, body if session else self._run_body(body), timeout=None)
                    break
                except SessionGone:  # The command has not run: the session had ended before.
                    if fresh:
                        raise
                    self._session = None
                    self._notes.append("the session had ended and was started again: processes of earlier commands are "
                                       "gone, directory and variables are as they were")
            self._state = answer.get("state", self._state)
            result = _result(answer)
            result.notes, self._notes = [*self._notes, *result.notes], []
            return result

    def stop(self, why: str = "the session was ended") -> None:
        """Ends all that runs; the next command finds directory and variables as they were, and a note."""
        with self._lock:
            if self._session is not None:
                self._session.close()
                self._session = None
                self._notes.append(f"{why}: processes of earlier commands are gone")

    def close(self) -> None:
        """Ends the session. A later command still runs, in a sandbox of its own."""
        with self._lock, contextlib.suppress(BelljarError):
            if self._session is not None:
                self._session.close()
            self._session, self._sessions = None, False

    def _have(self) -> tuple[Session | None, bool]:
        """The session, and whether it is new; none when a command has to do without."""
        if self._session is not None:
            return self._session, False
        if self._sessions:
            try:
                self._session = self._daemon.session(**self._members)
                return self._session, True
            except SandboxUnavailable as error:
                if error.code not in ("quota", "capacity"):
                    raise
        self._notes.append("this command had a sandbox of its own: what it started has ended with it")
        return None, True

    def _run_body(self, body: dict[str, Any]) -> dict[str, Any]:
        kept = {"policy": "builtin:shell@1", **{name: self._members[name] for name in
                ("policy", "vars", "files", "workspace", "network", "limits") if self._members.get(name) is not None}}
        if isinstance(kept.get("workspace"), str):
            kept["workspace"] = {"path": kept["workspace"]}
        return {**kept, **body, "env": {**(self._members.get("env") or {}), **body.get("env", {})}}


class Process:
    """One command of a session, that goes on whether or not anybody looks at it."""

    def __init__(self, session: Session, process_id: str):
        self.session, self.id = session, process_id
        self._path = f"{session._path}/processes/{_quoted(process_id)}"

    def info(self, wait: float = 0.0) -> dict[str, Any]:
        query = f"?wait={_duration(wait)}" if wait > 0 else ""
        return self.session._daemon.call("GET", self._path + query, timeout=wait + 60)

    def wait(self, timeout: float | None = None) -> dict[str, Any] | None:
        """What it is once it has ended; None when it has not in time."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = 30.0 if until is None else min(30.0, until - time.monotonic())
            info = self.info(wait=max(left, 0.001))
            if info["state"] == "ended":
                return info
            if until is not None and time.monotonic() >= until:
                return None

    def stop(self) -> None:
        """TERM, a grace, then KILL: it and all that it has started."""
        self.session._daemon.call("DELETE", self._path)

    def signal(self, signal: str | int) -> None:
        self.session._daemon.call("POST", f"{self._path}/signal", {"signal": signal})

    def output(self, *, follow: bool = True, stdout: int = 0) -> Iterator[Output]:
        """Its output from the beginning. A connection that breaks is made again where it broke."""
        offsets = {"stdout": stdout, "stderr": 0}
        while True:
            ended = False
            with contextlib.suppress(SandboxUnavailable):
                for line in self._lines(offsets, follow):
                    if line["type"] == "end":
                        ended = True
                    elif line["type"] == "gap":
                        offsets[line["stream"]] = line["to"]
                        yield Output(line["stream"], gap=(line["from"], line["to"]))
                    elif line["type"] == "output":
                        data = base64.b64decode(line["base64"]) if "base64" in line else line["text"].encode()
                        offsets[line["stream"]] = line["offset"] + len(data)
                        yield Output(line["stream"], data.decode(errors="replace"), line["offset"])
            if ended or not follow:
                return
            self.info()  # SessionGone or SandboxUnavailable where there is nothing to come back to.
            time.sleep(0.2)

    def _lines(self, offsets: dict[str, int], follow: bool) -> Iterator[dict[str, Any]]:
        query = urllib.parse.urlencode({"stdout": offsets["stdout"], "stderr": offsets["stderr"],
                                        "follow": "true" if follow else "false"})
        return self.session._daemon.lines(f"{self._path}/output?{query}", timeout=60.0)


# --- small things ------------------------------------------------------------------------------------------

def _quoted(part: str) -> str:
    return urllib.parse.quote(part, safe="/")


def _whole_number(variables: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(variables.get(name, default))
    except ValueError:
        LOG.warning("%s: %r is no whole number; taken for %d", name, variables[name], default)
        return default


def _duration(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))}ms"


def _text(answer: dict[str, Any], stream: str) -> str:
    if f"{stream}_base64" in answer:
        return base64.b64decode(answer[f"{stream}_base64"]).decode(errors="replace")
    return answer.get(stream, "")


def _result(answer: dict[str, Any]) -> Result:
    cause, code = answer.get("cause", "lost"), answer.get("exit_code")
    if cause in ("wall_time", "cpu_time", *CAUSES_OF_LOSS):
        code = None
    return Result(success=cause == "exited" and code == 0, exit_code=code, stdout=_text(answer, "stdout"),
                  stderr=_text(answer, "stderr"), cause=cause, cwd=answer.get("cwd", ""),
                  notes=answer.get("notes", []), truncated=answer.get("truncated", {}),
                  record=answer.get("record", {}), process=str(answer.get("process", "")))


def _problem(status: int, body: bytes) -> BelljarError:
    try:
        problem = json.loads(body)
        assert isinstance(problem, dict)
    except (ValueError, AssertionError):
        problem = {}
    code, detail = str(problem.get("code", "")), str(problem.get("detail", f"status {status}"))
    remedy = problem.get("remedy")
    full = f"{detail}; {remedy}" if remedy else detail
    more: dict[str, Any] = {"status": status, "code": code, "problem": problem}
    if status in (401, 403, 429, 502, 503, 504, 507) or code in ("sandbox", "unavailable"):
        return SandboxUnavailable(full, **more)
    if status in (404, 409) and code in ("not_found", "ended", "lost"):
        return SessionGone(detail, detail=full, **more)
    return BelljarError(detail, detail=full, **more)


def sandbox_selftest_error(url: str = "") -> str | None:
    """Why no command can be run here, for an operator; None when all is well."""
    return Belljar(url).unavailable_reason()


def shell_network_is_private(url: str = "", variables: Mapping[str, str] = os.environ) -> bool:
    """Whether commands have a network of their own here, found out by having one; never raises."""
    if variables.get("BESSER_LLM_SHELL_NETWORK", "auto").strip().lower() == "shared":
        return False
    try:
        return Belljar(url).run_confined(["true"], policy="builtin:shell@1", network="private", timeout=30).verified
    except Exception:  # Whatever it is, nobody has seen a private network.
        return False
