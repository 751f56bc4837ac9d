"""F03 (claude-code #49018 and #55585, codejail's insecure default)"""

from adversarial.case import AS_ROOT, PYTHON_INSIDE, HostileLaunch, main
from test_missing_features import NO_MORE_USER_NAMESPACES

LANDLOCK = {"landlock": {"scopes": ["signal"]}}
MEMORY = {"limits": {"memory": "64MiB"}}
# Where no cgroup can be made; for the callers that might find one.
NO_CGROUPS = "mount -t tmpfs tmpfs /sys/fs/cgroup"


class F03(HostileLaunch):
    """The host lacks what a policy asks for, and the command runs without it and without a word."""

    control_opens = {"Landlock", "cgroups"}

    def launch(self, changes, **more):
        run = self.sandbox("true", policy=changes, **more)
        if run.code == 125:
            self.assertIn("remedy:", run.err)
            return "refused"
        self.check_exited(run)
        self.degraded = [item["control"] for item in run.record["degraded"]]
        return "open"

    def with_each_missing(self, enforce):
        """With each of these missing; `enforce` is what the policy says about that."""
        old = [self.tool("landlock_abi"), "5"]
        cgroups = self.on_host(NO_CGROUPS) if AS_ROOT else ()
        asked = {**LANDLOCK, "landlock": {**LANDLOCK["landlock"], "enforce": enforce}}
        doors = {"Landlock": self.launch(asked, wrap=old)}
        doors["cgroups"] = self.launch({"limits": {**MEMORY["limits"], "enforce": enforce}}, before=cgroups)
        return doors

    def attempts(self):
        doors = self.with_each_missing("require")
        if AS_ROOT:
            limit = [PYTHON_INSIDE, "-c", NO_MORE_USER_NAMESPACES]
            doors["user namespaces"] = self.launch({}, before=limit)
            doors["/proc"] = self.launch({}, before=self.on_host("mount -t tmpfs tmpfs /proc"))
        return doors

    def control_attempts(self):
        """With "prefer" it runs, and the record says what it did without."""
        doors = self.with_each_missing("prefer")
        self.assertEqual(self.degraded, ["cgroup"])
        return doors


if __name__ == "__main__":
    main()
