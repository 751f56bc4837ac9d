"""C05 (bubblewrap CVE-2016-8659, CVE-2020-5291 and CVE-2026-41163)"""

from adversarial.case import NO_FILTER, Case, main

ROOT_INSIDE = {"identity": {"inside_uid": 0, "inside_gid": 0}}


class C05(Case):
    """The sandbox's init is traced, read, written, emptied of its descriptors, killed or stopped."""

    control_opens = {"attach", "seize", "read memory", "write memory", "take a descriptor", "mem", "kill"}

    def variants(self):
        """With the filter, without, and by root inside."""
        return [{}, NO_FILTER, {**NO_FILTER, **ROOT_INSIDE}]

    def program(self, target="1"):
        return f"""
            import ctypes
            X86 = os.uname().machine == "x86_64"
            PTRACE, READV, WRITEV, GETFD = (101, 310, 311, 438) if X86 else (117, 270, 271, 438)
            target = {target}
            buffer = ctypes.create_string_buffer(8)
            here = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 8)
            # The same address in a child of ours; in init, whichever page it may have there.
            there = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 8)
            def memory(number): return syscall(number, target, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
            try: pidfd = os.pidfd_open(target)
            except OSError: pidfd = -1
            doors = {{"attach": in_child(lambda: syscall(PTRACE, 16, target, 0, 0)),
                     "seize": in_child(lambda: syscall(PTRACE, 0x4206, target, 0, 0)),
                     "read memory": memory(READV), "write memory": memory(WRITEV),
                     "take a descriptor": syscall(GETFD, pidfd, 0, 0)}}
            # EFAULT is an answer of one that may look.
            doors |= {{name: "open" for name in doors if doors[name] == "EFAULT"}}
            doors |= {{name: probe_open(f"/proc/{{target}}/{{name}}", flags) for name, flags in
                      (("mem", os.O_RDWR), ("root", 0), ("cwd", 0), ("fd", 0), ("environ", 0), ("maps", 0))}}
            for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGSEGV):
                try: os.kill(target, number)
                except OSError: pass
            def ended():
                try: return target != 1 and status(target)["State"][0] in "ZX"
                except OSError: return False
            end = time.monotonic() + (2 if target != 1 else 0.02)
            while not ended() and time.monotonic() < end: time.sleep(0.002)
            doors["kill"] = "open" if ended() else "alive"
            say(doors)
        """

    def attack_with_control_off(self):
        """The same against a child of the command's own: it is init that refuses, not the kernel as such."""
        child = "os.fork() or signal.pause()"
        run = self.inside(self.program(target=child), policy=NO_FILTER)
        self.check_exited(run)
        return run.json()


if __name__ == "__main__":
    main()
