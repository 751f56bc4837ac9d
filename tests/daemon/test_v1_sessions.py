"""Sessions of /v1: made, listed, changed, kept and ended; and all that is refused."""

import json
import pathlib
import resource
import socket
import sys
import textwrap
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import processes_of
from harness import main
from v1 import JSON, POOL_SIZE, TOKEN, UID_BASE, V1, Answer, V1Test, as_shipped, pointers, wait_until


class Sessions(V1Test):

    @as_shipped
    def test_a_session_is_made_looked_at_and_ended(self):
        v1 = self.v1()
        answer = v1.call("POST", "/v1/sessions", {"labels": {"team": "a"}})
        self.assertEqual(answer.status, 201, f"{answer}\n{v1.daemon.log}")
        session = answer.json()
        path = "/v1/sessions/" + session["id"]
        self.assertEqual(answer.headers["location"], path)
        self.assertEqual(session["state"], "running")
        self.assertRegex(session["id"], "^s-[a-z0-9]+-", "an id carries its node")
        self.assertEqual((session["labels"], session["policy"]), ({"team": "a"}, "builtin:agent@1"))
        self.assertRegex(session["created"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertIsNone(session["record"])
        self.assertEqual(v1.expect(200, "GET", path)["id"], session["id"])
        for _ in range(2):
            self.assertEqual(v1.call("DELETE", path).status, 204, "and again")
        ended = v1.expect(200, "GET", path)
        self.assertEqual((ended["state"], ended["record"]["cause"], ended["record"]["by"]), ("ended", "killed", "client"))
        v1.problem(404, "not_found", "DELETE", "/v1/sessions/s-0-nothere")

    @as_shipped
    def test_files_and_variables_are_there_for_each_process(self):
        v1 = self.v1()
        session = v1.session(env={"COLOUR": "blue"}, files={
            "a.txt": "text", "run.sh": {"text": "echo ran", "mode": "0755"}, "deep/b.bin": {"base64": "AAH/"},
            "empty": {"directory": True}})
        done = v1.exec(session, 'echo "$COLOUR $BELLJAR_PORT"; cat a.txt; ./run.sh; od -An -tx1 deep/b.bin; ls -d empty; pwd')
        self.assertEqual(done["exit_code"], 0, done)
        port, workspace = v1.expect(200, "GET", session)["port"], v1.expect(200, "GET", session)["workspace"]
        self.assertEqual(done["stdout"].split(), ["blue", str(port), "textran", "00", "01", "ff", "empty", workspace])

    @as_shipped
    def test_everything_that_is_wrong_is_said_at_once_with_its_pointer(self):
        v1 = self.v1()
        problem = v1.problem(422, "invalid", "POST", "/v1/sessions", {
            "polcy": "x", "policy": {"version": 1}, "ttl": "soon", "workspace": "/srv", "die_with": "parent",
            "network": "fast", "labels": {"a": 1}, "files": {"../x": "", "b": {"base64": "!"}, "c": {}},
            "limits": {"memory": "many", "wings": 2}, "env": {"A=B": ""}, "command": {"argv": ["a"], "shell": "b"}})
        self.assertLessEqual({"/polcy", "/policy", "/ttl", "/workspace", "/die_with", "/network", "/labels/a",
                              "/files/..~1x", "/files/b/base64", "/files/c", "/limits/memory", "/limits/wings",
                              "/env/A=B", "/command/shell"}, pointers(problem))
        said = {item["pointer"]: item["detail"] for item in problem["errors"]}
        self.assertIn('did you mean "policy"', said["/polcy"])
        self.assertIn("lease", said["/die_with"])
        self.assertIn("/v1/policies", said["/policy"])
        self.assertEqual(v1.expect(200, "GET", "/v1/sessions")["sessions"], [], "and nothing was made")

    @as_shipped
    def test_bodies_that_are_no_json_are_malformed(self):
        v1 = self.v1()
        headers = {"Content-Type": "application/json"}
        for body in (b"{", b"\xef\xbb\xbf{}", b'{"labels": {"a": "1", "a": "2"}}', b"[" * 100 + b"]" * 100, b"\xff", b"{} {}"):
            v1.problem(400, "malformed", "POST", "/v1/sessions", body, headers=headers)
        v1.problem(415, "unsupported_media_type", "POST", "/v1/sessions", b"{}", headers={"Content-Type": "text/plain"})

    @as_shipped
    def test_a_limit_beyond_the_policys_is_422_and_names_it(self):
        v1 = self.v1("--max-ttl=1h")
        problem = v1.problem(422, "beyond_maximum", "POST", "/v1/sessions", {"ttl": "2h"})
        self.assertEqual(problem["limit"], 3600)
        problem = v1.problem(422, "beyond_maximum", "POST", "/v1/sessions", {"limits": {"rlimits": {"nofile": 100000}}})
        self.assertEqual(pointers(problem), {"/limits/rlimits/nofile"})
        control = v1.session(limits={"rlimits": {"nofile": 64}}, ttl="30m")
        self.assertEqual(v1.exec(control, "ulimit -n")["stdout"], "64\n", "one within it is in force")

    @as_shipped
    def test_null_is_no_value_of_any_member(self):
        v1 = self.v1()
        body = {"labels": None, "ttl": None, "policy": None, "limits": {"memory": None}, "files": {"a": None}, "env": {"A": None}}
        problem = v1.problem(422, "invalid", "POST", "/v1/sessions", body)
        self.assertEqual(pointers(problem), {"/labels", "/ttl", "/policy", "/limits/memory", "/files/a", "/env/A"})
        self.assertEqual(v1.expect(200, "GET", "/v1/sessions")["sessions"], [])

    @as_shipped
    def test_a_parameter_that_nobody_reads_is_refused_wherever_it_stands(self):
        v1 = self.v1()
        session = v1.session()
        for method, path in (("GET", "/livez"), ("GET", "/v1/version"), ("GET", "/v1/limits"), ("GET", session), ("PATCH", session),
                             ("POST", session + "/keepalive"), ("GET", session + "/processes"), ("POST", session + "/processes"),
                             ("GET", session + "/shell/commands"), ("POST", "/v1/run"), ("POST", "/v1/sessions"),
                             ("POST", "/v1/leases"), ("DELETE", session)):
            problem = v1.problem(422, "invalid", method, path + "?fast=true", {} if method in ("POST", "PATCH") else None)
            self.assertEqual(pointers(problem), {"?fast"}, path)
        self.assertEqual(v1.expect(200, "GET", session + "?")["state"], "running", "control: an empty query asks for nothing")

    @as_shipped
    def test_a_lease_has_no_members(self):
        v1 = self.v1()
        self.assertEqual(pointers(v1.problem(422, "invalid", "POST", "/v1/leases", {"ttl": "1h"})), {"/ttl"})
        v1.problem(400, "malformed", "POST", "/v1/leases", b"{", headers={"Content-Type": "application/json"})

    @as_shipped
    def test_without_a_sandbox_nobody_is_told_of_a_network_of_his_own(self):
        v1 = self.v1(variables={"BELLJAR_SANDBOX": "off"})
        for network in ("none", "private"):
            problem = v1.problem(422, "refused", "POST", "/v1/sessions", {"network": network})
            self.assertEqual(pointers(problem), {"/network"})
        for network, policy in (("shared", "builtin:agent@1"), ("auto", "builtin:shell@1")):
            made = v1.create(network=network, policy=policy)
            self.assertEqual(made["network"], "shared")
            self.assertEqual("network" in {item["control"] for item in made["degraded"]}, network == "auto")

    @as_shipped
    def test_an_unknown_policy_is_not_replaced_by_another(self):
        v1 = self.v1()
        problem = v1.problem(404, "not_found", "POST", "/v1/sessions", {"policy": "builtin:angel@1"})
        self.assertIn("builtin:angel@1", problem["detail"])

    @as_shipped
    def test_a_network_can_be_cut_and_not_be_widened(self):
        v1 = self.v1()
        cut = v1.create(network="none")
        self.assertEqual(cut["network"], "none")
        interfaces = v1.exec("/v1/sessions/" + cut["id"], "ls /sys/class/net; cat /proc/net/dev | wc -l")
        self.assertEqual(v1.exec("/v1/sessions/" + cut["id"], "tail -n +3 /proc/net/dev | grep -vc lo:")["stdout"], "0\n",
                         interfaces)
        problem = v1.problem(422, "refused", "POST", "/v1/sessions", {"policy": "builtin:validator@1", "network": "shared"})
        self.assertEqual(pointers(problem), {"/network"}, "what the body has")
        problem = v1.problem(422, "refused", "POST", "/v1/sessions", {"policy": "builtin:strict@1", "env": {"HOME": "/elsewhere"}})
        self.assertEqual(pointers(problem), {"/env"})

    @as_shipped
    def test_ready_waits_for_a_listener_and_nobody_is_connected_to(self):
        v1 = self.v1()
        listen = "import socket, time, os; s = socket.create_server(('127.0.0.1', int(os.environ['BELLJAR_PORT'])));" \
                 "s.settimeout(3)\ntry:\n  s.accept(); print('a client')\nexcept TimeoutError: print('nobody', flush=True)\n" \
                 "time.sleep(600)"
        session = v1.create(command={"argv": ["python3", "-c", listen]}, ready={})
        path = "/v1/sessions/" + session["id"]
        self.assertEqual(v1.exec(path, f"ss -Hltn sport = :{session['port']} | wc -l; true")["exit_code"], 0)
        # A command that ends first, or listens nowhere, is no session.
        problem = v1.problem(409, "ended", "POST", "/v1/sessions", {"command": {"shell": "exit 3"}, "ready": {}})
        self.assertIn("exit code 3", problem["detail"])
        self.assertEqual(v1.expect(200, "GET", "/v1/sessions/" + problem["session"])["state"], "ended",
                         "and it can still be asked what happened")
        late = v1.problem(504, "timeout", "POST", "/v1/sessions",
                          {"command": {"shell": "sleep 600"}, "ready": {"timeout": "1s"}})
        self.assertTrue(wait_until(lambda: v1.expect(200, "GET", "/v1/sessions/" + late["session"])["state"] == "ended"))

    @as_shipped
    def test_a_command_that_is_not_there_is_the_requests_fault(self):
        audit = self.dir / "audit"
        v1 = self.v1(f"--audit={audit}")
        problem = v1.problem(422, "not_executable", "POST", "/v1/sessions", {"command": {"argv": ["/no/such"]}})
        self.assertEqual(problem["setup"]["control"], "command")
        v1.problem(422, "beyond_maximum", "POST", "/v1/sessions", {"limits": {"rlimits": {"nofile": 100000}}})
        lines = [json.loads(line) for line in audit.read_text().splitlines()]
        self.assertEqual([line["cause"] for line in lines if line["what"] == "create_failed"],
                         ["not_executable", "beyond_maximum"], "the audit says what the client was told")
        self.assertEqual(v1.expect(200, "GET", "/v1/sessions")["sessions"], [])

    @as_shipped
    def test_the_list_is_filtered_and_paged_while_sessions_end(self):
        v1 = self.v1()
        ids = [v1.create(labels={"n": str(i), "kind": "a" if i < 3 else "b"})["id"] for i in range(POOL_SIZE)]
        page = v1.expect(200, "GET", "/v1/sessions?limit=2")
        self.assertEqual([s["id"] for s in page["sessions"]], ids[:2])
        v1.call("DELETE", "/v1/sessions/" + ids[1])
        rest = v1.expect(200, "GET", "/v1/sessions?limit=100&cursor=" + page["next"])
        self.assertEqual([s["id"] for s in rest["sessions"]], ids[2:], "the end of one before moves nothing")
        self.assertIsNone(rest["next"])
        kind = v1.expect(200, "GET", "/v1/sessions?label.kind=b")
        self.assertEqual([s["id"] for s in kind["sessions"]], ids[3:])
        self.assertEqual([s["id"] for s in v1.expect(200, "GET", "/v1/sessions?state=ended")["sessions"]], [ids[1]])
        for query, pointer in {"state=dead": "?state", "cursor=x": "?cursor", "limit=0": "?limit", "colour=red": "?colour",
                               "state=ended&state=ended": "?state"}.items():
            self.assertEqual(pointers(v1.problem(422, "invalid", "GET", "/v1/sessions?" + query)), {pointer})

    @as_shipped
    def test_a_patch_changes_what_it_names_and_nothing_else(self):
        v1 = self.v1()
        session = v1.session(labels={"keep": "1", "drop": "2"}, idle="1h")
        before = v1.expect(200, "GET", session)
        merge = {"Content-Type": "application/merge-patch+json"}
        after = json.loads(v1.call("PATCH", session, json.dumps({"labels": {"drop": None, "new": "3"}}), merge).body)
        self.assertEqual(after["labels"], {"keep": "1", "new": "3"})
        self.assertEqual((after["expires"], after["idle_after"]), (before["expires"], "1h"))
        after = v1.expect(200, "PATCH", session, {"ttl": "5m", "idle": None})
        self.assertLess(after["expires"], before["expires"])
        self.assertIsNone(after["idle_after"])
        longest = v1.expect(200, "PATCH", session, {"ttl": None})
        self.assertGreater(longest["expires"], after["expires"], "as long as the operator lets it")
        problem = v1.problem(422, "invalid", "PATCH", session, {"policy": "x", "labels": {"a": 1}})
        self.assertEqual(pointers(problem), {"/policy", "/labels/a"})
        v1.problem(422, "beyond_maximum", "PATCH", session, {"ttl": "100d", "labels": {"not": "set"}})
        self.assertEqual(v1.expect(200, "GET", session)["labels"], {"keep": "1", "new": "3"}, "not half of a patch")

    @as_shipped
    def test_E2B_1055_keepalive_never_shortens_a_life(self):
        v1 = self.v1()
        session = v1.session(ttl="1h")
        before = v1.expect(200, "GET", session)["expires"]
        self.assertEqual(v1.expect(200, "POST", session + "/keepalive", {"for": "1m"})["expires"][:16], before[:16])
        self.assertGreater(v1.expect(200, "POST", session + "/keepalive", {"for": "2h"})["expires"], before)
        v1.problem(422, "beyond_maximum", "POST", session + "/keepalive", {"for": "100d"})
        self.assertEqual(pointers(v1.problem(422, "invalid", "POST", session + "/keepalive", {})), {"/for"})

    @as_shipped
    def test_OpenSandbox_759_an_idle_session_ends_and_says_so_and_one_with_a_running_command_does_not(self):
        v1 = self.v1()
        idle, busy = v1.session(idle="1s"), v1.session(idle="1s")
        process = v1.start(busy, "sleep 600")
        self.assertTrue(wait_until(lambda: v1.expect(200, "GET", idle)["state"] == "ended"))
        self.assertEqual(v1.expect(200, "GET", idle)["record"]["cause"], "idle")
        time.sleep(1.5)
        self.assertEqual(v1.expect(200, "GET", busy)["state"], "running")
        v1.call("DELETE", process)
        self.assertTrue(wait_until(lambda: v1.expect(200, "GET", busy)["state"] == "ended"))
        own = v1.session(idle="1s", command={"shell": "sleep 600"})
        time.sleep(2.5)
        self.assertEqual(v1.expect(200, "GET", own)["state"], "running", "its own command is one too")

    @as_shipped
    def test_OpenSandbox_1200_a_session_expires_at_its_time(self):
        v1 = self.v1()
        session = v1.session(ttl="1s")
        self.assertTrue(wait_until(lambda: v1.expect(200, "GET", session)["state"] == "ended"))
        self.assertEqual(v1.expect(200, "GET", session)["record"]["cause"], "expired")
        v1.problem(409, "ended", "POST", session + "/keepalive", {"for": "1m"})


class HandedOn(V1Test):
    """C08: a uid that one session has had and the next one gets."""

    # Names and numbers of the kernel's that outlive whoever has made them; what is there is said as JSON.
    LEAVE = """
        import ctypes, json, os, fcntl, sys
        libc = ctypes.CDLL(None, use_errno=True)
        key, make = int(sys.argv[1]), sys.argv[2] == "make"
        flags = 0o1600 if make else 0
        def made(number): return number >= 0
        there = {"segment": made(libc.shmget(key, 4096, flags)), "semaphore": made(libc.semget(key, 1, flags)),
                 "message queue": made(libc.msgget(key, flags)),
                 "POSIX queue": made(libc.mq_open(b"/left-behind", os.O_RDWR | (os.O_CREAT if make else 0), 0o600, None))}
        for path in ("/tmp/left-behind", "/dev/shm/left-behind", "/var/tmp/left-behind", os.environ["HOME"] + "/left-behind"):
            try: os.close(os.open(path, os.O_RDWR | (os.O_CREAT if make else 0), 0o600)); there[path] = True
            except OSError: there[path] = False
        there["processes"] = sum(name.isdigit() for name in os.listdir("/proc"))
        lock = os.open("/usr/bin/cksum", os.O_RDONLY)
        try: fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB); there["lock"] = False
        except OSError as error: there["lock"] = isinstance(error, BlockingIOError)
        print(json.dumps(there), flush=True)
        if make:
            if os.fork() == 0:
                os.setsid()
                os.close(1); os.close(2)
                import time
                time.sleep(600)
    """

    def left(self, v1, session, how):
        key = str(0x0BE17B00 + POOL_SIZE)
        return json.loads(v1.exec(session, argv=["python3", "-c", textwrap.dedent(self.LEAVE), key, how])["stdout"])

    def on_host(self):
        """What the host's own namespace of System V objects, and keys, know of the uid."""
        found = [pathlib.Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:] for kind in ("shm", "sem", "msg")]
        return [line for lines in found for line in lines if str(UID_BASE) in line.split()] + processes_of(UID_BASE)

    @as_shipped
    def test_who_gets_a_uid_finds_nothing_of_whom_it_was(self):
        v1 = self.v1()
        first = v1.create()
        path = "/v1/sessions/" + first["id"]
        self.left(v1, path, "make")
        again = self.left(v1, path, "look")
        for name in ("segment", "semaphore", "message queue", "/tmp/left-behind", "/dev/shm/left-behind", "lock"):
            self.assertTrue(again[name], f"control: the session itself finds it: {again}")
        self.assertEqual(v1.call("DELETE", path).status, 204)
        self.assertEqual(self.on_host(), [])
        second = v1.create()
        mine = "/v1/sessions/" + second["id"]
        self.assertEqual(v1.exec(mine, "id -u")["stdout"], f"{UID_BASE}\n", "it has the same uid")
        found = self.left(v1, mine, "look")
        self.assertEqual([name for name, there in found.items() if there is True], [], found)
        self.assertLessEqual(found["processes"], again["processes"] - 1, "no process of the other's")


class Starting(V1Test):

    @as_shipped
    def test_E2B_1658_a_retry_with_the_same_key_makes_no_second_session(self):
        v1 = self.v1()
        key = {"Idempotency-Key": "order-1"}
        first = v1.call("POST", "/v1/sessions", {"labels": {"a": "1"}}, key)
        again = v1.call("POST", "/v1/sessions", {"labels": {"a": "1"}}, key)
        self.assertEqual((first.status, again.status), (201, 201))
        self.assertEqual(first.json(), again.json())
        self.assertEqual(again.headers["location"], first.headers["location"])
        self.assertEqual((first.headers["idempotency-replayed"], again.headers["idempotency-replayed"]), (None, "true"))
        self.assertEqual(len(v1.expect(200, "GET", "/v1/sessions")["sessions"]), 1)
        v1.problem(409, "conflict", "POST", "/v1/sessions", {"labels": {"a": "2"}}, headers=key)
        other = v1.call("POST", "/v1/sessions", {"labels": {"a": "1"}})
        self.assertNotEqual(other.json()["id"], first.json()["id"], "without the key it is another")
        v1.problem(400, "malformed", "POST", "/v1/sessions", {}, headers={"Idempotency-Key": "a" * 256})

    @as_shipped
    def test_retries_at_the_same_time_with_one_key_start_one_process(self):
        v1 = self.v1()
        session = v1.session()
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(v1.call(
            "POST", session + "/exec", {"shell": "sleep 0.3; echo once >> log; wc -l < log"},
            {"Idempotency-Key": "k"}))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual({(a.status, a.json()["stdout"]) for a in answers}, {(200, "1\n")})

    @as_shipped
    def test_what_failed_may_be_tried_again_with_its_key(self):
        v1 = self.v1()
        key = {"Idempotency-Key": "k"}
        full = [v1.session() for _ in range(POOL_SIZE)]
        v1.problem(503, "capacity", "POST", "/v1/sessions", {}, headers=key)
        v1.call("DELETE", full[0])
        self.assertEqual(v1.call("POST", "/v1/sessions", {}, key).status, 201)

    @as_shipped
    def test_a_full_host_says_when_to_come_back(self):
        v1 = self.v1()
        for _ in range(POOL_SIZE):
            v1.session()
        answer = v1.call("POST", "/v1/sessions", {})
        self.assertEqual((answer.status, answer.json()["code"]), (503, "capacity"))
        self.assertEqual(int(answer.headers["retry-after"]), answer.json()["retry_after_s"])
        self.assertEqual(answer.json()["limit"], POOL_SIZE)

    @as_shipped
    def test_of_a_thousand_starts_at_once_as_many_run_as_there_is_room_for_and_each_has_an_answer(self):
        v1 = self.over_tcp(self.v1())
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        waiting = []
        for _ in range(1000):
            connection = v1.connection()
            self.addCleanup(connection.close)
            connection.request("POST", "/v1/sessions", "{}", v1.headers(JSON))
            waiting.append(connection)
        answers = [Answer(connection.getresponse()) for connection in waiting]
        made = [answer.json()["id"] for answer in answers if answer.status == 201]
        self.assertEqual(len(made), POOL_SIZE)
        refused = {(answer.status, answer.json()["code"]) for answer in answers if answer.status != 201}
        self.assertLessEqual(refused, {(503, "capacity"), (503, "busy")})
        self.assertEqual(sorted(session["id"] for session in v1.expect(200, "GET", "/v1/sessions")["sessions"]), sorted(made))
        self.assertEqual(v1.daemon.workspaces(), sorted(made))
        for name in made:
            v1.expect(204, "DELETE", "/v1/sessions/" + name)
        self.assertEqual(v1.expect(200, "GET", "/v1/limits")["sessions"]["live"], 0)
        v1.session()

    @as_shipped
    def test_the_quota_of_a_client_is_429_and_leaves_room_for_others(self):
        v1 = self.v1("--sessions-of-a-client=1")
        session = v1.session()
        problem = v1.problem(429, "quota", "POST", "/v1/sessions", {})
        self.assertEqual(problem["limit"], 1)
        other = V1(self, v1.daemon)
        other.session()
        v1.call("DELETE", session)
        v1.session()

    @as_shipped
    def test_the_rate_of_a_client_is_429_with_its_time(self):
        v1 = self.v1("--starts-a-minute=3")
        session = v1.session()
        for _ in range(2):
            v1.exec(session, "true")
        answer = v1.call("POST", session + "/exec", {"shell": "true"})
        self.assertEqual((answer.status, answer.json()["code"], answer.json()["limit"]), (429, "rate", 3))
        self.assertLessEqual(int(answer.headers["retry-after"]), 20)
        self.assertEqual(v1.call("GET", session).status, 200, "looking is free")
        V1(self, v1.daemon).session()

    @as_shipped
    def test_vercel_1134_a_session_that_nobody_was_told_of_is_ended(self):
        v1 = self.v1()
        body = json.dumps({"command": {"shell": "sleep 600"}, "ready": {"timeout": "60s"}})

        def give_up(headers=""):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(str(v1.socket_path))
            connection.sendall((f"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                                f"{headers}Content-Length: {len(body)}\r\n\r\n{body}").encode())
            before = {s["id"] for s in v1.expect(200, "GET", "/v1/sessions")["sessions"]}
            self.assertTrue(wait_until(lambda: {s["id"] for s in v1.expect(200, "GET", "/v1/sessions?state=running")
                                                ["sessions"]} - before or before))
            connection.close()

        give_up()
        self.assertTrue(wait_until(lambda: [s["state"] for s in v1.expect(200, "GET", "/v1/sessions")["sessions"]]
                                   == ["ended"]))
        # Who has a key can ask again, and then it has to be there.
        give_up("Idempotency-Key: k\r\n")
        time.sleep(1.5)
        self.assertEqual([s["state"] for s in v1.expect(200, "GET", "/v1/sessions")["sessions"]], ["ended", "running"])


class Hosts(V1Test):

    @as_shipped
    def test_over_tcp_nobody_is_told_what_the_host_lacks(self):
        v1 = self.v1()
        local = v1.problem(422, "not_executable", "POST", "/v1/sessions", {"command": {"argv": ["/no/such"]}})
        self.assertIn("setup", local)
        remote = self.over_tcp(v1).problem(422, "not_executable", "POST", "/v1/sessions", {"command": {"argv": ["/no/such"]}})
        self.assertNotIn("setup", remote)
        self.assertNotIn("remedy", remote)
        self.assertIn("degraded", v1.create())
        self.assertNotIn("degraded", self.over_tcp(v1).create())

    @as_shipped
    def test_a_name_that_is_not_the_hosts_is_refused_over_tcp(self):
        v1 = self.v1("--host=sandbox.example")
        tcp = self.over_tcp(v1)
        for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "", "[::1", "localhost:x"):
            tcp.problem(421, "misdirected", "GET", "/v1/sessions", headers={"Host": host})
        for host in ("127.0.0.1:80", "[::1]:80", "LOCALHOST", "a.localhost", "sandbox.example:8000"):
            self.assertEqual(tcp.call("GET", "/v1/sessions", headers={"Host": host}).status, 200, host)
        self.assertEqual(v1.call("GET", "/v1/sessions", headers={"Host": "anything"}).status, 200, "a socket has no name")

    @as_shipped
    def test_without_a_token_tcp_gets_nothing_and_the_socket_needs_none(self):
        v1 = self.v1()
        tcp = self.over_tcp(v1)
        for headers in ({"Authorization": ""}, {"Authorization": "Bearer wrong"}, {"Authorization": "", "X-Agent-Simulator-Token": TOKEN}):
            answer = tcp.call("GET", "/v1/sessions", headers=headers)
            self.assertEqual((answer.status, answer.json()["code"], answer.headers["www-authenticate"]),
                             (401, "unauthorized", "Bearer"))
        self.assertEqual(tcp.call("GET", "/v1/sessions").status, 200)
        self.assertEqual(v1.call("GET", "/v1/sessions").status, 200)
        self.assertEqual(v1.create()["client"], "uid 0")


if __name__ == "__main__":
    main()
