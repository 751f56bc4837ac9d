"""Speaks to `belljar launch-service` as belljard does, or as whoever has taken belljard over."""

import array
import contextlib
import fcntl
import json
import os
import pathlib
import socket
import subprocess
import tempfile

from harness import AS_ROOT, BELLJAR, SandboxTest, environment

F_ADD_SEALS, F_GET_SEALS = 1033, 1034
ALL_SEALS = 15  # SEAL, SHRINK, GROW, WRITE

# Pools of suites that run at the same time must not meet; the lowest is above every Debian range.
POOL_SIZE = 4
POOL_BASE = 1_200_000_000 + os.getpid() % 100_000 * 16 if AS_ROOT else 70000


def memfd(content, seals=ALL_SEALS):
    """A memfd that holds `content`, sealed."""
    fd = os.memfd_create("body", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view):]
    if seals:
        fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd


def alive(pid):
    """Whether there is such a process that has not ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def body_of(files):
    """The body of `prepare`: {path: bytes, or (bytes, mode), or None for a directory}."""
    header, contents = [], b""
    for path, what in files.items():
        if what is None:
            header.append({"path": path, "directory": True})
            continue
        content, mode = what if isinstance(what, tuple) else (what, None)
        header.append({"path": path, "size": len(content), **({"mode": mode} if mode else {})})
        contents += content
    return json.dumps(header).encode() + b"\n" + contents


class Service:
    """A launch service and the socket to it."""

    def __init__(self, test, *options, env=None, root=None, base=POOL_BASE):
        self.test, self.ids, self.answers = test, 0, {}
        self.root = pathlib.Path(root or test.dir / "sessions")
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(40)
        pool = ["--uid-base", base, "--max-sessions", POOL_SIZE] if test.privileged else []
        command = [*test.prefix(), BELLJAR, "launch-service", "--fd", theirs.fileno(),
                   "--sessions-root", self.root, *pool, *options]
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(list(map(str, command)), pass_fds=[theirs.fileno()], cwd="/",
                                        env=environment(**(env or {})), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=self.errors)
        theirs.close()
        test.addCleanup(self.close)

    # --- asking ----------------------------------------------------------------------------------

    def send(self, message, fds=()):
        """Sends it as it is: an object, or bytes."""
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([data], rights)

    def receive(self):
        """The next message and its descriptors; None at the end of the connection."""
        try:
            data, rights, _, _ = self.socket.recvmsg(70000, socket.CMSG_SPACE(4 * 16), socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:
            return None
        if not data:
            return None
        fds = array.array("i")
        for _, _, part in rights:
            fds.frombytes(part[:len(part) - len(part) % 4])
        return json.loads(data), list(fds)

    def post(self, do, fds=(), **members):
        """Asks without waiting; the id is the answer."""
        self.ids += 1
        self.send({"id": self.ids, "do": do, **members}, fds)
        return self.ids

    def answer(self, number):
        """The answer to that id, whatever comes before it."""
        while number not in self.answers:
            message = self.receive()
            if message is None:
                self.process.wait(30)
                raise AssertionError(f"the service has ended: {self.said()}")
            self.answers[message[0]["id"]] = message
        return self.answers.pop(number)

    def ask(self, do, fds=(), **members):
        """What is in `ok`; with descriptors: a pair of it and them."""
        message, got = self.answer(self.post(do, fds, **members))
        if "ok" not in message:
            raise AssertionError(f"{do} {members}: {message}")
        return (message["ok"], got) if got else message["ok"]

    def refusal(self, do, fds=(), **members):
        """The error of a request that must be refused."""
        message, got = self.answer(self.post(do, fds, **members))
        if "error" not in message or got:
            raise AssertionError(f"{do} {members} was not refused: {message}")
        return message["error"]

    # --- common requests ---------------------------------------------------------------------------

    @property
    def uid(self):
        return POOL_BASE if self.test.privileged else self.test.uid

    def prepare(self, name="w", files=None, uid=None):
        """Makes a workspace; its path is the answer."""
        body = memfd(body_of(files or {}))
        try:
            return pathlib.Path(self.ask("prepare", [body], workspace=name, uid=self.uid if uid is None else uid)["path"])
        finally:
            os.close(body)

    def list(self, name="w", path="", depth=64, content=0, total=0, skip=()):
        """The entries by path, and whether there are more."""
        ok, fds = self.ask("list", workspace=name, path=path, depth=depth, content=content, total=total, skip=list(skip))
        with os.fdopen(fds[0], "rb") as memory:
            entries = json.loads(memory.read())["entries"]
        return {entry["path"]: entry for entry in entries}, ok["truncated"]

    def read(self, path, name="w"):
        _, fds = self.ask("open", workspace=name, path=path)
        with os.fdopen(fds[0], "rb") as file:
            return file.read()

    def write(self, path, content, name="w", mode="0600", parents=False, **more):
        source = memfd(content, 0)
        os.lseek(source, 0, os.SEEK_SET)
        try:
            return self.ask("write", [source], workspace=name, path=path, mode=mode, parents=parents, **more)
        finally:
            os.close(source)

    def become_session(self):
        if AS_ROOT:
            os.setgroups([])
            os.setresgid(*[self.uid] * 3)
            os.setresuid(*[self.uid] * 3)

    @contextlib.contextmanager
    def while_session(self, directory, again):
        """Meanwhile a process that has the session's uid calls `again` over and over, in `directory`."""
        stop = self.test.dir / "stop"
        pid = os.fork()
        if pid == 0:
            try:
                self.become_session()
                os.chdir(directory)
                while not stop.exists():
                    again()
            finally:
                os._exit(0)
        try:
            yield
        finally:
            stop.touch()
            os.waitpid(pid, 0)
            stop.unlink()

    def as_session(self, function):
        """Runs it in a process that has the session's uid; what it returns must be JSON."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                self.become_session()
                os.write(write, json.dumps(function()).encode())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            text = pipe.read()
        os.waitpid(pid, 0)
        return json.loads(text)

    # --- the end -----------------------------------------------------------------------------------

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")

    def refused(self):
        """Waits for the end of a service that must not start; what it said is the answer."""
        code = self.process.wait(30)
        if code != 1:
            raise AssertionError(f"ended with {code}: {self.said()}")
        return self.said()

    def close(self):
        """Ends the connection and waits until the service is gone."""
        self.socket.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError("the service does not end with its socket") from None
        finally:
            self.errors.close()


class ServiceTest(SandboxTest):
    """A test per caller; the back end matters to launches only."""

    def __init_subclass__(cls, **kwargs):
        for name, function in vars(cls).items():
            if name.startswith("test_") and not hasattr(function, "back_ends"):
                function.back_ends = ("modern",)
        super().__init_subclass__(**kwargs)

    def start_service(self, *options, **more):
        """One that serves."""
        service = Service(self, *options, **more)
        service.hello = service.ask("hello")
        return service

    def setUp(self):
        super().setUp()
        if not self.privileged and AS_ROOT:
            os.chown(self.dir, self.uid, self.gid)

    def check_code(self, error, code, *texts):
        self.assertEqual(error["code"], code, error)
        for text in texts:
            self.assertIn(text, error["message"])
