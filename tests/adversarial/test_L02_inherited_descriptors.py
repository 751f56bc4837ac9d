"""L02 (runc CVE-2016-9962, CVE-2024-21626)"""

import os
import socket

from adversarial.case import AS_ROOT, Case, main

NUMBERS = (3, 255, 1023, 4000)


class L02(Case):
    """A descriptor that the caller left open, on a directory, a listener, a file or a memfd, reaches the command."""

    control_opens = {"255"}

    def prepare(self):
        hidden = self.make_directory("hidden", mode=0o700)
        self.make_file("hidden/secret", "x", mode=0o600 if AS_ROOT else 0o644)
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        opened = [os.open(hidden, os.O_RDONLY), os.memfd_create("left"), listener.fileno(),
                  os.open(hidden / "secret", os.O_RDWR)]
        self.left = []
        for fd, number in zip(opened, NUMBERS):
            if not os.path.lexists(f"/proc/self/fd/{number}"):
                os.dup2(fd, number, inheritable=True)
                self.left.append(number)
        for fd in (*self.left, *(fd for fd in opened if fd not in (*self.left, listener.fileno()))):
            self.addCleanup(os.close, fd)

    def program(self):
        return """
            listed = [int(name) for name in os.listdir("/proc/self/fd")]
            held = [fd for fd in listed if fd > 2 and os.path.lexists(f"/proc/self/fd/{fd}")]
            reached = [f"secret by {fd}" for fd in held
                       if attempt(lambda: os.open("secret", os.O_RDONLY, dir_fd=fd)) == "open"]
            say({"any other than 0, 1, 2": "none", "init's": probe_open("/proc/1/fd"),
                 **{str(fd): "open" for fd in held}, **dict.fromkeys(reached, "open")})
        """

    def attack(self, changes, **more):
        return super().attack(changes, fds=self.left, **more)

    def attack_with_control_off(self):
        return self.attack({"io": {"keep": [255]}})

    def under_bubblewrap(self, way, **more):
        return super().under_bubblewrap(way, pass_fds=self.left)


if __name__ == "__main__":
    main()
