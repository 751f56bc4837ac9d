"""L04 (what is known of pivot_root and chroot)"""

from adversarial.case import Case, main


class L04(Case):
    """The host's tree is reached from inside: above /, by a second chroot, through init, or as a mount left over."""

    control = {"syscalls": {"base": "none"}, "capabilities": ["SYS_CHROOT"],
               "filesystem": {"mounts": {"/unplanned": {"type": "tmpfs"}}}}
    control_opens = {"chroot", "mounts"}

    def program(self):
        planned = sorted({"/", "/proc/sys", *self.base_policy()["filesystem"]["mounts"], str(self.work),
                          *(f"/dev/{name}" for name in ("full", "null", "pts", "random", "shm", "tty", "urandom",
                                                        "zero"))})
        return f"""
            doors = {{"init's root": probe_open("/proc/1/root"), "init's directory": probe_open("/proc/1/cwd")}}
            os.chdir("/")
            doors["above /"] = "open" if os.stat("/").st_ino != os.stat("..").st_ino else "the same"
            mounts = [line.split()[4] for line in open("/proc/self/mountinfo")]
            if not {self.inside_bubblewrap}:
                doors["mounts"] = "open" if set(mounts) - set({planned}) else "as planned"
                stacked = [path for path in mounts if mounts.count(path) > 1]
                doors["stacked mounts"] = "open" if stacked else "none"
            def leave():
                os.mkdir("/tmp/jail")
                here = os.open("/", os.O_RDONLY)
                answer = attempt(os.chroot, "/tmp/jail")
                os.fchdir(here)
                for _ in range(64): os.chdir("..")
                return answer
            doors["chroot"] = in_child(leave) if os.access("/tmp", os.W_OK) else "EACCES"
            say(doors)
        """


if __name__ == "__main__":
    main()
