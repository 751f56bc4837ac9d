"""Each system call of a launch fails, and belljar is killed at each: never half a sandbox, never a
leftover.

A launch with one failed call is refused with the step named, or it goes on where the call was not needed;
then the command finds itself confined in every respect as without the fault (F01, F02, K07). Each commit
tries every call with one of its errors; --all tries every error of every call."""

import collections
import contextlib
import difflib
import json
import os
import pathlib
import signal
import subprocess

import faults
from harness import (BELLJAR, SandboxTest, callers, descendants, host_mounts, long, main, shared_files,
                     wait_for_no_descendants)

STATE = "/tools/state"


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

    # --- one launch ------------------------------------------------------------------------------

    def launch(self, where, action, command=STATE):
        """A launch, and what the injector has said; for one that has hung, None and why."""
        read, write = os.pipe()
        running = self.start_sandbox(*command.split(), policy=self.policy_path, fds=[write], any_back_end=True,
                                     timeout=faults.HOPELESS, wrap=[self.tool("fault"), where, action, write])
        os.close(write)
        hang = self.hang_of(running)
        run = None if hang else running.finish()
        with os.fdopen(read) as pipe:
            said = pipe.read()
        return (None, hang) if hang else (run, said.strip())

    def hang_of(self, running):
        """Waits for the end. What is there when it does not come, and then ends it."""
        waited = 0
        while True:
            try:
                running.process.wait(faults.SLOW)
                return ""
            except subprocess.TimeoutExpired:
                waited += faults.SLOW
            family = [running.process.pid, *(pid for pid, _, _ in descendants(running.process.pid))]
            if waited >= faults.HOPELESS or faults.is_stuck(family):
                there = f"hangs: {descendants(running.process.pid)}"
                for pid in family:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                return there

    def sane(self):
        """The launch without a fault: its calls, and what the command finds."""
        run, said = self.launch("list", 0)
        self.check_exited(run)
        self.assertTrue(run.out.startswith("state|0|1|2|"), run.out)
        self.expected = run.out
        return faults.calls_of(said)

    # --- all of them -----------------------------------------------------------------------------

    def sweep(self, plan, judge, command=STATE):
        """One launch for each (call, action) of `plan`. `judge` says what to call a run, and why."""
        calls = self.sane()
        self.assertGreater(len(calls), 80)
        figures = faults.Figures(calls)
        for call, action in plan(calls):
            run, said = self.launch(f"{call.process}.{call.place}", action, command)
            verdict, text = ("hangs", said) if run is None else judge(run, said)
            left = self.left()
            figures.add("leftovers" if left and verdict != "hangs" else verdict, call,
                        f"{action}: {text} {f'left: {left}' if left else ''}")
        return figures

    def left(self):
        """What a launch has left behind, which must be nothing."""
        return [*map(str, wait_for_no_descendants(2.0)),
                *(set(host_mounts()) ^ set(self.mounts_before)),
                *(path for path in shared_files() if path not in self.files_before)]

    def check(self, figures, expected_faults):
        self.keep(figures)
        self.assertEqual(figures.wrong, [], "\n".join(figures.wrong))
        self.assertEqual(figures.count["faults"], expected_faults)

    def keep(self, figures):
        """For docs/fault-injection.md; see tests/fault_figures.py."""
        directory = os.environ.get("BELLJAR_FAULT_FIGURES")
        if directory:
            text = json.dumps({"figures": figures.count, "wordless": figures.wordless})
            pathlib.Path(directory, self._testMethodName).write_text(text)

    def fail_calls(self, plan):
        figures = self.sweep(plan, self.judge_failure)
        self.check(figures, figures.count["calls"] if plan is faults.some_faults else len(plan(self.sane())))

    def at_each_call(self, action, judge, command=STATE):
        figures = self.sweep(lambda calls: [(call, action) for call in calls], judge, command)
        self.check(figures, figures.count["calls"])

    # --- what is right ---------------------------------------------------------------------------

    def judge_failure(self, run, said):
        if run.out != "" and (difference := self.difference(run)):
            return "weaker", difference
        if run.code == 0:
            return ("went on", "") if run.out != "" else ("other", f"exit 0 without the command: {run}")
        if run.record is not None and run.record["cause"] not in ("setup", "lost"):
            return "other", f"{said}: no refusal: {run}"
        if "belljar: " not in run.err:
            return "without words", ""
        if run.record is not None and run.record["cause"] == "setup" and not self.names_the_step(run):
            return "other", f"{said}: no step: {run}"
        return "refused", ""

    def names_the_step(self, run):
        """A step of the plan with its control, or the operation of belljar itself that failed."""
        setup = run.record["setup"]
        return (setup.get("step") or setup["reason"]) and setup["reason"] in run.err

    def difference(self, run):
        """What is not as without the fault. The two back ends mount in different orders, and a
        workspace whose mode could not be looked at is read-only, which is said."""
        found, wanted = set(run.out.split("|")), set(self.expected.split("|"))
        if "can only read" in run.err:
            wanted = {item.replace(f"{self.work} rw", f"{self.work} ro") for item in wanted}
        return f"half a sandbox: {sorted(found ^ wanted)}" if found != wanted else ""

    def judge_killed(self, run, _):
        difference = run.out and self.difference(run)
        return ("weaker", difference) if difference else ("went on" if run.out else "refused", "")

    def judge_delayed(self, run, _):
        if (run.code, run.record and run.record["cause"]) != (0, "exited"):
            return "other", str(run)
        difference = self.difference(run)
        return ("weaker", difference) if difference else ("went on", "")

    def judge_terminated(self, run, said):
        """A command that has been started may have ended by itself."""
        if run.code == 128 + signal.SIGTERM:
            return "refused", ""
        ended = said == "none" or said.endswith("after")
        return ("went on", "") if ended and run.code == 0 else ("other", f"{said}: {run}")

    # --- the tests -------------------------------------------------------------------------------

    def test_a_call_that_fails_never_leaves_half_a_sandbox(self):
        self.fail_calls(faults.some_faults)

    @long
    def test_nor_does_any_call_with_any_of_its_errors(self):
        self.fail_calls(faults.all_faults)

    def test_strace_counts_the_same_calls(self):
        """Nothing of a launch goes past the injector."""
        ours = collections.defaultdict(list)
        for call in self.sane():
            ours[call.process].append(call.name)
        path = self.dir / "strace"
        # As many descriptors as with the injector: a launch closes those with high numbers earlier.
        read, write = os.pipe()
        run = self.sandbox(STATE, policy=self.policy_path, fds=[write], before=["strace", "-f", "-qq", "-o", path])
        os.close(read), os.close(write)
        self.check_exited(run)
        theirs = faults.calls_of_strace(path.read_text(), str(BELLJAR))
        self.assertEqual(sorted(theirs), sorted(ours))
        # What the filter of the legacy back end answers does not come to the injector.
        apart = faults.OF_THE_LOOP | ({"clone3"} if self.back_end == "legacy" else set())
        for process, names in theirs.items():
            ours_then, theirs_then = ([name for name in calls if name not in apart]
                                      for calls in (ours[process], names))
            difference = "\n".join(difflib.unified_diff(ours_then, theirs_then, "ours", "strace's", n=1))
            self.assertEqual(difference, "", f"process {process}")

    @callers("root")
    def test_killed_at_any_call_belljar_leaves_nothing(self):
        self.at_each_call("kill", self.judge_killed)

    @callers("root")
    def test_nor_when_it_is_a_process_of_the_sandbox_that_is_killed(self):
        self.at_each_call("kill-caller", self.judge_killed)

    @callers("root")
    def test_a_call_that_takes_long_changes_nothing(self):
        self.at_each_call("delay", self.judge_delayed)

    @callers("root")
    def test_terminated_at_any_call_it_ends_and_leaves_nothing(self):
        self.at_each_call("term", self.judge_terminated, command="sleep 0.1")

    @long
    @callers("five", "user")
    def test_killed_as_any_caller_it_leaves_nothing(self):
        self.at_each_call("kill", self.judge_killed)

    @long
    @callers("five", "user")
    def test_nor_as_any_caller_when_it_is_a_process_of_the_sandbox(self):
        self.at_each_call("kill-caller", self.judge_killed)

    @long
    @callers("five", "user")
    def test_a_late_call_changes_nothing_for_any_caller(self):
        self.at_each_call("delay", self.judge_delayed)

    @long
    @callers("five", "user")
    def test_terminated_as_any_caller_it_ends_and_leaves_nothing(self):
        self.at_each_call("term", self.judge_terminated, command="sleep 0.1")

    @callers("root")
    def test_the_injector_is_seen_when_it_weakens_the_sandbox(self):
        """A command that finds less than the launch without a fault is told apart: here, its own umask."""
        self.sane()
        run = self.sandbox(STATE, policy=self.policy({"identity": {"umask": "000"}, "io": {"stdin": "null"}}))
        self.assertIn("Umask", self.difference(run))

    @callers("root")
    def test_a_launch_that_hangs_is_seen(self):
        running = self.start_sandbox("sleep", "1000", policy=self.policy_path)
        self.assertIn("hangs", self.hang_of(running))


if __name__ == "__main__":
    main()
