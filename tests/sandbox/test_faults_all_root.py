"""Each system call of a launch fails with each of its errors, for one of the callers (tests/fault_sweep.py)."""

import faults
from fault_sweep import FaultSweep
from harness import callers, long, main


class AllFaults(FaultSweep):

    @long
    @callers("root")
    def test_no_call_with_any_of_its_errors_leaves_half_a_sandbox(self):
        self.fail_calls(faults.all_faults)


if __name__ == "__main__":
    main()
