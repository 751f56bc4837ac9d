"""HTTP that is spoken wrongly, slowly or in excess: answered, cut off, and nobody else notices."""

import os
import pathlib
import socket
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import TOKEN, DaemonTest, as_shipped, read_all, wait_until
from harness import main

AUTH = f"X-Agent-Simulator-Token: {TOKEN}\r\n".encode()
HEALTH = b"GET /health HTTP/1.1\r\nHost: a\r\n" + AUTH + b"\r\n"


def status_of(answer):
    return int(answer.split(b" ")[1]) if answer.startswith(b"HTTP/1.1 ") else None


class Abuse(DaemonTest):

    def serves(self, daemon):
        return status_of(daemon.send_raw(HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))) == 200

    @as_shipped
    def test_what_servers_read_differently_is_refused_and_nothing_behind_it_is_served(self):
        daemon = self.daemon()
        post = b"POST /sessions HTTP/1.1\r\nHost: a\r\n" + AUTH
        for name, request in {
            "length and coding": post + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "two lengths": post + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
            "a signed length": post + b"Content-Length: +5\r\n\r\nhello",
            "another coding": post + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
            "bare LF": b"GET /health HTTP/1.1\nHost: a\n\n",
            "folded field": b"GET /health HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
            "blank before the colon": b"GET /health HTTP/1.1\r\nHost : a\r\n\r\n",
            "no host": b"GET /health HTTP/1.1\r\n\r\n",
            "two hosts": b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "absolute form": b"GET http://a/health HTTP/1.1\r\nHost: a\r\n\r\n",
            "HTTP/2 upgrade": b"GET /health HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n",
        }.items():
            answer = daemon.send_raw(request + HEALTH)
            self.assertEqual(status_of(answer), 400, f"{name}: {answer}")
            self.assertEqual(answer.count(b"HTTP/1.1 "), 1, f"{name}: something behind it was served")
        for name, body in {"chunk parameter": b"1;a=b\r\nx\r\n0\r\n\r\n", "chunk overflow": b"ffffffffffffffffff\r\n",
                           "no number": b"zz\r\n"}.items():
            answer = daemon.send_raw(post + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
                                     + body + HEALTH)
            self.assertEqual(status_of(answer), 400, f"{name}: {answer}")
            self.assertEqual(answer.count(b"HTTP/1.1 "), 1, name)
        control = daemon.send_raw(HEALTH + HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        self.assertEqual(control.count(b"HTTP/1.1 200"), 2, "two good requests in a row are both served")

    @as_shipped
    def test_heads_and_bodies_beyond_their_bounds_are_refused_early(self):
        daemon = self.daemon()
        self.assertEqual(status_of(daemon.send_raw(b"GET /" + b"a" * 20000)), 414)
        self.assertEqual(status_of(daemon.send_raw(b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 8000)), 431)
        self.assertEqual(status_of(daemon.send_raw(b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 200 + b"\r\n")), 431)
        token = b"GET /health HTTP/1.1\r\nHost: a\r\nX-Agent-Simulator-Token: " + TOKEN.encode() + b"a" * (1 << 20)
        self.assertEqual(status_of(daemon.send_raw(token)), 431)
        post = b"POST /sessions HTTP/1.1\r\nHost: a\r\n" + AUTH + b"Content-Length: 99999999999\r\n"
        self.assertEqual(status_of(daemon.send_raw(post + b"\r\n")), 413)
        self.assertEqual(status_of(daemon.send_raw(post + b"Expect: 100-continue\r\n\r\n")), 413)
        self.assertTrue(self.serves(daemon))

    @as_shipped
    def test_without_a_token_no_body_is_read(self):
        daemon = self.daemon()
        head = b"POST /sessions HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n"
        for request in (head, head + b"Expect: 100-continue\r\n"):
            answer = daemon.send_raw(request + b"\r\n")
            self.assertEqual(status_of(answer), 401, answer)
        with_token = daemon.send_raw(head.replace(b"1000", b"2") + AUTH + b"Expect: 100-continue\r\n\r\n", timeout=1)
        self.assertTrue(with_token.startswith(b"HTTP/1.1 100 "), "with one, it is asked for")

    @as_shipped
    def test_slow_and_silent_clients_are_cut_off_and_others_are_served(self):
        daemon = self.daemon()
        silent = [socket.create_connection(("127.0.0.1", daemon.port)) for _ in range(200)]
        slow = socket.create_connection(("127.0.0.1", daemon.port), timeout=30)
        slow.sendall(b"GET /health HTTP/1.1\r\n")
        self.assertTrue(self.serves(daemon))
        silent[0].settimeout(30)
        self.assertEqual(silent[0].recv(100), b"", "a connection without a request ends after the keep-alive time")
        self.assertEqual(status_of(read_all(slow)), 408)
        for connection in (*silent, slow):
            connection.close()

    @as_shipped
    def test_without_descriptors_it_serves_those_who_are_there_and_later_the_others(self):
        most = 64
        daemon = self.daemon(before=["prlimit", f"--nofile={most}:{most}"])
        kept = socket.create_connection(("127.0.0.1", daemon.port), timeout=10)
        self.addCleanup(kept.close)
        def ask(connection):
            connection.sendall(HEALTH)
            return status_of(connection.recv(65536))
        self.assertEqual(ask(kept), 200)
        held = [socket.create_connection(("127.0.0.1", daemon.port), timeout=2) for _ in range(most)]
        self.assertTrue(wait_until(lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd")) == most))
        held[-1].sendall(HEALTH)
        with self.assertRaises(TimeoutError, msg="control: it has not been accepted"):
            held[-1].recv(100)
        self.assertEqual(ask(kept), 200)
        self.assertIsNone(daemon.process.poll())
        for connection in held[:-1]:
            connection.close()
        held[-1].settimeout(30)
        self.assertEqual(status_of(held[-1].recv(65536)), 200, "it was only waiting for its turn")
        held[-1].close()
        self.assertTrue(self.serves(daemon))

    @as_shipped
    def test_clients_that_vanish_anywhere_leave_nothing_behind(self):
        daemon = self.daemon()
        upgrade = (b"GET /sessions/x/ws HTTP/1.1\r\nHost: a\r\n" + AUTH + b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
                   b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
        post = b"POST /sessions HTTP/1.1\r\nHost: a\r\n" + AUTH + b"Content-Length: 100\r\n\r\nhalf"
        for request in (upgrade, upgrade[:50], post, HEALTH, upgrade + b"\x81"):
            for _ in range(10):
                with socket.create_connection(("127.0.0.1", daemon.port)) as connection:
                    connection.sendall(request)
        self.assertTrue(self.serves(daemon))
        until = time.monotonic() + 20
        while connections(daemon) > 1 and time.monotonic() < until:
            time.sleep(0.1)
        self.assertLessEqual(connections(daemon), 1, "only the connection that asks is left")


def connections(daemon):
    text = daemon.request("GET", "/metrics").body.decode()
    return int(text.partition("\nbelljar_connections ")[2].split()[0])


class Depth(DaemonTest):

    @as_shipped
    def test_bodies_that_are_bombs_are_answered_in_bounded_time(self):
        daemon = self.daemon()
        for body in (b"[" * 1000000, b'{"a":' * 1000000, b'{"session_id": 1e999}', b'{"session_id": ' + b"9" * 100000 + b"}",
                     b"\xef\xbb\xbf{}x", b"{}x", b'{"session_id": "\\ud800"}', b"\x00"):
            answer = daemon.request("POST", "/sessions", body, headers={"Content-Type": "application/json"})
            self.assertEqual(answer.status, 422, body[:40])


if __name__ == "__main__":
    main()
