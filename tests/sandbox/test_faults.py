"""Each system call of a launch fails once, with one of its errors (tests/fault_sweep.py)."""

import collections
import difflib
import os

import faults
from fault_sweep import STATE, FaultSweep
from harness import BELLJAR, callers, main


class Faults(FaultSweep):

    def test_a_call_that_fails_never_leaves_half_a_sandbox(self):
        self.fail_calls(faults.some_faults)

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
