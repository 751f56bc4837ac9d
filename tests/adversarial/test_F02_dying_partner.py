"""F02 (measured: bubblewrap waits for ever in 3 or 4 places)"""

from adversarial.case import main
from adversarial.faulted import FaultedLaunch


class F02(FaultedLaunch):
    """A process of the launch is killed while another waits for it, which then waits for ever."""

    action = "kill-caller"
    control_opens = {"one that waits"}

    def control_attempts(self):
        """A launch that does not end is told from one that does."""
        try:
            run = self.sandbox("sleep", "30", policy=self.policy_path, timeout=1)
        except AssertionError as error:
            run = str(error)
        return {"one that waits": self.judge(run, "")}


if __name__ == "__main__":
    main()
