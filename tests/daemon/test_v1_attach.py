"""belljar.attach.v1: a WebSocket beside a process, which it neither starts nor ends."""

import json
import pathlib
import sys
import time

import websockets

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import as_shipped, wait_until
from harness import callers, main
from streams import ATTACH, Attached, StreamTest, channel_bytes

STDIN, STDOUT, STDERR, RECORD, RESIZE, CONTROL, CLOSE = 0, 1, 2, 3, 4, 5, 255


def hello(attached):
    channel, said = attached.receive()
    assert (channel, said["type"]) == (CONTROL, "hello"), (channel, said)
    return said


class Talk(StreamTest):

    @callers("five", "user")
    def test_hello_says_where_it_begins_and_the_record_comes_last_before_the_normal_close(self):
        client = self.streams()
        process = client.ran(client.session(), "echo one; echo two >&2; exit 3")
        attached = client.attach(process)
        self.assertEqual(attached.socket.subprotocol, ATTACH)
        self.assertEqual(hello(attached), {"type": "hello", "offsets": {"stdout": 0, "stderr": 0}, "stdin": None,
                                           "writer": True})
        messages, code = attached.rest()
        self.assertEqual((channel_bytes(messages, STDOUT), channel_bytes(messages, STDERR)), (b"one\n", b"two\n"))
        self.assertEqual((messages[-1][0], messages[-1][1]["exit_code"], code), (RECORD, 3, 1000))

    @as_shipped
    def test_stdin_goes_in_and_half_closing_it_ends_what_reads_to_its_end(self):
        client = self.streams()
        process = client.start(client.session(), "cat; echo end >&2", stdin="open")
        attached = client.attach(process)
        hello(attached)
        attached.send(STDIN, b"caf\xc3\xa9 \xff\n")
        self.assertEqual(attached.receive(), (STDOUT, b"caf\xc3\xa9 \xff\n"))
        attached.send(CLOSE, bytes([STDIN]))
        messages, code = attached.rest()
        self.assertEqual((channel_bytes(messages, STDERR), code), (b"end\n", 1000))

    @as_shipped
    def test_a_terminal_is_resized_and_its_keys_arrive(self):
        client = self.streams()
        process = client.start(client.session(), "stty size; read x; stty size", tty={"cols": 80, "rows": 24})
        attached = client.attach(process)
        hello(attached)
        self.assertEqual(attached.receive()[1], b"24 80\r\n")
        attached.send(RESIZE, b'{"cols": 132, "rows": 50}')
        attached.say(type="ping")
        attached.until(lambda channel, said: channel == CONTROL and said["type"] == "pong")
        attached.send(STDIN, b"\r")
        messages, _ = attached.rest()
        self.assertIn(b"50 132\r\n", channel_bytes(messages, STDOUT))

    @as_shipped
    def test_signals_reach_a_program_that_reads_nothing_of_what_waits_for_it(self):
        client = self.streams()
        process = client.start(client.session(), "trap 'echo hup; exit 5' HUP; echo up; while sleep 0.05; do :; done",
                               stdin="open")
        attached = client.attach(process)
        attached.until(lambda channel, data: (channel, data) == (STDOUT, b"up\n"))
        for _ in range(2):  # The pipe holds 64 KiB, and the daemon up to 256 more before it stops to listen.
            attached.send(STDIN, b"x" * 100000)
        attached.say(type="signal", signal="SIGHUP")
        messages, _ = attached.rest()
        self.assertIn(b"hup\n", channel_bytes(messages, STDOUT))
        self.assertEqual(messages[-1][1]["exit_code"], 5)

    @as_shipped
    def test_what_has_no_effect_is_said_and_ends_nothing(self):
        client = self.streams()
        process = client.start(client.session(), "sleep 100")
        attached = client.attach(process)
        hello(attached)
        for channel, data, code in ((STDIN, b"x", "conflict"), (RESIZE, b'{"cols": 1, "rows": 1}', "conflict"),
                                    (RESIZE, b'{"cols": "1"}', "malformed"),
                                    (RESIZE, b'{"cols": 80, "rows": 24, "depth": 1}', "malformed"),
                                    (CONTROL, b'{"type": "ping", "wait": true}', "malformed"),
                                    (CONTROL, b'{"type": "signal", "signal": "CONT", "tree": true}', "malformed"),
                                    (CONTROL, b"[" * 100000, "malformed"),
                                    (CONTROL, b'{"type": "signal", "signal": "NONE"}', "malformed"),
                                    (CONTROL, b'{"type": 5}', "malformed"), (STDOUT, b"x", "malformed"),
                                    (77, b"", "malformed"), (CLOSE, b"\1", "malformed")):
            with self.subTest(channel=channel, data=data[:20]):
                attached.send(channel, data)
                said = attached.until(lambda channel, said: channel == CONTROL and said["type"] == "error")[-1][1]
                self.assertEqual(said["code"], code)

    @as_shipped
    def test_text_and_messages_beyond_the_bound_end_the_socket_and_not_the_process(self):
        client = self.streams()
        process = client.start(client.session(), "read x", stdin="open")
        attached = client.attach(process)
        attached._do(attached.socket.send("text"))
        self.assertEqual(attached.rest()[1], 1003)
        attached = client.attach(process)
        attached.send(STDIN, b"x" * (128 << 10))
        self.assertEqual(attached.rest()[1], 1009)
        self.assertEqual(client.expect(200, "GET", process)["state"], "running")


class Several(StreamTest):

    @as_shipped
    def test_many_read_and_one_writes_until_another_takes_over(self):
        client = self.streams()
        process = client.start(client.session(), "while read line; do echo got $line; done", stdin="open")
        first = client.attach(process)
        self.assertTrue(hello(first)["writer"])
        second = client.attach(process)
        self.assertFalse(hello(second)["writer"])
        second.send(STDIN, b"no\n")
        self.assertEqual(second.receive()[1]["code"], "not_the_writer")
        third = client.attach(process, query="?takeover=true")
        self.assertTrue(hello(third)["writer"])
        self.assertEqual(first.receive(), (CONTROL, {"type": "writer", "writer": False}))
        first.send(STDIN, b"late\n")
        self.assertEqual(first.receive()[1]["code"], "not_the_writer")
        third.send(STDIN, b"yes\n")
        for attached in (first, second, third):
            self.assertEqual(attached.receive(), (STDOUT, b"got yes\n"))

    @as_shipped
    def test_who_has_gone_is_no_writer_any_more(self):
        client = self.streams()
        process = client.start(client.session(), "read line", stdin="open")
        first = client.attach(process)
        hello(first)
        first.close()
        def free():
            attached = client.attach(process)
            is_writer = hello(attached)["writer"]
            attached.close()
            return is_writer
        self.assertTrue(wait_until(free))

    @as_shipped
    def test_offsets_resume_where_another_socket_stopped_and_each_byte_comes_once(self):
        client = self.streams()
        process = client.start(client.session(), "echo one; read x; echo two; echo err >&2", stdin="open")
        first = client.attach(process)
        hello(first)
        first.receive()
        first.socket.transport.abort()
        second = client.attach(process, query="?stdout=4&stderr=0&takeover=true")
        self.assertEqual(hello(second)["offsets"], {"stdout": 4, "stderr": 0})
        second.send(STDIN, b"\n")
        messages, _ = second.rest()
        self.assertEqual((channel_bytes(messages, STDOUT), channel_bytes(messages, STDERR)), (b"two\n", b"err\n"))
        self.assertEqual(hello(client.attach(process, query="?stdout=2&writer=false"))["writer"], False)

    @as_shipped
    def test_what_was_dropped_is_a_gap_between_the_bytes_around_it(self):
        client = self.streams()
        process = client.ran(client.session(), "head -c 3000000 /dev/zero; printf end")
        attached = client.attach(process)
        at = hello(attached)["offsets"]["stdout"]
        gaps = []
        for channel, data in attached.rest()[0]:
            if channel == STDOUT:
                at += len(data)
            elif channel == CONTROL and data["type"] == "gap":
                self.assertEqual(data["from"], at)
                gaps.append(data)
                at = data["to"]
        self.assertEqual((at, len(gaps)), (3000003, 1))

    @as_shipped
    def test_a_reader_who_stalls_holds_up_nobody_and_meets_a_gap(self):
        client = self.streams()
        process = client.start(client.session(), "read go; head -c 20000000 /dev/zero; printf end", stdin="open")
        stalled = client.attach(process, query="?writer=false", max_queue=1)
        writer = client.attach(process, query="?writer=true")
        hello(writer)
        writer.send(STDIN, b"\n")
        messages, code = writer.rest()
        self.assertEqual((messages[-1][1]["exit_code"], code), (0, 1000))
        messages, code = stalled.rest()
        self.assertIn("gap", [data["type"] for channel, data in messages if channel == CONTROL])
        self.assertEqual((channel_bytes(messages, STDOUT)[-3:], code), (b"end", 1000))

    @as_shipped
    def test_detaching_ends_nothing_and_closes_no_stdin(self):
        client = self.streams()
        process = client.start(client.session(), "read x; echo got $x", stdin="open")
        client.attach(process).close()
        client.expect(200, "POST", process + "/stdin", b"later\n",
                      headers={"Content-Type": "application/octet-stream"})
        self.assertEqual(client.wait(process)["exit_code"], 0)


class Refusals(StreamTest):
    """Each is an answer of HTTP, before the upgrade."""

    def refusal(self, client, process, **options):
        with self.assertRaises(websockets.InvalidStatusCode) as refused:
            Attached(client, process, **options)
        return refused.exception.status_code

    @as_shipped
    def test_what_cannot_be_attached_to_is_refused_before_the_upgrade(self):
        client = self.streams()
        process = client.start(client.session(), "read x", stdin="open")
        self.assertEqual(self.refusal(client, process + "9"), 404)
        self.assertEqual(self.refusal(client, process, protocols=()), 400)
        self.assertEqual(self.refusal(client, process, protocols=("v5.channel.k8s.io",)), 400)
        self.assertEqual(self.refusal(client, process, query="?stdout=1"), 422)
        self.assertEqual(self.refusal(client, process, query="?writer=maybe"), 422)
        self.assertEqual(self.refusal(client, process, origin="http://localhost"), 403)
        client.problem(426, "upgrade_required", "GET", process + "/attach")

    @as_shipped
    def test_a_second_writer_is_refused_unless_it_takes_over(self):
        client = self.streams()
        process = client.start(client.session(), "read x", stdin="open")
        hello(client.attach(process))
        self.assertEqual(self.refusal(client, process, query="?writer=true"), 409)
        self.assertTrue(hello(client.attach(process, query="?takeover=true"))["writer"])

    @as_shipped
    def test_a_client_without_the_token_gets_no_upgrade(self):
        client = self.streams()
        process = client.start(client.session(), "read x", stdin="open")
        stranger = self.streams_over_tcp(client)
        stranger.headers = lambda given=None: given or {}
        self.assertEqual(self.refusal(stranger, process), 401)
        hello(self.streams_over_tcp(client).attach(process))


class Complaints(StreamTest):
    """session-apis.md §3, by the number of its thread."""

    @as_shipped
    def test_kubernetes_89899_stdin_is_half_closed_and_what_comes_after_it_is_still_read(self):
        client = self.streams()
        process = client.start(client.session(), "wc -c", stdin="open")
        attached = client.attach(process)
        hello(attached)
        attached.send(STDIN, b"x" * 100000)
        attached.send(CLOSE, bytes([STDIN]))
        messages, code = attached.rest()
        self.assertEqual((channel_bytes(messages, STDOUT).strip(), code), (b"100000", 1000))

    @as_shipped
    def test_e2b_1074_and_500_a_process_can_be_attached_to_after_its_end_and_says_how_that_was(self):
        client = self.streams()
        process = client.ran(client.session(), "echo out; sleep 100", wall_time="200ms")
        messages, code = client.attach(process).rest()
        self.assertEqual((channel_bytes(messages, STDOUT), messages[-1][1]["cause"], code),
                         (b"out\n", "wall_time", 1000))

    @as_shipped
    def test_openshell_1990_a_session_that_is_ended_ends_its_sockets_with_a_record(self):
        client = self.streams()
        session = client.session()
        attached = client.attach(client.start(session, "sleep 1000"))
        hello(attached)
        client.call("DELETE", session)
        messages, code = attached.rest()
        self.assertEqual((messages[-1][0], code), (RECORD, 1000))


if __name__ == "__main__":
    main()
