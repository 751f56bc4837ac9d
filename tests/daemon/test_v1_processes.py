"""Processes of /v1: started, waited for, signalled, written to, ended; exec and run."""

import json
import pathlib
import socket
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import long, main
from v1 import JSON, POOL_SIZE, V1Test, as_shipped, pointers, wait_until


class Processes(V1Test):

    @as_shipped
    def test_a_process_is_started_waited_for_and_kept_after_its_end(self):
        v1 = self.v1()
        session = v1.session()
        answer = v1.call("POST", session + "/processes", {"argv": ["sh", "-c", "echo out; echo err >&2; exit 7"]})
        self.assertEqual(answer.status, 201, repr(answer))
        process = answer.json()
        path = answer.headers["location"]
        self.assertEqual(path, f"{session}/processes/{process['id']}")
        ended = v1.wait(path)
        self.assertEqual((ended["state"], ended["exit_code"], ended["cause"], ended["signal"]), ("ended", 7, "exited", None))
        self.assertEqual((ended["offsets"], ended["dropped"]), ({"stdout": 4, "stderr": 4}, {"stdout": 0, "stderr": 0}))
        self.assertEqual(ended["record"]["exit_code"], 7)
        self.assertEqual([p["id"] for p in v1.expect(200, "GET", session + "/processes")["processes"]], [process["id"]])
        v1.problem(404, "not_found", "GET", session + "/processes/99")
        v1.problem(404, "not_found", "GET", session + "/processes/x")
        v1.problem(404, "not_found", "GET", "/v1/sessions/nobody/processes/1")

    @as_shipped
    def test_a_long_poll_answers_at_the_end_and_not_before_its_time(self):
        v1 = self.v1()
        process = v1.start(v1.session(), "read line", stdin="open")
        self.assertEqual(v1.expect(200, "GET", process + "?wait=100ms")["state"], "running")
        ended = []
        thread = threading.Thread(target=lambda: ended.append(v1.wait(process)))
        thread.start()
        v1.expect(204, "POST", process + "/stdin/close")
        thread.join()
        self.assertEqual(ended[0]["state"], "ended")
        problem = v1.problem(422, "beyond_maximum", "GET", process + "?wait=1h")
        self.assertEqual(problem["limit"], 300)
        for query in ("wait=soon", "wait=1s&wait=2s", "until=1s"):
            v1.problem(422, "invalid", "GET", f"{process}?{query}")

    @as_shipped
    def test_moby_9167_a_command_is_cancelled_with_its_whole_tree(self):
        v1 = self.v1()
        session = v1.session()
        process = v1.start(session, "trap '' TERM; setsid sleep 600 & sleep 600; sleep 600")
        count = "ps -e -o args= | grep -c '[s]leep 600'; true"
        self.assertTrue(wait_until(lambda: v1.exec(session, count)["stdout"] != "0\n"), "control: it runs")
        self.assertEqual(v1.call("DELETE", process).status, 204)
        self.assertEqual(v1.exec(session, count)["stdout"], "0\n")
        self.assertEqual(v1.wait(process)["cause"], "killed")
        self.assertEqual(v1.call("DELETE", process).status, 204, "and again")
        self.assertEqual(v1.expect(200, "GET", session)["state"], "running", "the session stays")

    @as_shipped
    def test_signals_go_by_name_or_number_to_leader_group_or_tree(self):
        v1 = self.v1()
        session = v1.session()
        for signal in ("USR1", "SIGUSR1", 10):
            process = v1.start(session, "trap 'echo got; exit' USR1; echo up; while :; do sleep 0.05; done")
            self.assertTrue(wait_until(lambda: v1.expect(200, "GET", process)["offsets"]["stdout"] == 3))
            v1.expect(204, "POST", process + "/signal", {"signal": signal})
            self.assertEqual(v1.wait(process)["exit_code"], 0)
        process = v1.start(session, "sleep 600 & wait")
        v1.expect(204, "POST", process + "/signal", {"signal": "KILL", "target": "tree"})
        self.assertEqual((v1.wait(process)["cause"], v1.wait(process)["signal"]), ("signaled", 9))
        v1.problem(409, "ended", "POST", process + "/signal", {"signal": "TERM"})
        for body in ({}, {"signal": "TREM"}, {"signal": 0}, {"signal": 99}, {"signal": -1}, {"signal": True}):
            self.assertEqual(pointers(v1.problem(422, "invalid", "POST", process + "/signal", body)), {"/signal"}, body)
        problem = v1.problem(422, "invalid", "POST", process + "/signal", {"signal": 9, "target": "world"})
        self.assertEqual(pointers(problem), {"/target"})

    @as_shipped
    def test_a_retry_of_stdin_types_nothing_twice(self):
        v1 = self.v1()
        process = v1.start(v1.session(), "cat", stdin="open")
        send = lambda data, offset="": v1.call("POST", f"{process}/stdin{offset}", data,
                                               {"Content-Type": "application/octet-stream"})
        self.assertEqual(send(b"abc", "?offset=0").json(), {"offset": 3})
        self.assertEqual(send(b"abc", "?offset=0").json(), {"offset": 3}, "it has these")
        self.assertEqual(send(b"bcd\xff", "?offset=1").json(), {"offset": 5}, "only what is new")
        self.assertEqual(send(b"e").json(), {"offset": 6})
        v1.problem(409, "conflict", "POST", process + "/stdin?offset=9", b"x")
        v1.expect(204, "POST", process + "/stdin/close")
        self.assertEqual(v1.wait(process)["offsets"]["stdout"], 6)
        none = v1.start(v1.session(), "sleep 600")
        v1.problem(409, "conflict", "POST", none + "/stdin", b"x")

    @long
    @as_shipped
    def test_a_program_that_does_not_read_holds_no_request_for_ever(self):
        v1 = self.v1()
        process = v1.start(v1.session(), "sleep 600", stdin="open")
        problem = v1.problem(504, "timeout", "POST", process + "/stdin?offset=0", b"x" * (1 << 20))
        self.assertIn("65536 bytes", problem["detail"])
        self.assertEqual(v1.expect(200, "POST", process + "/stdin?offset=0", b"x" * 65536), {"offset": 65536})

    @as_shipped
    def test_disconnecting_neither_ends_a_process_nor_closes_its_stdin(self):
        v1 = self.v1()
        session = v1.session()
        process = v1.start(session, "cat", stdin="open")
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(v1.socket_path))
            connection.sendall(f"POST {process}/stdin HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf".encode())
        self.assertEqual(v1.expect(200, "POST", process + "/stdin", b"whole"), {"offset": 5})
        self.assertEqual(v1.expect(200, "GET", process)["state"], "running")
        body = json.dumps({"shell": "sleep 0.5; echo done > done"})
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(v1.socket_path))
            connection.sendall((f"POST {session}/exec HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                                f"Content-Length: {len(body)}\r\n\r\n{body}").encode())
            self.assertTrue(wait_until(lambda: len(v1.expect(200, "GET", session)["processes"]) == 2))
        self.assertTrue(wait_until(lambda: v1.exec(session, "cat done")["exit_code"] == 0), "it went on to its end")

    @as_shipped
    def test_a_terminal_has_its_size_and_can_be_resized(self):
        v1 = self.v1()
        process = v1.start(v1.session(), "stty size; read x; stty size", tty={"cols": 81, "rows": 25})
        self.assertTrue(wait_until(lambda: v1.expect(200, "GET", process)["offsets"]["stdout"] > 0))
        v1.expect(204, "POST", process + "/resize", {"cols": 120, "rows": 40})
        v1.expect(200, "POST", process + "/stdin", b"\n")
        v1.wait(process)
        plain = v1.start(v1.session(), "sleep 600")
        v1.problem(409, "conflict", "POST", plain + "/resize", {"cols": 1, "rows": 1})
        problem = v1.problem(422, "invalid", "POST", plain + "/resize", {"cols": 0})
        self.assertEqual(pointers(problem), {"/cols", "/rows"})

    @as_shipped
    def test_what_a_process_body_has_wrong_is_said_at_once(self):
        v1 = self.v1()
        session = v1.session()
        problem = v1.problem(422, "invalid", "POST", session + "/processes", {
            "argv": ["a\0b"], "env": {"": "x"}, "stdin": {"text": "a", "base64": "b"}, "tty": {"cols": 0, "depth": 1},
            "wall_time": "1s", "timeout": "1s", "cpu_time": "1s", "output": 0, "workdir": "/"})
        self.assertEqual(pointers(problem), {"/argv", "/env/", "/stdin", "/tty/cols", "/tty/depth", "/timeout", "/cpu_time",
                                             "/output", "/workdir"})
        for body, pointer in (({}, "/argv"), ({"argv": []}, "/argv"), ({"argv": [""]}, "/argv"), ({"argv": [1]}, "/argv/0"),
                              ({"argv": "ls"}, "/argv"), ({"argv": ["a"], "shell": "b"}, "/shell")):
            found = pointers(v1.problem(422, "invalid", "POST", session + "/processes", body))
            self.assertIn(pointer, found, body)


class Exec(V1Test):

    @as_shipped
    def test_exec_answers_with_everything_that_a_tool_needs(self):
        v1 = self.v1()
        session = v1.session()
        done = v1.exec(session, "echo out; echo err >&2; exit 3")
        workspace = v1.expect(200, "GET", session)["workspace"]
        self.assertEqual([done[name] for name in ("exit_code", "cause", "stdout", "stderr")], [3, "exited", "out\n", "err\n"])
        self.assertEqual(done["truncated"], {"stdout": 0, "stderr": 0})
        self.assertEqual(done["process"]["state"], "ended")
        done = v1.exec(session, "mkdir -p sub; cd sub; pwd")
        self.assertEqual(v1.exec(session, "pwd", cwd="sub")["stdout"], f"{workspace}/sub\n", done)
        self.assertEqual(v1.exec(session, stdin="typed", argv=["cat"])["stdout"], "typed")
        self.assertEqual(v1.exec(session, stdin={"base64": "AP8="}, argv=["cat"])["stdout_base64"], "AP8=")
        self.assertEqual(v1.exec(session, "printf '\\xff'")["stdout_base64"], "/w==", "what is no text is base64")
        self.assertEqual(v1.exec(session, 'echo "$A"', env={"A": "é"})["stdout"], "é\n")

    @as_shipped
    def test_E2B_500_the_time_of_a_command_and_of_a_request_are_told_apart(self):
        v1 = self.v1()
        session = v1.session()
        over = v1.exec(session, "sleep 600", wall_time="300ms")
        self.assertEqual(over["cause"], "wall_time", "the command's time is over: it has ended")
        answer = v1.call("POST", session + "/exec?wait=300ms", {"shell": "echo early; sleep 600"})
        self.assertEqual(answer.status, 202, "the request's time is over: the command goes on")
        process = answer.json()["process"]
        self.assertEqual((process["state"], answer.json()["cause"], answer.json()["exit_code"]), ("running", None, None))
        self.assertEqual(answer.json()["stdout"], "early\n")
        self.assertEqual(answer.headers["location"], f"{session}/processes/{process['id']}")
        self.assertEqual(v1.expect(200, "GET", answer.headers["location"])["state"], "running")

    @as_shipped
    def test_cloudflare_agents_1870_floods_of_output_are_bounded_and_counted(self):
        v1 = self.v1()
        session = v1.session()
        done = v1.exec(session, "yes é | head -c 5000000; echo end")
        kept = len(done["stdout"].encode())
        self.assertEqual(kept + done["truncated"]["stdout"], 5000004, "each byte is there or counted")
        self.assertLess(kept, 2 << 20)
        self.assertTrue(done["stdout"].startswith("é\n") and done["stdout"].endswith("end\n"), "beginning and end are kept")
        self.assertNotIn("stdout_base64", done, "no character was torn")
        stopped = v1.exec(session, "yes", output="64KiB")
        self.assertEqual(stopped["cause"], "output")

    def assert_stopped(self, ended, most=64 << 10):
        self.assertEqual((ended["cause"], ended["process"]["offsets"]["stdout"]), ("output", most))

    @as_shipped
    def test_what_a_session_may_write_counts_for_each_further_process(self):
        v1 = self.v1()
        session = v1.session(limits={"output": "64KiB"})
        self.assert_stopped(v1.exec(session, "yes"))
        self.assert_stopped(v1.exec(session, "yes", output="4KiB"), 4096)
        for path in (v1.start(session, "yes"),
                     v1.expect(201, "POST", session + "/exec", {"shell": "yes", "background": True})["id"]):
            path = path if isinstance(path, str) else f"{session}/processes/{path}"
            ended = v1.wait(path)
            self.assertEqual((ended["cause"], ended["offsets"]["stdout"]), ("output", 64 << 10))
        for call in ("/exec", "/processes", "/shell/commands"):
            problem = v1.problem(422, "beyond_maximum", "POST", session + call, {"shell": "true", "output": "65KiB"})
            self.assertEqual((pointers(problem), problem["limit"]), ({"/output"}, 64 << 10))
        quiet = v1.exec(session, "head -c 65536 /dev/zero | tr '\\0' x")
        self.assertEqual((quiet["cause"], len(quiet["stdout"])), ("exited", 65536), "control: so many bytes are no more")
        self.assertEqual(v1.exec(v1.session(), "head -c 65537 /dev/zero")["cause"], "exited", "control: it is the session's")

    @as_shipped
    def test_what_a_session_may_write_counts_for_its_own_command(self):
        v1 = self.v1()
        session = v1.session(limits={"output": "64KiB"}, command={"shell": "yes"})
        self.assertTrue(wait_until(lambda: v1.expect(200, "GET", session)["state"] == "ended"))
        ended = v1.expect(200, "GET", session + "/processes/0")
        self.assertEqual((ended["cause"], ended["offsets"]["stdout"]), ("output", 64 << 10))
        self.assert_stopped(v1.expect(200, "POST", "/v1/run", {"shell": "yes", "limits": {"output": "64KiB"}}))
        self.assert_stopped(v1.expect(200, "POST", "/v1/run", {"shell": "yes", "limits": {"output": "64KiB"}, "output": "4KiB"}), 4096)
        self.assert_stopped(v1.expect(200, "POST", "/v1/run", {"shell": "yes", "limits": {"output": "64KiB"}, "state": True}))

    @as_shipped
    def test_the_wall_time_of_a_session_is_the_most_that_a_further_process_may_have(self):
        v1 = self.v1()
        session = v1.session(limits={"wall_time": "2s"})
        for call in ("/exec", "/processes", "/shell/commands"):
            problem = v1.problem(422, "beyond_maximum", "POST", session + call, {"shell": "true", "wall_time": "1h"})
            self.assertEqual((pointers(problem), problem["limit"]), ({"/wall_time"}, 2))
        self.assertEqual(v1.exec(session, "sleep 600")["cause"], "wall_time")
        self.assertEqual(v1.exec(session, "sleep 600", wall_time="300ms")["cause"], "wall_time")

    @as_shipped
    def test_a_program_that_is_not_there_is_422_with_its_code(self):
        v1 = self.v1()
        session = v1.session()
        problem = v1.problem(422, "not_executable", "POST", session + "/exec", {"argv": ["no-such-program"]})
        self.assertEqual(problem["exit_code"], 127)
        v1.problem(409, "ended", "POST", self.ended(v1) + "/exec", {"shell": "true"})

    def ended(self, v1):
        session = v1.session()
        v1.call("DELETE", session)
        return session

    @as_shipped
    def test_what_the_policy_sets_no_command_sets_otherwise(self):
        v1 = self.v1()
        strict = {"policy": "builtin:strict@1"}
        session = v1.session(**strict, env={"COLOUR": "blue"})
        for call in ("/exec", "/processes", "/shell/commands"):
            problem = v1.problem(422, "refused", "POST", session + call, {"shell": "true", "env": {"HOME": "/elsewhere"}})
            self.assertEqual(pointers(problem), {"/env"})
        for more in ({}, {"state": True}):
            problem = v1.problem(422, "refused", "POST", "/v1/run", {**strict, "shell": "true", "env": {"HOME": "/elsewhere"}, **more})
            self.assertEqual(pointers(problem), {"/env"})
        done = v1.exec(session, "echo $COLOUR $HOME", env={"COLOUR": "red", "HOME": "/tmp"})
        self.assertEqual(done["stdout"], "red /tmp\n", "control: what the session was given gives way, and the same is no other")
        token = v1.exec(session, "echo $MY_TOKEN", env={"MY_TOKEN": "mine"})
        self.assertEqual(token["stdout"], "mine\n", "env.deny is about the host's variables")

    @as_shipped
    def test_a_limit_of_the_session_holds_for_its_command_and_more_is_refused(self):
        v1 = self.v1()
        for limit, most, more in (("wall_time", "500ms", "10s"), ("cpu_time", "1s", "2s"), ("output", "4KiB", "5KiB")):
            body = {"shell": "true", limit: more, "limits": {limit: most}}
            self.assertEqual(pointers(v1.problem(422, "invalid", "POST", "/v1/run", body)), {"/" + limit})
            body = {"command": {"shell": "true", limit: more}, "limits": {limit: most}}
            self.assertEqual(pointers(v1.problem(422, "invalid", "POST", "/v1/sessions", body)), {"/command/" + limit})
        self.assertEqual(pointers(v1.problem(422, "invalid", "POST", "/v1/run",
                                             {"shell": "true", "timeout": "1m", "limits": {"wall_time": "1s"}})), {"/timeout"})
        done = v1.expect(200, "POST", "/v1/run", {"shell": "sleep 600", "wall_time": "300ms", "limits": {"wall_time": "1m"}})
        self.assertEqual(done["cause"], "wall_time", "control: less is taken")

    @as_shipped
    def test_output_above_the_policys_is_refused_and_not_reduced(self):
        policies = self.make_directory("policies", mode=0o755)
        quiet = {"version": 1, "extends": ["builtin:shell@1"], "network": {"mode": "none"}, "limits": {"output": "4KiB", "wall_time": "8s"}}
        (policies / "quiet.json").write_text(json.dumps(quiet))
        v1 = self.v1(f"--policy-dir={policies}")
        over, under = {"shell": "yes", "output": "5KiB"}, {"shell": "yes", "output": "1KiB"}
        for path, body, pointer in (("/v1/run", over, "/output"), ("/v1/run", {**over, "state": True}, "/output"),
                                    ("/v1/sessions", {"command": over}, "/command/output")):
            problem = v1.problem(422, "beyond_maximum", "POST", path, {"policy": "quiet", **body})
            self.assertEqual((pointers(problem), problem["limit"]), ({pointer}, 4096))
        session = v1.session(policy="quiet")
        for call in ("/exec", "/processes", "/shell/commands"):
            for member, value in (("output", "5KiB"), ("wall_time", "9s")):
                problem = v1.problem(422, "beyond_maximum", "POST", session + call, {"shell": "true", member: value})
                self.assertEqual(pointers(problem), {"/" + member})
        problem = v1.problem(422, "beyond_maximum", "POST", "/v1/run", {"policy": "quiet", "shell": "true", "wall_time": "9s", "state": True})
        self.assertEqual(pointers(problem), {"/wall_time"})
        self.assertEqual(v1.expect(200, "POST", "/v1/run", {"policy": "quiet", **under})["cause"], "output", "control")
        self.assertEqual(v1.expect(200, "POST", "/v1/run", {"policy": "quiet", "shell": "sleep 60"})["cause"], "wall_time")

    @as_shipped
    def test_a_process_that_is_deleted_was_killed_by_its_client_whether_it_dies_of_TERM_or_not(self):
        v1 = self.v1()
        session = v1.session()
        for shell in ("sleep 600", "trap '' TERM; echo up; while :; do sleep 0.05; done"):
            process = v1.start(session, shell)
            if "trap" in shell:
                self.assertTrue(wait_until(lambda: v1.expect(200, "GET", process)["offsets"]["stdout"] > 0))
            self.assertEqual(v1.call("DELETE", process).status, 204)
            ended = v1.wait(process)
            self.assertEqual((ended["cause"], ended["record"]["by"]), ("killed", "client"), shell)
        last = v1.start(session, "sleep 600")
        v1.call("DELETE", session)
        ended = v1.wait(last)
        self.assertEqual((ended["cause"], ended["record"]["by"]), ("killed", "session"))

    @as_shipped
    def test_exec_in_the_background_is_a_process(self):
        v1 = self.v1()
        session = v1.session()
        answer = v1.call("POST", session + "/exec", {"shell": "sleep 600", "background": True})
        self.assertEqual((answer.status, answer.json()["state"]), (201, "running"))
        v1.problem(422, "invalid", "POST", session + "/processes", {"shell": "true", "background": False})

    @as_shipped
    def test_daytona_4489_an_end_has_a_cause_and_not_just_a_code(self):
        v1 = self.v1()
        session = v1.session()
        for shell, cause in {"exit 137": "exited", "kill -9 $$": "signaled"}.items():
            self.assertEqual(v1.exec(session, shell)["cause"], cause)


class Run(V1Test):

    @as_shipped
    def test_a_caller_of_belljards_that_ignores_its_children_changes_no_answer(self):
        before = self.prefix()
        self.prefix = lambda: [*before, "env", "--ignore-signal=CHLD"]
        self.assertEqual(self.v1().expect(200, "POST", "/v1/run", {"shell": "exit 4"})["exit_code"], 4)

    @as_shipped
    def test_a_run_is_one_answer_and_nothing_is_kept(self):
        v1 = self.v1()
        done = v1.expect(200, "POST", "/v1/run", {"shell": "cat a; exit 4", "files": {"a": "hello"}, "policy": "builtin:validator@1"})
        self.assertEqual((done["exit_code"], done["stdout"], done["record"]["cause"]), (4, "hello", "exited"))
        self.assertTrue(wait_until(lambda: v1.daemon.workspaces() == []))
        self.assertEqual(v1.expect(200, "GET", "/v1/sessions")["sessions"], [])
        over = v1.expect(200, "POST", "/v1/run", {"shell": "sleep 600", "timeout": "300ms"})
        self.assertEqual(over["cause"], "wall_time", "the command's failure is no failure of the call")
        problem = v1.problem(422, "not_executable", "POST", "/v1/run", {"argv": ["/no/such"]})
        self.assertIn("setup", problem)
        self.assertEqual(pointers(v1.problem(422, "invalid", "POST", "/v1/run", {"argv": ["cat"], "stdin": "open", "ttl": "1h"})),
                         {"/stdin", "/ttl"})

    @as_shipped
    def test_runs_are_bounded_and_the_rest_is_told_when_to_come_back(self):
        v1 = self.v1("--max-runs=1")
        running = threading.Thread(target=lambda: v1.expect(200, "POST", "/v1/run", {"shell": "sleep 600", "timeout": "4s"}))
        running.start()
        self.assertTrue(wait_until(lambda: v1.expect(200, "GET", "/v1/limits")["runs"]["live"] == 1))
        answer = v1.call("POST", "/v1/run", {"shell": "true"})
        self.assertEqual((answer.status, answer.json()["code"], answer.json()["limit"]), (503, "capacity", 1))
        self.assertTrue(int(answer.headers["retry-after"]) > 0)
        self.assertEqual(v1.expect(200, "GET", "/v1/limits")["admits"], {"now": True}, "a session still fits")
        running.join()
        v1.expect(200, "POST", "/v1/run", {"shell": "true"})

    @as_shipped
    def test_inspect_ai_2779_a_run_whose_client_is_gone_ends(self):
        v1 = self.v1()
        body = json.dumps({"shell": "sleep 600"})
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(v1.socket_path))
            connection.sendall((f"POST /v1/run HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                                f"Content-Length: {len(body)}\r\n\r\n{body}").encode())
            self.assertTrue(wait_until(lambda: v1.expect(200, "GET", "/v1/limits")["runs"]["live"] == 1))
        self.assertTrue(wait_until(lambda: v1.expect(200, "GET", "/v1/limits")["runs"]["live"] == 0))

    @as_shipped
    def test_judge0_246_what_does_not_fit_is_refused_and_never_queued_for_ever(self):
        v1 = self.v1()
        for _ in range(POOL_SIZE):
            v1.session()
        v1.problem(503, "capacity", "POST", "/v1/run", {"shell": "true"})


class Host(V1Test):

    @as_shipped
    def test_the_host_says_what_it_is_and_what_is_left(self):
        v1 = self.v1()
        self.assertEqual(v1.expect(200, "GET", "/livez"), {"status": "ok"})
        self.assertEqual(v1.expect(200, "GET", "/readyz")["sandbox"], "ok")
        version = v1.expect(200, "GET", "/v1/version")
        self.assertEqual(version["api"], "v1")
        self.assertTrue(version["commit"])
        policies = v1.expect(200, "GET", "/v1/policies")["policies"]
        self.assertEqual([p["name"] for p in policies if p["default"]], ["builtin:agent@1"])
        self.assertTrue(all(p["digest"].startswith("sha256:") for p in policies))
        self.assertTrue(v1.expect(200, "GET", "/v1/capabilities")["sandbox"]["works"])
        self.assertNotIn("missing", self.over_tcp(v1).expect(200, "GET", "/v1/capabilities")["sandbox"])
        self.assertEqual(v1.expect(200, "GET", "/v1/limits")["sessions"]["most"], POOL_SIZE)

    @as_shipped
    def test_readyz_tells_serving_from_admitting(self):
        v1 = self.v1()
        v1.expect(200, "GET", "/readyz?admit=1")
        for _ in range(POOL_SIZE):
            v1.session()
        answer = v1.call("GET", "/readyz?admit=1")
        self.assertEqual((answer.status, answer.json()["code"]), (503, "capacity"))
        self.assertEqual(v1.call("GET", "/readyz").status, 200, "those that there are, are served")
        self.assertEqual(v1.expect(200, "GET", "/v1/limits")["admits"], {"now": False, "code": "capacity"})

    @as_shipped
    def test_while_it_drains_nothing_new_is_taken_and_what_runs_goes_on(self):
        v1 = self.v1("--drain-timeout=60s")
        session = v1.session()
        v1.daemon.process.terminate()
        self.assertTrue(wait_until(lambda: v1.call("GET", "/readyz?admit=1").status == 503))
        v1.problem(503, "draining", "POST", "/v1/sessions", {})
        v1.problem(503, "draining", "POST", "/v1/run", {"shell": "true"})
        self.assertEqual(v1.exec(session, "echo on")["stdout"], "on\n")
        v1.daemon.process.terminate()

    @as_shipped
    def test_what_is_not_there_is_404_and_what_cannot_be_done_405(self):
        v1 = self.v1()
        for path in ("/v1", "/v1/", "/v2", "/v1/sessions/x/y/z", "/v1/nothing"):
            self.assertEqual(v1.call("GET", path).status, 404, path)
        answer = v1.call("PUT", "/v1/sessions", {})
        self.assertEqual((answer.status, answer.json()["code"]), (405, "method_not_allowed"))
        self.assertEqual({m.strip() for m in answer.headers["allow"].split(",")}, {"GET", "POST"})
        self.assertEqual(v1.call("HEAD", "/v1/version").body, b"")


if __name__ == "__main__":
    main()
