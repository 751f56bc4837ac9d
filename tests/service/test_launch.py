"""Launches: under a served policy, as a uid of the pool, in its workspace, and never with more than the operator allows."""

import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from client import POOL_BASE, Service, ServiceTest, alive
from harness import BACK_ENDS, FIRST_THREAD_ENDS, as_root, back_ends, callers, descendants, main, not_sanitized, processes, wait_for

POLICY = {"version": 1, "extends": ["builtin:agent@1"], "env": {"set": {"FIXED": "operator", "ANSWER": "${answer}"}},
          "vars": {"answer": {"type": "int", "default": 42}}}


class Session:
    """The session socket of a launch, its monitor, and its output."""

    def __init__(self, service, argv, out=None, **more):
        read, write = os.pipe()
        null = os.open("/dev/null", os.O_RDONLY)
        members = {"session": "s", "uid": service.uid, "workspace": "w", "policy": "builtin:agent@1", "settings": [],
                   "variables": {}, "environment": {}, **({"argv": argv} if argv else {}), **more}
        try:
            _, fds = service.ask("launch", [null, out or write, write], **members)
        except AssertionError:
            os.close(read)
            raise
        finally:
            os.close(write)
            os.close(null)
        self.output, self.events = read, []
        self.socket, self.monitor = socket.socket(fileno=fds[0]), fds[1]
        self.socket.settimeout(30)
        service.test.addCleanup(self.close)

    def event(self, name):
        while True:
            data = self.socket.recv(70000)
            if not data:
                raise AssertionError(f"no {name} in {self.events}")
            self.events.append(json.loads(data))
            if self.events[-1].get("event") == name:
                return self.events[-1]

    def over(self):
        """The sandbox's record, after its end."""
        return self.event("over")["record"]

    def read(self):
        with os.fdopen(self.output, "rb") as pipe:
            self.output = None
            return pipe.read().decode()

    def close(self):
        self.socket.close()
        for fd in (self.output, self.monitor):
            if fd is not None:
                os.close(fd)


class Launch(ServiceTest):
    def setUp(self):
        super().setUp()
        policies = self.make_directory("policies")
        self.make_file("policies/mine.json", json.dumps(POLICY))
        self.service = self.start_service("--policy-dir", policies)
        self.path = self.service.prepare("w", {"a.txt": b"hello"})

    def run_session(self, *argv, **more):
        session = Session(self.service, list(argv), **more)
        record, out = session.over(), session.read()
        select.select([session.monitor], [], [])  # Who has seen its end may use the uid again.
        return record, out

    @back_ends(*BACK_ENDS)
    def test_a_command_runs_as_the_session_in_its_workspace(self):
        record, out = self.run_session("sh", "-c", "id -u; pwd; cat a.txt; echo; echo made > b.txt; ls /proc | grep -c '^[0-9]'")
        self.assertEqual(record["cause"], "exited", record)
        uid, where, text, count = out.split()
        self.assertEqual((uid, where, text), (str(self.service.uid), str(self.path), "hello"))
        self.assertLess(int(count), 6)
        self.assertEqual((self.path / "b.txt").stat().st_uid, self.service.uid)
        self.assertEqual(self.service.read("b.txt"), b"made\n")
        self.assertEqual(record["policy_digest"], self.digest("builtin:agent@1"))

    def digest(self, name):
        return next(policy["digest"] for policy in self.service.hello["policies"] if policy["name"] == name)

    def test_the_environment_is_what_the_request_says(self):
        record, out = self.run_session("env", environment={"GREETING": "hi there", "SECRET_TOKEN": "its own"}, policy="mine",
                                       digest=self.digest("mine"))
        lines = out.splitlines()
        self.assertIn("GREETING=hi there", lines)
        self.assertIn("SECRET_TOKEN=its own", lines)
        self.assertIn("FIXED=operator", lines)
        self.assertFalse([line for line in lines if "BELLJAR" in line])
        self.assertEqual(record["policy_digest"], self.digest("mine"))

    def test_more_policies_than_one_answer_tells_of_are_left_out_and_complained_about(self):
        policies = self.make_directory("many")
        for i in range(700):
            self.make_file(f"many/policy-number-{i:04}.json", '{"version":1,"extends":["builtin:shell@1"]}')
        self.service.close()
        self.service = self.start_service("--policy-dir", policies)
        names = [policy["name"] for policy in self.service.hello["policies"]]
        self.assertIn("policy-number-0000", names)
        self.assertNotIn("policy-number-0699", names)
        self.assertEqual(self.service.said().count("there are too many"), 1)
        service = Service(self, "--policy-dir", policies, "--session-policy", "policy-number-0699", root=self.dir / "o")
        self.assertIn("policy-number-0699 is not served: there are too many", service.refused())

    def test_a_token_of_the_daemons_is_not_in_any_environment(self):
        policies = self.make_directory("open")
        self.make_file("open/open.json", '{"version":1,"extends":["builtin:agent@1"],"env":{"pass":["*"],"deny":null}}')
        self.service.close()
        self.service = self.start_service("--policy-dir", policies, env={"BELLJAR_TOKEN": "sesame-sesame-sesame", "SHOWN": "yes"})
        self.service.prepare("w")
        _, out = self.run_session("env", policy="open")
        self.assertIn("SHOWN=yes", out)
        self.assertNotIn("sesame", out)

    def launch_refused(self, code, *texts, fds=None, **more):
        null = os.open("/dev/null", os.O_RDWR)
        members = {"session": "s", "uid": self.service.uid, "workspace": "w", "policy": "mine", "settings": [], "variables": {},
                   "environment": {}, "argv": ["true"], **more}
        self.check_code(self.service.refusal("launch", fds or [null] * 3, **members), code, *texts)
        os.close(null)

    def test_what_a_session_is_made_of_is_the_operators(self):
        for setting in ("identity.uid=0", "identity={}", "namespaces.pid=shared", "capabilities=[\"CAP_SYS_ADMIN\"]", "io.keep=[3]",
                        "extends=[\"builtin:dev@1\"]", "filesystem.workspace.path=/etc", "filesystem.workspace={\"path\":\"/etc\"}",
                        "filesystem[\"workspace\"].path=/etc", "final=[]", "report={}", "tests=[]", "vars={}", "[identity].uid=0"):
            with self.subTest(setting):
                self.launch_refused("refused", "may not set", settings=[setting])
        for setting in ("limits.wall_time", "=5", "a..b=1", "[=1"):
            with self.subTest(setting):
                self.launch_refused("invalid", "settings", settings=[setting])
        self.launch_refused("not_found", "no policy", policy="builtin:off@1")
        self.launch_refused("not_found", "no policy", policy="/etc/passwd")
        self.launch_refused("not_found", "no policy", policy="../mine")
        self.launch_refused("refused", self.digest("mine"), digest="sha256:" + "0" * 64)
        self.run_session("true", policy="mine", settings=["limits.wall_time=5s"], digest=self.digest("mine"))

    def test_a_request_may_take_away_and_never_add(self):
        wider = ("network.mode=shared", "filesystem.mounts[\"/srv\"]={\"type\":\"bind\",\"source\":\"/\"}", "syscalls.base=none",
                 "filesystem.mask=null", "filesystem={\"workspace\":{\"path\":\"/etc\"}}", "limits.rlimits.nproc=100000", "limits=null",
                 "env.pass=[\"*\"]", "env.set.FIXED=mine", "landlock=null", "filesystem.root=host", "filesystem.hide=null",
                 "env.deny=null", "filesystem.mounts[\"/tmp\"].noexec=false")
        policies = self.make_directory("narrow")
        self.make_file("narrow/narrow.json", json.dumps({**POLICY, "extends": ["builtin:validator@1"], "filesystem": {
            "mounts": {"/tmp": {"noexec": True}}}, "env": {**POLICY["env"], "pass": ["PATH"], "deny": ["X*"]}}))
        self.service.close()
        self.service = self.start_service("--policy-dir", policies)
        self.service.prepare("w")
        for setting in wider:
            if setting == "filesystem.root=host":
                continue
            with self.subTest(setting):
                record, out = self.run_session("echo", "ran", policy="narrow", settings=[setting])
                self.assertEqual((record["cause"], out), ("setup", ""), record)
                self.assertIn("narrow", record["setup"]["step"])
        record, out = self.run_session("echo", "ran", policy="narrow", environment={"FIXED": "mine"})
        self.assertEqual((record["cause"], out), ("setup", ""))
        self.assertIn("FIXED is set by the policy", record["setup"]["reason"])
        record, out = self.run_session("bash", "-c", "ulimit -u", policy="narrow",
                                       settings=["limits.rlimits.nproc=7", "limits.wall_time=20s", "env.deny=[\"X*\",\"Y*\"]"])
        self.assertEqual((record["cause"], out), ("exited", "7\n"), record)

    def test_a_variable_is_the_policys_to_declare(self):
        record, out = self.run_session("sh", "-c", "echo $ANSWER", policy="mine", variables={"answer": "43"})
        self.assertEqual((record["cause"], out), ("exited", "43\n"), record)
        record, _ = self.run_session("true", policy="mine", variables={"other": "43"})
        self.assertEqual(record["cause"], "setup")
        self.assertIn("other", record["setup"]["reason"])

    def test_uid_and_workspace_belong_together(self):
        other = 0 if not self.privileged else POOL_BASE - 1
        self.launch_refused("not_in_pool", uid=other)
        self.launch_refused("not_found", workspace="absent")
        for name in ("../w", "w/", "/etc", "."):
            self.launch_refused("invalid", workspace=name)
        if self.privileged:
            self.service.prepare("theirs", uid=POOL_BASE + 1)
            self.launch_refused("refused", f"uid {POOL_BASE + 1}", workspace="theirs")
            self.launch_refused("refused", uid=POOL_BASE + 1)

    def test_streams_are_no_doors(self):
        null, directory = os.open("/dev/null", os.O_RDWR), os.open("/", os.O_RDONLY)
        path = os.open("/etc/passwd", os.O_PATH)
        for fds in ([directory, null, null], [null, directory, null], [null, null, path], [path, null, null]):
            self.launch_refused("invalid", "is no stream", fds=fds)
        for fds in ([null, null], [null] * 4):
            self.launch_refused("invalid", "descriptors belong", fds=fds)
        for fd in (null, directory, path):
            os.close(fd)

    def test_a_live_session_keeps_its_uid_and_workspace(self):
        session = Session(self.service, ["sleep", "60"])
        self.launch_refused("busy")
        self.check_code(self.service.refusal("remove", workspace="w"), "busy")
        if self.privileged:
            self.check_code(self.service.refusal("sweep", uid=self.service.uid), "busy")
        self.assertEqual(self.service.read("a.txt"), b"hello")
        signal.pidfd_send_signal(session.monitor, signal.SIGKILL)
        wait_for(lambda: self.service.answer(self.service.post("remove", workspace="w"))[0].get("ok") == {"left": 0},
                 what="the end of the session")
        self.assertEqual(self.service.ask("sweep", uid=self.service.uid), {"left": 0})

    def test_the_session_socket_serves_what_runs_inside(self):
        session = Session(self.service, None)
        self.assertEqual(session.event("started")["policy_digest"], self.digest("builtin:agent@1"))
        read, write = os.pipe()
        null = os.open("/dev/null", os.O_RDONLY)
        message = {"id": 1, "do": "exec", "process": 1, "argv": ["sh", "-c", "id -u; cat a.txt"], "environment": {}}
        socket.send_fds(session.socket, [json.dumps(message).encode()], [null, write, write])
        os.close(write)
        os.close(null)
        self.assertEqual(session.event("ended")["record"]["exit_code"], 0)
        with os.fdopen(read) as pipe:
            self.assertEqual(pipe.read(), f"{self.service.uid}\nhello")
        session.socket.send(json.dumps({"id": 2, "do": "kill", "by": "client"}).encode())
        self.assertEqual(session.over()["cause"], "killed")

    def test_the_end_of_its_socket_ends_one_session_and_no_other(self):
        session = Session(self.service, ["sleep", "60"])
        session.event("started")
        session.socket.close()
        select.select([session.monitor], [], [])
        self.assertEqual(self.service.ask("sweep", uid=self.service.uid), {"left": 0})
        record, out = self.run_session("echo", "again")
        self.assertEqual((record["cause"], out), ("exited", "again\n"))

    def test_a_monitor_is_the_services_child_and_dies_with_it(self):
        session = Session(self.service, ["sleep", "60"])
        family = wait_for(lambda: [pid for pid, _, name in descendants(self.service.process.pid) if name == "sleep"], what="the command")
        os.kill(self.service.process.pid, signal.SIGKILL)
        wait_for(lambda: not any(alive(pid) for pid in family), what="the command's end")
        self.service.process.wait()
        while data := session.socket.recv(70000):  # It has had no time for a last word.
            self.assertNotEqual(json.loads(data)["event"], "over")

    def test_the_end_of_the_services_socket_ends_all(self):
        session = Session(self.service, ["sleep", "60"])
        wait_for(lambda: [pid for pid, _, name in descendants(self.service.process.pid) if name == "sleep"], what="the command")
        self.service.close()
        self.assertFalse(self.path.exists())
        while session.socket.recv(70000):
            pass

    def test_without_its_zygote_the_service_ends(self):
        session = Session(self.service, ["sleep", "60"])
        command = wait_for(lambda: [pid for pid, _, name in descendants(self.service.process.pid) if name == "sleep"], what="the command")
        os.kill(self.zygote(), signal.SIGKILL)
        self.assertEqual(self.service.process.wait(20), 0)
        self.assertFalse(any(alive(pid) for pid in command))

    def zygote(self):
        """The service's first child."""
        children = [pid for pid, (parent, _, _) in processes().items() if parent == self.service.process.pid]
        return min(children)

    @as_root
    @not_sanitized
    @callers("root", "five")
    def test_a_zygote_holds_no_sessions_data(self):
        marker = "unlikely-marker-of-this-session"
        record, out = self.run_session("sh", "-c", "true", environment={"MARK": marker})
        zygote = self.zygote()
        found = False
        with open(f"/proc/{zygote}/mem", "rb", 0) as memory:
            for line in pathlib.Path(f"/proc/{zygote}/maps").read_text().splitlines():
                span, mode = line.split()[:2]
                begin, end = (int(number, 16) for number in span.split("-"))
                if "w" in mode and "[v" not in line:
                    memory.seek(begin)
                    found |= marker.encode() in memory.read(end - begin)
        self.assertFalse(found)


class Off(ServiceTest):
    """With the sandbox off by the operator's setting: uid, groups, umask, rlimits, environment and the kill stay."""

    def setUp(self):
        super().setUp()
        self.service = self.start_service("--sandbox", "off", env={"API_TOKEN": "sesame", "LANG": "C.UTF-8"})
        self.assertEqual(self.service.hello["sandbox"], "off")
        self.assertIn("UNSANDBOXED", self.service.said())
        self.path = self.service.prepare("w", {"a.txt": b"hello"})

    def run_session(self, *argv, **more):
        session = Session(self.service, list(argv), **more)
        record, out = session.over(), session.read()
        select.select([session.monitor], [], [])
        return session, record, out

    def test_the_self_test_says_so(self):
        answer = self.service.ask("selftest")
        self.assertEqual((answer["ok"], answer["sandbox"], answer["missing"][0]["control"]), (False, "off", "sandbox"))
        self.assertIn("--sandbox", answer["missing"][0]["what"])

    def test_what_stays(self):
        session, record, out = self.run_session(
            "bash", "-c", "id -u; id -g; id -G; umask; ulimit -u; pwd; cat a.txt; echo; env; grep -E 'NoNewPrivs|CapEff' /proc/self/status",
            settings=["limits.rlimits.nproc=60"], environment={"GREETING": "hi"})
        self.assertEqual((record["cause"], record["exit_code"], record["sandbox"], record["back_end"]), ("exited", 0, "off", "none"), record)
        lines = out.splitlines()
        gid = self.service.uid if self.privileged else self.gid
        self.assertEqual(lines[:7], [str(self.service.uid), str(gid), str(gid), "0077", "60", str(self.path), "hello"])
        self.assertIn("GREETING=hi", lines)
        self.assertIn(f"HOME={self.path}", lines)
        self.assertNotIn("sesame", out)
        self.assertIn("NoNewPrivs:\t1", lines)
        self.assertIn("CapEff:\t" + "0" * 16, lines)
        self.assertIn("UNSANDBOXED", record["degraded"][0]["what"])
        self.assertEqual(session.events[0]["degraded"], record["degraded"])

    def test_each_limit_that_nobody_holds_is_told(self):
        limits = {"cpu_time": "5s", "output": "1MiB", "disk": "1GiB", "memory": "1GiB", "swap": "0B", "processes": "50", "cpus": "0.5"}
        _, record, _ = self.run_session("true", settings=[f"limits.{name}={value}" for name, value in limits.items()])
        self.assertEqual([item["what"] for item in record["degraded"] if item["control"] == "limits"],
                         [f"limits.{name} is not enforced" for name in limits])

    def test_off_1_is_the_operators_own_policy_without_a_sandbox(self):
        _, record, out = self.run_session("sh", "-c", "umask; env", policy="builtin:off@1")
        self.assertEqual((record["cause"], record["sandbox"], out.splitlines()[0]), ("exited", "off", "0077"), record)
        self.assertNotIn("sesame", out)

    def test_it_really_is_off(self):
        _, _, out = self.run_session("sh", "-c", "readlink /proc/self/ns/mnt /proc/self/ns/pid /proc/self/ns/user; grep Seccomp: /proc/self/status")
        own = [os.readlink(f"/proc/self/ns/{name}") for name in ("mnt", "pid", "user")]
        self.assertEqual(out.split("\n")[:4], [*own, "Seccomp:\t0"])

    def test_all_that_descends_from_a_command_ends_with_it(self):
        stray = "sleep 61.7 & setsid sleep 61.7 & (setsid sh -c 'trap \"\" TERM; sleep 61.7' &) ; "
        _, record, _ = self.run_session("bash", "-c", stray + "exit 3")
        self.assertEqual(record["exit_code"], 3)
        self.assertEqual([name for _, _, name in descendants(self.service.process.pid) if name == "sleep"], [])
        session = Session(self.service, ["bash", "-c", stray + "sleep 61.7"])
        wait_for(lambda: len([1 for _, _, name in descendants(self.service.process.pid) if name == "sleep"]) == 4, what="the strays")
        session.socket.close()
        select.select([session.monitor], [], [])
        self.assertEqual(self.service.ask("sweep", uid=self.service.uid), {"left": 0})
        self.assertEqual([name for _, _, name in descendants(self.service.process.pid) if name == "sleep"], [])

    def test_what_a_killed_monitor_leaves_is_swept(self):
        session = Session(self.service, ["bash", "-c", "setsid sleep 61.7 & sleep 61.7"])
        wait_for(lambda: len([1 for _, _, name in descendants(self.service.process.pid) if name == "sleep"]) == 2, what="the strays")
        signal.pidfd_send_signal(session.monitor, signal.SIGKILL)
        select.select([session.monitor], [], [])
        wait_for(lambda: self.service.ask("sweep", uid=self.service.uid) == {"left": 0})
        self.assertEqual([name for _, state, name in descendants(self.service.process.pid) if name == "sleep" and state != "Z"], [])

    def test_a_command_has_its_time(self):
        _, record, _ = self.run_session("sleep", "60", settings=["limits.wall_time=200ms"])
        self.assertEqual((record["cause"], record["limits"]), ("wall_time", ["wall_time"]))

    def test_a_command_that_is_not_there(self):
        for argv, code in ((["/absent"], 127), (["absent"], 127), ([str(self.path / "a.txt")], 126)):
            _, record, _ = self.run_session(*argv)
            self.assertEqual((record["cause"], record["exit_code"]), ("setup", code), record)

    def test_further_commands_and_signals(self):
        session = Session(self.service, None)
        session.event("started")

        def ask(do, fds=(), **members):
            socket.send_fds(session.socket, [json.dumps({"id": 7, "do": do, **members}).encode()], list(fds))
            while True:
                data, got, _, _ = socket.recv_fds(session.socket, 70000, 4)
                session.events.append(json.loads(data))
                if session.events[-1].get("id") == 7:
                    return session.events[-1], got
        null = os.open("/dev/null", os.O_RDWR)
        started, _ = ask("exec", [null] * 3, process=1, argv=["sleep", "60"], environment={})
        self.assertGreater(started["ok"]["pid"], 1)
        self.assertEqual(ask("signal", process=1, signal=int(signal.SIGTERM), to="group")[0]["ok"], {"gone": False})
        self.assertEqual(session.event("ended")["record"]["signal"], "SIGTERM")
        self.assertEqual(ask("signal", process=1, signal=int(signal.SIGTERM), to="group")[0]["ok"], {"gone": True})
        ask("exec", [null] * 3, process=2, argv=["bash", "-c", "setsid sleep 60 & trap '' TERM; sleep 60"], environment={})
        self.assertEqual(ask("end", process=2, cause="output")[0]["ok"], {"gone": False})
        self.assertEqual(session.event("ended")["record"]["cause"], "output")
        self.assertEqual(ask("exec", [null] * 3, process=2, argv=["true"], environment={})[0]["error"]["code"], "exists")
        self.assertEqual(ask("exec", [null] * 3, process=3, argv=["/absent"], environment={})[0]["error"]["code"], "sandbox")
        self.assertEqual(ask("exec", process=4, argv=["true"], environment={}, terminal={"columns": 80, "rows": 24})[0]["error"]["code"], "refused")
        self.assertEqual(ask("connect", unix="/run/x")[0]["error"]["code"], "refused")
        with socket.create_server(("127.0.0.1", 0)) as server:
            _, fds = ask("connect", port=server.getsockname()[1])
            server.accept()[0].close()
            os.close(fds[0])
        os.close(null)
        session.socket.send(b'{"id":9,"do":"kill","by":"drain"}')
        record = session.over()
        self.assertEqual((record["cause"], record["by"]), ("killed", "drain"))

    @as_root
    @callers("root", "five")
    def test_a_session_cannot_touch_its_keeper_or_monitor(self):
        _, _, out = self.run_session("bash", "-c", "kill -9 $PPID && echo killed; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat) && echo killed; echo end")
        self.assertEqual(out.splitlines()[-1], "end")
        self.assertNotIn("killed", out)


class Sweep(ServiceTest):
    def test_it_is_for_uids_of_the_pool(self):
        service = self.start_service()
        for uid in (0, POOL_BASE - 1) if self.privileged else (0, self.uid + 1):
            self.check_code(service.refusal("sweep", uid=uid), "not_in_pool", str(uid))
        self.assertEqual(service.ask("sweep", uid=service.uid), {"left": 0})

    def test_who_is_not_in_a_sandbox_of_ours_is_left_alone(self):
        service = self.start_service()
        pid = os.fork()
        if pid == 0:
            service.become_session()
            os.execvp("sleep", ["sleep", "60"])
        wait_for(lambda: pathlib.Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
        left = service.ask("sweep", uid=service.uid)["left"]
        self.assertEqual(left, 1 if self.privileged else 0)
        self.assertEqual(os.waitpid(pid, os.WNOHANG), (0, 0))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    @as_root
    @callers("root")
    def test_a_process_whose_first_thread_has_ended_is_not_taken_for_one_that_has(self):
        service = self.start_service()
        process = subprocess.Popen(["setpriv", f"--reuid={service.uid}", f"--regid={service.uid}", "--clear-groups",
                                    "python3", "-c", FIRST_THREAD_ENDS], stdout=subprocess.PIPE)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.read(1), b"x")
        self.assertEqual(service.ask("sweep", uid=service.uid), {"left": 1})
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        self.assertEqual(service.ask("sweep", uid=service.uid), {"left": 0})

    @callers("user")
    def test_without_a_pool_live_sessions_of_the_same_uid_are_spared(self):
        for options in ((), ("--sandbox", "off")):
            with self.subTest(options):
                service = self.start_service(*options, root=self.dir / "-".join(["root", *options]))
                service.prepare("w")
                session = Session(service, ["sh", "-c", "sleep 1.7; echo alive"])
                session.event("started")
                self.assertEqual(service.ask("sweep", uid=service.uid), {"left": 0})
                self.assertEqual((session.over()["cause"], session.read()), ("exited", "alive\n"))

    @as_root
    @callers("root", "five")
    def test_what_a_lost_sandbox_has_left_is_killed(self):
        service = self.start_service()
        pid = os.fork()
        if pid == 0:
            service.become_session()
            os.execvp("unshare", ["unshare", "--user", "--map-current-user", "sleep", "60"])
        wait_for(lambda: pathlib.Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
        self.assertEqual(service.ask("sweep", uid=service.uid), {"left": 0})
        self.assertEqual(os.waitpid(pid, 0)[1], signal.SIGKILL)


class Selftest(ServiceTest):
    @not_sanitized
    def test_it_is_run_afresh(self):
        service = self.start_service()
        self.assertEqual(service.ask("selftest"), {"ok": True, "missing": [], "sandbox": "auto"})

    @not_sanitized
    def test_what_could_not_be_found_out_is_not_in_force_and_named(self):
        needed = ("execve", "exit_group", "brk", "mmap", "arch_prctl")
        policy = {"version": 1, "extends": ["builtin:agent@1"],
                  "syscalls": {"base": "none", "default": "kill", "rules": {name: "allow" for name in needed}}}
        service = self.start_service("--session-policy", self.make_file("kills.json", json.dumps(policy)))
        answer = service.ask("selftest")
        self.assertFalse(answer["ok"])
        self.assertIn("it could not be found out: the probes did not come to their end", answer["missing"][0]["what"])


if __name__ == "__main__":
    main()
