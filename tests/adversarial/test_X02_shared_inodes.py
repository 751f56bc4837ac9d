"""X02 (isolate 2.4, flag 4)

Under agent@1 and dev@1 this channel is open, and SECURITY.md says so; strict@1 closes it.
"""

import fcntl

from adversarial.case import Case, main


class X02(Case):
    """A lock or a watch on a file that two sandboxes see tells one what the other does."""

    policy_changes = {"syscalls": {"base": "strict@1"}}
    control = {"syscalls": {"base": "agent@1"}}
    control_opens = {"another's flock", "watch"}

    def prepare(self):
        self.held = open("/usr/bin/env", "rb")
        self.addCleanup(self.held.close)
        fcntl.flock(self.held, fcntl.LOCK_EX)

    def program(self):
        return """
            import ctypes, fcntl, struct
            file = open("/usr/bin/env", "rb")
            # That another has it is what must not be learned.
            answer = attempt(fcntl.flock, file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            doors = {"another's flock": "open" if answer in ("EAGAIN", "open") else answer}
            answer = attempt(fcntl.fcntl, file, fcntl.F_SETLK, struct.pack("hhqqi", fcntl.F_RDLCK, 0, 0, 0, 0))
            doors["record lock"] = answer
            watch = libc().inotify_init1(0)
            doors["watch"] = "EPERM" if watch < 0 else call("inotify_add_watch", watch, "/usr/bin", 0x20)
            CACHESTAT = 451
            doors["cachestat"] = syscall(CACHESTAT, file.fileno(), ctypes.byref(ctypes.create_string_buffer(16)),
                                         ctypes.byref(ctypes.create_string_buffer(40)), 0)
            say(doors)
        """


if __name__ == "__main__":
    main()
