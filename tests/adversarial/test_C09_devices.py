"""C09 (runc's tests of devices)"""

import os
import stat

from adversarial.case import Case, bind, main


class C09(Case):
    """A device of the host's is opened, a new node is made, or one that lies in a bind is used."""

    root_prepares = True
    control_opens = {"one in a bind"}

    def prepare(self):
        data = self.make_directory("data")
        if os.geteuid() == 0:
            os.mknod(data / "node", stat.S_IFCHR | 0o666, os.makedev(1, 5))
            os.chmod(data / "node", 0o666)
        self.policy_changes = {"filesystem": {"mounts": {"/data": bind(data)}}}
        self.control = {"filesystem": {"mounts": {"/data": bind(data, nodev=False)}}}

    def program(self):
        data = str(self.dir / "data") if self.inside_bubblewrap else "/data"
        return f"""
            import stat
            KNOWN = {{"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "fd", "stdin", "stdout",
                     "stderr", "core", "console"}}
            doors = {{f"/dev/{{name}}": probe_open(f"/dev/{{name}}", os.O_RDWR) for name in
                     ("mem", "kmem", "kmsg", "port", "fuse", "net/tun", "kvm", "vsock", "vhost-net", "loop-control",
                      "vda", "sda", "nvme0n1", "disk", "userfaultfd", "uinput", "snd/seq")}}
            doors["more in /dev"] = "open" if set(os.listdir("/dev")) - KNOWN else "none"
            for kind, name in ((stat.S_IFCHR, "character"), (stat.S_IFBLK, "block")):
                doors[f"make a {{name}} device"] = attempt(os.mknod, "node", kind | 0o600, os.makedev(1, 5))
            doors["make one in /dev"] = attempt(os.mknod, "/dev/new", stat.S_IFCHR | 0o600, os.makedev(1, 5))
            doors["a file in /dev"] = create("/dev/new")
            doors["one in a bind"] = probe_open("{data}/node")
            say(doors)
        """


if __name__ == "__main__":
    main()
