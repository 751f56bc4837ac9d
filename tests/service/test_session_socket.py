"""The session socket (docs/launch-service.md): further commands, signals, connections and ends, asked for
directly, as a belljard would that was taken over."""

import array
import json
import os
import pathlib
import select
import signal
import socket
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import BUILD, FIRST_THREAD_ENDS, SandboxTest, back_ends, callers, environment, main

ANSWER_S = 20


class Session:
    """A sandbox with the other end of its session socket."""

    def __init__(self, test, policy, argv=(), env=None, **more):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.running = test.start(theirs.fileno(), policy, *argv, binary=BUILD / "tests/tools/serve_session",
                                      fds=[theirs.fileno()], **({"env": env} if env else {}), **more)
        test.addCleanup(self.socket.close)
        self.test, self.requests, self.processes, self.waiting = test, 0, 0, []

    def receive(self):
        """The next message and its descriptors; None at the end."""
        if not select.select([self.socket], [], [], ANSWER_S)[0]:
            raise AssertionError("no answer")
        data, beside, _, _ = self.socket.recvmsg(65536, socket.CMSG_SPACE(8 * 4))
        found = array.array("i")
        for _, _, part in beside:
            found.frombytes(part)
        if not data:
            return None
        message = json.loads(data)
        message["fds"] = list(found)
        return message

    def until(self, wanted):
        """The first message that `wanted` holds for; others wait for their turn."""
        for at, message in enumerate(self.waiting):
            if wanted(message):
                return self.waiting.pop(at)
        while (message := self.receive()) is not None:
            if wanted(message):
                return message
            self.waiting.append(message)
        raise AssertionError(f"the socket has ended; before that: {self.waiting} {self.running.finish()}")

    def event(self, name, process=None):
        return self.until(lambda message: message.get("event") == name and
                          (process is None or message["process"] == process))

    def send(self, do, fds=(), **members):
        self.requests += 1
        text = json.dumps({"id": self.requests, "do": do, **members}).encode()
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([text], beside)
        return self.requests

    def ask(self, do, fds=(), **members):
        number = self.send(do, fds, **members)
        return self.until(lambda message: message.get("id") == number)

    def exec(self, *argv, stdin=b"", process=None, environment=None, **members):
        """Starts a command: its answer, its number, and a descriptor that its output comes from."""
        self.processes = process or self.processes + 1
        source, theirs_in = os.pipe()
        out, theirs_out = os.pipe()
        os.write(theirs_in, stdin)
        os.close(theirs_in)
        answer = self.ask("exec", [source, theirs_out, theirs_out], process=self.processes, argv=list(argv),
                          environment=environment or {}, **members)
        os.close(source)
        os.close(theirs_out)
        self.test.addCleanup(os.close, out)
        return answer, self.processes, out

    def run(self, *argv, **members):
        """A command from its start to its end: record and output."""
        answer, number, out = self.exec(*argv, **members)
        self.test.assertIn("ok", answer, answer)
        record = self.event("ended", number)["record"]
        return record, read_all(out)

    def end(self):
        self.socket.close()
        return self.running.finish()


def read_all(fd):
    parts = []
    while part := os.read(fd, 65536):
        parts.append(part)
    return b"".join(parts).decode()


class SessionSocket(SandboxTest):
    def session(self, *argv, changes=None, **more):
        session = Session(self, self.policy(changes), argv, **more)
        self.started = session.event("started")
        return session

    def test_commands_run_one_after_another_in_one_sandbox(self):
        session = self.session()
        self.assertEqual(self.started["back_end"], self.back_end)
        for word in ("one", "two"):
            record, out = session.run("/bin/sh", "-c", f"echo {word}; echo $$ > /tmp/{word}; exit 3")
            self.assertEqual((record["cause"], record["exit_code"], out), ("exited", 3, word + "\n"))
        record, out = session.run("ls", "/tmp")
        self.assertEqual((record["exit_code"], out.split()), (0, ["one", "two"]))
        self.assertEqual(session.end().code, 0)

    def test_each_command_is_confined_as_the_first_would_be(self):
        session = self.session(changes={"limits": {"rlimits": {"nofile": 77}}, "identity": {"umask": "0027"}})
        record, out = session.run("/bin/sh", "-c", "grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; "
                                  "ulimit -n; umask; ls /proc/self/fd; cat /proc/1/environ | wc -c; unshare -r true || echo no")
        lines = out.splitlines()
        self.assertIn("CapEff:\t0000000000000000", lines)
        self.assertIn("CapBnd:\t0000000000000000", lines)
        self.assertIn("NoNewPrivs:\t1", lines)
        self.assertIn("Seccomp:\t2", lines)
        self.assertIn("77", lines)
        self.assertIn("0027", lines)
        self.assertEqual(lines[-1], "no")
        record, out = session.run("python3", "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))")
        self.assertEqual(out, "['0', '1', '2', '3']\n")  # The last is the directory itself.

    def test_environment_and_directory_are_the_policys_and_the_commands(self):
        session = self.session(changes={"env": {"set": {"ONE": "1", "TWO": "2"}}})
        self.assertEqual(self.started["fixed_variables"], {"ONE": "1", "TWO": "2"})
        record, out = session.run("/bin/sh", "-c", "echo $ONE $TWO $THREE; pwd", environment={"TWO": "2", "THREE": "3"},
                                  directory="/tmp")
        self.assertEqual(out, "1 2 3\n/tmp\n")
        answer, _, _ = session.exec("true", environment={"TWO": "zwei"})
        self.assertEqual((answer["error"]["exit_code"], answer["error"]["setup"]["control"]), (125, "policy"), answer)
        self.assertIn("TWO is set by the policy", answer["error"]["message"])
        record, out = session.run("/bin/sh", "-c", "echo $ONE $TWO $THREE")
        self.assertEqual(out, "1 2\n", "nothing of the last command is left")

    def test_what_init_and_keepers_hold_is_out_of_reach(self):
        session = self.session()
        answer, first, _ = session.exec("sleep", "60", environment={"SECRET": "of-another-command"})
        record, out = session.run("python3", "-c", """
import os
found = []
for pid in filter(str.isdigit, os.listdir('/proc')):
    for name in ('environ', 'mem', 'fd', 'maps', 'cwd', 'root'):
        path = f'/proc/{pid}/{name}'
        if pid == str(os.getpid()): continue
        try:
            data = os.listdir(path) if name == 'fd' else os.readlink(path) if name in ('cwd', 'root') else open(path, 'rb').read(1 << 20)
            found.append((pid, open(f'/proc/{pid}/comm').read().strip(), name, b'of-another' in data if isinstance(data, bytes) else len(data)))
        except OSError: pass
print([entry for entry in found if entry[1] not in ('sleep', 'python3')])
""")
        self.assertEqual(out, "[]\n")

    def test_a_command_that_cannot_be_started_says_why(self):
        session = self.session()
        for argv, code, words in ((("no-such-program",), 127, "exists neither"), (("/tmp",), 126, "directory")):
            answer, _, _ = session.exec(*argv)
            self.assertEqual(answer["error"]["code"], "sandbox", answer)
            self.assertEqual(answer["error"]["exit_code"], code, answer)
            self.assertIn(words, answer["error"]["message"])
        answer, _, _ = session.exec("true", directory="/no/such/place")
        self.assertIn("change to /no/such/place", answer["error"]["setup"]["step"])
        record, _ = session.run("true")
        self.assertEqual(record["exit_code"], 0, "the sandbox goes on")

    def test_a_signal_reaches_the_leader_the_group_or_the_tree(self):
        session = self.session()
        code = "import signal, sys, os, time\n" \
               "if os.fork() == 0: pass\nelif os.fork() == 0: os.setsid()\n" \
               "signal.signal(signal.SIGUSR1, lambda *a: (os.write(1, b'%d ' % os.getpid()), os._exit(0)))\n" \
               "os.write(1, b'r')\ntime.sleep(60)\n"
        for to, count in (("leader", 1), ("group", 2), ("tree", 3)):
            with self.subTest(to=to):
                answer, number, out = session.exec("python3", "-c", code)
                ready = b""
                while ready.count(b"r") < 3:
                    ready += os.read(out, 100)
                answer = session.ask("signal", process=number, signal=int(signal.SIGUSR1), to=to)
                self.assertEqual(answer["ok"], {"gone": False})
                said = b""
                while len(said.split()) < count:
                    said += os.read(out, 100)
                self.assertEqual(len(set(said.split())), count)
                session.ask("end", process=number, cause="killed")
                self.assertEqual(read_all(out), "", "nobody of the tree holds the pipe any more")

    def test_the_end_of_a_command_takes_its_whole_tree_along(self):
        session = self.session()
        code = "import os, time\nfor n in range(30):\n  if os.fork() == 0: os.setsid()\n  if n > 3: break\nos.write(1, b'x')\ntime.sleep(60)\n"
        for cause, told, by in (("killed", "killed", "client"), ("output", "output", None)):
            answer, number, out = session.exec("python3", "-c", code)
            os.read(out, 1)
            session.ask("end", process=number, cause=cause)
            record = session.event("ended", number)["record"]
            self.assertEqual((record["cause"], record.get("by"), record["signal"]), (told, by, "SIGKILL"))
            read_all(out)
        # They have closed everything, and may still be on their way out.
        record, out = session.run("/bin/sh", "-c", "while ps -eo comm= | grep -q python3; do sleep 0.05; done; echo none",
                                  wall_time_ms=ANSWER_S * 1000)
        self.assertEqual(out, "none\n")

    def test_a_process_whose_first_thread_has_ended_is_ended_too(self):
        """The kernel shows it as a zombie, and it runs."""
        session = self.session()
        code = "import os\nif os.fork():\n  os.wait()\nos.setsid()\n" + FIRST_THREAD_ENDS
        for cause in ("killed", "output"):
            answer, number, out = session.exec("python3", "-c", code)
            self.assertEqual(os.read(out, 1), b"x")
            session.ask("end", process=number, cause=cause)
            self.assertEqual(session.event("ended", number)["record"]["signal"], "SIGKILL")
            self.assertEqual(read_all(out), "", "nobody of the tree holds the pipe any more")

    def test_a_tree_that_forks_all_the_time_is_ended_too(self):
        session = self.session(changes={"limits": {"rlimits": {"nproc": 200}}})
        code = "import os\nos.write(1, b'x')\nwhile True:\n  try:\n    if os.fork(): os._exit(0)\n  except OSError: pass\n"
        answer, number, out = session.exec("python3", "-c", code)
        os.read(out, 1)
        session.ask("end", process=number, cause="killed")
        session.event("ended", number)
        read_all(out)

    def test_the_wall_time_of_a_command_ends_its_tree_and_nothing_else(self):
        session = self.session()
        _, other, other_out = session.exec("sleep", "60")
        answer, number, out = session.exec("/bin/sh", "-c", "sleep 60 & setsid sleep 60 & sleep 60", wall_time_ms=200)
        record = session.event("ended", number)["record"]
        self.assertEqual((record["cause"], record["limits"]), ("wall_time", ["wall_time"]))
        read_all(out)
        self.assertEqual(session.ask("signal", process=other, signal=15, to="group")["ok"], {"gone": False})
        record = session.event("ended", other)["record"]
        self.assertEqual((record["cause"], record["signal"]), ("signaled", "SIGTERM"))

    def test_a_further_command_has_at_most_the_wall_time_of_a_session_that_stands_by(self):
        session = self.session(changes={"limits": {"wall_time": "300ms", "output": "1KiB"}})
        self.assertEqual([self.started[name] for name in ("wall_time_ms", "output")], [300, 1024])
        for asked in ({}, {"wall_time_ms": 600_000}):
            record, _ = session.run("sleep", "600", **asked)
            self.assertEqual((record["cause"], record["limits"]), ("wall_time", ["wall_time"]), asked)

    def test_what_a_command_leaves_behind_goes_on_until_it_is_ended(self):
        session = self.session()
        answer, number, out = session.exec("/bin/sh", "-c", "(while :; do echo tick; sleep 0.05; done) & echo done")
        self.assertEqual(session.event("ended", number)["record"]["exit_code"], 0)
        seen = b""
        while seen.count(b"tick") < 3:
            seen += os.read(out, 100)
        self.assertEqual(session.ask("end", process=number, cause="killed")["ok"], {"gone": True})
        read_all(out)

    def test_a_command_that_kills_its_keeper_is_told_as_lost_and_leaves_nothing(self):
        session = self.session()
        for wait in ("", "sleep 0.2; "):  # Before the keeper could tell of the start, or after it.
            answer, number, out = session.exec("/bin/sh", "-c", wait + "kill -9 $PPID; exec sleep 60")
            if "error" in answer:
                self.assertIn("keeper ended before", answer["error"]["message"])
            else:
                self.assertEqual(session.event("ended", number)["record"]["cause"], "lost")
            self.assertEqual(read_all(out), "")
        self.assertNotIn("error", answer)
        self.assertEqual(session.run("true")[0]["exit_code"], 0)

    def test_a_command_that_stops_its_keeper_can_be_ended(self):
        session = self.session()
        answer, number, out = session.exec("/bin/sh", "-c", "kill -STOP $PPID; echo x; exec sleep 60")
        os.read(out, 1)
        session.ask("end", process=number, cause="killed")
        self.assertEqual(session.event("ended", number)["record"]["cause"], "killed")
        read_all(out)

    def test_a_stop_and_its_end_are_told(self):
        session = self.session()
        answer, number, _ = session.exec("/bin/sh", "-c", "trap 'exit 5' USR1; kill -STOP $$; while :; do sleep 0.05; done")
        session.event("stopped", number)
        session.ask("signal", process=number, signal=int(signal.SIGCONT), to="group")
        session.event("continued", number)
        session.ask("signal", process=number, signal=int(signal.SIGUSR1), to="leader")
        self.assertEqual(session.event("ended", number)["record"]["exit_code"], 5)

    def test_a_terminal_is_the_sandboxs_own_and_has_job_control(self):
        session = self.session()
        answer = session.ask("exec", process=1, argv=["bash", "--norc", "-i"], environment={"PS1": "> ", "TERM": "dumb"},
                             terminal={"columns": 100, "rows": 30})
        self.assertIn("ok", answer, answer)
        master, = answer["fds"]
        self.addCleanup(os.close, master)
        os.write(master, b"tty; stty size; sleep 60\n")
        self.wait_for(master, b"30 100")
        time.sleep(0.2)
        os.write(master, b"\x1a")
        self.wait_for(master, b"Stopped")
        session.ask("resize", process=1, columns=70, rows=20)
        # The first exit may only warn of the job.
        os.write(master, b"stty size; kill -9 %1; exit 4; exit 4\n")
        self.wait_for(master, b"20 70")
        self.assertEqual(session.event("ended", 1)["record"]["exit_code"], 4)

    def wait_for(self, fd, text):
        seen = b""
        while text not in seen:
            self.assertTrue(select.select([fd], [], [], ANSWER_S)[0], seen)
            seen += os.read(fd, 4096)

    @callers("five", "user")
    def test_a_connection_is_made_inside(self):
        session = self.session()  # Without a network: the sandbox's loopback is nobody else's.
        _, server, out = session.exec("python3", "-c", """
import socket, sys
tcp = socket.create_server(('127.0.0.1', 8000)); local = socket.socket(socket.AF_UNIX); local.bind('/tmp/s'); local.listen()
print('up', flush=True)
for listener in (tcp, local):
    peer, _ = listener.accept(); peer.sendall(peer.recv(100).upper()); peer.close()
""")
        self.assertEqual(os.read(out, 100), b"up\n")
        for where in ({"port": 8000}, {"unix": "/tmp/s"}):
            answer = session.ask("connect", **where)
            self.assertIn("ok", answer, answer)
            with socket.socket(fileno=answer["fds"][0]) as peer:
                peer.settimeout(ANSWER_S)
                peer.sendall(b"hello")
                self.assertEqual(peer.recv(100), b"HELLO")
        answer = session.ask("connect", unix="/tmp/none")
        self.assertEqual(answer["error"]["code"], "not_found", answer)

    def test_its_own_command_ends_the_sandbox_with_its_record(self):
        session = self.session("/bin/sh", "-c", "exit 7")
        record = session.event("over")["record"]
        self.assertEqual((record["cause"], record["exit_code"]), ("exited", 7))
        self.assertIsNone(session.receive())

    def test_its_own_command_gets_signals_and_further_commands_run_beside_it(self):
        session = self.session("python3", "-c", "import signal; signal.signal(signal.SIGTERM, lambda *a: exit(9)); print('up', flush=True); signal.pause()")
        session.running.wait_for_output("up")
        self.assertEqual(session.run("echo", "beside")[1], "beside\n")
        session.ask("signal", process=0, signal=15, to="group")
        record = session.event("over")["record"]
        self.assertEqual((record["cause"], record["exit_code"]), ("exited", 9))

    def test_kill_ends_everything_and_says_for_whom(self):
        for by in ("client", "drain", "daemon", "expired"):
            session = self.session("sleep", "60")
            session.exec("sleep", "60")
            session.send("kill", by=by)
            record = session.event("over")["record"]
            self.assertEqual((record["cause"], record["by"]), ("killed", by))

    def test_the_end_of_its_own_command_is_the_sandboxs_with_its_cause(self):
        for cause, told, by, limits in (("killed", "killed", "client", []), ("output", "output", None, ["output"])):
            session = self.session("sleep", "60")
            session.ask("end", process=0, cause=cause)
            record = session.event("over")["record"]
            self.assertEqual((record["cause"], record.get("by"), record["limits"]), (told, by, limits))

    def test_a_stop_of_its_own_command_is_told_as_any_others(self):
        session = self.session("/bin/sh", "-c", "trap 'exit 5' USR1; kill -STOP $$; while :; do sleep 0.05; done")
        session.event("stopped", 0)
        session.ask("signal", process=0, signal=int(signal.SIGCONT), to="group")
        session.event("continued", 0)
        session.ask("signal", process=0, signal=int(signal.SIGUSR1), to="leader")
        self.assertEqual(session.event("over")["record"]["exit_code"], 5)

    def test_a_command_that_the_filter_kills_is_told_so_whatever_the_filter_is_made_of(self):
        code = "import ctypes; ctypes.CDLL(None).syscall(250, 0, 0, 0, 0, 0)"  # keyctl
        for syscalls in ({"rules": {"keyctl": "kill"}}, {"base": "none", "rules": {"keyctl": "kill"}}):
            with self.subTest(syscalls=syscalls):
                record, _ = self.session(changes={"syscalls": syscalls}).run("python3", "-c", code)
                self.assertEqual((record["cause"], record["signal"]), ("syscall", "SIGSYS"))

    def test_the_end_of_file_kills_the_sandbox(self):
        session = self.session("sleep", "60")
        init = self.started["pid"]
        session.exec("sleep", "60")
        session.end()
        self.assertFalse(pathlib.Path(f"/proc/{init}").exists())

    def test_a_signal_to_the_monitor_is_nobodys_end(self):
        session = self.session("sleep", "60")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            session.running.send(number)
        self.assertEqual(session.run("echo", "still")[1], "still\n")

    def test_a_sandbox_that_cannot_be_built_says_so_at_once(self):
        session = Session(self, self.policy({"filesystem": {"mounts": {"/data": {"type": "bind", "source": "/no/such"}}}}), ["true"])
        record = session.event("over")["record"]
        self.assertEqual(record["cause"], "setup")
        self.assertIn("/no/such", record["setup"]["reason"] + record["setup"]["step"])

    def test_what_is_not_in_the_protocol_is_refused_and_harms_nobody(self):
        session = self.session()
        self.assertEqual(session.run("true")[0]["exit_code"], 0)
        wrong = (("exec", {"process": 2, "argv": [], "environment": {}}), ("exec", {"process": 2, "argv": ["a"]}),
                 ("exec", {"process": 2, "argv": ["a"], "environment": {"A=B": "1"}}),
                 ("exec", {"process": 0, "argv": ["a"], "environment": {}}),
                 ("exec", {"process": 2, "argv": ["a"], "environment": {}, "uid": 0}),
                 ("exec", {"process": 2, "argv": ["a"], "environment": {}}),  # Without streams.
                 ("signal", {"process": 1, "signal": 0, "to": "group"}), ("signal", {"process": 1, "signal": 15, "to": "all"}),
                 ("signal", {"process": 0, "signal": 15, "to": "group"}),
                 ("end", {"process": 1, "cause": "because"}), ("resize", {"process": 1, "columns": 0, "rows": 1}),
                 ("connect", {"port": 0}), ("connect", {"port": 80, "unix": "/x"}), ("connect", {"unix": "x"}),
                 ("kill", {"by": "me"}), ("launch", {}), ("kill", {}))
        for do, members in wrong:
            with self.subTest(do=do, members=members):
                self.assertIn("error", session.ask(do, **members))
        self.assertEqual(session.run("true", process=3)[0]["exit_code"], 0)
        answer, _, _ = session.exec("true", process=3)
        self.assertEqual(answer["error"]["code"], "exists")

    def test_what_was_opened_before_is_bound_and_nothing_else_that_has_its_name(self):
        (self.work / "mine").write_text("")
        other = self.make_directory("other", owner=self.uid)
        (other / "theirs").write_text("")
        changes = {"filesystem": {"workspace": {"path": str(other)}}, "limits": {"disk": "1MiB"}}
        named = Session(self, self.policy(changes), ["ls", str(other)])
        self.assertEqual(named.event("over")["record"]["exit_code"], 0)
        self.assertIn("theirs", named.running.finish().out, "without a descriptor it is what the name leads to")
        for path, bound in ((other, True), (self.work, False)):
            session = Session(self, self.policy(changes), ["ls", str(other)], env=environment(WORKSPACE=str(path)))
            record = session.event("over")["record"]
            out = session.running.finish().out
            if bound:
                self.assertEqual((record["cause"], out), ("exited", "theirs\n"))
                continue
            self.assertEqual((record["cause"], record["setup"]["errno"], out), ("setup", "ESTALE", ""))
            self.assertIn(str(other), record["setup"]["step"])
            self.assertIn("another directory has had that name", record["setup"]["remedy"])

    def test_a_directory_or_a_path_is_no_stream(self):
        session = self.session()
        null, directory = os.open("/dev/null", os.O_RDWR), os.open("/", os.O_RDONLY)
        path, place = os.open("/etc/passwd", os.O_PATH), os.open("/", os.O_PATH)
        for fd in (null, directory, path, place):
            self.addCleanup(os.close, fd)
        for wrong in (directory, path, place):
            for fds in ([wrong, null, null], [null, wrong, null], [null, null, wrong]):
                answer = session.ask("exec", fds, process=1, argv=["ls", "/proc/self/fd/"], environment={})
                self.assertEqual(answer["error"]["code"], "invalid", answer)
        self.assertIn("ok", session.ask("exec", [null] * 3, process=1, argv=["true"], environment={}))

    def test_garbage_ends_the_connection_and_the_sandbox(self):
        for garbage in (b"{", b"[]", b"{}", b"x" * 70000):
            session = self.session("sleep", "60")
            session.socket.send(garbage)
            self.assertEqual(session.event("over")["record"]["by"], "owner_gone")

    def test_many_commands_at_once_have_a_bound_and_all_end(self):
        session = self.session()
        numbers = []
        for number in range(1, 41):
            answer, _, _ = session.exec("sleep", "0.2")
            self.assertIn("ok", answer)
            numbers.append(number)
        for number in numbers:
            self.assertEqual(session.event("ended", number)["record"]["exit_code"], 0)


if __name__ == "__main__":
    main()
