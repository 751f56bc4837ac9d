"""X01 (isolate 2.6, whose /dev/shm was shared)"""

import subprocess

from adversarial.case import Case, bind, main


class X01(Case):
    """What one sandbox writes into /tmp, /dev/shm, /var/tmp, System V memory or a message queue is seen in another."""

    control_opens = {"/tmp", "segment"}

    LEAVE = """
        import ctypes
        for place in ("/tmp", "/dev/shm", "/var/tmp"):
            attempt(lambda: open(place + "/left-behind", "w").close())
        SHMGET = 29 if os.uname().machine == "x86_64" else 194
        MQ_OPEN = 240 if os.uname().machine == "x86_64" else 180
        libc().syscall(ctypes.c_long(SHMGET), ctypes.c_long(KEY), ctypes.c_long(4096), ctypes.c_long(0o1600))
        libc().syscall(ctypes.c_long(MQ_OPEN), b"left-behind", ctypes.c_long(os.O_CREAT | os.O_RDWR), 0o600, None)
        abstract = socket.socket(socket.AF_UNIX)
        attempt(abstract.bind, "\\0left-behind")
        attempt(abstract.listen)
        print("ready", flush=True)
        time.sleep(60)
    """

    def prepare(self):
        self.key = 0x0BE17A00 + self.uid % 4096
        self.shared = self.make_directory("shared", owner=self.uid)
        self.control = {"namespaces": {"ipc": "shared"},
                        "filesystem": {"mounts": {"/tmp": bind(self.shared, readonly=False, size=None, mode=None)}}}

    def program(self):
        return f"""
            import ctypes
            SHMGET = 29 if os.uname().machine == "x86_64" else 194
            MQ_OPEN = 240 if os.uname().machine == "x86_64" else 180
            doors = {{place: probe_open(place + "/left-behind") for place in ("/tmp", "/dev/shm", "/var/tmp")}}
            doors["segment"] = syscall(SHMGET, {self.key}, 0, 0)
            doors["queue"] = syscall(MQ_OPEN, ctypes.c_char_p(b"left-behind"), os.O_RDONLY, 0, None)
            doors["abstract socket"] = attempt(socket.socket(socket.AF_UNIX).connect, "\\0left-behind")
            say(doors)
        """

    def attack(self, changes, **more):
        """Another sandbox of the same uid, which lives meanwhile, has left them."""
        self.addCleanup(subprocess.run, ["ipcrm", "-M", hex(self.key)], stderr=subprocess.DEVNULL)
        before = self.segments()
        other = self.start_inside(self.LEAVE.replace("KEY", str(self.key)), policy=changes)
        other.wait_for_output("ready")
        doors = super().attack(changes, **more)
        if changes.get("namespaces") is None:
            doors["on the host"] = "nothing" if self.segments() == before else "open"
        other.process.kill()
        other.finish()
        return doors

    def segments(self):
        with open("/proc/sysvipc/shm") as file:
            return [line.split()[0] for line in file if line.split()[0] == str(self.key)]

    bubblewrap = False


if __name__ == "__main__":
    main()
