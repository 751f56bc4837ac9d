"""Shell sessions of /v1, and sessions that die with their owner."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import processes_of
from harness import back_ends, callers, main
from v1 import POOL_SIZE, UID_BASE, V1Test, as_shipped, pointers, wait_until

SHELL = {"policy": "builtin:shell@1", "network": "none"}


class ShellTest(V1Test):
    def shell_session(self, v1, **body):
        return v1.session(**{**SHELL, **body})

    def run_in(self, v1, session, command, **body):
        return v1.expect(200, "POST", session + "/shell/commands", {"shell": command, **body})


class Shell(ShellTest):

    @as_shipped
    def test_directory_and_variables_carry_over_and_the_answer_says_where_the_shell_is(self):
        v1 = self.v1()
        session = self.shell_session(v1)
        done = self.run_in(v1, session, "mkdir -p a/b && cd a/b && export X='1 2'; echo out; echo err >&2; exit 3")
        workspace = v1.expect(200, "GET", session)["workspace"]
        self.assertEqual((done["exit_code"], done["cause"], done["stdout"], done["stderr"], done["notes"], done["cwd"]),
                         (3, "exited", "out\n", "err\n", [], workspace + "/a/b"))
        self.assertEqual(self.run_in(v1, session, 'echo "$X"; pwd')["stdout"], f"1 2\n{workspace}/a/b\n")
        self.assertEqual(self.run_in(v1, session, "pwd", cwd="a")["stdout"], workspace + "/a\n")
        self.assertEqual(self.run_in(v1, session, "pwd")["stdout"], workspace + "/a/b\n")

    @as_shipped
    def test_what_only_a_program_of_its_own_can_have_is_refused(self):
        v1 = self.v1()
        session = self.shell_session(v1)
        for member, value in (("argv", ["ls"]), ("stdin", "text"), ("tty", {})):
            problem = v1.problem(422, "invalid", "POST", session + "/shell/commands", {"shell": "ls", member: value})
            self.assertIn("/" + member, pointers(problem))
        v1.problem(422, "invalid", "POST", session + "/shell/commands", {})
        v1.problem(404, "not_found", "POST", "/v1/sessions/s-0-none/shell/commands", {"shell": "ls"})

    @as_shipped
    def test_few_open_files_leave_room_for_the_shell_or_nothing_is_said_to_have_worked(self):
        v1 = self.v1()
        for most in (251, 250, 64, 16):
            session = self.shell_session(v1, limits={"rlimits": {"nofile": most}})
            done = self.run_in(v1, session, "mkdir -p a; cd a; export X=1; ulimit -n")
            self.assertEqual((done["exit_code"], done["stdout"], done["cwd"][-2:]), (0, f"{most}\n", "/a"), done)
            self.assertEqual(self.run_in(v1, session, "echo $X ${BELLJAR_FD-unset}")["stdout"], "1 unset\n")
            v1.call("DELETE", session)
        few = self.shell_session(v1, limits={"rlimits": {"nofile": 8}})
        answer = v1.call("POST", few + "/shell/commands", {"shell": "true"})
        self.assertFalse(answer.status == 200 and answer.json()["exit_code"] == 0, repr(answer))

    @as_shipped
    def test_a_directory_that_is_asked_for_and_not_there_is_refused_as_for_any_command(self):
        v1 = self.v1()
        session = self.shell_session(v1)
        for call in ("/exec", "/shell/commands"):
            v1.problem(422, "not_executable", "POST", session + call, {"shell": "true", "cwd": "nowhere"})
        self.run_in(v1, session, "mkdir gone; cd gone")
        v1.exec(session, "rmdir gone")
        done = self.run_in(v1, session, "pwd")
        self.assertEqual(len(done["notes"]), 1, "control: one that was carried over has a way out")

    @as_shipped
    def test_what_runs_in_the_background_has_no_state_to_tell(self):
        v1 = self.v1()
        session = self.shell_session(v1)
        state = self.run_in(v1, session, "true", state=True)["state"]
        for wanted in (True, state):
            problem = v1.problem(422, "invalid", "POST", session + "/shell/commands",
                                 {"shell": "true", "background": True, "state": wanted})
            self.assertEqual(pointers(problem), {"/state"})

    @as_shipped
    def test_a_time_out_ends_its_tree_and_spares_a_server_of_an_earlier_command(self):
        v1 = self.v1()
        session = self.shell_session(v1)
        self.run_in(v1, session, "echo hello > index.html; python3 -m http.server 8000 --bind 127.0.0.1 > log 2>&1 &")
        slow = self.run_in(v1, session, "echo partial; setsid sleep 600 & sleep 600", wall_time="700ms")
        self.assertEqual((slow["cause"], slow["stdout"]), ("wall_time", "partial\n"))
        asked = self.run_in(v1, session, "for i in $(seq 100); do curl -sf http://127.0.0.1:8000/ && break; "
                            "python3 -c 'import urllib.request as r; print(r.urlopen(\"http://127.0.0.1:8000/\").read().decode(), end=\"\")' 2>/dev/null && break; "
                            "sleep 0.1; done; pgrep -c sleep")
        self.assertEqual(asked["stdout"], "hello\n0\n")
        self.assertIn("GET /", self.run_in(v1, session, "cat log")["stdout"])

    @as_shipped
    def test_what_a_session_may_write_counts_for_each_command_of_its_shell(self):
        v1 = self.v1()
        session = self.shell_session(v1, limits={"output": "4KiB"})
        loud = self.run_in(v1, session, "yes")
        self.assertEqual((loud["cause"], loud["process"]["offsets"]["stdout"]), ("output", 4096))
        made = v1.expect(201, "POST", session + "/shell/commands", {"shell": "yes", "background": True})
        ended = v1.wait(f"{session}/processes/{made['id']}")
        self.assertEqual((ended["cause"], ended["offsets"]["stdout"]), ("output", 4096))
        self.assertEqual(self.run_in(v1, session, "echo on")["stdout"], "on\n", "control: the shell goes on")

    @as_shipped
    def test_a_background_command_is_listed_read_and_stopped(self):
        v1 = self.v1()
        session = self.shell_session(v1)
        made = v1.expect(201, "POST", session + "/shell/commands", {"shell": "echo up; sleep 600", "background": True})
        listed = v1.expect(200, "GET", session + "/shell/commands")["processes"]
        self.assertEqual([(one["id"], one["state"], one["argv"]) for one in listed],
                         [(made["id"], "running", ["bash", "-c", "echo up; sleep 600"])])
        process = f"{session}/processes/{made['id']}"
        self.assertEqual(v1.call("DELETE", process).status, 204)
        self.assertEqual(v1.expect(200, "GET", process)["state"], "ended")

    @as_shipped
    def test_a_command_that_left_a_writer_behind_has_an_end_and_what_it_leaves_is_kept(self):
        v1 = self.v1()
        session = self.shell_session(v1)
        done = self.run_in(v1, session, "(while :; do echo tick; sleep 0.05; done) & echo up")
        process = f"{session}/processes/{done['process']['id']}"
        lines = [json.loads(line) for line in v1.call("GET", process + "/output").body.splitlines()]
        self.assertEqual((lines[-1]["type"], lines[-1]["exit_code"]), ("end", 0))
        then = v1.expect(200, "GET", process)["offsets"]["stdout"]
        self.assertTrue(wait_until(lambda: v1.expect(200, "GET", process)["offsets"]["stdout"] > then))

    @as_shipped
    def test_a_variable_that_bash_cannot_export_is_refused(self):
        v1 = self.v1()
        session = self.shell_session(v1)
        problem = v1.problem(422, "invalid", "POST", session + "/shell/commands", {"shell": "true", "env": {"my-variable": "1"}})
        self.assertEqual(pointers(problem), {"/env"})

    @as_shipped
    def test_one_command_is_cancelled_and_its_session_goes_on(self):
        v1 = self.v1()
        session = self.shell_session(v1)
        self.run_in(v1, session, "export X=kept")
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(self.run_in(v1, session, "trap '' TERM; sleep 600")))
        waiting.start()
        def running():
            return [one for one in v1.expect(200, "GET", session + "/shell/commands")["processes"] if one["state"] == "running"]
        self.assertTrue(wait_until(running))
        v1.call("DELETE", f"{session}/processes/{running()[0]['id']}")
        waiting.join()
        self.assertEqual(answers[0]["cause"], "killed")
        self.assertEqual(self.run_in(v1, session, "echo $X")["stdout"], "kept\n")

    @as_shipped
    def test_commands_wait_for_each_other_and_beyond_eight_they_are_refused(self):
        v1 = self.v1()
        session = self.shell_session(v1)
        statuses = []
        def one():
            statuses.append(v1.call("POST", session + "/shell/commands", {"shell": "sleep 1"}).status)
        threads = [threading.Thread(target=one) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((statuses.count(200), statuses.count(409)), (9, 3))

    @as_shipped
    def test_commands_cannot_read_trace_or_end_what_holds_them(self):
        v1 = self.v1()
        session = self.shell_session(v1)
        probe = ("import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
                 "sleeper = os.fork()\nif sleeper == 0:\n    import time; time.sleep(60)\n"
                 "for pid in (sleeper, 1, os.getppid()):\n"
                 "    try: readable = bool(os.listdir(f'/proc/{pid}/fd'))\n"
                 "    except OSError: readable = False\n"
                 "    seized = libc.ptrace(0x4206, pid, 0, 0) == 0\n"
                 "    print(readable, seized)\nos.kill(sleeper, 9)\n")
        v1.expect(200, "POST", session + "/exec", {"argv": ["sh", "-c", "cat > probe.py"], "stdin": probe})
        seen = self.run_in(v1, session, "python3 probe.py; kill -9 1; kill -TERM 1; echo on")
        lines = seen["stdout"].splitlines()
        self.assertEqual(lines[0].split()[0], "True", "the same looks work on an ordinary process")
        self.assertEqual(lines[1], "False False", seen)
        self.assertEqual(lines[-1], "on")


OWNER = """
import http.client, json, socket, sys, time
class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX); self.sock.connect(sys.argv[1])
connection = Unix("localhost")
connection.request("POST", "/v1/sessions", sys.argv[2], {"Content-Type": "application/json"})
answer = connection.getresponse()
print(answer.status, json.loads(answer.read())["id"], flush=True)
connection.close()
time.sleep(600)
"""


class DieWith(ShellTest):

    @as_shipped
    def test_kill_9_of_the_client_leaves_nothing_of_its_session_after_the_grace(self):
        v1 = self.v1()
        other = v1.session()
        owner = subprocess.Popen([sys.executable, "-c", OWNER, str(v1.socket_path), json.dumps({**SHELL, "die_with": "client"})],
                                 stdout=subprocess.PIPE, text=True)
        self.addCleanup(owner.wait)
        self.addCleanup(owner.kill)
        status, name = owner.stdout.readline().split()
        self.assertEqual(status, "201")
        session = "/v1/sessions/" + name
        self.run_in(v1, session, "setsid sleep 600 & echo $!")
        time.sleep(7)
        self.assertEqual(v1.expect(200, "GET", session)["state"], "running", "a connection that ends changes nothing")
        owner.kill()
        self.assertTrue(wait_until(lambda: v1.expect(200, "GET", session)["state"] == "ended", 20))
        self.assertEqual(v1.expect(200, "GET", session)["record"]["cause"], "owner_gone")
        self.assertEqual(v1.expect(200, "GET", other)["state"], "running")
        self.assertEqual([uid for uid in range(UID_BASE + 1, UID_BASE + POOL_SIZE) if processes_of(uid)], [])

    @as_shipped
    def test_it_is_never_who_has_the_clients_number_by_now(self):
        v1 = self.v1()
        ours, theirs = socket.socketpair()
        client = os.fork()
        if client == 0:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(str(v1.socket_path))
            connection.sendall(b"GET /v1/host HTTP/1.1\r\nHost: localhost\r\n\r\n")
            connection.recv(1)  # It has been accepted.
            socket.send_fds(theirs, [b"x"], [connection.fileno()])
            os._exit(0)
        _, (number,), _, _ = socket.recv_fds(ours, 1, 1)
        os.waitpid(client, 0)
        stranger = None
        for _ in range(200):
            pathlib.Path("/proc/sys/kernel/ns_last_pid").write_text(str(client - 1))
            stranger = subprocess.Popen(["sleep", "600"])
            self.addCleanup(stranger.wait)
            self.addCleanup(stranger.kill)
            if stranger.pid == client:
                break
        self.assertEqual(stranger.pid, client, "somebody has the number")
        body = json.dumps({**SHELL, "die_with": "client"}).encode()
        with socket.socket(fileno=number) as connection:
            connection.settimeout(20)
            connection.sendall(b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                               b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            said = b""
            while piece := connection.recv(65536):
                said += piece
        self.assertIn(b"the process that has connected has ended", said)
        self.assertEqual(v1.expect(200, "GET", "/v1/sessions")["sessions"], [])

    @as_shipped
    def test_over_tcp_a_lease_is_held_instead(self):
        v1 = self.v1()
        tcp = self.over_tcp(v1)
        self.assertIn("lease", str(tcp.problem(422, "invalid", "POST", "/v1/sessions", {"die_with": "client"})))
        tcp.problem(404, "not_found", "POST", "/v1/sessions", {"die_with": {"lease": "l-none"}})
        connection = tcp.connection()
        connection.request("POST", "/v1/leases", "", tcp.headers())
        lease = json.loads(connection.getresponse().readline())["lease"]
        v1.problem(404, "not_found", "POST", "/v1/sessions", {"die_with": {"lease": lease}})
        session = tcp.session(die_with={"lease": lease})
        time.sleep(2)
        self.assertEqual(tcp.expect(200, "GET", session)["state"], "running")
        connection.close()
        self.assertTrue(wait_until(lambda: tcp.expect(200, "GET", session)["state"] == "ended", 20))
        self.assertEqual(tcp.expect(200, "GET", session)["record"]["cause"], "owner_gone")


class Existing(ShellTest):
    def setUp(self):
        super().setUp()
        self.roots = pathlib.Path(self.make_directory("roots", mode=0o755))
        self.run_dir = self.roots / "run-7"
        self.run_dir.mkdir()
        (self.run_dir / "main.py").write_text("print('theirs')\n")

    def session_in(self, v1, **workspace):
        return self.shell_session(v1, workspace={"path": str(self.run_dir), "owner": "chown", **workspace})

    @as_shipped
    def test_a_worker_and_its_session_share_a_directory_and_others_can_read_what_it_makes(self):
        v1 = self.v1(f"--workspace-root={self.roots}")
        session = self.session_in(v1)
        self.assertEqual(v1.expect(200, "GET", session)["workspace"], str(self.run_dir))
        done = self.run_in(v1, session, "pwd; python3 main.py; echo made > made.txt; touch $HOME/x; case $HOME in $PWD*) echo inside;; esac")
        self.assertEqual(done["stdout"], f"{self.run_dir}\ntheirs\n")
        self.assertEqual((self.run_dir / "made.txt").stat().st_mode & 0o777, 0o644)
        (self.run_dir / "added.py").write_text("x = 1\n")
        refused = self.run_in(v1, session, "echo y >> added.py")
        self.assertNotEqual(refused["exit_code"], 0, "what root adds is root's")
        claimed = self.run_in(v1, session, "echo 'y = 2' >> added.py", claim=True)
        self.assertEqual(claimed["exit_code"], 0, claimed)
        self.assertEqual((self.run_dir / "added.py").read_text(), "x = 1\ny = 2\n")
        self.assertEqual(v1.call("DELETE", session).status, 204)
        self.assertTrue((self.run_dir / "main.py").exists())
        self.assertEqual(v1.daemon.workspaces(), [], "its home has gone with it")

    @as_shipped
    def test_files_of_a_session_are_readable_by_another_uid_and_written_by_none(self):
        v1 = self.v1(f"--workspace-root={self.roots}")
        session = self.session_in(v1)
        self.run_in(v1, session, "mkdir dist; echo built > dist/app; umask 077; echo own > kept")
        def as_other(*command):
            other = str(UID_BASE + POOL_SIZE + 3)
            return subprocess.run(["setpriv", f"--reuid={other}", f"--regid={other}", "--clear-groups", *command],
                                  capture_output=True, text=True, cwd=self.run_dir)
        self.assertEqual(as_other("cat", "dist/app").stdout, "built\n")
        self.assertNotEqual(as_other("cat", "kept").returncode, 0, "what a command keeps to itself stays so")
        self.assertNotEqual(as_other("sh", "-c", "echo x >> dist/app").returncode, 0)

    @callers("user")
    @back_ends("modern")
    def test_a_daemon_without_a_pool_keeps_its_own_users_directory(self):
        for path in (self.dir, self.run_dir, self.run_dir / "main.py"):
            os.chown(path, self.uid, self.gid)
        v1 = self.v1(f"--workspace-root={self.roots}")
        session = self.shell_session(v1, workspace={"path": str(self.run_dir)})
        done = self.run_in(v1, session, "python3 main.py && echo more >> main.py && pwd", claim=True)
        self.assertEqual(done["stdout"], f"theirs\n{self.run_dir}\n", done)
        foreign = self.roots / "foreign"
        foreign.mkdir()
        for owner in ("keep", "chown"):
            v1.problem(403, "refused", "POST", "/v1/sessions", {**SHELL, "workspace": {"path": str(foreign), "owner": owner}})

    @as_shipped
    def test_a_directory_whose_last_sessions_uid_is_anothers_by_now_is_handed_on(self):
        v1 = self.v1(f"--workspace-root={self.roots}")
        first = self.session_in(v1)
        self.run_in(v1, first, "echo 1 > made")
        self.assertEqual(v1.call("DELETE", first).status, 204)
        other = self.shell_session(v1)
        self.assertEqual(v1.expect(200, "GET", other)["uid"], (self.run_dir / "made").stat().st_uid)
        again = self.session_in(v1)
        self.assertEqual(self.run_in(v1, again, "echo 2 >> made; cat made")["stdout"], "1\n2\n")

    @as_shipped
    def test_two_live_sessions_on_one_directory_are_a_conflict(self):
        v1 = self.v1(f"--workspace-root={self.roots}")
        session = self.session_in(v1)
        again = {**SHELL, "workspace": {"path": str(self.run_dir), "owner": "chown"}}
        v1.problem(409, "exists", "POST", "/v1/sessions", again)
        self.assertEqual([one["id"] for one in v1.expect(200, "GET", f"/v1/sessions?workspace={self.run_dir}")["sessions"]],
                         [session.rsplit("/", 1)[1]])
        self.assertEqual(v1.call("DELETE", session).status, 204)
        v1.expect(201, "POST", "/v1/sessions", again)

    @as_shipped
    def test_a_directory_that_is_removed_ends_its_session(self):
        v1 = self.v1(f"--workspace-root={self.roots}")
        session = self.session_in(v1)
        for path in self.run_dir.iterdir():
            path.unlink()
        self.run_dir.rmdir()
        self.assertTrue(wait_until(lambda: v1.expect(200, "GET", session)["state"] == "ended"))
        self.assertEqual(v1.expect(200, "GET", session)["record"]["cause"], "workspace_gone")

    @as_shipped
    def test_no_other_directory_can_be_had(self):
        v1 = self.v1(f"--workspace-root={self.roots}")
        for path in ("/etc", "/", str(self.roots.parent), f"{self.roots}/../x", str(self.roots / "absent")):
            answer = v1.call("POST", "/v1/sessions", {**SHELL, "workspace": {"path": path, "owner": "chown"}})
            self.assertIn(answer.status, (403, 404, 422), f"{path}: {answer}")
        problem = v1.problem(422, "invalid", "POST", "/v1/sessions",
                             {"workspace": {"path": "x", "owner": "mine", "home": "inside", "remove": True, "more": 1}})
        self.assertEqual(pointers(problem), {"/workspace/" + name for name in ("path", "owner", "home", "remove", "more")})
        self.assertEqual(v1.expect(200, "GET", "/v1/sessions")["sessions"], [])


if __name__ == "__main__":
    main()
