"""Sessions of the agent simulator: how they are made, what an agent is and sees, and how they end."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import (AGENT, POOL_SIZE, PORT_BASE, TOKEN, TOKEN_HEADER, UID_BASE, DaemonTest, as_shipped, new_id, processes_of,
                    wait_until)
from harness import callers, main

KEY = "sk-of-the-user"


def owner_and_mode(path):
    status = path.lstat()
    return status.st_uid, status.st_gid, status.st_mode & 0o7777


class Create(DaemonTest):

    @callers("five", "root")
    def test_user_is_group_is_the_first_uid_of_the_pool_with_extra_groups_empty_and_umask_077(self):
        daemon = self.daemon()
        relay = daemon.relay(daemon.session())
        self.assertEqual(relay.run("answer = [os.getresuid(), os.getresgid(), os.getgroups(), os.umask(0o22)]"),
                         [[UID_BASE] * 3, [UID_BASE] * 3, [], 0o77])

    @as_shipped
    def test_argv_ends_with_interpreter_and_agent_py_in_a_new_session_with_cwd_the_work_dir(self):
        daemon = self.daemon()
        session = daemon.session()
        relay = daemon.relay(session)
        argv, sid, group, cwd = relay.run(
            "answer = [open('/proc/self/cmdline').read().split('\\0')[:-1], os.getsid(0), os.getpgrp(), os.getcwd()]")
        self.assertEqual([os.path.basename(argv[0]), *argv[1:]], ["python3", "agent.py"])
        self.assertEqual(cwd, str(daemon.root / session))
        inside = relay.run("answer = [os.getpid(), open('/proc/1/cmdline').read()]")
        self.assertEqual((sid, group), (1, inside[0]), "init's session, and a process group of its own")
        self.assertEqual(inside[1], "", "init shows nothing")

    @as_shipped
    def test_limits_applied_in_the_child_are_the_operators(self):
        daemon = self.daemon(variables={
            "AGENT_SIMULATOR_RLIMIT_AS_GB": "3", "AGENT_SIMULATOR_RLIMIT_CPU_SEC": "77", "AGENT_SIMULATOR_RLIMIT_FSIZE_MB": "9",
            "AGENT_SIMULATOR_RLIMIT_NPROC": "33", "AGENT_SIMULATOR_RLIMIT_NOFILE": "222"})
        relay = daemon.relay(daemon.session())
        limits = relay.run("import resource as r\nanswer = {n: r.getrlimit(getattr(r, 'RLIMIT_' + n)) for n in "
                           "('AS', 'CPU', 'FSIZE', 'NPROC', 'NOFILE')}")
        self.assertEqual(limits, {"AS": [3 << 30] * 2, "CPU": [77, 77], "FSIZE": [9 << 20] * 2, "NPROC": [33, 33],
                                  "NOFILE": [222, 222]})

    @callers("five", "user")
    def test_env_lacks_api_token_and_unknown_env_vars_and_has_what_an_agent_needs(self):
        daemon = self.daemon(variables={"SMTP_PASSWORD": "operators", "PYTHONPATH": "/x", "OPENAI_API_KEY": "operators",
                                        "GITHUB_TOKEN": "operators", "TZ": "UTC"})
        session = daemon.session(env_vars={"OPENAI_API_KEY": KEY, "SMTP_PASSWORD": "no", "REPLICATE_API_TOKEN": ""})
        work = str(daemon.root / session)
        seen = daemon.relay(session).run("answer = dict(os.environ)")
        seen.pop("LC_CTYPE", None)  # Python's own.
        self.assertEqual(seen, {
            "PATH": daemon.environment["PATH"], "LANG": "C.UTF-8", "TZ": "UTC", "OPENAI_API_KEY": KEY, "HOME": work,
            "TMPDIR": work + "/tmp", "NLTK_DATA": "/opt/nltk_data", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1",
            "BESSER_TEST_MODE": "1", "BESSER_WS_PORT": str(PORT_BASE)})

    @as_shipped
    def test_config_pins_host_127_0_0_1_and_port_and_holds_the_users_key(self):
        daemon = self.daemon()
        config = ("platforms: {websocket: {host: 0.0.0.0, port: 1, extra: '5'}}\nnlp: {openai: {api_key: old},"
                  " huggingface: {token: generated}}\nagent: {name: 'yes'}\n")
        session = daemon.session(config=config, env_vars={"OPENAI_API_KEY": "123"})
        seen = daemon.relay(session).run("import yaml\nanswer = yaml.safe_load(open('config.yaml'))")
        self.assertEqual(seen, {
            "platforms": {"websocket": {"host": "127.0.0.1", "port": PORT_BASE, "extra": "5"}},
            "nlp": {"openai": {"api_key": "123"}, "huggingface": {"token": "generated"}}, "agent": {"name": "yes"}})

    @as_shipped
    def test_work_dir_files_support_files_tmp_and_nested_dirs_all_belong_to_the_uid(self):
        daemon = self.daemon()
        session = daemon.session(support_files={"pkg/deep/a.py": "x = 1", "b.txt": ""}, workspace_paths=["data/in", "out"])
        work = daemon.root / session
        for name in ("", "tmp", "data", "data/in", "out", "pkg", "pkg/deep"):
            self.assertEqual(owner_and_mode(work / name), (UID_BASE, UID_BASE, 0o700), name)
        for name in ("agent.py", "config.yaml", "pkg/deep/a.py", "b.txt"):
            self.assertEqual(owner_and_mode(work / name), (UID_BASE, UID_BASE, 0o600), name)
        self.assertEqual((work / "pkg/deep/a.py").read_text(), "x = 1")
        self.assertEqual(owner_and_mode(daemon.root), (0, 0, 0o711))

    @as_shipped
    def test_windows_and_absolute_support_paths_are_normalised_and_later_files_win(self):
        daemon = self.daemon()
        session = daemon.session("raise SystemExit", support_files={"C:\\tools\\a.py": "a", "/abs/b.py": "b", "agent.py": AGENT})
        self.assertEqual(daemon.relay(session).answer_to("x"), "echo x", "the support file has replaced agent.py")
        files, directories = daemon.listed(session)
        self.assertEqual((files["tools/a.py"], files["abs/b.py"]), ("a", "b"))
        self.assertEqual(directories, ["abs", "tools"])

    @as_shipped
    def test_escape_py_is_an_error_and_dir_and_port_are_freed(self):
        daemon = self.daemon()
        self.assertEqual(daemon.create(support_files={"../escape.py": ""}).status, 400)
        self.assertEqual(daemon.workspaces(), [])
        self.assertEqual(daemon.create().json()["port"], PORT_BASE)

    @as_shipped
    def test_ports_and_uids_are_leased_lowest_first(self):
        daemon = self.daemon()
        first, second = daemon.create().json(), daemon.create().json()
        self.assertEqual((first["port"], second["port"]), (PORT_BASE, PORT_BASE + 1))
        daemon.delete(first["session_id"])
        self.assertEqual(daemon.create().json()["port"], PORT_BASE)


class Inside(DaemonTest):

    @as_shipped
    def test_api_token_is_absent_from_proc_1_environ_and_everywhere_else(self):
        daemon = self.daemon()
        relay = daemon.relay(daemon.session())
        found = relay.run("import glob\ndef text(p):\n try: return open(p, 'rb').read()\n except OSError: return b''\n"
                          f"answer = [p for p in glob.glob('/proc/*/environ') + glob.glob('/proc/*/cmdline') if b'{TOKEN}' in text(p)]")
        self.assertEqual(found, [])
        self.assertEqual(relay.run("import glob\nanswer = len(glob.glob('/proc/self/environ'))"), 1, "there are some to look at")

    @as_shipped
    def test_sibling_session_dir_is_invisible_and_the_root_lists_only_the_own_id(self):
        daemon = self.daemon()
        sibling, own = daemon.session(), daemon.session()
        relay = daemon.relay(own)
        self.assertEqual(relay.run(f"answer = os.listdir('{daemon.root}')"), [own])
        self.assertEqual(relay.run(f"answer = os.path.exists('{daemon.root / sibling}')"), False)
        self.assertEqual(relay.run(f"answer = os.path.exists('{daemon.root / own}/agent.py')"), True)

    @as_shipped
    def test_it_cannot_write_in_etc_opt_usr_local_and_runs_as_the_session_uid(self):
        daemon = self.daemon()
        relay = daemon.relay(daemon.session())
        write = "def can(p):\n try: open(p + '/x', 'w'); return True\n except OSError: return False\n"
        self.assertEqual(relay.run(write + "answer = [can(p) for p in ('/etc', '/opt', '/usr/local', '/app', '/')]"), [False] * 5)
        self.assertEqual(relay.run(write + "answer = [can('.'), can('tmp'), can('/tmp')]"), [True] * 3)
        self.assertEqual(relay.run("answer = os.getuid()"), UID_BASE)

    @as_shipped
    def test_rlimit_nofile_soft_and_hard_equal_the_configured_value(self):
        daemon = self.daemon(variables={"AGENT_SIMULATOR_RLIMIT_NOFILE": "345"})
        relay = daemon.relay(daemon.session())
        self.assertEqual(relay.run("import resource\nanswer = resource.getrlimit(resource.RLIMIT_NOFILE)"), [345, 345])


FORKS = AGENT.replace("asyncio.run(main())", """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("alive", "w").write("x")
        import time
        while True: time.sleep(1)
    os._exit(0)
asyncio.run(main())
""")


class Terminate(DaemonTest):

    def of_uid(self):
        return [pid for pid, state, _ in processes_of(UID_BASE) if state not in "ZX"]

    @as_shipped
    def test_sigterm_only_when_it_suffices_and_the_program_really_sees_it(self):
        daemon = self.daemon()
        session = daemon.session(AGENT.replace("asyncio.run(main())", """
import signal
def leave(*_):
    print("asked to end", flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, leave)
asyncio.run(main())
"""))
        relay = daemon.relay(session)
        relay.answer_to("x")
        self.assertEqual(daemon.delete(session).json(), {"ok": True})
        frames, _ = relay.rest()
        self.assertIn({"type": "stdout", "line": "asked to end"}, [json.loads(frame) for frame in frames])
        self.assertEqual(self.of_uid(), [], "the uid is swept")
        self.assertFalse((daemon.root / session).exists(), "the directory is gone")
        self.assertEqual(daemon.create().json()["port"], PORT_BASE, "port and uid are free")

    @as_shipped
    def test_sigterm_then_sigkill_after_the_grace_within_3_s_whatever_the_agent_does(self):
        for name, code in {
            "ignores TERM": "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + AGENT,
            "forks": FORKS,
            "is stopped": AGENT.replace("asyncio.run(main())", "import signal\nos.kill(os.getpid(), signal.SIGSTOP)"),
            "never ends": "while True: pass",
        }.items():
            daemon = self.daemon()
            session = daemon.session(code)
            began = time.monotonic()
            answer = daemon.delete(session, timeout=5)
            took = time.monotonic() - began
            self.assertEqual((answer.status, answer.json()), (200, {"ok": True}), name)
            self.assertLess(took, 4.5, f"{name}: a client waits 5 s")
            self.assertTrue(wait_until(lambda: self.of_uid() == []), name)
            self.assertTrue(wait_until(lambda: not (daemon.root / session).exists()), name)
            self.check_that_it_ends(daemon)

    @as_shipped
    def test_double_forked_setsid_child_dies_with_the_session_and_uid_is_reusable(self):
        daemon = self.daemon()
        session = daemon.session(FORKS)
        self.assertTrue(wait_until(lambda: (daemon.root / session / "alive").exists()))
        self.assertGreaterEqual(len(self.of_uid()), 3)
        self.assertEqual(daemon.delete(session).status, 200)
        self.assertEqual(self.of_uid(), [], "no process of the uid is left")
        self.assertFalse((daemon.root / session).exists(), "the directory is gone")
        again = daemon.session()
        self.assertEqual(daemon.relay(again).run("answer = os.getuid()"), UID_BASE)

    @as_shipped
    def test_survivors_keep_port_and_uid_reserved_until_they_are_gone(self):
        daemon = self.daemon()
        session = daemon.session()
        # Nobody's in a sandbox of ours: the sweep may not touch it, and whose it is nobody knows.
        survivor = subprocess.Popen(["setpriv", f"--reuid={UID_BASE}", f"--regid={UID_BASE}", "--clear-groups", "sleep", "300"])
        self.addCleanup(survivor.wait)
        self.addCleanup(survivor.kill)
        self.assertTrue(wait_until(lambda: processes_of(UID_BASE) != []))
        self.assertEqual(daemon.delete(session).status, 200)
        self.assertTrue(wait_until(lambda: daemon.health()["quarantined"] == 1))
        self.assertEqual(daemon.create().json()["port"], PORT_BASE + 1)
        self.assertIsNone(survivor.poll(), "it is not ours to kill")
        survivor.kill()
        survivor.wait()
        self.assertTrue(wait_until(lambda: daemon.health()["quarantined"] == 0, 30))
        self.assertEqual(daemon.create().json()["port"], PORT_BASE)

    @as_shipped
    def test_a_session_whose_client_has_given_up_before_it_was_told_is_ended(self):
        daemon = self.daemon()
        body = json.dumps({"session_id": new_id(), "agent_code": AGENT, "config_yaml": "agent: {name: a}\n"})
        with socket.create_connection(("127.0.0.1", daemon.port)) as connection:
            connection.sendall(f"POST /sessions HTTP/1.1\r\nHost: localhost\r\n{TOKEN_HEADER}: {TOKEN}\r\nContent-Type: "
                               f"application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        self.assertTrue(wait_until(lambda: "the client has hung up" in daemon.log))
        metrics = daemon.request("GET", "/metrics").body.decode()
        self.assertIn("sessions_created_total 1\n", metrics)
        self.assertIn(f'slots{{state="free"}} {POOL_SIZE}\n', metrics)
        self.assertEqual(daemon.workspaces(), [])

    @as_shipped
    def test_unknown_session_is_200_and_any_spelling_is_known(self):
        daemon = self.daemon()
        self.assertEqual(daemon.delete("0b5a7d52-3c1e-4f7a-9a55-0123456789ab").json(), {"ok": True})
        session = daemon.session()
        self.assertEqual(daemon.delete(session.upper().replace("-", "")).json(), {"ok": True})
        self.assertEqual(daemon.files(session).status, 404)
        self.assertEqual(daemon.delete(session).json(), {"ok": True}, "and once more")

    @as_shipped
    def test_reaper_removes_a_dead_session(self):
        daemon = self.daemon()
        session = daemon.session("print('bye')")
        self.assertTrue(wait_until(lambda: daemon.health()["sessions"] == 0))
        self.assertEqual(daemon.files(session).status, 404)
        self.assertTrue(wait_until(lambda: not (daemon.root / session).exists()))
        self.assertEqual(daemon.create(session_id=session).status, 200, "its id is free")

    @as_shipped
    def test_expiry_ends_a_session_and_announces_itself(self):
        daemon = self.daemon(variables={"AGENT_SIMULATOR_SESSION_LIFETIME_SECONDS": "3"})
        session = daemon.session()
        relay = daemon.relay(session)
        relay.answer_to("x")
        frames, code = relay.rest(timeout=30)
        last = json.loads(frames[-1])
        self.assertEqual((last["type"], last["cause"]), ("exit", "expired"))
        self.assertEqual(code, 1000)
        self.assertTrue(wait_until(lambda: daemon.files(session).status == 404))

    @as_shipped
    def test_an_orderly_stop_tells_relays_and_leaves_nothing(self):
        daemon = self.daemon()
        sessions = [daemon.session() for _ in range(3)]
        relays = [daemon.relay(session) for session in sessions]
        for relay in relays:
            relay.answer_to("x")
        daemon.process.send_signal(signal.SIGTERM)
        for relay in relays:
            frames, code = relay.rest()
            self.assertEqual(json.loads(frames[-1])["type"], "exit")
            self.assertEqual(code, 1012)
        self.assertEqual(daemon.process.wait(10), 0)
        self.assertEqual(self.of_uid(), [])

    @as_shipped
    def test_death_of_the_daemon_leaves_no_process(self):
        daemon = self.daemon()
        session = daemon.session(FORKS)
        self.assertTrue(wait_until(lambda: (daemon.root / session / "alive").exists()))
        daemon.kill()
        self.assertTrue(wait_until(lambda: self.of_uid() == []))
        self.daemon(root=daemon.root)
        self.assertEqual(daemon.workspaces(), [], "stale directories go at the next start")


class Off(DaemonTest):

    @as_shipped
    def test_off_is_told_with_a_warning_that_says_unsandboxed_and_in_health(self):
        daemon = self.daemon(variables={"AGENT_SIMULATOR_SANDBOX": " OFF "})
        self.assertTrue(wait_until(lambda: "UNSANDBOXED" in daemon.log))
        self.assertEqual(daemon.health()["sandbox"], "off")

    @as_shipped
    def test_off_runs_the_raw_command_with_the_sessions_uid_umask_directory_environment_and_limits(self):
        daemon = self.daemon(variables={"AGENT_SIMULATOR_SANDBOX": "off", "AGENT_SIMULATOR_RLIMIT_NOFILE": "321",
                                        "SMTP_PASSWORD": "operators"})
        session = daemon.session(env_vars={"OPENAI_API_KEY": KEY})
        relay = daemon.relay(session)
        self.assertEqual(relay.run("answer = [os.getresuid(), os.getresgid(), os.getgroups(), os.umask(0o22), os.getcwd()]"),
                         [[UID_BASE] * 3, [UID_BASE] * 3, [], 0o77, str(daemon.root / session)])
        self.assertEqual(relay.run("import resource as r\nanswer = [r.getrlimit(r.RLIMIT_NOFILE), r.getrlimit(r.RLIMIT_CORE)]"),
                         [[321, 321], [0, 0]])
        seen = relay.run("answer = dict(os.environ)")
        self.assertEqual((seen["OPENAI_API_KEY"], seen["HOME"]), (KEY, str(daemon.root / session)))
        self.assertFalse({"SMTP_PASSWORD", "AGENT_SIMULATOR_API_TOKEN", "AGENT_SIMULATOR_SANDBOX"} & set(seen))
        self.assertEqual(relay.run(f"answer = os.path.exists('/proc/{daemon.process.pid}')"), True, "it really is off")

    @as_shipped
    def test_off_double_forked_setsid_children_die_with_the_session(self):
        daemon = self.daemon(variables={"AGENT_SIMULATOR_SANDBOX": "off"})
        session = daemon.session(FORKS)
        self.assertTrue(wait_until(lambda: (daemon.root / session / "alive").exists()))
        self.assertEqual(daemon.delete(session).status, 200)
        self.assertTrue(wait_until(lambda: processes_of(UID_BASE) == []))
        self.assertEqual(daemon.workspaces(), [])

    @as_shipped
    def test_unknown_policy_keeps_the_sandbox_mandatory(self):
        daemon = self.daemon(variables={"AGENT_SIMULATOR_SANDBOX": "none"})
        self.assertIn("AGENT_SIMULATOR_SANDBOX", daemon.log)
        self.assertNotIn("UNSANDBOXED", daemon.log)
        relay = daemon.relay(daemon.session())
        self.assertEqual(relay.run(f"answer = os.path.exists('/proc/{os.getpid()}')"), False)


if __name__ == "__main__":
    main()
