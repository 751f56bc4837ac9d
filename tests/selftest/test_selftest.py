"""`belljar --selftest`: says `sandbox OK` or which control is not in force, and leaves no trace."""

import fcntl
import json
import os
import pathlib
import shutil
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import BELLJAR, SandboxTest, as_root, back_ends, callers, environment, main, not_sanitized, once, wait_for

PRESETS = ("builtin:agent@1", "builtin:shell@1", "builtin:validator@1", "builtin:strict@1", "builtin:dev@1")


class SelftestCase(SandboxTest):

    def setUp(self):
        super().setUp()
        self.root = self.make_directory("sessions", owner=self.uid if self.caller == "user" else 0, mode=0o711)

    def selftest(self, *options, uid=True, **more):
        given = ["--sessions-root", self.root]
        if uid and self.privileged:
            given += ["--uid", self.uid]
        return self.belljar("selftest", *given, *options, **more)

    def check_ok(self, run):
        self.assertEqual((run.code, run.out), (0, "sandbox OK\n"), str(run))
        self.assertEqual(os.listdir(self.root), [])


class Answers(SelftestCase):

    @not_sanitized
    def test_on_a_good_host_it_says_sandbox_OK_and_nothing_else(self):
        run = self.selftest()
        self.check_ok(run)

    @not_sanitized
    def test_it_holds_for_a_caller_that_ignores_its_children(self):
        self.check_ok(self.selftest(wrap=("env", "--ignore-signal=CHLD")))

    @not_sanitized
    def test_each_preset_holds(self):
        for preset in PRESETS:
            with self.subTest(preset=preset):
                self.check_ok(self.selftest("--policy", preset))

    @not_sanitized
    def test_json_has_every_probe_with_its_verdict_and_the_back_end(self):
        answer = self.selftest("--json").json()
        self.assertEqual((answer["sandbox"], answer["not_in_force"], answer["back_end"]), ("OK", [], self.back_end))
        self.assertEqual(answer["uid"], self.uid)
        self.assertGreater(len(answer["probes"]), 30)
        self.assertEqual([probe for probe in answer["probes"] if probe["promised"] and probe["verdict"] == "open"], [])
        self.assertEqual([probe for probe in answer["probes"] if not probe["verdict"]], [])
        routes = [probe for probe in answer["probes"] if probe["name"] == "route-out"]
        self.assertEqual([(probe["verdict"], probe["promised"]) for probe in routes], [("open", "")],
                         "agent@1 has the host's network, and promises nothing about it")

    @not_sanitized
    def test_verbose_is_on_standard_error(self):
        run = self.selftest("-v")
        self.check_ok(run)
        self.assertIn("unshare-user", run.err)
        self.assertIn("namespaces.nested_user", run.err)

    @once
    @not_sanitized
    def test_the_dashed_word_is_the_same(self):
        self.check_ok(self.belljar("--selftest", "--sessions-root", self.root, "--uid", self.uid))

    @callers("root")
    @not_sanitized
    def test_without_a_uid_it_takes_the_one_behind_the_pool(self):
        run = self.selftest("--uid-base", 50000, "--max-sessions", 7, "--json", uid=False)
        self.assertEqual(run.json()["uid"], 50007)

    @callers("user")
    @not_sanitized
    def test_a_plain_user_tests_as_itself(self):
        self.assertEqual(self.selftest("--json", uid=False).json()["uid"], self.uid)

    @callers("root", "five")
    @not_sanitized
    def test_a_missing_root_is_made_and_removed_with_what_leads_to_it(self):
        deep = self.dir / "a" / "b" / "sessions"
        run = self.belljar("selftest", "--sessions-root", deep, "--uid", self.uid)
        self.assertEqual((run.code, run.out), (0, "sandbox OK\n"), str(run))
        self.assertFalse((self.dir / "a").exists())

    @not_sanitized
    def test_the_callers_umask_changes_nothing(self):
        deep = self.root / "a" / "sessions"
        uid = ["--uid", self.uid] if self.privileged else []
        run = self.belljar("selftest", "--sessions-root", deep, *uid, umask=0o077)
        self.assertEqual((run.code, run.out), (0, "sandbox OK\n"), str(run))
        self.assertEqual(os.listdir(self.root), [])

    @callers("root", "user")
    @not_sanitized
    def test_what_a_killed_self_test_left_goes_with_the_next_and_what_is_held_stays(self):
        owner = self.uid
        dead, held = (self.make_directory(f"sessions/selftest-{name}", owner=owner) for name in ("dead", "held"))
        self.make_file("sessions/selftest-dead/belljar", "x", owner=owner)
        lock = os.open(held, os.O_RDONLY)
        self.addCleanup(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = self.selftest()
        self.assertEqual((run.code, run.out), (0, "sandbox OK\n"), str(run))
        self.assertFalse(dead.exists())
        self.assertTrue(held.exists(), "another self-test was swept away")

    @callers("root")
    @back_ends("modern")
    @as_root
    @not_sanitized
    def test_a_signal_between_launches_leaves_nothing_behind(self):
        private = self.make_directory("private", mode=0o700)
        program = private / "belljar"
        shutil.copy(BELLJAR, program)  # Out of the session's reach, so that it has to be copied.
        program.chmod(0o700)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(signal=number):
                run = self.start("selftest", "--sessions-root", self.root, "--uid", self.uid, binary=program)
                wait_for(lambda: any((self.root / name / "belljar").exists() for name in os.listdir(self.root)), 10,
                         "the copy of belljar")
                run.send(number)
                self.assertNotEqual(run.finish().code, 0)
                self.assertEqual(os.listdir(self.root), [])

    @callers("root")
    @as_root
    @not_sanitized
    def test_a_live_session_with_its_uid_is_told_of_and_left_alone(self):
        session = self.start_sandbox("/usr/bin/sleep", "100", status=True)
        pid = session.wait_until_started()
        run = self.selftest()
        self.check_ok(run)
        self.assertIn(f"uid {self.uid} is that of a live session", run.err)
        self.assertTrue(pathlib.Path(f"/proc/{pid}").exists(), "the session was ended")
        session.send(signal.SIGTERM)
        session.finish()
        self.assertNotIn("live session", self.selftest().err)

    @callers("root")
    @not_sanitized
    def test_a_probe_that_the_filter_kills_is_refused_and_the_rest_go_on(self):
        policy = {"syscalls": {"base": "agent@1", "rules": {"keyctl": "kill", "io_uring_setup": "kill"}}}
        answer = self.selftest("--policy", self.policy(policy), "--json", uid=False).json()
        verdicts = {probe["name"]: probe["verdict"] for probe in answer["probes"]}
        self.assertEqual((verdicts["keyctl"], verdicts["io-uring"]), ("SIGSYS", "SIGSYS"))
        self.assertEqual((verdicts["controlling-terminal"], answer["sandbox"]), ("ENXIO", "OK"))

    @callers("root")
    @not_sanitized
    def test_a_filter_that_kills_before_the_first_probe_refuses_nothing(self):
        needed = ("execve", "exit_group", "brk", "mmap", "arch_prctl")
        policy = {"syscalls": {"base": "none", "default": "kill", "rules": {name: "allow" for name in needed}}}
        run = self.selftest("--policy", self.policy(policy), uid=False)
        self.assertEqual(run.code, 3, str(run))
        self.assertIn("command: it could not be found out: the probes did not come to their end: syscall", run.out)
        answer = self.selftest("--policy", self.policy(policy), "--json", uid=False).json()
        self.assertEqual((answer["sandbox"], answer["not_in_force"]), ("unknown", []))
        self.assertEqual({probe["verdict"] for probe in answer["probes"]}, {None}, "no probe has been run")
        run = self.belljar("doctor", "--policy", self.policy(policy))
        self.assertEqual(run.code, 3, str(run))
        self.assertIn("unknown: command: it could not be found out", run.out)
        self.assertNotIn("this host has what", run.out)

    @not_sanitized
    def test_the_place_of_sessions_is_written_to_and_executed_from_under_every_workspace(self):
        """The policy's own workspace is another one than the place of sessions."""
        for policy in (self.policy(), "builtin:agent@1"):
            probes = self.selftest("--policy", policy, "--json").json()["probes"]
            for name in ("workspace-write", "workspace-execute"):
                seen = [(probe["value"], probe["verdict"]) for probe in probes if probe["name"] == name]
                self.assertTrue(any("selftest-" in where or where == "/.belljar-workspace" for where, _ in seen), seen)
                self.assertEqual({verdict for _, verdict in seen}, {"holds"}, seen)
        self.assertEqual(os.listdir(self.work), [], "the probe's file is left")

    @callers("root")
    @back_ends("modern")
    @as_root
    @not_sanitized
    def test_a_place_that_cannot_be_written_or_executed_is_told_apart(self):
        for options, code, text in (("size=4k,nr_inodes=2", 1, "filesystem: the workspace cannot be written to"),
                                    ("noexec", 0, "note: what is in the workspace cannot be executed")):
            with self.subTest(options=options):
                script = self.on_host(f"mount -t tmpfs -o mode=711,{options} sessions {self.root}")
                run = self.selftest(before=script)
                self.assertEqual(run.code, code, str(run))
                self.assertIn(text, run.out + run.err)

    @callers("root")
    @not_sanitized
    def test_what_a_policy_leaves_open_is_no_failure(self):
        mount = {"type": "tmpfs", "mode": "0777", "source": None}
        policy = {"syscalls": {"base": "none"}, "namespaces": {"nested_user": True},
                  "identity": {"inside_uid": 0, "inside_gid": 0}, "filesystem": {"mounts": {"/etc": mount}},
                  "capabilities": ["SYS_ADMIN", "NET_RAW", "SYS_CHROOT"]}
        answer = self.selftest("--policy", self.policy(policy), "--json", uid=False).json()
        verdicts = {probe["name"]: probe for probe in answer["probes"]}
        self.assertEqual(answer["sandbox"], "OK", answer["not_in_force"])
        for name in ("unshare-user", "mount-tmpfs", "raw-socket", "write-etc", "keyctl", "chroot", "setuid-root"):
            self.assertEqual((verdicts[name]["verdict"], verdicts[name]["promised"]), ("open", ""), name)


class Settings(SelftestCase):

    def settings(self, text, name="belljar.json"):
        return self.make_file(name, text if isinstance(text, str) else json.dumps(text))

    @callers("root")
    @not_sanitized
    def test_the_file_says_the_policy_the_uid_and_the_place(self):
        config = self.settings({"policy": "builtin:strict@1", "sessions_root": str(self.root), "uid_base": 51000,
                                "max_sessions": 3})
        answer = self.belljar("selftest", "--config", config, "--json").json()
        self.assertEqual((answer["policy"], answer["uid"], answer["workspace_root"]),
                         ("strict@1", 51003, str(self.root)))

    @callers("root")
    @not_sanitized
    def test_a_served_policy_is_found_by_its_name(self):
        policies = self.make_directory("policies")
        (policies / "mine.json").write_text('{"version": 1, "extends": ["builtin:strict@1"], "name": "mine"}')
        run = self.selftest("--policy-dir", policies, "--session-policy", "mine", "--json")
        self.assertEqual((run.json()["policy"], run.json()["sandbox"]), ("mine", "OK"))

    @callers("root")
    @not_sanitized
    def test_the_simulators_variables_are_read_where_they_are_set(self):
        env = environment(AGENT_SIMULATOR_SESSION_UID_BASE="52000", AGENT_SIMULATOR_MAX_SESSIONS="4",
                          AGENT_SIMULATOR_RLIMIT_NOFILE="77")
        run = self.belljar("selftest", "--sessions-root", self.root, "--json", env=env)
        self.assertEqual((run.json()["uid"], run.json()["sandbox"]), (52004, "OK"))
        self.assertIn("AGENT_SIMULATOR_* is set", run.err)
        bad = self.belljar("selftest", env=environment(AGENT_SIMULATOR_RLIMIT_NPROC="many"))
        self.assertEqual((bad.code, bad.out), (2, ""))
        self.assertIn('AGENT_SIMULATOR_RLIMIT_NPROC: expected a number, got "many"', bad.err)

    @once
    def test_a_switched_off_sandbox_is_never_OK(self):
        env = environment(AGENT_SIMULATOR_SANDBOX="OFF")
        run = self.belljar("--selftest", env=env)
        self.assertEqual(run.code, 1)
        answer = self.belljar("--selftest", "--json", env=env).json()
        self.assertEqual((answer["sandbox"], answer["not_in_force"][0]["control"]), ("failed", "sandbox"))
        self.assertEqual(run.out, "sandbox: off by AGENT_SIMULATOR_SANDBOX, so sessions run UNSANDBOXED; "
                                  "remedy: remove it\n")

    @once
    def test_wrong_settings_are_all_told_with_their_places_and_nothing_is_tested(self):
        config = self.settings('{\n "uid_bsae": 1,\n "max_sessions": 0\n}')
        run = self.belljar("selftest", "--config", config, "--rlimit-as", "4")
        self.assertEqual((run.code, run.out), (2, ""))
        self.assertIn(f'{config}:2:2: uid_bsae: unknown setting; did you mean "uid_base"?', run.err)
        self.assertIn(f"{config}:3:18: max_sessions: expected a number of at least 1", run.err)
        self.assertIn("--rlimit-as: ", run.err)

    @callers("root")
    @not_sanitized
    def test_an_answer_that_cannot_be_written_is_no_answer(self):
        full = ["sh", "-c", 'exec "$@" >/dev/full', "sh"]
        policy = self.policy()
        for words in (("selftest", "--sessions-root", self.root), ("doctor",), ("test", "--policy", policy),
                      ("explain", "--policy", policy, "--can", "read:/usr"), ("policy", "show", policy)):
            with self.subTest(command=words[0]):
                self.assertEqual(self.belljar(*words).code, 0)
                run = self.belljar(*words, wrap=full)
                self.assertEqual(run.code, 3, str(run))
                self.assertIn("could not be written to standard output: No space left on device", run.err)

    @once
    def test_a_wrong_policy_or_option_is_usage(self):
        for words, text in ((("--policy", "builtin:agnet@1"), "agent@1"), (("--uid", "x"), "expected a number"),
                            (("--polcy", "x"), "did you mean --policy?")):
            run = self.belljar("selftest", *words)
            self.assertEqual((run.code, run.out), (2, ""), str(run))
            self.assertIn(text, run.err)


if __name__ == "__main__":
    main()
