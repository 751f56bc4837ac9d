"""The relay: what an agent prints and says, both ways, and how each of its ends is told."""

import contextlib
import json
import pathlib
import socket
import struct
import sys
import time

import websockets

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import AGENT, PORT_BASE, DaemonTest, as_shipped, is_ours, most_resident_kib, wait_until
from harness import callers, main


def parsed(frames):
    return [json.loads(frame) for frame in frames if is_ours(frame)]


def lines_of(frames):
    return [frame["line"] for frame in parsed(frames) if frame["type"] == "stdout"]


class Talk(DaemonTest):

    @callers("five", "user", "root")
    def test_text_is_relayed_unchanged_both_ways(self):
        daemon = self.daemon()
        relay = daemon.relay(daemon.session())
        for text in ("x", "", '{"action": "user_message", "message": "h\u00e9 \U0001f600"}', "a" * 900000, "\u0000\n"):
            self.assertEqual(relay.answer_to(text), "echo " + text)

    @as_shipped
    def test_what_is_sent_before_the_agent_is_up_is_delivered_then(self):
        daemon = self.daemon()
        relay = daemon.relay(daemon.session("import time\ntime.sleep(1.5)\n" + AGENT))
        relay.send("early")
        self.assertEqual(relay.frames_until(lambda frame: not is_ours(frame))[-1], "echo early")

    @as_shipped
    def test_stdout_and_stderr_lines_come_as_frames_and_a_state_change_before_its_line(self):
        daemon = self.daemon()
        relay = daemon.relay(daemon.session("""
import sys
print("one", flush=True); print("two  ", file=sys.stderr, flush=True)
print("2024-01-01 - INFO - [greeting] Running body hello", flush=True)
print("[greeting] Running fallback body hello", flush=True)
sys.stdout.buffer.write(b"caf\\xc3\\xa9 \\xff\\n"); sys.stdout.flush()
""" + AGENT))
        frames = relay.frames_until(lambda frame: "a client is here" in frame)
        self.assertEqual(parsed(frames)[:6], [
            {"type": "stdout", "line": "one"}, {"type": "stdout", "line": "two"},
            {"type": "state_change", "state": "greeting", "_source": "log_state"},
            {"type": "stdout", "line": "2024-01-01 - INFO - [greeting] Running body hello"},
            {"type": "stdout", "line": "[greeting] Running fallback body hello"},
            {"type": "stdout", "line": "café \ufffd"}])
        self.assertEqual(frames[0], '{"type": "stdout", "line": "one"}', "separated as Python separates")

    @as_shipped
    def test_binary_of_the_agent_becomes_text_and_binary_of_the_client_ends_the_relay_alone(self):
        daemon = self.daemon()
        session = daemon.session()
        relay = daemon.relay(session)
        self.assertEqual(relay.answer_to("binary"), "café \ufffd")
        relay.send(b"binary")
        relay.rest()
        self.assertEqual(daemon.relay(session).answer_to("x"), "echo x", "the session keeps running")

    @as_shipped
    def test_messages_up_to_1_mib_reach_the_client_and_larger_ones_are_told_instead(self):
        daemon = self.daemon()
        relay = daemon.relay(daemon.session(), max_size=1 << 20)
        self.assertEqual(len(relay.answer_to(f"size {1 << 20}")), 1 << 20)
        relay.send(f"size {(1 << 20) + 1}")
        told = relay.frames_until(lambda frame: "error" in frame)[-1]
        self.assertEqual(json.loads(told)["type"], "error")
        self.assertEqual(relay.answer_to("still"), "echo still")

    @as_shipped
    def test_a_message_of_the_client_up_to_16_mib_is_taken_and_a_larger_one_closes_with_1009(self):
        daemon = self.daemon()
        session = daemon.session()
        relay = daemon.relay(session)
        relay.send("run answer = len('" + "a" * ((16 << 20) - 100) + "')")
        self.assertEqual(json.loads(relay.frames_until(lambda frame: not is_ours(frame))[-1]), (16 << 20) - 100)
        with contextlib.suppress(websockets.ConnectionClosed):
            relay.send("a" * ((16 << 20) + 1))
        self.assertEqual(relay.rest()[1], 1009)
        self.assertEqual(daemon.relay(session).answer_to("x"), "echo x")

    @as_shipped
    def test_several_relays_on_one_session_each_see_every_line_and_talk_for_themselves(self):
        daemon = self.daemon()
        session = daemon.session("for i in range(200): print('line', i)\n" + AGENT)
        relays = [daemon.relay(session) for _ in range(3)]
        for number, relay in enumerate(relays):
            seen = lines_of(relay.frames_until(lambda frame: "line 199" in frame))
            self.assertEqual(seen[:200], [f"line {i}" for i in range(200)])
            self.assertEqual(relay.answer_to(str(number)), f"echo {number}")

    @as_shipped
    def test_a_client_that_leaves_leaves_the_session_running_and_the_agents_socket_closed(self):
        daemon = self.daemon()
        session = daemon.session(AGENT.replace('    print("a client is here", flush=True)\n', '    open("in", "a").write("x")\n')
                                 .replace("async def main", "_talk = talk\nasync def talk(*a):\n    try: await _talk(*a)\n"
                                          "    finally: open('out', 'a').write('x')\nasync def main"))
        relay = daemon.relay(session)
        relay.answer_to("x")
        relay.close()
        self.assertTrue(wait_until(lambda: daemon.listed(session)[0].get("out") == "x"))
        self.assertEqual(daemon.listed(session)[0]["in"], "x", "one connection a relay, and none to see whether it is up")


class Ends(DaemonTest):

    @as_shipped
    def test_an_agent_that_exits_announces_itself_with_cause_and_code_and_then_closes(self):
        for code, wanted in (("os._exit(3)", ("exited", 3, None)), ("os.kill(os.getpid(), 9)", ("signaled", None, 9))):
            daemon = self.daemon()
            relay = daemon.relay(daemon.session())
            relay.answer_to("x")
            relay.send(f"run print('last words', flush=True); {code}")
            frames, closed = relay.rest()
            last = json.loads(frames[-1])
            self.assertEqual((last["type"], last["cause"], last["exit_code"], last["signal"]), ("exit", *wanted))
            self.assertNotIn("action", last)
            self.assertIn("last words", lines_of(frames), "output comes before the end")
            self.assertEqual(closed, 1000)
            self.check_that_it_ends(daemon)

    @as_shipped
    def test_start_failure_shows_every_line_then_an_error_with_the_tail_and_ends_the_session(self):
        daemon = self.daemon()
        session = daemon.session("print('filler ' * 20000)\nraise RuntimeError('the reason')")
        frames, code = daemon.relay(session).rest()
        told = parsed(frames)
        errors = [frame["message"] for frame in told if frame["type"] == "error"]
        self.assertEqual(len(errors), 1)
        self.assertIn("RuntimeError: the reason", errors[0])
        self.assertIn("RuntimeError: the reason", lines_of(frames))
        self.assertEqual(told[-1]["type"], "exit")
        self.assertEqual(told[-1]["exit_code"], 1)
        self.assertEqual(code, 1000)
        self.assertTrue(wait_until(lambda: daemon.files(session).status == 404))
        quiet = daemon.session("raise SystemExit(2)")
        frames, code = daemon.relay(quiet).rest()
        self.assertIn("no output", [frame["message"] for frame in parsed(frames) if frame["type"] == "error"][0])

    @as_shipped
    def test_an_agent_that_prints_1_mib_first_still_starts(self):
        daemon = self.daemon()
        session = daemon.session("import sys\nfor i in range(1100): print('o' * 1000)\nprint('up soon', flush=True)\n" + AGENT)
        self.assertTrue(wait_until(lambda: daemon.relay(session).answer_to("x") == "echo x", 20))
        frames = daemon.relay(session).frames_until(lambda frame: "up soon" in frame)
        self.assertIn("bytes of output were dropped", " ".join(lines_of(frames)), "what is gone is told")

    @as_shipped
    def test_lines_are_bounded(self):
        daemon = self.daemon()
        relay = daemon.relay(daemon.session("print('\\x01' * 200000)\n" + AGENT), max_size=1 << 20)
        frames = relay.frames_until(lambda frame: "a client is here" in frame)
        self.assertEqual(sum(len(line) for line in lines_of(frames)[:-1]), 200000)
        self.assertLessEqual(max(len(line) for line in lines_of(frames)), 65536)

    @as_shipped
    def test_an_agent_that_closes_its_connection_closes_the_clients(self):
        daemon = self.daemon()
        session = daemon.session()
        relay = daemon.relay(session)
        relay.answer_to("x")
        relay.send("close")
        self.assertEqual(relay.rest()[1], 1000)
        self.assertEqual(daemon.relay(session).answer_to("x"), "echo x", "the agent itself goes on")

    @as_shipped
    def test_a_deleted_session_tells_its_relays(self):
        daemon = self.daemon()
        session = daemon.session()
        relay = daemon.relay(session)
        relay.answer_to("x")
        daemon.delete(session)
        frames, code = relay.rest()
        self.assertEqual(json.loads(frames[-1])["type"], "exit")
        self.assertEqual(code, 1000)


class Listeners(DaemonTest):

    @as_shipped
    def test_only_a_listener_of_the_sessions_own_uid_is_dialled(self):
        daemon = self.daemon()
        with socket.socket() as thief:
            thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            thief.bind(("127.0.0.1", PORT_BASE))
            thief.listen()
            thief.settimeout(2)
            session = daemon.session("import time\nprint('waiting', flush=True)\ntime.sleep(30)")
            relay = daemon.relay(session)
            relay.send("for the agent alone")
            with self.assertRaises(TimeoutError):
                thief.accept()
            daemon.delete(session)
        other = daemon.session()
        self.assertEqual(daemon.relay(other).answer_to("x"), "echo x", "on the same port the agent itself is")

    @as_shipped
    def test_another_sessions_agent_on_the_port_is_not_dialled(self):
        daemon = self.daemon()
        thief = daemon.session()
        next_port = PORT_BASE + 1
        self.assertEqual(daemon.relay(thief).run(
            "import socket\ns = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
            f"s.bind(('127.0.0.1', {next_port})); s.listen()\n"
            "import builtins\nbuiltins.kept = s\ns.settimeout(0)\nanswer = 'taken'"), "taken")
        victim = daemon.session("import time\ntime.sleep(30)")
        relay = daemon.relay(victim)
        relay.send("for the victim alone")
        time.sleep(1.5)
        seen = daemon.relay(thief).run("import builtins\ntry: builtins.kept.accept(); answer = 'dialled'\n"
                                       "except BlockingIOError: answer = 'nobody came'")
        self.assertEqual(seen, "nobody came")


class Frames(DaemonTest):

    def upgraded(self, daemon):
        connection = socket.create_connection(("127.0.0.1", daemon.port), timeout=10)
        self.addCleanup(connection.close)
        session = daemon.session()
        head = (f"GET /sessions/{session}/ws HTTP/1.1\r\nHost: a\r\nX-Agent-Simulator-Token: {daemon.token}\r\n"
                "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                "Sec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
        connection.sendall(head.encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += connection.recv(4096)
        self.assertTrue(answer.startswith(b"HTTP/1.1 101 "), answer)
        self.assertNotIn(b"permessage-deflate", answer, "no compression is negotiated")
        return connection

    def closing_code(self, connection):
        """The code of the close frame, past whatever came before it."""
        data = b""
        try:
            while piece := connection.recv(65536):
                data += piece
        except (ConnectionResetError, TimeoutError):
            pass
        while data:
            length, offset = data[1] & 127, 2
            if length == 126:
                length, offset = struct.unpack(">H", data[2:4])[0], 4
            if data[0] & 15 == 8:
                return struct.unpack(">H", data[offset:offset + 2])[0]
            data = data[offset + length:]
        return None

    @as_shipped
    def test_broken_frames_close_the_connection_with_the_code_that_says_why(self):
        daemon = self.daemon(variables={"AGENT_SIMULATOR_MAX_SESSIONS": "5"})
        mask = b"\0\0\0\0"
        for name, frame, code in (("unmasked", b"\x81\x01x", 1002), ("reserved bits", b"\xf1\x81" + mask + b"x", 1002),
                                  ("long control frame", b"\x89\xfe\x00\x80" + mask + b"x" * 128, 1002),
                                  ("invalid UTF-8", b"\x81\x82" + mask + b"\xff\xff", 1007),
                                  ("a length of 2^62", b"\x81\xff" + b"\x40" + b"\0" * 7 + mask, 1009)):
            connection = self.upgraded(daemon)
            connection.sendall(frame)
            self.assertEqual(self.closing_code(connection), code, name)

    @as_shipped
    def test_floods_of_pings_and_of_fragments_cost_bounded_memory_and_hold_up_nobody(self):
        daemon = self.daemon()
        mask = b"\0\0\0\0"
        connection = self.upgraded(daemon)
        frame = lambda opcode, text=b"": bytes([opcode, 0x80 | len(text)]) + mask + text
        connection.sendall(frame(0x89, b"are you there") * 10_000)
        connection.sendall(frame(0x01, b"x") + frame(0x00, b"y") * 10_000 + frame(0x80, b"z"))
        data = b""
        while b"echo x" + b"y" * 10_000 + b"z" not in data:
            data += connection.recv(1 << 20) or self.fail(f"it ends after {len(data)} bytes\n{daemon.log}")
        self.assertEqual(data.count(frame_of(0x8a, b"are you there")), 10_000, "each ping has its pong")
        endless = self.upgraded(daemon)
        # What the daemon does not take is not sent: whether it goes on or closes is its own affair.
        endless.settimeout(5)
        with contextlib.suppress(OSError):
            endless.sendall(frame(0x01) + frame(0x00) * 1_000_000)
        with contextlib.suppress(OSError):
            endless.sendall(frame(0x89) * 1_000_000)
        self.assertEqual(daemon.relay(daemon.session()).answer_to("x"), "echo x")
        self.assertLess(most_resident_kib(daemon.process.pid), 256 << 10)


def frame_of(opcode, text):
    return bytes([opcode, len(text)]) + text


if __name__ == "__main__":
    main()
