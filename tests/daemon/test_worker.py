"""What a worker that runs other people's commands counts on, by its own words: isolation, what works inside, failing
closed, the life of its shell. Each has a control that shows the same look or reach succeed without the sandbox."""

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs/clients/python"))
import belljar_client
from belljar_client import Belljar, BelljarError, SandboxUnavailable, Shell
from adversarial.case import rounds
from daemon import POOL_SIZE, TOKEN, UID_BASE, processes_of
from harness import callers, back_ends, main
from v1 import V1Test, as_shipped, wait_until

SECRET = "worker-secret-4711"
PR_SET_PDEATHSIG = 1

CHASER = """import os, signal
if os.fork():
    os.wait()
    os._exit(0)
os.setsid()
print("chasing", flush=True)
for _ in range(3):
    if os.fork() == 0:
        while True:
            if os.fork():
                os._exit(0)
            os.setsid()
signal.pause()
"""
# The numbers of processes are handed out in order, and begin again when they are used up.
ALONE = """import os
def newest():
    child = os.fork() or os._exit(0)
    os.waitpid(child, 0)
    return child
numbers = [newest() for _ in range(200)]
print("alone" if all(after == before + 1 or after < before for before, after in zip(numbers, numbers[1:])) else "not alone")
"""


def as_any_worker(function):
    """Root with all its capabilities, and with the five of a container."""
    return callers("root", "five")(back_ends("legacy")(function))


class WorkerTest(V1Test):
    def worker(self, *arguments, policies=None, **options):
        """A daemon with a root for runs that hides nothing by its modes, and a client."""
        self.roots = self.make_directory("runs")
        (self.roots / "store.sqlite3").write_text("all runs")
        (self.roots / "store.sqlite3").chmod(0o666)
        directory = self.make_directory("policies")
        for name, policy in (policies or {}).items():
            self.make_file(f"policies/{name}.json", json.dumps({"version": 1, "extends": ["builtin:shell@1"], **policy}))
        variables = {"WORKER_API_KEY": SECRET, **options.pop("variables", {})}
        self.face = self.v1(f"--workspace-root={self.roots}", f"--policy-dir={directory}", *arguments,
                            variables=variables, **options)
        return Belljar(f"unix:{self.face.socket_path}")

    def run_folder(self, name):
        folder = self.roots / name
        folder.mkdir()
        folder.chmod(0o777)
        (folder / "own.txt").write_text(f"of {name}")
        (folder / "own.txt").chmod(0o666)
        return folder

    def workspace(self, folder):
        return {"path": str(folder), "owner": "chown"}

    def shell(self, client, folder=None, **members):
        if folder is not None:
            members["workspace"] = self.workspace(folder)
        shell = Shell(client, network="none", **members)
        self.addCleanup(shell.close)
        return shell

    def outside(self, *command):
        """The same as the first session's uid, without a sandbox."""
        return subprocess.run(["setpriv", f"--reuid={UID_BASE}", f"--regid={UID_BASE}", "--clear-groups", *command],
                              capture_output=True, text=True)

    def of_pool(self):
        return [found for uid in range(UID_BASE, UID_BASE + POOL_SIZE) for found in processes_of(uid)]


class Isolation(WorkerTest):

    @as_any_worker
    def test_a_sibling_runs_file_is_neither_read_nor_written_and_neither_root_nor_store_are_listed(self):
        client = self.worker()
        mine, sibling = self.run_folder("run-1"), self.run_folder("run-2")
        store = self.roots / "store.sqlite3"
        for look in (["cat", sibling / "own.txt"], ["ls", self.roots], ["cat", store], ["sh", "-c", f"echo x >> {store}"]):
            self.assertEqual(self.outside(*map(str, look)).returncode, 0, f"{look} works without a sandbox")
        before = store.read_text()
        shell = self.shell(client, mine)
        self.assertEqual(shell.run_command(f"ls {self.roots}").stdout, "run-1\n", "of the root there is this run alone")
        for look in (f"cat {sibling}/own.txt", f"echo x > {sibling}/own.txt", f"cat {store}", f"ls {sibling}"):
            self.assertFalse(shell.run_command(look).success, look)
        shell.run_command(f"mkdir {sibling}; echo x > {sibling}/own.txt; echo x > {store}")
        self.assertEqual(((sibling / "own.txt").read_text(), store.read_text()), ("of run-2", before))
        self.assertTrue(shell.run_command("echo mine > made.txt && cat own.txt").success)
        self.assertEqual((mine / "made.txt").read_text(), "mine\n")

    @as_any_worker
    def test_no_environ_in_proc_and_no_variable_of_the_session_holds_a_secret_of_the_workers(self):
        client = self.worker(variables={"RUSTUP_HOME": "/usr/lib/belljar-rustup", "VIRTUAL_ENV": "/opt/env"})
        daemon = pathlib.Path(f"/proc/{self.face.daemon.process.pid}/environ").read_bytes()
        self.assertIn(SECRET.encode(), daemon, "the daemon has it")
        self.assertIn(TOKEN.encode(), daemon)
        shell = self.shell(client, self.run_folder("run-1"))
        seen = shell.run_command("cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; export -p")
        for secret in (SECRET, TOKEN, "API_KEY", "BELLJAR_TOKEN"):
            self.assertNotIn(secret, seen.stdout)
        for passed in ("PATH=", 'RUSTUP_HOME="/usr/lib/belljar-rustup"', 'VIRTUAL_ENV="/opt/env"'):
            self.assertIn(passed, seen.stdout, "what is no secret comes through, and is seen")

    @as_any_worker
    def test_pid_1_is_an_init_without_an_environment_and_few_processes_are_seen(self):
        client = self.worker()
        shell = self.shell(client)
        seen = shell.run_command("set -- /proc/[0-9]*; echo $#; wc -c < /proc/1/environ 2>/dev/null || echo closed; "
                                 "wc -c < /proc/1/cmdline")
        count, environ, cmdline = seen.stdout.split()
        self.assertLessEqual(int(count), 5)
        self.assertIn(environ, ("0", "closed"))
        self.assertEqual(cmdline, "0")

    @as_any_worker
    def test_two_sessions_see_neither_each_others_processes_nor_files(self):
        client = self.worker()
        one, other = (self.shell(client, self.run_folder(name)) for name in ("run-1", "run-2"))
        one.run_command("echo here > /tmp/mine; sleep 4711 & ")
        look = "pgrep -c -f 'sleep 471[1]'; cat /tmp/mine"
        self.assertTrue(wait_until(lambda: one.run_command(look).stdout == "1\nhere\n"), "who started it sees it")
        self.assertEqual(other.run_command(look).stdout, "0\n")

    @as_any_worker
    def test_masked_folders_hold_against_a_root_worker_while_a_sibling_folder_is_readable(self):
        data = self.make_directory("/opt/belljar-worker-test")
        self.addCleanup(subprocess.run, ["rm", "-rf", str(data)], check=True)
        for name in ("telemetry", "incidents", "open"):
            (data / name).mkdir()
            (data / name / "file").write_text(f"of {name}")
        masks = {str(data / name): "the operator's" for name in ("telemetry", "incidents")}
        client = self.worker(policies={"masked": {"filesystem": {"mask": masks}}})
        undo = (f"umount {data}/telemetry; umount -l {data}/telemetry; mount -o remount,rw /usr; mount -o remount,bind,rw {data}; "
                f"unshare -Urm sh -c 'umount {data}/telemetry; mount -o remount,rw,bind /usr'; touch /usr/belljar-probe {data}/open/x; "
                f"cat {data}/telemetry/file {data}/incidents/file")
        unmasked = self.shell(client, policy="builtin:shell@1").run_command(f"cat {data}/telemetry/file")
        self.assertEqual(unmasked.stdout, "of telemetry", "without the mask it is read")
        shell = self.shell(client, policy="masked")
        self.assertEqual(shell.run_command(undo).stdout, "")
        self.assertEqual(shell.run_command(f"cat {data}/open/file").stdout, "of open")
        self.assertFalse((data / "open/x").exists() or pathlib.Path("/usr/belljar-probe").exists())

    @as_any_worker
    def test_a_root_worker_gives_its_commands_no_capability_and_no_way_to_kernel_settings(self):
        shell = self.shell(self.worker())
        seen = shell.run_command("grep -E '^(CapEff|CapPrm|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; "
                                 "test -w /proc/sys/kernel/core_pattern && echo writable; echo x > /proc/sys/kernel/core_pattern; "
                                 "for d in /usr/local /root /usr /etc /; do touch $d/belljar-probe 2>/dev/null && echo wrote $d; done")
        values = dict(line.split(":\t") for line in seen.stdout.splitlines())
        self.assertEqual(values, {**dict.fromkeys(("CapEff", "CapPrm", "CapBnd"), "0" * 16), "NoNewPrivs": "1", "Seccomp": "2"})
        self.assertEqual(os.access("/proc/sys/kernel/core_pattern", os.W_OK), True, "root outside may")

    @as_shipped
    def test_a_validator_sees_no_process_of_a_session_and_does_not_reach_its_server(self):
        client = self.worker()
        shell = self.shell(client)
        shell.run_command("python3 -m http.server 8000 --bind 127.0.0.1 > log 2>&1 &")
        reach = ("import socket, subprocess\n"
                 "print(subprocess.run(['pgrep', '-c', '-f', 'http[.]server'], capture_output=True, text=True).stdout.strip())\n"
                 "print(socket.socket().connect_ex(('127.0.0.1', 8000)))\n")
        def within():
            return client.attach(shell.session.id).execute(["python3", "-c", reach]).stdout
        self.assertTrue(wait_until(lambda: within() == "1\n0\n"), "its own session sees and reaches it")
        confined = client.run_confined(["python3", "-c", reach], files={"scratch.py": ""})
        self.assertEqual(confined.result.stdout.split()[0], "0")
        self.assertNotEqual(confined.result.stdout.split()[1], "0")

    @as_shipped
    def test_a_validator_has_its_scratch_copy_its_home_and_its_words_as_they_are_and_no_run_of_the_workers(self):
        client = self.worker()
        folder = self.run_folder("run-1")
        self.assertEqual(client.run_confined(["printf", "%s", "$HOME; echo `id` > x"]).result.stdout, "$HOME; echo `id` > x")
        checked = client.run_confined(["sh", "-c", "cat a.py; touch $HOME/made && ls"], files={"a.py": "x = 1\n"})
        self.assertEqual((checked.status, checked.result.stdout), ("verified", "x = 1\na.py\nmade\n"))
        self.assertEqual(client.run_confined(["ls", str(folder)]).status, "failed")
        own = client.run_confined(["ls", str(folder)], workspace=self.workspace(folder))
        self.assertEqual(own.result.stdout, "own.txt\n", "where it is given the run's directory it has that")

    @as_shipped
    def test_term_int_and_hup_to_what_holds_a_command_do_not_end_the_session_and_kill_ends_that_command_alone(self):
        shell = self.shell(self.worker())
        shell.run_command("export X=kept; sleep 600 &")
        self.assertTrue(wait_until(lambda: shell.run_command("pgrep -c sleep").stdout == "1\n"))
        first = shell.session.id
        for name in ("TERM", "INT", "HUP"):
            shell.run_command(f"kill -{name} 1; kill -{name} $PPID")
        job = shell.session.start("echo $PPID; sleep 600")
        keeper = next(job.output()).text.strip()
        shell.run_command(f"kill -9 {keeper}")
        self.assertEqual(job.wait()["cause"], "lost")
        # What the command has left is ended behind its end.
        self.assertTrue(wait_until(lambda: shell.run_command("echo $X; pgrep -c sleep").stdout == "kept\n1\n"))
        self.assertEqual(shell.session.id, first)


class Inside(WorkerTest):

    @as_shipped
    def test_compilers_pip_listings_and_tests_work_and_fail_as_they_should(self):
        shell = self.shell(self.worker(), self.run_folder("run-1"))
        shell.run_command("printf 'x = 1\\n' > good.py; printf 'x = = 1\\n' > bad.py; "
                          "printf 'import unittest\\nclass T(unittest.TestCase):\\n    def test_it(self): self.assertEqual(1, %s)\\n' 1 > test_good.py; "
                          "sed 's/(1, 1)/(1, 2)/' test_good.py > test_bad.py")
        for command, good in (("python3 -m py_compile good.py", True), ("python3 -m py_compile bad.py", False),
                              ("ls -R . | grep -q good.py", True), ("ls -R absent", False),
                              ("python3 -m unittest test_good", True), ("python3 -m unittest test_bad", False),
                              ("python3 -m venv v && v/bin/pip show pip", True), ("v/bin/pip show absent", False)):
            self.assertEqual(shell.run_command(command).success, good, command)

    @as_shipped
    def test_proc_dev_and_tmp_are_fresh_and_home_is_the_runs_own(self):
        mark = pathlib.Path("/tmp/belljar-worker-mark")
        mark.write_text("")
        self.addCleanup(mark.unlink)
        client = self.worker()
        one, other = self.shell(client, self.run_folder("run-1")), self.shell(client, self.run_folder("run-2"))
        seen = one.run_command("ls -A /tmp /var/tmp /run /dev/shm; ls /dev | grep -E '^(sd|vd|mem|kmsg)'; cat /proc/1/comm").stdout
        self.assertNotIn(mark.name, seen)
        self.assertNotRegex(seen, r"(?m)^(sd|vd|mem|kmsg)")
        homes = [shell.run_command("touch $HOME/.mine && echo $HOME").stdout.strip() for shell in (one, other)]
        self.assertEqual(len({*homes, str(self.roots / "run-1"), str(self.roots / "run-2")}), 4)
        self.assertFalse((self.roots / "run-1/.mine").exists())

    @as_shipped
    def test_what_holds_in_a_session_holds_in_a_run_that_stands_in_for_it(self):
        client = self.worker()
        look = ("grep -E '^(Cap|NoNewPrivs|Seccomp:|Uid|Gid|Groups)' /proc/self/status | sed '/^[UG]id/s/[0-9][0-9]*/N/g'; umask; ulimit -a; "
                "cut -d' ' -f5-6 /proc/self/mountinfo | grep -v belljar | sort")
        inside, alone = self.shell(client), self.shell(client, sessions=False)
        texts = []
        for shell in (inside, alone):
            result = shell.run_command(look + "; pwd")
            self.assertTrue(result.success, result)
            texts.append(result.stdout.replace(result.stdout.splitlines()[-1], "WORKSPACE"))
        self.assertEqual(texts[0], texts[1])

    @as_shipped
    def test_a_program_beside_the_shell_leaves_its_directory_and_variables_alone(self):
        shell = self.shell(self.worker())
        shell.run_command("mkdir d; cd d; export A=1")
        installed = shell.session.execute(["sh", "-c", "cd /; export A=2; echo installed"])
        self.assertEqual(installed.stdout, "installed\n")
        self.assertEqual(shell.run_command("basename $PWD; echo $A").stdout, "d\n1\n")

    @as_shipped
    def test_a_script_that_starts_asks_and_stops_acts_on_one_same_server(self):
        shell = self.shell(self.worker())
        shell.run_command("cat > probe.sh <<'EOF'\n"
                          "case $1 in\n"
                          "up) python3 -u -m http.server 8000 --bind 127.0.0.1 > log 2>&1 & echo $! > pid ;;\n"
                          "req) python3 -c 'import urllib.request as r; print(r.urlopen(\"http://127.0.0.1:8000/probe.sh\").status)' ;;\n"
                          "down) kill $(cat pid) ;;\nesac\nEOF")
        shell.run_command("sh probe.sh up")
        self.assertTrue(wait_until(lambda: shell.run_command("sh probe.sh req").stdout == "200\n"))
        self.assertTrue(shell.run_command("sh probe.sh down").success)
        self.assertTrue(wait_until(lambda: not shell.run_command("kill -0 $(cat pid)").success))
        self.assertFalse(shell.run_command("sh probe.sh req").success)


class Closed(WorkerTest):
    """No sandbox, no command."""

    @as_shipped
    def test_a_sandbox_that_cannot_be_built_refuses_runs_nothing_and_leaves_no_session(self):
        broken = {"filesystem": {"mounts": {"/nowhere": {"type": "bind", "source": "/belljar/is/not/there"}}}}
        client = self.worker(policies={"broken": broken, "sound": {}})
        folder = self.run_folder("run-1")
        command = f"touch {folder}/marker"
        shell = self.shell(client, folder, policy="broken")
        with self.assertRaises(SandboxUnavailable) as refused:
            shell.run_command(command)
        self.assertNotIn("/belljar/is/not/there", str(refused.exception), "what a model may read says nothing of the host")
        self.assertIn("/belljar/is/not/there", str(refused.exception.problem))
        self.assertFalse((folder / "marker").exists())
        self.assertEqual([one["state"] for one in client.call("GET", "/v1/sessions")["sessions"] if one["state"] != "ended"], [])
        self.assertTrue(self.shell(client, folder, policy="sound").run_command(command).success)
        self.assertTrue((folder / "marker").exists(), "where there is a sandbox the same command runs")

    @as_shipped
    def test_what_a_command_writes_is_never_taken_for_a_failure_of_the_sandbox(self):
        shell = self.shell(self.worker())
        for text in ("belljar: refused", "bwrap: setting up uid map: Permission denied"):
            done = shell.run_command(f"echo '{text}' >&2; exit 125")
            self.assertEqual((done.cause, done.exit_code, done.stderr), ("exited", 125, text + "\n"))
        missing = shell.run_command("no-such-command-at-all")
        self.assertEqual((missing.success, missing.exit_code), (False, 127), "nor for a success")

    @as_shipped
    def test_a_launcher_that_cannot_be_executed_starts_no_daemon_and_no_command(self):
        directory = self.make_directory("other")
        broken = self.make_file("no-launcher", "", mode=0o644)
        daemon = self.daemon(f"--listen=unix:{directory}/socket", simulator=False, ready=False,
                             variables={"BELLJAR_LAUNCHER": str(broken), "BELLJAR_TOKEN": TOKEN})
        self.assertNotEqual(daemon.process.wait(30), 0)
        with self.assertRaises(SandboxUnavailable) as gone:
            Shell(Belljar(f"unix:{directory}/socket")).run_command("true")
        self.assertNotIn(str(broken), str(gone.exception))

    @as_shipped
    def test_an_unknown_word_for_the_sandbox_is_not_off(self):
        self.make_directory("runs")
        daemon = self.daemon("--sandbox=maybe", simulator=False, ready=False)
        self.assertNotEqual(daemon.process.wait(30), 0)
        self.assertIn("sandbox", daemon.log)


class Settings(WorkerTest):

    @as_shipped
    def test_the_workers_variables_are_honoured_where_they_have_a_meaning(self):
        client = self.worker(policies={"open": {"network": {"mode": "shared"}}})
        def shell(**variables):
            given = {f"BESSER_LLM_SHELL_{name}": value for name, value in variables.items()}
            made = Shell.from_environment(client, given, policy="open")
            self.addCleanup(made.close)
            return made
        idle = shell(NETWORK="shared", SESSION_IDLE_SECONDS="7")
        self.assertTrue(idle.run_command("true").success)
        self.assertEqual((idle.session.info()["network"], idle.session.info()["idle_after"]), ("shared", "7s"))
        never = shell(NETWORK="shared", SESSION_IDLE_SECONDS="-3")
        never.run_command("true")
        self.assertIsNone(never.session.info()["idle_after"])
        with self.assertLogs("belljar", "WARNING") as said:
            self.assertEqual(shell(SESSION_IDLE_SECONDS="soon", NETWORK="fast", SANDBOX="off")._members,
                             {"idle": "900s", "network": "auto", "policy": "open"})
        self.assertEqual(len(said.output), 3)
        each = shell(NETWORK="shared", SESSION_MAX="0")
        self.assertIn("sandbox of its own", each.run_command("true").notes[0])

    @as_shipped
    def test_the_check_commands_say_what_is_so_and_never_raise(self):
        self.worker()
        self.assertIsNone(belljar_client.sandbox_selftest_error(f"unix:{self.face.socket_path}"))
        self.assertIn("nobody", belljar_client.sandbox_selftest_error(f"unix:{self.dir}/nobody"))
        self.assertFalse(belljar_client.shell_network_is_private(f"unix:{self.dir}/nobody", {}))
        shared = {"BESSER_LLM_SHELL_NETWORK": "shared"}
        self.assertFalse(belljar_client.shell_network_is_private(f"unix:{self.face.socket_path}", shared))


class Life(WorkerTest):

    @as_shipped
    def test_an_idle_session_closes_and_the_next_command_finds_its_state_and_says_so_once(self):
        client = self.worker()
        folder = self.run_folder("run-1")
        shell = self.shell(client, folder, idle="1s")
        shell.run_command("mkdir src; cd src; export GREETING=$'hi\\n\\xff there'; sleep 600 &")
        first = shell.session
        self.assertTrue(wait_until(lambda: first.info()["state"] == "ended", 30))
        self.assertEqual(first.info()["record"]["cause"], "idle")
        again = shell.run_command("basename $PWD; printf %s \"$GREETING\" | od -An -tx1; pgrep -c sleep; "
                                  "touch $HOME/x && echo $HOME; echo $BELLJAR_PORT")
        now = shell.session.info()
        self.assertEqual(again.stdout.splitlines()[:3], ["src", " 68 69 0a ff 20 74 68 65 72 65", "0"])
        self.assertIn(shell.session.id, again.stdout.splitlines()[3], "HOME is that of the session that there is now")
        self.assertEqual(again.stdout.splitlines()[4], str(now["port"]))
        self.assertEqual(len(again.notes), 1)
        self.assertIn("started again", again.notes[0])
        self.assertNotEqual(shell.session.id, first.id)
        self.assertEqual(shell.run_command("true").notes, [])

    @as_shipped
    def test_a_busy_session_is_not_idle(self):
        shell = self.shell(self.worker(), idle="1s")
        shell.run_command("true")
        first = shell.session.id
        self.assertEqual(shell.run_command("sleep 4; echo done").stdout, "done\n")
        self.assertEqual(shell.session.id, first)

    @as_shipped
    def test_past_the_cap_a_command_has_a_sandbox_of_its_own_and_a_freed_place_is_used(self):
        client = self.worker("--sessions-of-a-client=1")
        holder = self.shell(client)
        holder.run_command("true")
        shell = self.shell(client, self.run_folder("run-1"))
        alone = shell.run_command("mkdir d; cd d; export A=1; sleep 600 & echo $A")
        self.assertEqual(alone.stdout, "1\n")
        self.assertIn("sandbox of its own", alone.notes[0])
        self.assertIsNone(shell.session)
        self.assertEqual(shell.run_command("basename $PWD; echo $A; pgrep -c sleep").stdout, "d\n1\n0\n")
        holder.close()
        placed = shell.run_command("basename $PWD; echo $A")
        self.assertEqual((placed.stdout, placed.notes), ("d\n1\n", []))
        self.assertIsNotNone(shell.session)

    @as_shipped
    def test_stand_ins_are_counted_and_bounded(self):
        client = self.worker("--sessions-of-a-client=1", "--max-runs=1")
        holder = self.shell(client)
        holder.run_command("true")
        slow, second = self.shell(client), self.shell(client)
        def wait():
            with contextlib.suppress(BelljarError):
                slow.run_command("sleep 600", timeout=None)
        waiting = threading.Thread(target=wait)
        waiting.start()
        self.assertTrue(wait_until(lambda: client.call("GET", "/v1/limits")["runs"]["live"] == 1))
        with self.assertRaises(SandboxUnavailable):
            second.run_command("true")
        run, = [one for one in client.call("GET", "/v1/sessions")["sessions"]
                if one["state"] != "ended" and one["id"] != holder.session.id]
        client.call("DELETE", f"/v1/sessions/{run['id']}")
        waiting.join()
        self.assertTrue(second.run_command("true").success)

    @as_shipped
    def test_without_sessions_each_command_has_a_sandbox_and_the_state_carries_over(self):
        shell = self.shell(self.worker(), self.run_folder("run-1"), sessions=False)
        shell.run_command("mkdir d; cd d; export A=1; unset HOME")
        self.assertEqual(shell.run_command("basename $PWD; echo $A ${HOME-none}").stdout, "d\n1 none\n")
        self.assertIsNone(shell.session)

    @as_shipped
    def test_no_process_and_no_zombie_is_left_by_close_and_a_later_command_has_its_own_sandbox(self):
        shell = self.shell(self.worker(), self.run_folder("run-1"))
        shell.run_command("export A=1; setsid sleep 600 & (setsid sh -c 'sleep 600 & exit' &); sleep 600 &")
        self.assertGreaterEqual(len(self.of_pool()), 3)
        shell.close()
        self.assertEqual(self.of_pool(), [])
        later = shell.run_command("echo $A; setsid sleep 600 &")
        self.assertEqual(later.stdout, "1\n")
        self.assertEqual(len(later.notes), 1)
        self.assertEqual(self.of_pool(), [], "and that leaves nothing either")

    @as_shipped
    def test_what_stops_the_processes_keeps_directory_and_variables_and_the_next_result_says_so(self):
        shell = self.shell(self.worker(), self.run_folder("run-1"))
        shell.run_command("mkdir d; cd d; export A=1; python3 -m http.server 8000 --bind 127.0.0.1 &")
        shell.stop("the workspace is checked")
        self.assertEqual(self.of_pool(), [], "the server cannot write while it is checked")
        after = shell.run_command("basename $PWD; echo $A")
        self.assertEqual((after.stdout, len(after.notes)), ("d\n1\n", 1))
        self.assertIn("the workspace is checked", after.notes[0])

    @as_shipped
    def test_removing_a_runs_folder_ends_its_session_alone_and_its_home_goes_with_it(self):
        client = self.worker()
        gone, other = self.run_folder("run-1"), self.run_folder("run-2")
        one, two = self.shell(client, gone), self.shell(client, other)
        home = pathlib.Path(one.run_command("touch $HOME/x; echo $HOME").stdout.strip())
        two.run_command("true")
        self.assertTrue(home.is_dir())
        subprocess.run(["rm", "-rf", str(gone)], check=True)
        self.assertTrue(wait_until(lambda: one.session.info()["state"] == "ended", 20))
        self.assertEqual(one.session.info()["record"]["cause"], "workspace_gone")
        self.assertFalse(home.exists())
        self.assertEqual(two.session.info()["state"], "running")

    @as_shipped
    def test_a_block_that_is_left_closes_its_session_also_by_an_exception(self):
        client = self.worker()
        with self.assertRaises(ZeroDivisionError):
            with Shell(client, network="none") as shell:
                shell.run_command("setsid sleep 600 &")
                1 / 0
        self.assertEqual(self.of_pool(), [])

    @as_shipped
    def test_a_session_survives_the_thread_that_made_it(self):
        client = self.worker()
        made, children = [], []
        def start():
            shell = self.shell(client)
            shell.run_command("sleep 600 &")
            made.append(shell)
            tie = lambda: ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            children.append(subprocess.Popen(["sleep", "600"], preexec_fn=tie))
        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
        self.addCleanup(children[0].kill)
        self.assertEqual(children[0].wait(10), -signal.SIGKILL, "what dies with the thread that forked it is gone")
        self.assertTrue(wait_until(lambda: made[0].run_command("pgrep -c sleep").stdout == "1\n"))

    @as_shipped
    def test_a_time_out_has_its_default_its_partial_output_and_its_whole_tree_also_of_surviving_grandchildren(self):
        shell = self.shell(self.worker())
        late = shell.run_command("echo partial; (setsid sh -c 'sleep 600 & sleep 600' &); sleep 600", timeout=1)
        self.assertEqual((late.success, late.exit_code, late.timed_out, late.stdout, late.notes), (False, None, True, "partial\n", []))
        self.assertEqual(shell.run_command("pgrep -c sleep").stdout, "0\n")
        self.assertEqual(Shell.run_command.__kwdefaults__["timeout"], 120.0)

    @as_shipped
    def test_a_flood_is_ended_at_its_cap_and_the_session_goes_on(self):
        shell = self.shell(self.worker())
        flood = shell.run_command("yes 0123456789", max_output=3_000_000)
        self.assertEqual((flood.success, flood.cause), (False, "output"))
        self.assertGreater(flood.truncated["stdout"], 0)
        self.assertTrue(flood.stdout.startswith("0123456789\n"))
        small = shell.run_command("yes 0123456789 | head -c 60000")
        self.assertEqual((len(small.stdout), small.truncated["stdout"]), (60000, 0))

    @as_shipped
    def test_a_command_of_megabytes_runs_and_one_that_is_too_large_is_refused_and_ends_nothing(self):
        shell = self.shell(self.worker())
        self.assertEqual(shell.run_command("x='" + "a" * 3_000_000 + "'; echo ${#x}").stdout, "3000000\n")
        first = shell.session.id
        with self.assertRaises(BelljarError):
            shell.run_command("x='" + "a" * 5_000_000 + "'")
        self.assertTrue(shell.run_command("true").success)
        self.assertEqual(shell.session.id, first)

    @as_shipped
    def test_generations_that_fork_and_exit_without_end_do_not_outlive_a_time_out(self):
        """Without a cgroup. A listing may miss each generation; the numbers that go on do not."""
        shell = self.shell(self.worker(), self.run_folder("run-1"))
        shell.run_command(f"cat > chaser.py <<'EOF'\n{CHASER}EOF\ncat > alone.py <<'EOF'\n{ALONE}EOF")
        def alone():
            return shell.run_command("python3 alone.py").stdout
        self.assertEqual(alone(), "alone\n")
        chaser = shell.session.start("exec python3 chaser.py")
        self.assertTrue(wait_until(lambda: alone() == "not alone\n"), "a chaser is seen")
        chaser.signal("KILL")
        self.assertTrue(wait_until(lambda: chaser.info()["state"] == "ended"))
        self.assertEqual(alone(), "not alone\n", "the death of its first process is not enough")
        shell.stop()
        limit, chased = 0.5, 0
        while chased < rounds(10, 200):
            late = shell.run_command("python3 chaser.py", timeout=limit)
            self.assertEqual(late.cause, "wall_time")
            if late.stdout != "chasing\n":
                limit *= 2
                continue
            chased += 1
            self.assertEqual(alone(), "alone\n", f"run {chased}")

    @as_shipped
    def test_what_the_home_takes_has_a_budget(self):
        client = self.worker()
        shell = self.shell(client, self.run_folder("run-1"), limits={"disk": "4MiB"})
        self.assertTrue(shell.run_command("head -c 1000000 /dev/zero > $HOME/cache").success)
        full = shell.run_command("for i in 1 2 3 4 5 6 7 8; do head -c 1000000 /dev/zero > $HOME/$i; done; sleep 600")
        self.assertEqual((full.success, full.cause), (False, "disk"), "and not that something has killed it")
        self.assertTrue(wait_until(lambda: shell.session.info()["state"] == "ended"))
        self.assertEqual(shell.session.info()["record"]["cause"], "disk")


if __name__ == "__main__":
    main()
