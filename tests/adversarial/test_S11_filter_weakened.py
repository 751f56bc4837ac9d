"""S11 (firejail CVE-2019-12589)"""

from adversarial.case import NO_FILTER, Case, main


class S11(Case):
    """The command finds or rewrites the policy, or answers refused calls of its children by a listener of its own."""

    control = NO_FILTER
    control_opens = {"a listener", "the refused call under a listener"}

    def program(self):
        return f"""
            import ctypes
            SECCOMP, UNSHARE = (317, 272) if os.uname().machine == "x86_64" else (277, 97)
            class Instruction(ctypes.Structure):
                _fields_ = [("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32)]
            class Program(ctypes.Structure):
                _fields_ = [("len", ctypes.c_uint16), ("filter", ctypes.POINTER(Instruction))]
            def install(flags, action):
                libc().prctl(38, 1, 0, 0, 0)
                return syscall(SECCOMP, 1, flags, ctypes.byref(Program(1, ctypes.pointer(Instruction(6, 0, 0, action)))))
            ALLOW, LISTENER = 0x7fff0000, 8
            def call_under_allow():
                install(0, ALLOW)
                return call("unshare", 0)
            def call_under_listener():
                answer = install(LISTENER, ALLOW)
                return call("unshare", 0) if answer == "open" else answer
            found = [os.path.join(where, name) for where in ("/", "/tmp", "/proc/self/fd", os.getcwd(), "/dev/shm")
                     for name in os.listdir(where) if name.startswith("policy")]
            say({{"the policy's file": "open" if found else "not there", "a listener": in_child(lambda: install(LISTENER, ALLOW)),
                 "the refused call under a wider filter": in_child(call_under_allow),
                 "the refused call under a listener": in_child(call_under_listener),
                 "the policy by its path": probe_open("{self.dir}/policy-1.json")}})
        """

    def attack(self, changes, **more):
        """A command of before changes nothing for the next."""
        self.check_exited(self.inside("open('policy.json', 'w').write('{}')"))
        (self.work / "policy.json").unlink()
        return super().attack(changes, **more)


if __name__ == "__main__":
    main()
