"""As test_faults_signals.py, for another caller."""

from fault_sweep import FaultSweep
from harness import callers, long, main


class Signals(FaultSweep):

    @long
    @callers("user")
    def test_killed_as_any_caller_it_leaves_nothing(self):
        self.at_each_call("kill", self.judge_killed)

    @long
    @callers("user")
    def test_nor_as_any_caller_when_it_is_a_process_of_the_sandbox(self):
        self.at_each_call("kill-caller", self.judge_killed)

    @long
    @callers("user")
    def test_a_late_call_changes_nothing_for_any_caller(self):
        self.at_each_call("delay", self.judge_delayed)

    @long
    @callers("user")
    def test_terminated_as_any_caller_it_ends_and_leaves_nothing(self):
        self.at_each_call("term", self.judge_terminated, command="sleep 0.1")


if __name__ == "__main__":
    main()
