"""What the tests share in which each system call of a launch fails, or belljar is killed at it: never half a
sandbox, never a leftover.

A launch with one failed call is refused with the step named, or it goes on where the call was not needed;
then the command finds itself confined in every respect as without the fault (F01, F02, K07). Each commit
tries every call with one of its errors; --all tries every error of every call. The files are so many, because
each has a deadline of its own (run.py)."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess

import faults
from harness import SandboxTest, descendants, host_mounts, shared_files, wait_for_no_descendants

STATE = "/tools/state"


class FaultSweep(SandboxTest):
    """A policy, and launches under it. This one asks for what init and the payload do."""

    name = "plain"  # Of the policy, in docs/fault-injection.md.
    least_calls = 80

    def setUp(self):
        super().setUp()
        self.policy_path = self.policy(self.changes())

    def changes(self):
        self.make_directory("secrets", owner=self.uid)
        mounts = {"/data": {"type": "bind", "source": str(self.dir / "secrets")},
                  "/made": {"type": "file", "content": "x"},
                  "/link": {"type": "symlink", "source": "data"}}
        mask = {"/usr/share/doc": "a test", "/proc/interrupts": "a test"}
        return {"identity": {"hostname": "jar", "umask": "027"}, "io": {"stdin": "null"},
                "limits": {"rlimits": {"nofile": 100, "core": "0B"}},
                "namespaces": {"time": "new", "time_offsets": {"boottime": "1h"}},
                "landlock": {"filesystem": True, "scopes": ["abstract_unix_socket", "signal"], "bind_tcp": [80]},
                "filesystem": {"mounts": mounts, "mask": mask}}

    def before(self):
        """What starts the launch, with the suite's rights."""
        return []

    # --- one launch ------------------------------------------------------------------------------

    def launch(self, where, action, command=STATE):
        """A launch, and what the injector has said; for one that has hung, None and why."""
        read, write = os.pipe()
        running = self.start_sandbox(*command.split(), policy=self.policy_path, fds=[write], any_back_end=True,
                                     timeout=faults.HOPELESS, before=self.before(), wrap=[self.tool("fault"), where, action, write])
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
        self.assertGreater(len(calls), self.least_calls)
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
            text = json.dumps({"policy": self.name, "figures": figures.count, "wordless": figures.wordless})
            pathlib.Path(directory, f"{self.name} {self._testMethodName}").write_text(text)

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
