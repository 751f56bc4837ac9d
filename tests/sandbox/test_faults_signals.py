"""belljar or a process of the sandbox is killed or terminated at each system call of a launch, or the call is late
(tests/fault_sweep.py)."""

from fault_sweep import FaultSweep
from harness import callers, main


class Signals(FaultSweep):

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


if __name__ == "__main__":
    main()
