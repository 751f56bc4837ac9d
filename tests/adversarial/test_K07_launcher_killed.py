"""K07 (bubblewrap without --die-with-parent leaves its jobs)"""

from adversarial.case import main
from adversarial.faulted import FaultedLaunch, outlives_its_starter
from harness import wait_for_no_descendants


class K07(FaultedLaunch):
    """belljar is killed at a step of the launch, or while the command runs, and something of it is left."""

    action = "kill"
    control_opens = {"a plain child"}

    def attempts(self):
        doors = super().attempts()
        running = self.start_inside("if os.fork() == 0: os.setsid()\nprint('ready', flush=True)\ntime.sleep(60)")
        running.wait_for_output("ready")
        running.process.kill()
        running.process.wait()
        doors["while the command runs"] = "open" if wait_for_no_descendants(2.0) else "gone"
        running.stop()
        return doors

    def control_attempts(self):
        return {"a plain child": "open" if outlives_its_starter() else "gone"}


if __name__ == "__main__":
    main()
