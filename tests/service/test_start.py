"""The service's start: whom it refuses to share uids and directories with; and its end."""

import os
import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from client import POOL_BASE, POOL_SIZE, Service, ServiceTest, alive
from harness import BELLJAR, FIRST_THREAD_ENDS, as_root, callers, descendants, environment, main, wait_for


class Start(ServiceTest):
    def test_hello_says_what_the_service_is(self):
        hello = self.start_service().hello
        self.assertEqual(hello["privileged"], self.privileged)
        self.assertEqual(hello["sandbox"], "auto")
        self.assertIn(hello["back_end"], ("modern", "legacy"))
        if self.privileged:
            self.assertEqual((hello["uid_base"], hello["max_sessions"]), (POOL_BASE, POOL_SIZE))
        else:
            self.assertEqual(hello["uid"], self.uid)
        served = {policy["name"]: policy for policy in hello["policies"]}
        self.assertIn("builtin:agent@1", served)
        self.assertNotIn("builtin:off@1", served)
        self.assertRegex(served["builtin:agent@1"]["digest"], "^sha256:[0-9a-f]{64}$")
        self.assertEqual(served["builtin:agent@1"]["network"], "shared")

    def test_policies_of_the_operators_are_served_and_broken_ones_complained_of(self):
        policies = self.make_directory("policies")
        self.make_file("policies/mine.json", '{"version":1,"extends":["builtin:agent@1"],"limits":{"wall_time":"5s"}}')
        self.make_file("policies/broken.json", '{"version":1,"limit":{}}')
        service = self.start_service("--policy-dir", policies)
        served = {policy["name"]: policy for policy in service.hello["policies"]}
        self.assertEqual(served["mine"]["wall_time_ms"], 5000)
        self.assertNotIn("broken", served)
        self.assertIn("policy broken is not served: ", service.said())
        self.assertIn("unknown key", service.said())

    @as_root
    @callers("root", "five")
    def test_a_policy_that_others_can_write_is_not_served(self):
        policies = self.make_directory("policies")
        text = '{"version":1,"extends":["builtin:agent@1"]}'
        self.make_file("policies/mine.json", text)
        self.make_file("policies/shared.json", text, mode=0o666)
        self.make_file("policies/foreign.json", text, owner=self.uid)
        served = {policy["name"] for policy in self.start_service("--policy-dir", policies).hello["policies"]}
        self.assertIn("mine", served)
        self.assertFalse({"shared", "foreign"} & served)

    def test_a_policy_with_an_id_of_its_own_is_not_served(self):
        policies = self.make_directory("policies")
        self.make_file("policies/root.json", '{"version":1,"extends":["builtin:agent@1"],"identity":{"uid":0}}')
        service = self.start_service("--policy-dir", policies)
        self.assertNotIn("root", {policy["name"] for policy in service.hello["policies"]})
        self.assertIn("policy root is not served", service.said())

    def test_without_its_own_policy_it_does_not_start(self):
        said = Service(self, "--session-policy", "builtin:agnet@1").refused()
        self.assertIn("builtin:agnet@1", said)
        self.assertIn("--session-policy", said)

    def test_it_takes_no_other_kind_of_socket(self):
        done = subprocess.run([*self.prefix(), BELLJAR, "launch-service", "--fd", "0"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env=environment())
        self.assertEqual(done.returncode, 1)
        self.assertIn("descriptor 0 is no SOCK_SEQPACKET socket", done.stderr)

    def test_no_help_names_it(self):
        done = subprocess.run([*self.prefix(), BELLJAR, "--help"], capture_output=True, text=True)
        self.assertNotIn("launch-service", done.stdout)


class Pool(ServiceTest):
    """A pool that overlaps people or others is refused, naming whom."""

    @as_root
    @callers("root")
    def test_the_pool_of_the_other_tests_is_free(self):
        self.start_service()

    @as_root
    @callers("root", "five")
    def test_a_user_in_it(self):
        said = self.refused_with(1)
        self.assertRegex(said, r"the pool of uids 1-5 \(the last is for self-tests\) overlaps the user daemon")

    def refused_with(self, base):
        return Service(self, base=base).refused()

    @as_root
    @callers("root")
    def test_systemds_dynamic_users(self):
        for base in (61180, 65000, 65519):
            with self.subTest(base):
                self.assertIn("systemd's dynamic users (61184-65519)", self.refused_with(base))

    @as_root
    @callers("root")
    def test_a_running_process(self):
        base = POOL_BASE + 8
        process = subprocess.Popen(["setpriv", f"--reuid={base + 1}", f"--regid={base + 1}", "--clear-groups",
                                    "sleep", "60"])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wait_for(lambda: os.stat(f"/proc/{process.pid}").st_uid == base + 1)
        self.assertIn(f"overlaps process {process.pid} (sleep) of uid {base + 1}", self.refused_with(base))
        # One that has ended is in nobody's way: in a container there may be nobody who waits for it.
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        Service(self, base=base).ask("hello")

    @as_root
    @callers("root")
    def test_a_running_process_whose_first_thread_has_ended(self):
        base = POOL_BASE + 8
        process = subprocess.Popen(["setpriv", f"--reuid={base + 1}", f"--regid={base + 1}", "--clear-groups",
                                    "python3", "-c", FIRST_THREAD_ENDS], stdout=subprocess.PIPE)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.read(1), b"x")
        self.assertIn(f"overlaps process {process.pid} (python3) of uid {base + 1}", self.refused_with(base))


class Root(ServiceTest):
    """Where the workspaces are."""

    def test_it_is_made_and_others_may_only_pass(self):
        service = self.start_service(root=self.dir / "a" / "b")
        self.assertEqual(service.root.stat().st_mode & 0o7777, 0o711)

    def test_two_services_never_share_one(self):
        self.start_service()
        self.assertIn("another launch service", Service(self, base=POOL_BASE + 8).refused())

    @as_root
    @callers("root", "five")
    def test_one_that_is_somebody_elses_is_refused(self):
        self.make_directory("sessions", owner=self.uid)
        self.assertIn(f"belongs to uid {self.uid}", Service(self).refused())

    @as_root
    @callers("root", "five")
    def test_a_link_of_somebody_elses_is_not_followed(self):
        self.make_link("sessions", str(self.make_directory("real")), owner=self.uid)
        self.assertIn("is not followed", Service(self).refused())

    def test_what_an_earlier_service_has_left_is_removed_at_start(self):
        first = self.start_service()
        path = first.prepare("left", {"a/b": b"x"})
        first.process.kill()
        first.process.wait()
        self.assertTrue(path.exists())
        self.start_service()
        self.assertFalse(path.exists())

    @as_root
    @callers("root")
    def test_what_is_not_a_sessions_is_left_alone(self):
        service = self.start_service()
        service.close()
        strange = service.root / "strange"
        strange.mkdir()
        (strange / "file").write_text("x")
        link = service.root / "link"
        link.symlink_to(strange)
        second = self.start_service()
        self.check_code(second.refusal("list", workspace="strange", path="", depth=1, content=0, total=0, skip=[]),
                        "not_in_pool")
        self.check_code(second.refusal("remove", workspace="strange"), "not_in_pool")
        self.check_code(second.refusal("remove", workspace="link"), "refused")
        second.close()
        self.assertTrue((strange / "file").exists() and link.is_symlink())


class End(ServiceTest):
    def test_signals_that_ask_for_an_end_are_ignored(self):
        service = self.start_service()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
            service.process.send_signal(number)
        self.assertEqual(service.ask("hello")["version"], service.hello["version"])

    def test_it_has_a_process_group_of_its_own(self):
        service = self.start_service()
        self.assertEqual(os.getpgid(service.process.pid), service.process.pid)

    def test_at_the_end_of_the_socket_nothing_is_left(self):
        service = self.start_service()
        path = service.prepare("w", {"a": b"x"})
        read, write = os.pipe()  # A source that never ends keeps a helper busy.
        service.post("write", [read], workspace="w", path="b", mode="0600", parents=False)
        wait_for(lambda: descendants(service.process.pid), what="a helper")
        service.close()
        os.close(read)
        os.close(write)
        self.assertEqual(service.process.returncode, 0)
        self.assertFalse(path.exists())

    def test_a_self_test_that_its_end_cuts_off_leaves_nothing(self):
        for _ in range(5):
            service = self.start_service()
            service.post("selftest")
            wait_for(lambda: any(path.name.startswith("selftest-") for path in service.root.iterdir()), what="its directory")
            service.close()
            self.assertEqual(list(service.root.iterdir()) if service.root.exists() else [], [])

    def test_helpers_die_with_a_service_that_is_killed(self):
        service = self.start_service()
        service.prepare("w")
        read, write = os.pipe()
        service.post("write", [read], workspace="w", path="b", mode="0600", parents=False)
        helpers = wait_for(lambda: descendants(service.process.pid), what="a helper")
        service.process.kill()
        service.process.wait()
        wait_for(lambda: not any(os.path.exists(f"/proc/{pid}/exe") and alive(pid) for pid, _, _ in helpers),
                 what="the helpers' end")
        os.close(read)
        os.close(write)


if __name__ == "__main__":
    main()
