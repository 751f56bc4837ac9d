"""belljarctl where connections break, answers are lost, and what answers is hostile: against a fake."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import BELLJARCTL
from fake_v1 import CUT, FakeAttach, FakeV1, answer, control, end, lines, output, problem, record
from harness import SandboxTest, main, once


class CtlTest(SandboxTest):
    def ctl(self, fake, *arguments, stdin=b"", environment=None, timeout=60):
        return subprocess.run([BELLJARCTL, *fake.where, *arguments], input=stdin, capture_output=True, timeout=timeout,
                              env={"PATH": os.environ["PATH"], **(environment or {})})


class Dropped(CtlTest):

    @once
    def test_logs_go_on_at_the_byte_where_the_connection_broke(self):
        """fountain PR 691: the follow socket replays a random-length prefix."""
        def respond(request, number):
            return [lines(output(0, "one "), output(0, "err", "stderr"), output(4, "tw"), whole=False, cut_last=5),
                    lines(output(4, "two "), {"type": "heartbeat"}, whole=False),
                    lines(output(0, "one two "), output(6, "o three"), end(3))][number]
        fake = FakeV1(self, respond)
        done = self.ctl(fake, "logs", "-f", "s", "1")
        self.assertEqual((done.stdout, done.returncode), (b"one two three", 0), done.stderr)
        self.assertTrue(done.stderr.startswith(b"err"))
        asked = [request.target.partition("?")[2] for request in fake.requests]
        self.assertEqual(asked, ["follow=true&stdout=0&stderr=0", "follow=true&stdout=4&stderr=3",
                                 "follow=true&stdout=8&stderr=3"])

    @once
    def test_bytes_that_are_gone_are_told_and_nothing_takes_their_place(self):
        fake = FakeV1(self, lambda request, number: lines(
            output(0, "a"), {"type": "gap", "stream": "stdout", "from": 1, "to": 9}, output(9, "b"), end()))
        done = self.ctl(fake, "logs", "-f", "s", "1")
        self.assertEqual(done.stdout, b"ab")
        self.assertIn(b"stdout: 8 bytes from offset 1 on are missing", done.stderr)

    @once
    def test_an_exit_is_never_made_up(self):
        """cloudflare/sandbox-sdk 873: a fabricated "complete, exit 0" while the process runs."""
        def respond(request, number):
            if request.method == "POST":
                return answer(201, {"id": 4})
            return lines(output(0, "x")) if number == 1 else problem(404, "not_found", 'there is no session "s"')
        fake = FakeV1(self, respond)
        done = self.ctl(fake, "exec", "s", "--", "true")
        self.assertEqual((done.returncode, done.stdout), (125, b"x"))
        self.assertIn(b"the stream ended without an end", done.stderr)
        self.assertIn(b'belljarctl: there is no session "s"\n', done.stderr)
        self.assertIn(b"code: not_found (HTTP 404)", done.stderr)

    @once
    def test_a_start_whose_answer_was_lost_is_asked_for_again_under_one_key(self):
        """E2B 1658: a lost create response leaves a second, billed sandbox."""
        def respond(request, number):
            return [CUT, CUT, answer(201, {"id": "s-1"})][number]
        fake = FakeV1(self, respond)
        done = self.ctl(fake, "create")
        self.assertEqual((done.returncode, done.stdout), (0, b"s-1\n"), done.stderr)
        keys = [request.headers["idempotency-key"] for request in fake.requests]
        self.assertEqual((len(keys), len(set(keys))), (3, 1))
        self.assertRegex(keys[0], "^[0-9a-f]{32}$")
        self.ctl(FakeV1(self, lambda request, number: answer(201, {"id": "s-2"})), "create")
        other = FakeV1(self, lambda request, number: answer(201, {"id": "s-2"}))
        self.ctl(other, "create")
        self.assertNotEqual(other.requests[0].headers["idempotency-key"], keys[0])

    @once
    def test_input_whose_answer_was_lost_is_not_typed_twice(self):
        typed = {}
        def respond(request, number):
            if request.target.endswith("/processes"):
                return answer(201, {"id": 4})
            if "/output" in request.target:
                while "closed" not in typed:
                    time.sleep(0.01)
                return lines(end())
            if request.target.endswith("/stdin/close"):
                typed["closed"] = True
                return answer(204, b"")
            typed.setdefault(request.target.partition("offset=")[2], []).append(request.body)
            offset = int(request.target.partition("offset=")[2])
            return CUT if len(typed[str(offset)]) == 1 else answer(200, {"offset": offset + len(request.body)})
        fake = FakeV1(self, respond)
        data = bytes(range(256)) * 300
        done = self.ctl(fake, "exec", "-i", "s", "--", "cat", stdin=data)
        self.assertEqual(done.returncode, 0, done.stderr)
        told = {int(offset): bodies for offset, bodies in typed.items() if offset != "closed"}
        self.assertTrue(all(len(bodies) == 2 and bodies[0] == bodies[1] for bodies in told.values()))
        self.assertEqual(b"".join(told[offset][0] for offset in sorted(told)), data)
        self.assertGreater(len(told), 1)

    @once
    def test_input_that_is_lost_for_good_ends_the_command(self):
        ended = []
        def respond(request, number):
            if request.target.endswith("/processes"):
                return answer(201, {"id": 4})
            if request.method == "DELETE":
                ended.append(True)
                return answer(204, b"")
            if "/stdin" in request.target:
                return problem(500, "system", "the pipe is broken")
            while not ended:
                time.sleep(0.01)
            return lines({"type": "end", "record": {"cause": "killed", "by": "client", "signal": "SIGTERM"}})
        done = self.ctl(FakeV1(self, respond), "exec", "-i", "s", "--", "cat", stdin=b"x")
        self.assertEqual(done.returncode, 143)
        self.assertIn(b"standard input is lost", done.stderr)
        self.assertIn(b"the pipe is broken", done.stderr)

    @once
    def test_a_signal_during_the_start_is_the_commands_and_the_second_waits_no_longer(self):
        asked, signalled, told = threading.Event(), [], threading.Event()
        def respond(request, number):
            if request.target.endswith("/processes"):
                asked.set()
                told.wait(30)
                return answer(201, {"id": 4})
            if request.target.endswith("/signal"):
                signalled.append(request.json()["signal"])
                return answer(204, b"")
            return lines({"type": "end", "record": {"cause": "exited", "exit_code": 8}})
        for slow, code in ((False, 8), (True, 125)):
            asked.clear()
            told.clear()
            fake = FakeV1(self, respond)
            process = subprocess.Popen([BELLJARCTL, *fake.where, "exec", "s", "--", "x"], stderr=subprocess.PIPE)
            self.addCleanup(process.stderr.close)
            self.assertTrue(asked.wait(10))
            process.send_signal(signal.SIGHUP)
            if slow:
                process.send_signal(signal.SIGTERM)
            else:
                told.set()
            self.assertEqual(process.wait(20), code)
            told.set()
        self.assertEqual(signalled, [signal.SIGHUP])
        self.assertIn(b"the command may have been started", process.stderr.read())

    @once
    def test_waiting_goes_on_over_broken_connections(self):
        def respond(request, number):
            running, ended = {"state": "running"}, {"state": "ended", "record": {"cause": "exited", "exit_code": 9}}
            return [answer(200, running), CUT, answer(200, running), answer(200, ended)][number]
        fake = FakeV1(self, respond)
        self.assertEqual(self.ctl(fake, "wait", "s", "1").returncode, 9)
        self.assertEqual(len(fake.requests), 4)

    @once
    def test_events_go_on_after_the_last_one_and_gaps_are_told(self):
        def event(number):
            return {"type": "session.ended", "id": number, "time": "2026-11-30T00:00:00Z", "session": "s"}
        def respond(request, number):
            return [lines(event(1), event(2), whole=False), lines({"type": "gap", "from": 3, "to": 9}, event(9)),
                    problem(403, "denied", "enough")][number]
        fake = FakeV1(self, respond)
        done = self.ctl(fake, "events", "-f", "--json")
        told = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([line.get("id") for line in told], [1, 2, None, 9])
        self.assertIn(b"the events 3 to 9 are gone", done.stderr)
        self.assertEqual([request.target for request in fake.requests],
                         ["/v1/events?follow=true", "/v1/events?follow=true&after=2", "/v1/events?follow=true&after=9"])
        self.assertEqual(done.returncode, 1)

    @once
    def test_an_attached_client_goes_on_with_each_byte_once_both_ways(self):
        heard = []
        async def first(connection):
            await connection.send(control(type="hello", offsets={"stdout": 0, "stderr": 0}, stdin=10, writer=True))
            await connection.send(b"\x01abc")
            await connection.send(b"\x02err")
            while b"".join(heard) != b"input":
                message = await connection.recv()
                if message[0] == 0:
                    heard.append(message[1:])
            connection.transport.abort()

        async def second(connection):
            await connection.send(control(type="hello", offsets={"stdout": 3, "stderr": 3}, stdin=12, writer=True))
            again, closed = b"", False
            while again != b"put" or not closed:
                message = await connection.recv()
                again += message[1:] if message[0] == 0 else b""
                closed |= message == b"\xff\x00"
            await connection.send(b"\x01def")
            await connection.send(record(5))
            await connection.close()
        fake = FakeAttach(self, first, second)
        done = self.ctl(fake, "attach", "s", "1", stdin=b"input")
        self.assertIsNone(fake.failure)
        self.assertEqual((done.stdout, done.returncode), (b"abcdef", 5), done.stderr)
        self.assertTrue(done.stderr.startswith(b"err"))
        self.assertIn("stdout=3&stderr=3", fake.targets[1])
        self.assertIn("takeover=true", fake.targets[1])
        self.assertNotIn("takeover", fake.targets[0])


class Hostile(CtlTest):

    @once
    def test_what_comes_from_inside_cannot_steer_the_terminal_that_shows_it(self):
        argv = ["sh", "-c", "\x1b]0;owned\x07\u202e"]
        def respond(request, number):
            if request.target.endswith("/processes"):
                return answer(200, {"processes": [{"id": 1, "state": "running", "argv": argv}]})
            return answer(200, {"sessions": [{"id": "s\x1b[2J", "state": "running", "labels": {"a": "\n\x9b"}}],
                                "next": None})
        fake = FakeV1(self, respond)
        for command in (["ps"], ["ps", "s"], ["ps", "-q"], ["top", "--once"]):
            done = self.ctl(fake, *command)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotRegex(done.stdout.decode(), "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", command)
        self.assertIn(b"\\x1b]0;owned\\x07\\u{202e}", self.ctl(fake, "ps", "s").stdout)
        told = self.ctl(FakeV1(self, lambda *_: problem(409, "ended\x07", "no\x1b[2J", remedy="\x1bc")), "ps")
        self.assertEqual(told.stderr, b"belljarctl: no\\x1b[2J\nbelljarctl: try: \\x1bc\n"
                                      b"belljarctl: code: ended\\x07 (HTTP 409)\n")
        self.assertEqual(told.returncode, 1)

    @once
    def test_what_answers_and_is_no_belljard_is_named_as_that(self):
        for told, words in ((b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP"), (b"", "ended without an answer"),
                            (answer(200, b"<html>", "text/html"), "not JSON"), (answer(200, {}), "no sessions"),
                            (answer(302, b"", Location="http://elsewhere/"), "HTTP 302"),
                            (answer(502, b"<h1>Bad Gateway", "text/html"), "HTTP 502 and no problem of belljard's"),
                            (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "ended before the answer did"),
                            (b"HTTP/1.1 200 OK\r\nA: " + b"x" * 100000 + b"\r\n\r\n", "does not speak HTTP")):
            fake = FakeV1(self, lambda request, number: told)
            done = self.ctl(fake, "ps")
            self.assertIn(words, done.stderr.decode(), told[:80])
            self.assertIn(done.returncode, (1, 3))
            self.assertEqual((done.stdout, len(fake.requests)), (b"", 1))

    @once
    def test_a_line_without_an_end_and_a_line_of_nonsense_are_refused(self):
        endless = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (6 << 20)
        done = self.ctl(FakeV1(self, lambda *_: endless), "logs", "-f", "s", "1")
        self.assertIn(b"a line without an end", done.stderr)
        self.assertEqual(done.returncode, 3)
        done = self.ctl(FakeV1(self, lambda *_: lines({"type": "output", "stream": "x"})), "logs", "-f", "s", "1")
        self.assertIn(b"has no stream", done.stderr)
        self.assertEqual(done.returncode, 3)

    @once
    def test_the_token_goes_over_tcp_and_not_over_the_unix_socket(self):
        def respond(request, number):
            return answer(200, {"sessions": [], "next": None})
        here, there = FakeV1(self, respond), FakeV1(self, respond, tcp=True)
        token = {"BELLJAR_TOKEN": " 0123456789abcdef\n"}
        self.assertEqual(self.ctl(here, "ps", environment=token).returncode, 0)
        self.assertEqual(self.ctl(there, "ps", environment=token).returncode, 0)
        file = self.make_file("token", "\nfrom-the-file\nanother\n")
        self.assertEqual(self.ctl(there, "ps", "--token-file", file, environment=token).returncode, 0)
        self.assertNotIn("authorization", here.requests[0].headers)
        self.assertEqual([request.headers["authorization"] for request in there.requests],
                         ["Bearer 0123456789abcdef", "Bearer from-the-file"])

    @once
    def test_a_token_that_would_add_a_header_is_refused(self):
        fake = FakeV1(self, lambda *_: answer(200, {"sessions": [], "next": None}), tcp=True)
        done = self.ctl(fake, "ps", environment={"BELLJAR_TOKEN": "a\rX-Evil: 1"})
        self.assertEqual((done.returncode, fake.requests), (2, []))

    @once
    def test_a_wrong_token_says_where_the_right_one_goes(self):
        fake = FakeV1(self, lambda *_: problem(401, "unauthorized", "Missing or wrong token"), tcp=True)
        done = self.ctl(fake, "ps")
        self.assertIn(b"--token-file FILE, or the variable BELLJAR_TOKEN", done.stderr)
        self.assertEqual(done.returncode, 1)

    @once
    def test_a_tar_that_would_write_elsewhere_is_refused(self):
        import io
        import tarfile
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for name in ("good", "../evil"):
                entry = tarfile.TarInfo(name)
                entry.size = 1
                tar.addfile(entry, io.BytesIO(b"x"))
        def respond(request, number):
            if "/archive" in request.target:
                return answer(200, packed.getvalue(), "application/x-tar")
            return answer(200, b"", "application/json")
        target = pathlib.Path(self.make_directory("target"))
        done = self.ctl(FakeV1(self, respond), "cp", "s:dir/.", str(target / "in"))
        self.assertEqual(done.returncode, 3)
        self.assertIn(b'"../evil"', done.stderr)
        self.assertEqual(sorted(path.name for path in target.rglob("*")), ["good", "in"])


if __name__ == "__main__":
    main()
