"""Each system call of a launch fails once, and belljar is killed at each: never half a sandbox, never
a leftover.

A launch with one failed call may be refused, or it may go on where the call was not needed; then the
command finds itself confined in every respect as without the fault (F01, F02, K07)."""

import errno
import os
import signal

from harness import SandboxTest, callers, long, main, wait_for_no_descendants

MOST_CALLS = 1000
ERRORS = (errno.ENOSYS, errno.ENOMEM, errno.EMFILE, errno.EINTR, errno.EAGAIN)


class Faults(SandboxTest):

    def setUp(self):
        super().setUp()
        self.make_directory("secrets", owner=self.uid)
        mounts = {"/data": {"type": "bind", "source": str(self.dir / "secrets")},
                  "/made": {"type": "file", "content": "x"},
                  "/link": {"type": "symlink", "source": "data"}}
        mask = {"/usr/share/doc": "a test", "/proc/interrupts": "a test"}
        self.policy_path = self.policy({
            "identity": {"hostname": "jar", "umask": "027"}, "io": {"stdin": "null"},
            "limits": {"rlimits": {"nofile": 100, "core": "0B"}},
            "namespaces": {"time": "new", "time_offsets": {"boottime": "1h"}},
            "landlock": {"filesystem": True, "scopes": ["abstract_unix_socket", "signal"], "bind_tcp": [80]},
            "filesystem": {"mounts": mounts, "mask": mask}})

    def launch(self, when, action, command="/tools/state"):
        """What came of it (a text when it did not end), and the call that was hit: None when there
        were fewer."""
        read, write = os.pipe()
        try:
            run = self.sandbox(*command.split(), policy=self.policy_path, fds=[write], timeout=5,
                               any_back_end=True, wrap=[self.tool("fault"), when, action, write])
        except AssertionError as error:
            run = str(error)
        os.close(write)
        with os.fdopen(read) as pipe:
            hit = pipe.read().strip()
        return run, None if hit == "none" else hit

    def sane(self):
        run, hit = self.launch(MOST_CALLS, errno.EPERM)
        self.check_exited(run)
        self.assertIsNone(hit)
        self.assertTrue(run.out.startswith("state|0|1|2|"), run.out)
        return run.out

    def at_each_call(self, action, judge, command="/tools/state"):
        """`judge` says what is wrong with a run, or nothing."""
        self.expected = self.sane()
        wrong, reached = [], 0
        for when in range(1, MOST_CALLS):
            run, hit = self.launch(when, action, command)
            if hit is None:
                break
            reached = when
            fault = run if isinstance(run, str) else judge(run, hit)
            left = wait_for_no_descendants(2.0)
            if fault or left:
                wrong.append(f"call {when}, number {hit}: {fault} {f'left: {left}' if left else ''}")
        self.assertGreater(reached, 80)
        self.assertEqual(wrong, [], "\n".join(wrong))

    def fail_each_call(self, error):
        def judge(run, _):
            if run.out != "":
                return self.difference(run)
            if run.code == 0:
                return f"exit 0 without the command: {run}"
            refused = run.record is None or run.record["cause"] in ("setup", "lost")
            return "" if refused else f"no refusal: {run}"

        self.at_each_call(error, judge)

    def kill_at_each_call(self, action):
        self.at_each_call(action, lambda run, _: run.out and self.difference(run))

    def delay_each_call(self):
        def judge(run, _):
            if (run.code, run.record and run.record["cause"]) != (0, "exited"):
                return str(run)
            return self.difference(run)

        self.at_each_call("delay", judge)

    def terminate_at_each_call(self):
        """A command that has been started may have ended by itself."""
        def judge(run, hit):
            terminated = run.code == 128 + signal.SIGTERM
            return "" if terminated or (hit.endswith("after") and run.code == 0) else str(run)

        self.at_each_call("term", judge, command="sleep 0.1")

    def difference(self, run):
        """What is not as without the fault. The two back ends mount in different orders, and a
        workspace whose mode could not be looked at is read-only, which is said."""
        found, wanted = set(run.out.split("|")), set(self.expected.split("|"))
        if "can only read" in run.err:
            wanted = {item.replace(f"{self.work} rw", f"{self.work} ro") for item in wanted}
        return f"half a sandbox: {sorted(found ^ wanted)}" if found != wanted else ""

    @callers("user")
    def test_a_call_that_is_refused_never_leaves_half_a_sandbox(self):
        self.fail_each_call(errno.EPERM)

    @callers("root", "five")
    def test_nor_does_one_for_a_privileged_caller(self):
        self.fail_each_call(errno.EPERM)

    @long
    def test_nor_does_one_that_fails_for_another_reason(self):
        for error in ERRORS:
            self.fail_each_call(error)

    @callers("root")
    def test_killed_at_any_call_belljar_leaves_nothing(self):
        self.kill_at_each_call("kill")

    @callers("root")
    def test_nor_when_it_is_a_process_of_the_sandbox_that_is_killed(self):
        self.kill_at_each_call("kill-caller")

    @callers("root")
    def test_a_call_that_takes_long_changes_nothing(self):
        self.delay_each_call()

    @callers("root")
    def test_terminated_at_any_call_it_ends_and_leaves_nothing(self):
        self.terminate_at_each_call()

    @long
    def test_the_same_holds_for_every_caller(self):
        self.kill_at_each_call("kill")
        self.kill_at_each_call("kill-caller")
        self.delay_each_call()
        self.terminate_at_each_call()


if __name__ == "__main__":
    main()
