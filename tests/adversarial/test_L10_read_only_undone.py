"""L10 (runc's tests of recursive read-only mounts, nsjail 0465452)"""

from adversarial.case import AS_ROOT, NO_FILTER, Case, bind, main


class L10(Case):
    """A read-only mount is remounted writable, in a user namespace of the command's own too, or passed by a submount."""

    # Without a filter, so that the kernel alone refuses.
    policy_changes = {**NO_FILTER, "identity": {"inside_uid": 0, "inside_gid": 0}}
    control = {"capabilities": ["SYS_ADMIN"]}
    control_opens = {"remount /", "remount /usr", "unmount /tmp"}

    def prepare(self):
        self.make_directory("data/below", owner=self.uid)
        self.policy_changes = {**self.policy_changes, "filesystem": {"mounts": {"/data": bind(self.dir / "data")}}}

    def program(self):
        data = str(self.dir / "data") if self.inside_bubblewrap else "/data"
        return f"""
            import ctypes
            MS_RDONLY, MS_REMOUNT, MS_BIND, CLONE_NEWUSER, CLONE_NEWNS = 1, 32, 4096, 0x10000000, 0x20000
            def remount(path): return call("mount", None, path, None, ctypes.c_ulong(MS_REMOUNT | MS_BIND), None)
            def nested():
                if libc().unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0: return "no namespace"
                return remount("/usr")
            say({{"nested: remount /usr": in_child(nested), "remount /": remount("/"), "remount /usr": remount("/usr"),
                 "write /": create("/new"), "write /usr": create("/usr/new"),
                 "write below a read-only bind": create("{data}/below/new"), "unmount /tmp": call("umount2", "/tmp", 2)}})
        """

    def attack(self, changes, **more):
        """Where root prepares the host, a writable tmpfs is mounted below the directory before."""
        below = f"{self.dir}/data/below"
        before = self.on_host(f"mount -t tmpfs -o mode=0777 tmpfs {below}") if AS_ROOT else ()
        return super().attack(changes, before=before, **more)


if __name__ == "__main__":
    main()
