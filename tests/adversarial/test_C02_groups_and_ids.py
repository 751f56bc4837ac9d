"""C02 (moby CVE-2022-36109, containerd CVE-2023-25173, isolate 2.5)"""

import os

from adversarial.case import AS_ROOT, Case, bind, main

ADMIN, DISK = 4, 6


class C02(Case):
    """A group or the umask of the caller's stays, one of the four ids is another, or root's can be taken back."""

    root_prepares = True
    control_opens = {"groups", "a group's file"}

    def prepare(self):
        secret = self.make_file("groups-only", "x", mode=0o640)
        if AS_ROOT:
            os.chown(secret, 0, DISK)
        self.policy_changes = {"identity": {"umask": "077"}, "filesystem": {"mounts": {"/groups-only": bind(secret)}}}
        identity = {"groups": [ADMIN, DISK]} if self.privileged else {"enforce": "prefer"}
        self.control = {"identity": identity}

    def program(self):
        secret = str(self.dir / "groups-only") if self.inside_bubblewrap else "/groups-only"
        return f"""
            ids = status()
            def other(name, wanted): return "the session's" if ids[name].split() == [str(wanted)] * 4 else "open"
            say({{"groups": "open" if os.getgroups() else "none", "a group's file": probe_open("{secret}"),
                 "uid": other("Uid", {self.uid}), "gid": other("Gid", {self.gid}),
                 "umask": "the policy's" if os.umask(0) == 0o077 or {self.inside_bubblewrap} else "open",
                 "setuid(0)": attempt(os.setuid, 0), "setgid(0)": attempt(os.setgid, 0),
                 "setgroups": attempt(os.setgroups, [{DISK}])}})
        """

    def attack(self, changes, **more):
        """A plain user cannot drop its groups: with any, belljar refuses, unless the policy accepts them."""
        groups = (ADMIN, DISK) if self.privileged or changes["identity"].get("enforce") else ()
        return super().attack(changes, groups=groups, **more)

    def test_no_door_is_open(self):
        self.check_no_door_is_open()
        if not self.privileged:
            self.check_refused(self.sandbox("true", groups=(ADMIN, DISK)), "identity.groups")


if __name__ == "__main__":
    main()
