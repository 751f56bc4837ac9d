"""A client of /v1's streams: answers that are read as they come, and WebSockets."""

import asyncio
import json
import pathlib
import sys

import websockets

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import TOKEN
from v1 import V1, V1Test

ATTACH = "belljar.attach.v1"


class Streams(V1):
    def open(self, method, path, body=None, headers=None, timeout=60):
        """The answer, of which only the head has been read."""
        connection = self.connection(timeout)
        self.test.addCleanup(connection.close)
        connection.request(method, path, body, self.headers(headers))
        response = connection.getresponse()
        response.connection = connection
        return response

    def lines(self, path, **options):
        """The objects of an answer in lines."""
        answer = self.call("GET", path, **options)
        self.test.assertEqual(answer.status, 200, f"{path}: {answer}\n{self.daemon.log}")
        return [json.loads(line) for line in answer.body.splitlines()]

    def ran(self, session, shell, **body):
        """The path of a process that has ended."""
        process = self.start(session, shell, **body)
        self.wait(process)
        return process

    def raw(self, timeout=30):
        """A connection on which anything can be said."""
        connection = self.connection(timeout)
        connection.connect()
        self.test.addCleanup(connection.close)
        return connection.sock

    def head(self, method, path, *fields):
        """A request's head as bytes."""
        credentials = [f"{name}: {value}" for name, value in self.headers().items()]
        return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *credentials, *fields, "", ""]).encode()

    def attach(self, process, **options):
        attached = Attached(self, process, **options)
        self.test.addCleanup(attached.close)
        return attached


class Attached:
    """A client of belljar.attach.v1, spoken to in steps."""

    def __init__(self, client, process, query="", protocols=(ATTACH,), **options):
        self.loop = asyncio.new_event_loop()
        url = f"{process}/attach{query}"
        async def connected():
            common = dict(subprotocols=protocols or None, extra_headers=client.headers(), open_timeout=15, **options)
            if client.socket_path:
                return await websockets.unix_connect(str(client.socket_path), f"ws://localhost{url}", **common)
            return await websockets.connect(f"ws://127.0.0.1:{client.daemon.port}{url}", **common)
        try:
            self.socket = self._do(connected(), 20)
        except BaseException:
            self.loop.close()
            raise

    def _do(self, what, timeout=20):
        async def waited():
            return await asyncio.wait_for(what, timeout)
        return self.loop.run_until_complete(waited())

    def send(self, channel, data=b""):
        self._do(self.socket.send(bytes([channel]) + data))

    def say(self, **control):
        self.send(5, json.dumps(control).encode())

    def receive(self, timeout=20):
        """(channel, bytes), or for what is JSON (channel, object)."""
        message = self._do(self.socket.recv(), timeout)
        channel, data = message[0], message[1:]
        return channel, json.loads(data) if channel in (3, 5) else data

    def until(self, wanted, timeout=30):
        """All messages up to the first that `wanted` holds for."""
        messages = [self.receive(timeout)]
        while not wanted(*messages[-1]):
            messages.append(self.receive(timeout))
        return messages

    def rest(self):
        """All messages that still come, and then the closing code."""
        messages = []
        try:
            while True:
                messages.append(self.receive())
        except websockets.ConnectionClosed:
            return messages, self.socket.close_code

    def close(self):
        if self.loop.is_closed():
            return
        try:
            self._do(self.socket.close())
        except Exception:
            pass
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


def channel_bytes(messages, channel):
    return b"".join(data for number, data in messages if number == channel)


class StreamTest(V1Test):
    def streams(self, *arguments, **options):
        if not self.privileged:  # A plain user has no place for a socket in the test's directory.
            variables = {"BELLJAR_TOKEN": TOKEN, "BELLJAR_DRAIN_TIMEOUT": "1ms"}
            return Streams(self, self.daemon(*arguments, simulator=False, variables=variables, **options))
        client = self.v1(*arguments, **options)
        return Streams(self, client.daemon, client.socket_path)

    def streams_over_tcp(self, client):
        return Streams(self, client.daemon)


def text_of(lines, stream="stdout"):
    """What has been written, of lines that have a text."""
    return "".join(line["text"] for line in lines if line["type"] == "output" and line["stream"] == stream)


def bytes_of(lines, stream="stdout"):
    import base64
    return b"".join(line["text"].encode() if "text" in line else base64.b64decode(line["base64"])
                    for line in lines if line["type"] == "output" and line["stream"] == stream)
