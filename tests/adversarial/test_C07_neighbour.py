"""C07 (two sandboxes of one uid, by reuse or a faulty setting)"""

import textwrap

from adversarial.case import NO_FILTER, Case, main
from harness import descendants

PR_SET_PTRACER = 0x59616D61


class C07(Case):
    """A second sandbox of the same uid is seen, signalled, traced or read from the first."""

    policy_changes = NO_FILTER
    control_opens = {"seen"}
    bubblewrap = False

    def prepare(self):
        running = self.start_sandbox("sleep", "60", status=True)
        self.init = running.wait_until_started()
        self.neighbour = next(pid for pid, _, _ in descendants(self.init))

    def program(self):
        # Numbers of the host's, which mean another process here or none.
        return f"""
            libc().prctl({PR_SET_PTRACER}, -1)
            others = set(filter(str.isdigit, os.listdir("/proc"))) - {{"1", str(os.getpid())}}
            doors = {{"seen": "open" if others else "no"}}
            for pid in ({self.init}, {self.neighbour}):
                doors[f"kill {{'init' if pid == {self.init} else 'command'}}"] = attempt(os.kill, pid, 0)
                for name in ("environ", "mem", "root"):
                    doors[f"{{name}} of {{'init' if pid == {self.init} else 'command'}}"] = \\
                        probe_open(f"/proc/{{pid}}/{{name}}")
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            attempt(os.kill, -1, signal.SIGTERM)
            say(doors)
        """

    def attack(self, changes, **more):
        doors = super().attack(changes, **more)
        alive = [pid for pid, state, _ in descendants(self.init) if state != "Z"]
        return {**doors, "killed by kill(-1)": "alive" if alive == [self.neighbour] else "open"}

    def attack_with_control_off(self):
        """Within one sandbox another process is seen."""
        code = "os.fork() or signal.pause()\n"
        run = self.inside(code + textwrap.dedent(self.program()), policy=self.policy_changes)
        self.check_exited(run)
        return run.json()


if __name__ == "__main__":
    main()
