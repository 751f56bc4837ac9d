"""A /v1 whose connections break where a test wants them to: for what a real daemon does not do on demand."""

import asyncio
import contextlib
import http
import json
import os
import socket
import threading

import websockets

CUT = object()


class Request:
    def __init__(self, method, target, headers, body):
        self.method, self.target, self.headers, self.body = method, target, headers, body

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.method} {self.target}"


def read_request(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *fields = head.decode().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(65536)
    return Request(method, target, headers, body)


def answer(status, body, content_type="application/json", **headers):
    """The bytes of a whole answer."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"Content-Type": content_type, "Content-Length": len(text), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + text


def problem(status, code, detail, **members):
    return answer(status, {"code": code, "detail": detail, "status": status, **members}, "application/problem+json")


def lines(*objects, whole=True, cut_last=0):
    """A stream of JSON lines, chunked; without `whole` it ends in the middle of things, and of its last line where
    `cut_last` bytes of that are missing."""
    text = b"".join(json.dumps(line).encode() + b"\n" for line in objects)
    text = text[:len(text) - cut_last]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"%x\r\n%s\r\n" % (len(text), text) if text else b""
    return head + chunk + (b"0\r\n\r\n" if whole else b"")


def output(offset, text, stream="stdout"):
    return {"type": "output", "stream": stream, "offset": offset, "text": text}


def end(code=0):
    return {"type": "end", "record": {"cause": "exited", "exit_code": code}}


class FakeV1:
    """`respond(request, n)` gives the bytes of the n-th request's answer, or CUT. On a unix socket, or on TCP."""

    def __init__(self, test, respond, tcp=False):
        self.requests, self._respond = [], respond
        self.path = os.path.join(test.dir, f"fake-{id(self):x}.sock")
        self._listener = socket.create_server(("127.0.0.1", 0)) if tcp else socket.socket(socket.AF_UNIX)
        if not tcp:
            self._listener.bind(self.path)
            self._listener.listen()
        where = ["--url", f"http://127.0.0.1:{self._listener.getsockname()[1]}"] if tcp else ["--socket", self.path]
        self.where = where
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        test.addCleanup(self.close)

    def close(self):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def _serve(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection):
        with connection, contextlib.suppress(OSError):
            request = read_request(connection)
            if request is None:
                return
            self.requests.append(request)
            told = self._respond(request, len(self.requests) - 1)
            if told is not CUT:
                connection.sendall(told)


class FakeAttach:
    """WebSockets: each connection is one of the coroutines `talks`, in turn; GETs get `process`."""

    def __init__(self, test, *talks, process=None):
        self.targets, self._talks, self.failure = [], list(talks), None
        self.path = os.path.join(test.dir, f"attach-{id(self):x}.sock")
        self.where = ["--socket", self.path]
        self._process = process or {"id": 1, "offsets": {"stdout": 0, "stderr": 0}}
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.wait(10)
        test.addCleanup(self.close)

    def _run(self, started):
        asyncio.set_event_loop(self._loop)

        async def begin():
            self._server = await websockets.unix_serve(self._talk, self.path, subprotocols=["belljar.attach.v1"],
                                                       process_request=self._look, ping_interval=None)
            started.set()
        self._loop.run_until_complete(begin())
        self._loop.run_forever()

    async def _look(self, path, headers):
        if headers.get("Upgrade", "").lower() == "websocket":
            return None
        return http.HTTPStatus.OK, {"Content-Type": "application/json"}, json.dumps(self._process).encode()

    async def _talk(self, connection, path=None):
        self.targets.append(path or connection.path)
        try:
            await self._talks.pop(0)(connection)
        except Exception as failure:  # Told by the test, which would wait for nothing otherwise.
            self.failure = failure

    def close(self):
        async def end():
            self._server.close()
            await self._server.wait_closed()
        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


def control(**members):
    return b"\x05" + json.dumps(members).encode()


def record(code=0):
    return b"\x03" + json.dumps({"cause": "exited", "exit_code": code}).encode()
