"""`belljar test`: what a policy says must hold is tried, and what does not hold is named with its line."""

import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from cgroup_places import Places, with_v1
from harness import SandboxTest, callers, main, not_sanitized, once


class PolicyTestsBase(SandboxTest):

    def run_tests(self, tests, changes=None, options=(), **more):
        policy = self.policy({"tests": tests, **(changes or {})})
        return self.belljar("test", "--policy", policy, "--json", *options, timeout=300, **more)

    def results(self, run):
        return {item["test"]: (item["held"], item["got"]) for item in run.json()["results"]}


class PolicyTests(PolicyTestsBase):

    @not_sanitized
    def test_what_is_tried_is_denied_or_allowed_as_the_sandbox_is(self):
        self.make_file("work/own", owner=self.uid, mode=0o755)
        noexec = {"type": "bind", "source": str(self.work), "noexec": True}
        tests = [
            {"try": "write /usr/x", "expect": "denied"},
            {"try": "write /tmp/x", "expect": "allowed"},
            {"try": f"write {self.work}/own", "expect": "allowed"},
            {"try": "read /etc/shadow", "expect": "denied"},
            {"try": "read /usr/bin/env", "expect": "allowed"},
            {"try": "exec /usr/bin/env", "expect": "allowed"},
            {"try": "exec /work-copy/own", "expect": "denied"},
            {"try": "connect 192.0.2.1:9", "expect": "denied"},
            {"try": "connect [2001:db8::1]:9", "expect": "denied"},
            {"run": ["/bin/sh", "-c", "exit 3"], "expect": {"exit": 3}},
            {"run": ["/bin/sh", "-c", "kill -9 $$"], "expect": {"cause": "signaled"}},
        ]
        run = self.run_tests(tests, {"filesystem": {"mounts": {"/work-copy": noexec}}})
        self.assertEqual(run.code, 0, str(run))
        found = self.results(run)
        self.assertEqual(found["try write /usr/x"], (True, "EROFS"))
        self.assertEqual(found["try connect 192.0.2.1:9"], (True, "ENETUNREACH"))
        self.assertEqual(found["try exec /usr/bin/env"], (True, "allowed"))
        self.assertIn("probe keyctl", found)
        self.assertEqual(os.listdir(self.work), ["own"], "trying to write leaves nothing")

    @not_sanitized
    def test_what_does_not_hold_is_named_with_its_line(self):
        tests = [
            {"try": "write /tmp/x", "expect": "denied"},
            {"try": "write /usr/x", "expect": "allowed"},
            {"try": "connect nowhere:9", "expect": "denied"},
            {"run": ["/bin/sh", "-c", "echo why; exit 1"], "expect": {"exit": 0}},
            {"run": ["/no/such/program"], "expect": {"exit": 127}},
            {"run": ["/bin/sleep", "0"], "expect": {"cause": "wall_time"}},
        ]
        run = self.run_tests(tests)
        self.assertEqual(run.code, 1, str(run))
        failed = {item["test"]: item for item in run.json()["results"] if not item["held"]}
        self.assertEqual(len(failed), len(tests), failed)
        self.assertEqual(failed["try write /tmp/x"]["got"], "allowed")
        self.assertIn("why", failed["run /bin/sh -c echo why; exit 1"]["got"])
        self.assertRegex(failed["try write /tmp/x"]["policy"], r"policy-1\.json:\d+:\d+ tests\[0\]\.try")

    def check_proof(self, attempt, held, got, changes=None):
        """What a test comes to that says of the attempt that it is denied."""
        run = self.run_tests([{"try": attempt, "expect": "denied"}], changes)
        found = self.results(run)[f"try {attempt}"]
        self.assertEqual(found[0], held, f"{attempt}: {run}")
        self.assertRegex(found[1], got, attempt)

    @not_sanitized
    def test_what_could_not_have_succeeded_proves_nothing(self):
        self.make_file("plain", "x", self.uid)
        self.make_directory("elsewhere")
        self.make_file("elsewhere/file", "x", mode=0o755)
        mounts = {"/plain": {"type": "bind", "source": str(self.dir / "plain")}}
        changes = {"filesystem": {"mounts": mounts}}
        nothing = "^ENOENT, which proves nothing: neither the host nor the sandbox has "
        for attempt, held, got in (
                ("read /etc/shadwo", False, nothing + "/etc/shadwo$"), ("read /etc/shadow", True, "^ENOENT$"),
                ("exec /usr/bin/envv", False, nothing + "/usr/bin/envv$"), ("read /tmp/x", False, nothing + "/tmp/x$"),
                ("write /no/such/file", False, nothing + "/no/such to write in$"),
                ("write /etc/new", True, "^ENOENT$"), (f"write {self.dir}/elsewhere/file", True, "^ENOENT$"),
                (f"read {self.dir}/elsewhere/file", True, "^ENOENT$"), (f"read {self.dir}/elsewhere/fiel", False, nothing),
                ("exec /usr/bin", False, "^EACCES, which proves nothing: /usr/bin is a directory"),
                ("exec /plain", False, "^EACCES, which proves nothing: /plain has no execute permission for anybody$"),
                ("write /plain", True, "^EROFS$"), ("read /usr/bin/env/x", False, "^ENOTDIR, which proves nothing: "),
                ("connect example.org:80", False, "names are not looked up"),
                ("connect ::1:80", False, "in brackets"), ("connect 2001:db8::1:80", False, "in brackets")):
            with self.subTest(attempt=attempt):
                self.check_proof(attempt, held, got, changes)

    @callers("root")
    @not_sanitized
    def test_a_way_that_the_host_has_not_either_proves_nothing(self):
        shared = {"network": {"mode": "shared"}}
        # 240.0.0.0/4 is nobody's: the kernel sends nothing there, or finds no way to it.
        attempt = "connect 255.255.255.255:80"
        run = self.run_tests([{"try": attempt, "expect": "denied"}], shared)
        held, got = self.results(run)[f"try {attempt}"]
        self.assertFalse(held, got)
        self.assertRegex(got, "^E[A-Z]+, which proves nothing: no line of the policy refuses it")
        self.check_proof(attempt, True, "^EPERM$", {**shared, "syscalls": {"rules": {"connect": "EPERM"}}})
        self.check_proof("connect 192.0.2.1:80", True, "^ENETUNREACH$")
        self.check_proof("connect 192.0.2.1:80", True, "^EACCES$", {**shared, "landlock": {"connect_tcp": [443]}})

    @callers("root")
    @not_sanitized
    def test_an_error_of_the_policys_own_is_a_proof(self):
        rules = {"openat": {"action": "EXDEV", "when": [{"arg2": {"mask": 3, "!=": 0}}], "otherwise": "allow"},
                 "openat2": "EXDEV", "creat": "EXDEV"}
        if os.uname().machine == "x86_64":
            rules["open"] = {"action": "EXDEV", "when": [{"arg1": {"mask": 3, "!=": 0}}], "otherwise": "allow"}
        self.check_proof("write /tmp/x", True, "^EXDEV$", {"syscalls": {"rules": rules}})
        del rules["openat2"], rules["openat"]["when"]
        rules["openat"] = {"action": "EXDEV", "when": [{"arg2": {"mask": 3, "==": 1}}], "otherwise": "allow"}
        # Who opens it for reading and writing gets in.
        self.check_proof("write /tmp/x", False, "^EXDEV, which proves nothing: ", {"syscalls": {"rules": rules}})

    @not_sanitized
    def test_a_command_may_say_more_than_a_pipe_holds(self):
        much = {"run": ["/bin/sh", "-c", "echo begun; head -c 9000000 /dev/zero; exit 3"], "expect": {"exit": 3}}
        name = "run " + " ".join(much["run"])
        self.assertEqual(self.results(self.run_tests([much]))[name], (True, "exited, exit code 3"))
        much["expect"] = {"exit": 4}
        self.assertEqual(self.results(self.run_tests([much]))[name], (False, "exited, exit code 3: begun"))

    @not_sanitized
    def test_limits_that_end_a_command_are_gone_beyond_and_waited_for(self):
        everything = {"wall_time": "1h", "cpu_time": "1h", "output": "1GiB", "disk": "1GiB", "enforce": "prefer",
                      "rlimits": {"cpu": "1h", "fsize": "1MiB", "nproc": 64, "as": "1GiB"}}
        self.make_file("work/large", b"x" * (2 << 20), owner=self.uid)
        found = self.results(self.run_tests([], {"limits": everything}))
        ends = {"limits.wall_time": "wall_time", "limits.cpu_time": "cpu_time", "limits.rlimits.cpu": "cpu_time",
                "limits.output": "output", "limits.disk": "disk"}
        self.assertEqual({name: found[name][0] for name in ends}, dict.fromkeys(ends, True), found)
        for name, cause in ends.items():
            self.assertEqual(found[name][1].split(",")[0], cause)
        self.assertEqual(os.listdir(self.work), ["large"], "nothing was written where the policy's workspace is")
        without = self.results(self.run_tests([]))
        self.assertEqual([name for name in without if name.startswith("limits.")], [])

    @callers("root")
    @not_sanitized
    def test_a_try_that_the_filter_kills_is_denied(self):
        changes = {"syscalls": {"base": "agent@1", "rules": {"socket": "kill"}}}
        run = self.run_tests([{"try": "connect 192.0.2.1:9", "expect": "denied"}], changes)
        self.assertEqual(self.results(run)["try connect 192.0.2.1:9"], (True, "SIGSYS"), str(run))

    @callers("root")
    @not_sanitized
    def test_landlock_and_noexec_count_as_denied(self):
        changes = {"filesystem": {"mounts": {"/usr/share": {"type": "bind", "source": "/usr/bin", "noexec": True}}},
                   "landlock": {"connect_tcp": [443]}, "network": {"mode": "shared"}}
        tests = [{"try": "exec /usr/share/env", "expect": "denied"}, {"try": "exec /usr/bin/env", "expect": "allowed"},
                 {"try": "connect 127.0.0.1:9", "expect": "denied"}]
        found = self.results(self.run_tests(tests, changes))
        self.assertEqual([found[f"try {test['try']}"][0] for test in tests], [True, True, True], found)
        open_one = self.results(self.run_tests(tests[2:], {"network": {"mode": "shared"}}))
        self.assertEqual(open_one["try connect 127.0.0.1:9"], (False, "allowed"), "without Landlock it gets out")

    @once
    @not_sanitized
    def test_lines_for_people_and_a_sum(self):
        policy = self.policy({"tests": [{"try": "write /tmp/x", "expect": "denied"}]})
        run = self.belljar("test", "--policy", policy)
        self.assertRegex(run.out, r"(?m)^ok      probe keyctl: ENOSYS  \(.*syscalls\.base\)$")
        self.assertRegex(run.out, r"(?m)^FAILED  try write /tmp/x: allowed, not denied  \(.*tests\[0\]\.try\)$")
        self.assertRegex(run.out, r"\n\d+ held, 1 failed\n$")
        self.assertEqual(run.code, 1)

    @once
    def test_a_wrong_policy_is_usage(self):
        policy = self.make_file("p.json", json.dumps({"version": 1, "tests": [{"try": "fly", "expect": "denied"}]}))
        run = self.belljar("test", "--policy", policy)
        self.assertEqual((run.code, run.out), (2, ""))
        self.assertIn("tests[0].try", run.err)


class LimitsOfACgroup(Places, PolicyTestsBase):
    """Of version 1, as the test machines have them."""

    def setUp(self):
        super().setUp()
        self.make_places()

    @with_v1
    @not_sanitized
    def test_memory_and_processes_are_gone_beyond(self):
        limits = {"limits": {"memory": "1GiB", "processes": 200, "rlimits": {"as": "1GiB"}}}
        found = self.results(self.run_tests([], limits, before=self.placed()))
        self.assertEqual(found["limits.memory"][0], True, found)
        self.assertTrue(found["limits.memory"][1].startswith("memory"), found)
        self.assertEqual(found["limits.processes"], (True, "processes, exit code 1"), found)

    @callers("user")
    @with_v1
    @not_sanitized
    def test_what_the_policy_goes_without_is_no_failure_and_no_line(self):
        run = self.run_tests([], {"limits": {"memory": "1GiB", "processes": 200, "enforce": "prefer"}})
        self.assertEqual(run.code, 0, str(run))
        self.assertEqual([name for name in self.results(run) if name.startswith("limits.")], [])
        self.assertIn("degraded, as the policy allows: cgroup", run.err)


if __name__ == "__main__":
    main()
