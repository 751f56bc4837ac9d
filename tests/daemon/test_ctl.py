"""belljarctl against the real daemon: what it does, what it exits with, and what becomes of terminals."""

import contextlib
import fcntl
import hashlib
import io
import json
import os
import pathlib
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import termios
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import BELLJARCTL, TOKEN, as_shipped, wait_until
from harness import back_ends, callers, main
from v1 import V1, V1Test

CTRL_C, CTRL_P, CTRL_Q = b"\x03", b"\x10", b"\x11"


class Terminal:
    """belljarctl at a terminal of its own, as a shell would start it."""

    def __init__(self, test, where, *arguments, columns=100, rows=30):
        self.master, self.slave = os.openpty()
        self.resize(columns, rows, tell=False)
        self.before = termios.tcgetattr(self.slave)
        self.seen = b""
        environment = {"PATH": os.environ["PATH"], "TERM": "xterm-256color"}
        self.process = subprocess.Popen([BELLJARCTL, *where, *arguments], stdin=self.slave, stdout=self.slave,
                                        stderr=self.slave, env=environment, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        test.addCleanup(self.close)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def resize(self, columns, rows, tell=True):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys):
        os.write(self.master, keys)

    def read_until(self, text, timeout=20):
        """All that was shown, up to the text."""
        text = text.encode() if isinstance(text, str) else text
        until = time.monotonic() + timeout
        while text not in self.seen:
            if not select.select([self.master], [], [], max(0, until - time.monotonic()))[0]:
                raise AssertionError(f"no {text!r} in {self.seen!r}")
            self.seen += os.read(self.master, 65536)
        shown, _, self.seen = self.seen.partition(text)
        return shown + text

    def wait(self, timeout=30):
        """Its exit status; what it still says is read meanwhile, since a terminal holds only so much."""
        until = time.monotonic() + timeout
        while self.process.poll() is None:
            if time.monotonic() > until:
                raise AssertionError(f"belljarctl does not end: {self.seen!r}")
            if select.select([self.master], [], [], 0.05)[0]:
                self.seen += os.read(self.master, 65536)
        while select.select([self.master], [], [], 0)[0]:
            self.seen += os.read(self.master, 65536)
        return self.process.returncode

    @property
    def is_raw(self):
        return not termios.tcgetattr(self.slave)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)

    @property
    def as_before(self):
        return termios.tcgetattr(self.slave) == self.before


class CuttingProxy:
    """Between a client and the daemon's socket: breaks each connection after a random number of bytes."""

    def __init__(self, test, target, seed, least, most):
        self.target, self.random, self.least, self.most, self.cuts = str(target), random.Random(seed), least, most, 0
        self.path = os.path.join(test.dir, "proxy.sock")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        test.addCleanup(self.close)

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        os.unlink(self.path)

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            left = self.random.randint(self.least, self.most)
            threading.Thread(target=self.relay, args=(client, left), daemon=True).start()

    def relay(self, client, left):
        daemon = socket.socket(socket.AF_UNIX)
        with client, daemon, contextlib.suppress(OSError):
            daemon.connect(self.target)
            while True:
                ready, _, _ = select.select([client, daemon], [], [])
                for source in ready:
                    data = source.recv(min(left, 4096))
                    if not data:
                        return
                    (daemon if source is client else client).sendall(data)
                    left -= len(data) if source is daemon else 0
                if left <= 0:
                    self.cuts += 1
                    return


class CtlTest(V1Test):
    def where(self, v1):
        return ["--socket", str(v1.socket_path)]

    def ctl(self, v1, *arguments, stdin=b"", code=0, where=None, timeout=60, environment=None):
        """What it prints, once it has exited with `code`."""
        done = subprocess.run([BELLJARCTL, *(where or self.where(v1)), *map(str, arguments)], input=stdin,
                              capture_output=True, timeout=timeout,
                              env={"PATH": os.environ["PATH"], **(environment or {})})
        self.assertEqual(done.returncode, code, f"{arguments}: {done.stdout[-500:]} {done.stderr}\n{v1.daemon.log[-3000:]}")
        return done

    def begin(self, v1, *arguments, **options):
        process = subprocess.Popen([BELLJARCTL, *self.where(v1), *map(str, arguments)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, stdin=options.pop("stdin", subprocess.DEVNULL), **options)
        def end():
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.addCleanup(end)
        return process

    def session(self, v1, *arguments):
        return self.ctl(v1, "create", *arguments).stdout.decode().strip()

    def running(self, v1, session):
        return [process["id"] for process in v1.expect(200, "GET", f"/v1/sessions/{session}/processes")["processes"]
                if process["state"] != "ended"]


class Sessions(CtlTest):

    @as_shipped
    def test_sessions_are_made_listed_and_removed(self):
        v1 = self.v1()
        first = self.session(v1, "-l", "team=a", "--ttl", "10m", "-e", "COLOUR=blue")
        second = self.session(v1, "-l", "team=b", "--idle", "5m", "--", "sleep", "600")
        table = self.ctl(v1, "ps").stdout.decode().splitlines()
        self.assertEqual(table[0].split(), ["SESSION", "STATE", "POLICY", "CREATED", "EXPIRES", "PROCESSES", "LABELS"])
        self.assertEqual([line.split()[0] for line in table[1:]], [first, second])
        self.assertEqual(table[1].split()[-1], "team=a")
        self.assertEqual(self.ctl(v1, "ps", "-q", "-l", "team=b").stdout.decode(), second + "\n")
        told = json.loads(self.ctl(v1, "ps", "--json").stdout)["sessions"]
        self.assertEqual([session["labels"] for session in told], [{"team": "a"}, {"team": "b"}])
        self.assertEqual(self.ctl(v1, "exec", first, "--", "printenv", "COLOUR").stdout, b"blue\n")
        self.assertIn(b"sleep 600", self.ctl(v1, "ps", second).stdout)
        self.assertIn(second.encode(), self.ctl(v1, "top", "--once").stdout)
        self.assertEqual(json.loads(self.ctl(v1, "top", "--json").stdout)["processes"][0]["argv"], ["sleep", "600"])
        self.ctl(v1, "rm", first, second)
        self.assertEqual(self.ctl(v1, "ps", "-q").stdout, b"")
        gone = self.ctl(v1, "ps", "-a").stdout.decode()
        self.assertRegex(gone, f"{first} +ended: killed")

    @as_shipped
    def test_a_run_is_one_shot_and_leaves_nothing(self):
        v1 = self.v1()
        file = self.make_file("data.bin", b"\x00\xff data")
        done = self.ctl(v1, "run", "-i", "--file", f"{file}:in/data", "--limit", "rlimits.nofile=77", "-e", "A=b", "--", "sh",
                        "-c", "cat; cat in/data; ulimit -n; echo $A >&2; exit 4", stdin=b"\xfe input\n", code=4)
        self.assertEqual((done.stdout, done.stderr), (b"\xfe input\n\x00\xff data77\n", b"b\n"))
        self.assertTrue(wait_until(lambda: self.ctl(v1, "ps", "-q").stdout == b""))
        told = json.loads(self.ctl(v1, "run", "--json", "--", "sh", "-c", "echo x; exit 3", code=3).stdout)
        self.assertEqual((told["stdout"], told["record"]["cause"]), ("x\n", "exited"))

    @as_shipped
    def test_a_session_works_in_a_directory_of_the_hosts_and_claims_what_others_add(self):
        roots = self.make_directory("roots")
        work = self.make_directory("roots/work")
        v1 = self.v1(f"--workspace-root={roots}")
        self.assertIn(b"--workspace", self.ctl(v1, "create", "--chown", code=2).stderr)
        self.assertIn(b"chown", self.ctl(v1, "create", "--workspace", str(work), code=1).stderr)
        session = self.ctl(v1, "create", "--workspace", str(work), "--chown").stdout.decode().strip()
        (work / "added").write_text("1\n")
        write = ("sh", "-c", "echo 2 >> added")
        self.assertNotEqual(self.ctl(v1, "exec", session, "--", *write, code=2).returncode, 0)
        self.ctl(v1, "exec", "--claim", session, "--", *write)
        self.assertEqual((work / "added").read_text(), "1\n2\n")
        self.ctl(v1, "rm", session)
        seen = self.ctl(v1, "run", "--workspace", str(work), "--chown", "--", "cat", "added")
        self.assertEqual(seen.stdout, b"1\n2\n")

    @as_shipped
    def test_a_run_that_is_interrupted_is_ended(self):
        v1 = self.v1()
        process = self.begin(v1, "run", "--", "sleep", "600")
        self.assertTrue(wait_until(lambda: v1.expect(200, "GET", "/v1/sessions?state=running")["sessions"]))
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20), -signal.SIGINT)
        self.assertTrue(wait_until(lambda: not v1.expect(200, "GET", "/v1/sessions?state=running")["sessions"]))

    @as_shipped
    def test_refusals_are_told_with_what_to_do_and_their_code(self):
        v1 = self.v1()
        done = self.ctl(v1, "create", "--policy", "builtin:angel@1", code=1)
        self.assertIn(b"builtin:angel@1", done.stderr.splitlines()[0])
        self.assertIn(b"belljarctl: code: ", done.stderr.splitlines()[-1])
        done = self.ctl(v1, "create", "--ttl", "soon", "--network", "fast", code=1)
        self.assertIn(b"/ttl: ", done.stderr)
        self.assertIn(b"/network: ", done.stderr)
        self.assertIn(b"code: invalid (HTTP 422", done.stderr)
        done = self.ctl(v1, "logs", "s-0-none", code=1)
        self.assertIn(b"belljarctl ps --all", done.stderr)
        self.assertEqual(self.ctl(v1, "exec", "s-0-none", "--", "true", code=125).stdout, b"")

    @as_shipped
    def test_over_tcp_the_token_is_what_counts(self):
        v1 = self.v1()
        url = ["--url", f"http://127.0.0.1:{v1.daemon.port}"]
        self.assertIn(b"BELLJAR_TOKEN", self.ctl(v1, "ps", where=url, code=1).stderr)
        self.ctl(v1, "ps", where=url, code=1, environment={"BELLJAR_TOKEN": "wrong" * 8})
        self.ctl(v1, "ps", where=url, environment={"BELLJAR_TOKEN": TOKEN})
        self.ctl(v1, "ps", "--token-file", self.make_file("token", TOKEN + "\n"), where=url)

    @as_shipped
    def test_events_tell_what_happened_and_go_on(self):
        v1 = self.v1()
        session = self.session(v1)
        self.ctl(v1, "exec", session, "--", "false", code=1)
        told = [json.loads(line) for line in self.ctl(v1, "events", "--json").stdout.splitlines()]
        self.assertIn(("process.ended", "exited"), [(event["type"], event.get("cause")) for event in told])
        self.assertRegex(self.ctl(v1, "events").stdout.decode(), rf"process\.ended  {session}/\d+  exited 1\n")
        following = self.begin(v1, "events", "-f")
        self.ctl(v1, "rm", session)
        line = following.stdout.readline()
        while b"session.ended" not in line:
            self.assertNotEqual(line, b"", "the stream ended")
            line = following.stdout.readline()
        self.assertIn(session.encode(), line)

    @as_shipped
    def test_versions_and_policies_are_those_of_the_daemon(self):
        v1 = self.v1()
        self.assertRegex(self.ctl(v1, "version").stdout.decode(), r"^belljarctl \S+\nbelljard   \S+")
        self.assertIn(b"builtin:agent@1", self.ctl(v1, "policies").stdout)
        self.assertIn("belljard", json.loads(self.ctl(v1, "version", "--json").stdout))


class Exec(CtlTest):

    @as_shipped
    def test_it_exits_with_the_commands_own_code_and_keeps_the_streams_apart(self):
        v1 = self.v1()
        session = self.session(v1)
        for code in (0, 1, 3, 77, 125, 255):
            done = self.ctl(v1, "exec", session, "--", "sh", "-c", f"echo out; echo err >&2; exit {code}", code=code)
            self.assertEqual((done.stdout, done.stderr), (b"out\n", b"err\n"))
        told = json.loads(self.ctl(v1, "exec", "--json", session, "--", "sh", "-c", "echo x >&2; exit 9", code=9).stdout)
        self.assertEqual((told["stderr"], told["exit_code"]), ("x\n", 9))

    @as_shipped
    def test_it_says_why_when_the_end_was_not_the_commands_own(self):
        """E2B 500: nobody can tell command time-out from request time-out."""
        v1 = self.v1()
        session = self.session(v1)
        for code, words, arguments in (
                (124, b"at its wall time", ("--timeout", "500ms", session, "--", "sleep", "60")),
                (139, b"died of a signal (SIGSEGV)", (session, "--", "sh", "-c", "kill -SEGV $$")),
                (137, b"more output than it may", ("--output", "1000B", session, "--", "yes")),
                (127, b"nonexistent", (session, "--", "nonexistent")),
                (126, b"/etc", (session, "--", "/etc"))):
            done = self.ctl(v1, "exec", *arguments, code=code)
            self.assertIn(words, done.stderr, arguments)

    @as_shipped
    def test_input_arrives_whole_and_ends(self):
        v1 = self.v1()
        session = self.session(v1)
        data = random.Random(5).randbytes(3 << 20)
        done = self.ctl(v1, "exec", "-i", session, "--", "sh", "-c", "sha256sum; echo end >&2", stdin=data)
        self.assertEqual(done.stdout.split()[0].decode(), hashlib.sha256(data).hexdigest())
        self.assertEqual(done.stderr, b"end\n")
        # Without -i there is none.
        self.assertEqual(self.ctl(v1, "exec", session, "--", "cat", stdin=b"x").stdout, b"")
        # A command that takes only part of it is nobody's failure.
        self.assertEqual(self.ctl(v1, "exec", "-i", session, "--", "head", "-c", "3", stdin=data).stdout, data[:3])

    @as_shipped
    def test_signals_are_the_commands_and_the_end_is_too(self):
        """moby 9167: no way to kill an exec, which survives the disconnect."""
        v1 = self.v1()
        session = self.session(v1)
        trap = "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.1; done"
        for script, told, code in ((trap, b"caught\n", 5), ("echo ready; exec sleep 60", b"", -signal.SIGINT)):
            process = self.begin(v1, "exec", session, "--", "bash", "-c", script)
            self.assertEqual(process.stdout.readline(), b"ready\n")
            process.send_signal(signal.SIGINT)
            self.assertEqual((process.stdout.read(), process.wait(20)), (told, code))
        self.assertEqual(self.running(v1, session), [])

    @as_shipped
    def test_the_third_signal_ends_a_command_that_takes_none(self):
        v1 = self.v1()
        session = self.session(v1)
        stubborn = "trap 'echo no' TERM; echo ready; while :; do sleep 0.1; done"
        process = self.begin(v1, "exec", session, "--", "bash", "-c", stubborn)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.stdout.readline(), b"no\n")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 137)
        self.assertEqual(self.running(v1, session), [])

    @as_shipped
    def test_a_command_that_nobody_reads_any_more_is_ended(self):
        v1 = self.v1()
        session = self.session(v1)
        process = self.begin(v1, "exec", session, "--", "yes")
        process.stdout.read(10)
        process.stdout.close()
        self.assertEqual(process.wait(20), 128 + signal.SIGPIPE)
        self.assertEqual(self.running(v1, session), [])
        process.stdout = None

    @as_shipped
    def test_a_killed_client_changes_nothing_and_another_takes_it_from_there(self):
        v1 = self.v1()
        session = self.session(v1)
        script = "echo one; read line; echo two $line; exit 6"
        process = self.begin(v1, "exec", "-i", session, "--", "bash", "-c", script, stdin=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), b"one\n")
        process.kill()
        process.wait()
        [number] = self.running(v1, session)
        done = self.ctl(v1, "attach", "--from-start", session, number, stdin=b"more\n", code=6)
        self.assertEqual(done.stdout, b"one\ntwo more\n")

    @as_shipped
    def test_background_commands_are_waited_for_read_and_killed_by_number(self):
        v1 = self.v1()
        session = self.session(v1)
        number = self.ctl(v1, "exec", "-d", session, "--", "sh", "-c", "echo begun; sleep 600").stdout.decode().strip()
        self.assertTrue(wait_until(lambda: self.ctl(v1, "logs", session, number).stdout == b"begun\n"))
        waiting = self.begin(v1, "wait", session, number)
        self.ctl(v1, "kill", "-s", "USR1", session, number)
        self.assertEqual(waiting.wait(20), 128 + signal.SIGUSR1)
        self.assertIn(b"SIGUSR1", waiting.stderr.read())
        other = self.ctl(v1, "exec", "-d", session, "--", "sh", "-c", "trap '' TERM; sleep 600 & wait").stdout.decode().strip()
        self.ctl(v1, "kill", session, other)
        self.assertEqual(self.running(v1, session), [])
        self.assertIn(b"code: ", self.ctl(v1, "kill", "-s", "TERM", session, other, code=1).stderr)
        self.ctl(v1, "kill", session, "99", code=1)

    @as_shipped
    def test_a_session_that_ends_ends_its_exec_with_a_reason(self):
        v1 = self.v1()
        session = self.session(v1)
        process = self.begin(v1, "exec", session, "--", "sh", "-c", "echo ready; sleep 600")
        self.assertEqual(process.stdout.readline(), b"ready\n")
        self.ctl(v1, "rm", session)
        self.assertIn(process.wait(20), (137, 143, -signal.SIGTERM))
        self.assertIn(b"belljarctl: the command ", process.stderr.read())


class Logs(CtlTest):

    @as_shipped
    def test_no_cut_connection_loses_or_repeats_a_byte(self):
        """E2B 1352: after re-attach stdout stops. fountain PR 691: a random-length prefix comes again."""
        v1 = self.v1()
        session = self.session(v1)
        script = ("import sys, time\nfor i in range(40000):\n    sys.stdout.write(f'{i} \\u00fc\\n')\n"
                  "    i % 3 or sys.stderr.write(f'e{i}\\n')\n    i % 1000 or (sys.stdout.flush(), time.sleep(0.01))\n"
                  "sys.stdout.flush(); sys.stdout.buffer.write(bytes(range(256)))\nsys.exit(7)")
        number = self.ctl(v1, "exec", "-d", session, "--", "python3", "-c", script).stdout.decode().strip()
        proxy = CuttingProxy(self, v1.socket_path, seed=11, least=60000, most=90000)  # A line holds up to 32 KiB.
        done = self.ctl(v1, "logs", "-f", session, number, where=["--socket", proxy.path])
        self.assertEqual(done.stdout, "".join(f"{i} \u00fc\n" for i in range(40000)).encode() + bytes(range(256)))
        errors = b"".join(line + b"\n" for line in done.stderr.splitlines() if not line.startswith(b"belljarctl: "))
        self.assertEqual(errors, "".join(f"e{i}\n" for i in range(0, 40000, 3)).encode())
        self.assertGreater(proxy.cuts, 3)
        self.assertIn(b"going on from where it was", done.stderr)
        # And in the same way what exec shows.
        done = self.ctl(v1, "exec", "-i", session, "--", "cat", stdin=done.stdout, where=["--socket", proxy.path])
        self.assertEqual(done.stdout, "".join(f"{i} \u00fc\n" for i in range(40000)).encode() + bytes(range(256)))

    @as_shipped
    def test_what_the_daemon_no_longer_keeps_is_told(self):
        v1 = self.v1()
        session = self.session(v1)
        number = self.ctl(v1, "exec", "-d", session, "--", "head", "-c", "5000000", "/dev/zero").stdout.decode().strip()
        self.ctl(v1, "wait", session, number)
        done = self.ctl(v1, "logs", session, number)
        self.assertRegex(done.stderr.decode(), r"stdout: \d+ bytes from offset \d+ on are missing")
        missing = int(done.stderr.split()[2])
        self.assertEqual(len(done.stdout) + missing, 5000000)

    @as_shipped
    def test_one_stream_and_from_an_offset(self):
        v1 = self.v1()
        session = self.session(v1)
        number = self.ctl(v1, "exec", "-d", session, "--", "sh", "-c", "echo abcdef; echo err >&2").stdout.decode().strip()
        self.ctl(v1, "wait", session, number)
        self.assertEqual(self.ctl(v1, "logs", "--stream", "stdout", "--offset", "3", session, number).stdout, b"def\n")
        done = self.ctl(v1, "logs", "--stream", "stderr", session, number)
        self.assertEqual((done.stdout, done.stderr), (b"", b"err\n"))
        self.ctl(v1, "logs", "--offset", "3", session, number, code=2)
        self.ctl(v1, "logs", "--stream", "stdout", "--offset", "99", session, number, code=1)


class AtATerminal(CtlTest):

    @as_shipped
    def test_a_shell_has_a_terminal_of_this_size_and_this_one_is_as_it_was_afterwards(self):
        v1 = self.v1()
        session = self.session(v1)
        at = Terminal(self, self.where(v1), "exec", "-it", session, "--", "bash", "--norc")
        at.type(b"stty size; echo $TERM; tty\r")
        at.read_until("30 100")
        at.read_until("xterm-256color")
        at.read_until("/dev/pts/")
        self.assertTrue(at.is_raw)
        at.resize(77, 22)
        os.kill(at.process.pid, signal.SIGWINCH)
        at.type(b"while [ \"$(stty size)\" != '22 77' ]; do sleep 0.05; done; echo is-$((1+1))-now\r")
        at.read_until("is-2-now")
        # Ctrl-C is a key, and the shell's. It comes while a command runs, and what is typed next when
        # the shell asks for it: a terminal drops what it holds when that key arrives.
        at.type(b"PS1='your-''turn '; sh -c 'echo st$((1+1))rted; exec sleep 100'; echo never-shown\r")
        at.read_until("st2rted")
        at.type(CTRL_C)
        at.read_until("^C")
        self.assertNotIn(b"never-shown", at.read_until("your-turn "))
        at.type(b"echo $((6*7))and; exit 3\r")
        at.read_until("42and")
        self.assertEqual(at.wait(), 3)
        self.assertTrue(at.as_before)

    @as_shipped
    def test_keys_detach_and_attach_comes_back_to_what_runs(self):
        v1 = self.v1()
        session = self.session(v1)
        first = Terminal(self, self.where(v1), "exec", "-it", session, "--", "cat")
        first.type(b"one\r")
        first.read_until("one\r\none\r\n")
        first.type(CTRL_P + CTRL_Q)
        self.assertEqual(first.wait(), 0)
        self.assertTrue(first.as_before)
        self.assertIn(b"detached; the command runs on: belljarctl attach " + session.encode(), first.seen)
        [number] = self.running(v1, session)
        second = Terminal(self, self.where(v1), "attach", session, str(number))
        second.type(b"two\r")
        second.read_until("two\r\ntwo\r\n")
        second.type(b"~.")
        self.assertEqual(second.wait(), 0)
        self.assertTrue(second.as_before)
        third = Terminal(self, self.where(v1), "attach", "--detach-keys", "none", session, str(number))
        third.type(b"~.\r")
        third.read_until("~.\r\n~.\r\n")
        third.type(b"\x04")
        self.assertEqual(third.wait(), 0)
        self.assertTrue(third.as_before)
        self.assertEqual(self.running(v1, session), [])

    @as_shipped
    def test_the_terminal_is_as_it_was_when_belljarctl_or_the_daemon_is_ended(self):
        v1 = self.v1()
        session = self.session(v1)
        at = Terminal(self, self.where(v1), "exec", "-it", session, "--", "cat")
        at.type(b"x\r")
        at.read_until("x\r\nx\r\n")
        [number] = self.running(v1, session)
        other = Terminal(self, self.where(v1), "attach", "--takeover", session, str(number))
        self.assertTrue(wait_until(lambda: other.is_raw))
        other.process.send_signal(signal.SIGTERM)
        self.assertEqual(other.wait(), 128 + signal.SIGTERM)
        self.assertTrue(other.as_before)
        self.assertEqual(self.running(v1, session), [number], "attach only looks in")
        at.process.send_signal(signal.SIGHUP)
        self.assertEqual(at.wait(), 128 + signal.SIGHUP)
        self.assertTrue(at.as_before)
        self.assertEqual(self.running(v1, session), [], "a command that was started here hears of it")

    @as_shipped
    def test_stopped_and_continued_the_terminal_changes_hands(self):
        v1 = self.v1()
        session = self.session(v1)
        at = Terminal(self, self.where(v1), "exec", "-it", session, "--", "cat")
        at.type(b"x\r")
        at.read_until("x\r\nx\r\n")
        at.process.send_signal(signal.SIGTSTP)
        self.assertTrue(wait_until(lambda: pathlib.Path(f"/proc/{at.process.pid}/stat").read_text().split(") ")[1][0] == "T"))
        self.assertTrue(at.as_before)
        at.process.send_signal(signal.SIGCONT)
        self.assertTrue(wait_until(lambda: at.is_raw))
        at.type(b"y\r")
        at.read_until("y\r\ny\r\n")
        at.type(b"\x04")
        self.assertEqual(at.wait(), 0)

    @as_shipped
    def test_many_look_and_one_writes(self):
        v1 = self.v1()
        session = self.session(v1)
        at = Terminal(self, self.where(v1), "exec", "-it", session, "--", "cat")
        at.type(b"first\r")
        at.read_until("first\r\nfirst\r\n")
        [number] = self.running(v1, session)
        refused = self.ctl(v1, "attach", session, number, code=125)
        self.assertIn(b"code: writer_present", refused.stderr)
        self.assertIn(b"--takeover", refused.stderr)
        looking = self.begin(v1, "attach", "--read-only", session, number)
        taking = Terminal(self, self.where(v1), "attach", "--takeover", session, str(number))
        at.read_until("another has taken over")
        taking.type(b"second\r")
        taking.read_until("second\r\nsecond\r\n")
        at.read_until("second\r\nsecond\r\n")
        at.type(b"nothing\r")
        taking.type(b"\x04")
        self.assertEqual((taking.wait(), at.wait(), looking.wait(20)), (0, 0, 0))
        self.assertNotIn(b"nothing", taking.seen)
        self.assertIn(b"second\r\nsecond\r\n", looking.stdout.read())
        self.assertTrue(at.as_before and taking.as_before)

    @as_shipped
    def test_a_terminal_that_is_none_is_refused_and_what_is_no_terminal_gets_no_colour(self):
        v1 = self.v1()
        session = self.session(v1)
        done = self.ctl(v1, "exec", "-it", session, "--", "cat", code=125)
        self.assertIn(b"standard input is no terminal", done.stderr)
        self.assertEqual(self.running(v1, session), [])
        self.assertEqual(self.ctl(v1, "exec", "-t", session, "--", "sh", "-c", "test -t 1 && echo yes").stdout, b"yes\r\n")
        for command in ("ps", "top", "policies"):
            self.assertNotIn(b"\x1b", self.ctl(v1, command).stdout)


class Copies(CtlTest):

    @as_shipped
    def test_files_go_both_ways_with_their_bytes_and_modes(self):
        v1 = self.v1()
        session = self.session(v1)
        data = random.Random(7).randbytes(2 << 20)
        local = self.make_file("program", data, mode=0o755)
        self.ctl(v1, "cp", local, f"{session}:")
        self.ctl(v1, "cp", local, f"{session}:deep/er/name with blank")
        self.ctl(v1, "cp", local, f"{session}:deep")
        listed = self.ctl(v1, "exec", session, "--", "stat", "-c", "%a %s %n", "program", "deep/er/name with blank",
                          "deep/program").stdout.decode()
        self.assertEqual(listed, f"755 {len(data)} program\n755 {len(data)} deep/er/name with blank\n"
                                 f"755 {len(data)} deep/program\n")
        back = pathlib.Path(self.make_directory("back"))
        self.ctl(v1, "cp", f"{session}:deep/er/name with blank", back)
        self.ctl(v1, "cp", f"{session}:program", back / "other")
        self.assertEqual((back / "name with blank").read_bytes(), data)
        self.assertEqual((back / "other").read_bytes(), data)
        workspace = v1.expect(200, "GET", f"/v1/sessions/{session}")["workspace"]
        self.assertEqual(self.ctl(v1, "cp", f"{session}:{workspace}/program", "-").stdout, data)
        self.ctl(v1, "cp", "-", f"{session}:from-stdin", stdin=data)
        self.assertEqual(self.ctl(v1, "cp", f"{session}:from-stdin", "-").stdout, data)

    @as_shipped
    def test_directories_go_both_ways_and_as_tars(self):
        v1 = self.v1()
        session = self.session(v1)
        tree = pathlib.Path(self.make_directory("tree"))
        (tree / "a" / "b").mkdir(parents=True)
        (tree / "a" / "b" / "f\u00fc\n").write_text("content")
        (tree / "empty").mkdir()
        (tree / "link").symlink_to("/etc/passwd")
        done = self.ctl(v1, "cp", tree, f"{session}:new", code=1)
        self.assertIn(b"link: is neither a file nor a directory", done.stderr)
        (tree / "link").unlink()
        self.ctl(v1, "cp", tree, f"{session}:")
        self.ctl(v1, "cp", f"{tree}/.", f"{session}:new")
        found = self.ctl(v1, "exec", session, "--", "find", "tree", "new", "-printf", "%p|").stdout.decode()
        self.assertEqual(set(found.split("|")) - {""}, {f"{top}{rest}" for top in ("tree", "new") for rest in (
            "", "/a", "/a/b", "/a/b/f\u00fc\n", "/empty")})
        back = pathlib.Path(self.make_directory("back"))
        self.ctl(v1, "cp", f"{session}:new", back)
        self.ctl(v1, "cp", f"{session}:new", back / "fresh")
        self.ctl(v1, "cp", f"{session}:new/.", back)
        for top in (back / "new", back / "fresh", back):
            self.assertEqual((top / "a" / "b" / "f\u00fc\n").read_text(), "content")
            self.assertTrue((top / "empty").is_dir())
        packed = self.ctl(v1, "cp", f"{session}:new", "-").stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            self.assertIn("a/b/f\u00fc\n", tar.getnames())
        self.ctl(v1, "exec", session, "--", "mkdir", "unpacked")
        self.ctl(v1, "cp", "--tar", "-", f"{session}:unpacked", stdin=packed)
        self.assertEqual(self.ctl(v1, "exec", session, "--", "cat", "unpacked/a/b/f\u00fc\n").stdout, b"content")

    @as_shipped
    def test_what_is_not_there_or_not_to_be_had_is_refused_and_leaves_nothing(self):
        v1 = self.v1()
        session = self.session(v1)
        self.ctl(v1, "exec", session, "--", "ln", "-s", "/etc/passwd", "link")
        target = os.path.join(self.dir, "got")
        for source, code in ((f"{session}:nothing", 1), (f"{session}:link", 1), (f"{session}:/etc/passwd", 2),
                             (f"{session}:../../etc/passwd", 1), ("s-0-none:x", 1)):
            done = self.ctl(v1, "cp", source, target, code=code)
            self.assertTrue(done.stderr.startswith(b"belljarctl: "), source)
            self.assertNotIn(b"no problem of belljard's", done.stderr, source)
            self.assertFalse(os.path.exists(target), source)
        self.ctl(v1, "cp", "/nothing", f"{session}:", code=3)
        self.ctl(v1, "cp", "a", "b", code=2)
        self.ctl(v1, "cp", f"{session}:a", f"{session}:b", code=2)
        self.ctl(v1, "cp", "-", f"{session}:", code=2)


class AsAPlainUser(CtlTest):

    @callers("user")
    @back_ends("modern")
    def test_a_daemon_of_ones_own_serves_all_of_it(self):
        path = self.make_directory("run", self.uid, 0o755) / "s"
        v1 = V1(self, self.daemon(f"--listen=unix:{path}", simulator=False, variables={"BELLJAR_TOKEN": TOKEN}), path)
        session = self.session(v1)
        self.assertEqual(self.ctl(v1, "exec", "-i", session, "--", "cat", stdin=b"x").stdout, b"x")
        self.ctl(v1, "cp", "-", f"{session}:file", stdin=b"y")
        self.assertEqual(self.ctl(v1, "cp", f"{session}:file", "-").stdout, b"y")
        self.ctl(v1, "rm", session)


if __name__ == "__main__":
    main()
