"""The way to a port inside: whatever a hostile server says there, our own framing holds."""

import base64
import http.client
import json
import pathlib
import socket
import sys
import time
import urllib.parse

import websockets

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import AGENT, TOKEN, Relay, as_shipped, read_all, wait_until
from harness import callers, main
from streams import StreamTest

# Says what it is told to say: /raw?BASE64 those bytes, /hold? the same and no end, /echo what it was sent,
# /duplex each piece as it comes, /drip? those bytes again and again.
INNER = '''
import base64, socket, sys, threading, urllib.parse
def head_of(connection):
    data = b""
    while b"\\r\\n\\r\\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            raise OSError
        data += piece
    head, _, rest = data.partition(b"\\r\\n\\r\\n")
    return head.decode("latin-1"), rest
def body_of(connection, head, rest):
    fields = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:])
    if "content-length" in fields:
        while len(rest) < int(fields["content-length"]):
            rest += connection.recv(65536) or exit()
    elif "transfer-encoding" in fields:
        while not rest.endswith(b"0\\r\\n\\r\\n"):
            rest += connection.recv(65536) or exit()
    return rest
def serve(connection):
    head, rest = head_of(connection)
    path, _, query = head.split(" ")[1].partition("?")
    said = base64.urlsafe_b64decode(query)if query and path != "/echo" else b""
    if path == "/raw":
        connection.sendall(said)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
    elif path == "/hold":
        connection.sendall(said)
        while connection.recv(65536):
            pass
        print("gone", flush=True)
    elif path == "/drip":
        connection.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
        while True:
            connection.sendall(said)
    elif path == "/duplex":
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n")
        while True:
            if rest:
                connection.sendall(b"%x\\r\\n%s\\r\\n" % (len(rest), rest))
            if rest.endswith(b"0\\r\\n\\r\\n"):
                break
            try:
                rest = connection.recv(65536)
            except ConnectionResetError:
                rest = b""
            if not rest:
                print("broken off", flush=True)
                return
        connection.sendall(b"0\\r\\n\\r\\n")
    else:
        body = head.encode("latin-1") + b"\\n--\\n" + body_of(connection, head, rest)
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
    connection.close()
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=100)
print("up", flush=True)
while True:
    threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()
'''


def encoded(data):
    return base64.urlsafe_b64encode(data).decode()


class ProxyTest(StreamTest):
    def inner(self, client=None):
        """A client, a session whose inner server is up, and the path of its port."""
        client = client or self.streams()
        made = client.create(files={"inner.py": INNER})
        session = f"/v1/sessions/{made['id']}"
        self.process = client.start(session, f"exec python3 inner.py {made['port']}")
        self.assertTrue(wait_until(lambda: "up" in str(client.lines(self.process + "/output"))), client.daemon.log)
        return client, f"{session}/proxy/{made['port']}"

    def printed(self, client):
        return "".join(line.get("text", "") for line in client.lines(self.process + "/output"))


class Pass(ProxyTest):

    @callers("five", "user")
    def test_method_target_fields_and_body_reach_the_port_and_our_credentials_do_not(self):
        client, port = self.inner()
        tcp = self.streams_over_tcp(client)
        answer = tcp.call("PATCH", port + "/echo/a%2Fb//c?x=%20&y", b"body", headers={
            "X-Agent-Simulator-Token": TOKEN, "Cookie": "a=1", "X-Own": "caf\xe9", "TE": "trailers", "X-Hop": "1",
            "Connection": "keep-alive, X-Hop", "Keep-Alive": "5", "X-Forwarded-Prefix": "/forged",
            "Proxy-Authorization": "x", "Upgrade": "h2c"})
        self.assertEqual(answer.status, 200, repr(answer))
        head, _, body = answer.body.partition(b"\n--\n")
        lines = head.decode("latin-1").split("\r\n")
        self.assertEqual((lines[0], body), ("PATCH /echo/a%2Fb//c?x=%20&y HTTP/1.1", b"body"))
        fields = dict(line.lower().split(": ", 1) for line in lines[1:])
        number = port.rsplit("/", 1)[1]
        self.assertEqual((fields["host"], fields["x-forwarded-prefix"], fields["x-forwarded-host"]),
                         (f"127.0.0.1:{number}", port, f"127.0.0.1:{client.daemon.port}"))
        self.assertEqual((fields["cookie"], fields["x-own"], fields["content-length"], fields["connection"]),
                         ("a=1", "caf\xe9", "4", "close"))
        self.assertNotIn(TOKEN, head.decode("latin-1"))
        for name in ("authorization", "x-agent-simulator-token", "te", "x-hop", "keep-alive", "proxy-authorization",
                     "upgrade"):
            self.assertNotIn(name, fields)

    @as_shipped
    def test_any_method_goes_through_but_those_that_would_tunnel_or_reflect(self):
        client, port = self.inner()
        for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"):
            self.assertTrue(client.call(method, port + "/echo").body.startswith(f"{method} /echo".encode()))
        self.assertTrue(client.call("GET", port).body.startswith(b"GET / HTTP/1.1"))
        for method in ("TRACE", "CONNECT"):
            client.problem(405, "method_not_allowed", method, port + "/echo")

    @as_shipped
    def test_bodies_go_both_ways_at_once_in_pieces(self):
        client, port = self.inner()
        connection = client.raw()
        connection.sendall(client.head("POST", port + "/duplex", "Transfer-Encoding: chunked"))
        connection.sendall(b"3\r\nabc\r\n")
        got = b""
        while b"abc" not in got:
            got += connection.recv(65536)
        self.assertTrue(got.startswith(b"HTTP/1.1 200 OK\r\n"), "the answer has begun before the body has ended")
        connection.sendall(b"0\r\n\r\n")
        while not got.endswith(b"\r\n0\r\n\r\n"):
            got += connection.recv(65536)
        big = b"x" * (8 << 20)
        answer = client.call("POST", port + "/echo", big)
        self.assertEqual(len(answer.body.partition(b"\n--\n")[2]), len(big))

    @as_shipped
    def test_an_upload_that_breaks_off_is_not_taken_for_a_whole_one(self):
        client, port = self.inner()
        connection = client.raw()
        connection.sendall(client.head("POST", port + "/duplex", "Transfer-Encoding: chunked") + b"3\r\nabc\r\n")
        got = b""
        while b"abc" not in got:
            got += connection.recv(65536)
        connection.close()
        self.assertTrue(wait_until(lambda: "broken off" in self.printed(client)))

    @as_shipped
    def test_a_request_that_is_split_at_every_byte_is_the_same(self):
        client, port = self.inner()
        connection = client.raw()
        request = client.head("POST", port + "/echo", "Transfer-Encoding: chunked", "Connection: close")
        for byte in request + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n":
            connection.sendall(bytes([byte]))
        body = read_all(connection)
        self.assertIn(b"POST /echo HTTP/1.1", body)
        received = body.partition(b"\n--\n")[2]
        self.assertEqual(b"".join(received.split(b"\r\n")[1::2]), b"abcde", body)

    @as_shipped
    def test_status_fields_redirects_and_bodies_of_each_framing_come_back_as_they_are(self):
        client, port = self.inner()
        connection = client.connection()
        self.addCleanup(connection.close)
        redirect = b"HTTP/1.1 302 Gone There\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"
        for name, said, status, body in (
                ("length", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-A: b\r\n\r\nabc", 200, b"abc"),
                ("chunks", b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\nT: x\r\n\r\n", 404, b"abc"),
                ("until the end", b"HTTP/1.0 200 OK\r\n\r\nabc", 200, b"abc"),
                ("none", b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
                ("not modified", b"HTTP/1.1 304 X\r\nContent-Length: 77\r\n\r\n", 304, b""),
                ("interim", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, b"x"),
                ("no reason", b"HTTP/1.1 299 \r\nContent-Length: 1\r\n\r\nx", 299, b"x"),
                ("redirect", redirect, 302, b"")):
            with self.subTest(name):
                connection.request("GET", f"{port}/raw?{encoded(said)}", headers=client.headers())
                answer = connection.getresponse()
                self.assertEqual((answer.status, answer.read()), (status, body))
                self.assertEqual(answer.headers["location"], "/elsewhere" if name == "redirect" else None)
        head = client.call("HEAD", f"{port}/raw?" + encoded(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"))
        self.assertEqual((head.status, head.headers["content-length"], head.body), (200, "9", b""))

    @as_shipped
    def test_a_cookie_comes_back_to_this_port_alone(self):
        client, port = self.inner()
        said = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/; Domain=localhost; HttpOnly\r\nSet-Cookie: c=d\r\nContent-Length: 0\r\n\r\n"
        answer = client.call("GET", f"{port}/raw?{encoded(said)}")
        self.assertEqual(answer.headers.get_all("set-cookie"), [f"a=b; HttpOnly; Path={port}", f"c=d; Path={port}"])


class Hostile(ProxyTest):

    @as_shipped
    def test_answers_that_are_read_differently_by_others_are_refused(self):
        client, port = self.inner()
        ok = b"HTTP/1.1 200 OK\r\n"
        for name, said in {
                "length beside coding": ok + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                "two lengths": ok + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
                "the same length twice": ok + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
                "a list of lengths": ok + b"Content-Length: 3, 3\r\n\r\nabc",
                "a signed length": ok + b"Content-Length: +3\r\n\r\nabc",
                "a huge length": ok + b"Content-Length: 99999999999999999999\r\n\r\nabc",
                "another coding": ok + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
                "chunks in 1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                "a folded field": ok + b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
                "bare LF": b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
                "a NUL": ok + b"X: a\0b\r\nContent-Length: 0\r\n\r\n",
                "a blank before the colon": ok + b"Content-Length : 3\r\n\r\nabc",
                "HTTP/2": b"HTTP/2.0 200 OK\r\n\r\n", "no status": b"HTTP/1.1 OK\r\n\r\n",
                "a status of two digits": b"HTTP/1.1 20 OK\r\n\r\n", "rubbish": b"\x16\x03\x01" + b"x" * 100,
                "nothing": b"", "half a head": ok + b"X: a\r\n",
                "switching unasked": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
                "interim for ever": b"HTTP/1.1 102 Wait\r\n\r\n" * 100,
                "a large head": ok + b"X: " + b"a" * 40000 + b"\r\n\r\n",
                "many fields": ok + b"X: a\r\n" * 200 + b"\r\n"}.items():
            with self.subTest(name):
                client.problem(502, "bad_gateway", "GET", f"{port}/raw?{encoded(said)}" if len(said) < 5000
                               else self.long(client, port, said))

    def long(self, client, port, said):
        """A server of its own for what no target can carry: the path of its port."""
        session = port.rsplit("/proxy/", 1)[0]
        other = int(port.rsplit("/", 1)[1]) + 5
        client.call("PUT", session + "/files/said", said)
        client.call("PUT", session + "/files/once.py", f'''
import socket
listener = socket.create_server(("127.0.0.1", {other}))
print("up", flush=True)
connection = listener.accept()[0]
connection.recv(65536)
connection.sendall(open("said", "rb").read())
connection.shutdown(socket.SHUT_WR)
connection.recv(65536)
'''.encode())
        process = client.start(session, "exec python3 once.py")
        self.assertTrue(wait_until(lambda: "up" in str(client.lines(process + "/output"))))
        return f"{session}/proxy/{other}"

    @as_shipped
    def test_nothing_behind_an_answer_is_taken_for_the_next_one(self):
        client, port = self.inner()
        connection = client.connection()
        self.addCleanup(connection.close)
        smuggled = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled"
        for said, body in ((b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx" + smuggled, b"x"),
                           (b"HTTP/1.1 204 No Content\r\n\r\n" + smuggled, b""),
                           (b"HTTP/1.1 304 Not Modified\r\n\r\n" + smuggled, b""),
                           (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n" + smuggled, b"x")):
            connection.request("GET", f"{port}/raw?{encoded(said)}", headers=client.headers())
            self.assertEqual(connection.getresponse().read(), body)
            connection.request("GET", port + "/echo", headers=client.headers())
            self.assertTrue(connection.getresponse().read().startswith(b"GET /echo"))
        connection.request("HEAD", f"{port}/raw?{encoded(b'HTTP/1.1 200 OK' + bytes([13, 10]) + b'Content-Length: 4' + bytes([13, 10, 13, 10]) + smuggled)}",
                           headers=client.headers())
        connection.getresponse().read()
        connection.request("GET", port + "/echo", headers=client.headers())
        self.assertTrue(connection.getresponse().read().startswith(b"GET /echo"))

    @as_shipped
    def test_an_answer_that_is_cut_short_or_broken_in_the_middle_is_cut_for_the_client_too(self):
        client, port = self.inner()
        for said in (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
                     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"):
            with self.subTest(said), self.assertRaises((http.client.IncompleteRead, ConnectionError)):
                client.open("GET", f"{port}/raw?{encoded(said)}").read()
        broken = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nrubbish\r\n0\r\n\r\n"
        try:  # By how much of it has come when the answer is to begin.
            client.problem(502, "bad_gateway", "GET", f"{port}/raw?{encoded(broken)}")
        except (http.client.IncompleteRead, ConnectionError):
            pass

    @as_shipped
    def test_a_head_that_does_not_end_is_given_up(self):
        client, port = self.inner()
        client.problem(504, "timeout", "GET", f"{port}/hold?{encoded(b'HTTP/1.1 200 OK' + bytes([13, 10]))}")

    @as_shipped
    def test_endless_answers_to_readers_who_stall_hold_up_nobody_and_end_with_them(self):
        client, port = self.inner()
        stalled = [client.open("GET", f"{port}/drip?{encoded(b'x' * 4000)}") for _ in range(10)]
        self.assertEqual(len(stalled[0].read(1 << 20)), 1 << 20)
        self.assertTrue(client.call("GET", port + "/echo").body.startswith(b"GET /echo"))
        self.assertEqual(client.exec(port.rsplit("/proxy/", 1)[0], "echo up")["stdout"], "up\n")
        for response in stalled:
            response.connection.close()

    @as_shipped
    def test_a_client_that_vanishes_while_the_port_is_silent_frees_the_port(self):
        client, port = self.inner()
        connection = client.raw()
        connection.sendall(client.head("GET", f"{port}/hold?"))
        self.assertNotIn("gone", self.printed(client))
        connection.close()
        self.assertTrue(wait_until(lambda: "gone" in self.printed(client)))


class Refusals(ProxyTest):

    @as_shipped
    def test_a_port_where_nothing_of_the_session_listens_is_not_dialled(self):
        client, port = self.inner()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            foreign = listener.getsockname()[1]
            client.problem(502, "port_closed", "GET", f"{port.rsplit('/', 1)[0]}/{foreign}/")
            listener.settimeout(0.2)
            with self.assertRaises(TimeoutError):
                listener.accept()
        client.problem(502, "port_closed", "GET", f"{port.rsplit('/', 1)[0]}/9/")

    @as_shipped
    def test_another_session_s_server_is_not_reached_by_this_one_s_path(self):
        client, port = self.inner()
        other = client.session()
        number = port.rsplit("/", 1)[1]
        client.problem(502, "port_closed", "GET", f"{other}/proxy/{number}/echo")
        self.assertEqual(client.call("GET", port + "/echo").status, 200)

    @as_shipped
    def test_ports_sessions_and_tokens_that_are_none_are_refused(self):
        client, port = self.inner()
        base = port.rsplit("/", 1)[0]
        for number in ("0", "65536", "x", "-1", ""):
            self.assertIn(client.call("GET", f"{base}/{number}/").status, (400, 404))
        client.problem(404, "not_found", "GET", "/v1/sessions/none/proxy/80/")
        stranger = self.streams_over_tcp(client)
        stranger.headers = lambda given=None: given or {}
        stranger.problem(401, "unauthorized", "GET", port + "/echo")
        client.call("DELETE", base.rsplit("/", 1)[0])
        self.assertIn(client.call("GET", port + "/echo").status, (404, 409))


class Upgrades(StreamTest):

    def agent(self):
        """A client, and the path of a port with a WebSocket server."""
        client = self.streams()
        made = client.create(files={"agent.py": AGENT})
        session = f"/v1/sessions/{made['id']}"
        config = {"platforms": {"websocket": {"host": "127.0.0.1", "port": made["port"]}}}
        client.call("PUT", session + "/files/config.yaml", json.dumps(config).encode())
        client.start(session, "exec python3 agent.py")
        port = f"{session}/proxy/{made['port']}"
        self.assertTrue(wait_until(lambda: client.call("GET", port + "/").status == 426), "the agent's server is up")
        return client, port

    @callers("five", "user")
    def test_a_websocket_goes_through_both_ways_and_closes_with_either_side(self):
        client, port = self.agent()
        relay = Relay(f"ws://127.0.0.1:{client.daemon.port}{port}/", self.streams_over_tcp(client).headers())
        self.addCleanup(relay.close)
        for text in ("x", "caf\u00e9", "y" * 500000):
            relay.send(text)
            self.assertEqual(relay.receive(), "echo " + text)
        relay.send("binary")
        self.assertEqual(relay.receive(), b"caf\xc3\xa9 \xff")
        relay.send("close")
        self.assertEqual(relay.rest(), ([], 1000))

    @as_shipped
    def test_upgrades_to_what_is_no_websocket_are_refused(self):
        client, port = self.agent()
        tcp = self.streams_over_tcp(client)
        for path in (f"{port.rsplit('/', 1)[0]}/9/", "/v1/sessions/none/proxy/9/"):
            with self.assertRaises(websockets.InvalidStatusCode) as refused:
                Relay(f"ws://127.0.0.1:{client.daemon.port}{path}", tcp.headers())
            self.assertIn(refused.exception.status_code, (404, 502))
        with self.assertRaises(websockets.InvalidStatusCode) as refused:
            Relay(f"ws://127.0.0.1:{client.daemon.port}{port}/", {**tcp.headers(), "Origin": "http://localhost"})
        self.assertEqual(refused.exception.status_code, 403)

    @as_shipped
    def test_a_tunnel_ends_with_its_session_and_its_client_with_neither_held_up(self):
        client, port = self.agent()
        tcp = self.streams_over_tcp(client)
        relays = [Relay(f"ws://127.0.0.1:{client.daemon.port}{port}/", tcp.headers()) for _ in range(3)]
        for relay in relays:
            self.addCleanup(relay.close)
            relay.send("x")
            relay.receive()
        relays[0].socket.transport.abort()
        relays[1].send("x")
        self.assertEqual(relays[1].receive(), "echo x")
        client.call("DELETE", port.rsplit("/proxy/", 1)[0])
        relays[2].rest()


if __name__ == "__main__":
    main()
