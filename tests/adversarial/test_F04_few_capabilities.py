"""F04 (root in a container that has few capabilities; tests/containers has the containers themselves)"""

from adversarial.case import HostileLaunch, main

FIVE = "+chown,+dac_override,+setuid,+setgid,+kill"
SETS = ("", "+chown", "+setuid", "+setgid", "+setuid,+setgid", FIVE, FIVE + ",+setfcap", FIVE + ",+sys_admin",
        "+setuid,+setgid,+net_admin,+sys_ptrace")


class F04(HostileLaunch):
    """root with some capabilities gets a sandbox that holds less than the one of root with all."""

    root_prepares = True
    control_opens = {"another policy"}
    callers_of_attack = callers_of_control = ("root",)

    def launch(self, capabilities, policy=None):
        """"refused", or whether the state of the command is that of root's."""
        bounded = ["setpriv", "--no-new-privs", "--inh-caps=-all",
                   "--bounding-set=" + ",".join(filter(None, ["-all", capabilities]))]
        run = self.sandbox("/tools/state", policy=policy, before=bounded)
        if run.code == 125:
            self.check_refused(run, "remedy:")
            return "refused"
        self.check_exited(run)
        if run.record["degraded"]:
            return "said to be degraded"
        return "the same sandbox" if self.state_of(run) == self.expected else "open"

    def state_of(self, run):
        return sorted(run.out.split("|"))

    def attempts(self):
        full = self.sandbox("/tools/state")
        self.check_exited(full)
        self.expected = self.state_of(full)
        return {capabilities or "none": self.launch(capabilities) for capabilities in SETS}

    def control_attempts(self):
        self.attempts()
        return {"another policy": self.launch(FIVE, policy={"limits": {"rlimits": {"nofile": 77}}})}


if __name__ == "__main__":
    main()
