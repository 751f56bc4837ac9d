"""F01 (nsjail #307; measured on bubblewrap: 84 of 206 launches went on)"""

import errno

from adversarial.case import main
from adversarial.faulted import FaultedLaunch


class F01(FaultedLaunch):
    """A system call of the set-up fails, and the command starts all the same with less around it."""

    action = errno.EPERM
    control_opens = {"a weaker policy"}

    def control_attempts(self):
        """A command with less around it is told from one with all."""
        expected = self.sandbox("/tools/state", policy=self.policy_path)
        doors = {}
        for name, changes in (("a weaker policy", {"limits": {"rlimits": {"nofile": 101}}}),
                              ("no filter", {"syscalls": {"base": "none"}})):
            doors[name] = self.judge(self.sandbox("/tools/state", policy=changes), expected.out)
        return doors


if __name__ == "__main__":
    main()
