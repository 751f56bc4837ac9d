"""How belljard starts: what it refuses, what it gives up, and how its tokens change."""

import grp
import json
import os
import pathlib
import signal
import stat
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import BELLJARD, TOKEN, UID_BASE, DaemonTest, as_shipped, wait_until
from harness import back_ends, callers, main


class Start(DaemonTest):

    def refused(self, *arguments, **variables):
        """What is said by a belljard that does not start."""
        daemon = self.daemon(*arguments, ready=False, variables=variables)
        self.assertNotEqual(daemon.process.wait(20), 0, daemon.log)
        return daemon.log

    @as_shipped
    def test_a_pool_that_overlaps_people_is_refused_naming_whom(self):
        self.assertIn("overlaps user sync's group (65534)", self.refused("--uid-base=65533", AGENT_SIMULATOR_SESSION_UID_BASE=""))

    @as_shipped
    def test_it_never_goes_on_as_root_nor_as_one_of_the_pool(self):
        self.assertIn("must not go on as root", self.refused("--user=root"))
        self.assertIn("one of the pool's", self.refused(f"--user={UID_BASE + 1}"))
        self.assertIn("there is no user", self.refused("--user=nosuchuser"))

    @as_shipped
    def test_a_launcher_that_is_missing_is_refused_with_its_path(self):
        daemon = self.daemon(ready=False, variables={"BELLJAR_LAUNCHER": "/nonexistent/belljar"})
        self.assertNotEqual(daemon.process.wait(20), 0)
        self.assertIn("/nonexistent/belljar", daemon.log)

    @as_shipped
    def test_uid_0_is_never_swept_nor_a_sessions(self):
        daemon = self.daemon(ready=False, variables={"AGENT_SIMULATOR_SESSION_UID_BASE": "0"})
        self.assertNotEqual(daemon.process.wait(20), 0)
        self.assertIn("AGENT_SIMULATOR_SESSION_UID_BASE", daemon.log)

    @as_shipped
    def test_bad_variables_are_refused_at_start_with_their_names(self):
        for name, value in (("AGENT_SIMULATOR_MAX_SESSIONS", "five"), ("AGENT_SIMULATOR_MAX_SESSIONS", "0"),
                            ("AGENT_SIMULATOR_TERM_GRACE_SECONDS", "5"), ("AGENT_SIMULATOR_RLIMIT_NPORC", "1"),
                            ("AGENT_SIMULATOR_SESSION_UID_BASE", "0")):
            self.assertIn(name, self.refused(**{name: value}), value)
        self.assertIn("no-such-python", self.refused(AGENT_SIMULATOR_COMMAND="no-such-python agent.py"))

    @as_shipped
    def test_a_place_where_it_cannot_listen_is_named_with_the_remedy(self):
        for place, reason, remedy in (("tcp:192.0.2.1:8001", "Cannot assign", "name an address of this host"),
                                      ("unix:/no/such/place", "No such file", "make its directory")):
            log = self.refused(f"--listen={place}")
            for words in (place, reason, remedy):
                self.assertIn(words, log)

    @callers("five", "user")
    @back_ends("legacy")
    def test_a_unix_socket_is_open_to_its_own_group_or_to_nobody_else(self):
        """Who comes in there needs no token; the caller's group is not the one that may."""
        place = self.make_directory("run", owner=self.uid if not self.privileged else 0) / "socket"
        self.daemon(f"--listen=unix:{place}")
        about = place.stat()
        ours = [group.gr_gid for group in grp.getgrall() if group.gr_name == "belljar"]
        self.assertEqual(stat.S_IMODE(about.st_mode), 0o660 if about.st_gid in ours else 0o600)

    @as_shipped
    def test_an_unknown_option_is_told_without_its_value_and_is_usage(self):
        for option, words in (("--token=very-secret", "unknown option --token"),
                              ("--lisen=tcp:127.0.0.1:1", 'unknown option --lisen; did you mean "--listen"?')):
            run = subprocess.run([BELLJARD, option], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True)
            self.assertEqual(run.returncode, 2)
            self.assertIn(words, run.stderr)
            self.assertNotIn("secret", run.stderr)

    @as_shipped
    def test_a_token_file_that_everybody_can_read_is_refused(self):
        open_file = self.make_file("open", TOKEN, mode=0o644)
        self.assertIn("is open to everybody", self.refused(f"--token-file={open_file}"))
        closed = self.make_file("closed", TOKEN, mode=0o600)
        self.assertEqual(self.daemon(f"--token-file={closed}").request("GET", "/health").status, 200)

    @as_shipped
    def test_the_daemon_has_another_uid_no_capability_and_a_filter(self):
        daemon = self.daemon()
        status = dict(line.split(":\t") for line in
                      pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines() if ":\t" in line)
        self.assertEqual(status["Uid"].split(), [str(UID_BASE - 1)] * 4)
        self.assertEqual(status["Gid"].split(), [str(UID_BASE - 1)] * 4)
        self.assertEqual(status["Groups"].split(), [])
        for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            self.assertEqual(int(status[name], 16), 0, name)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))

    @as_shipped
    def test_tokens_rotate_at_sighup_and_a_broken_file_keeps_the_old_ones(self):
        tokens = self.make_file("tokens", "first-" + TOKEN, owner=UID_BASE - 1, mode=0o600)
        daemon = self.daemon(f"--token-file={tokens}", token=None)
        works = lambda token: daemon.request("GET", "/health", token=token).status == 200
        self.assertTrue(works("first-" + TOKEN))
        tokens.write_text(f"first-{TOKEN}\nsecond-{TOKEN}\n")
        self.assertFalse(works("second-" + TOKEN), "not before it is told")
        daemon.process.send_signal(signal.SIGHUP)
        self.assertTrue(wait_until(lambda: works("second-" + TOKEN)))
        self.assertTrue(works("first-" + TOKEN), "both are valid at once")
        tokens.chmod(0o644)
        daemon.process.send_signal(signal.SIGHUP)
        self.assertTrue(wait_until(lambda: "the tokens stay as they were" in daemon.log))
        self.assertTrue(works("second-" + TOKEN))
        tokens.chmod(0o600)
        tokens.write_text(f"second-{TOKEN}\n")
        daemon.process.send_signal(signal.SIGHUP)
        self.assertTrue(wait_until(lambda: not works("first-" + TOKEN)))
        self.assertTrue(works("second-" + TOKEN))

    @as_shipped
    def test_the_log_can_be_json_and_audit_and_metrics_tell_of_sessions_without_secrets(self):
        audit = self.dir / "audit"
        daemon = self.daemon("--log=json", f"--audit={audit}")
        session = daemon.session(env_vars={"OPENAI_API_KEY": "sk-secret"})
        metrics = daemon.request("GET", "/metrics").body.decode()
        self.assertIn('belljar_sessions{state="running"} 1\n', metrics)
        daemon.request("GET", "/health?access_token=query-secret", token="wrong")
        daemon.delete(session)
        self.assertTrue(wait_until(lambda: '"what":"end"' in audit.read_text()))
        lines = [json.loads(line) for line in audit.read_text().splitlines()]
        self.assertEqual([line["what"] for line in lines], ["exec", "create", "refuse", "end"])
        self.assertEqual(lines[1]["session"], session)
        self.assertTrue(lines[1]["policy_digest"].startswith("sha256:"))
        self.assertEqual(lines[3]["cause"], "killed")
        for line in daemon.log.splitlines():
            json.loads(line)
        for secret in ("sk-secret", "query-secret", TOKEN, "agent.py"):
            self.assertNotIn(secret, audit.read_text())
        for secret in ("sk-secret", "query-secret", TOKEN):
            self.assertNotIn(secret, daemon.log)

    @as_shipped
    def test_check_config_says_whether_the_settings_are_good(self):
        good = subprocess.run([BELLJARD, "--check-config", "--simulator"], env={"PATH": os.environ["PATH"]},
                              capture_output=True, text=True)
        self.assertEqual((good.returncode, good.stdout), (0, "the settings are good\n"), good.stderr)
        bad = subprocess.run([BELLJARD, "--check-config", "--max-sessions=0"], env={"PATH": os.environ["PATH"]},
                             capture_output=True, text=True)
        self.assertEqual(bad.returncode, 2)
        self.assertIn("--max-sessions", bad.stderr)


if __name__ == "__main__":
    main()
