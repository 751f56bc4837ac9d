"""R04 (isolate's quota)"""

from adversarial.case import Case, main

SIZE, FILES = 4 << 20, 100


class R04(Case):
    """A tmpfs is filled beyond its size or number of files, or one is found that has none."""

    policy_changes = {"filesystem": {"mounts": {
        "/tmp": {"type": "tmpfs", "size": f"{SIZE}B", "inodes": FILES, "mode": "1777"},
        "/dev": {"type": "dev", "size": f"{SIZE}B", "inodes": FILES}}}}
    control = {"filesystem": {"mounts": {"/tmp": {"size": "64MiB", "inodes": 10000},
                                         "/dev": {"size": "64MiB", "inodes": 10000}}}}
    control_opens = {"bytes of /tmp", "files of /tmp", "bytes of /dev/shm", "files of /dev/shm"}

    def program(self):
        return f"""
            def fill(path):
                with open(path, "wb", buffering=0) as file:
                    for _ in range({SIZE // (1 << 20) + 4}):
                        if file.write(bytes(1 << 20)) < 1 << 20: raise OSError(errno.ENOSPC, "short")
            def make(where):
                for number in range({2 * FILES}): open(f"{{where}}/{{number}}", "w").close()
            doors = {{}}
            for where in ("/tmp", "/dev/shm"):
                doors[f"files of {{where}}"] = attempt(make, where)
                for name in os.listdir(where): os.unlink(f"{{where}}/{{name}}")
                doors[f"bytes of {{where}}"] = attempt(fill, where + "/big")
                if os.path.exists(where + "/big"): os.unlink(where + "/big")
            for where in ("/", "/dev", "/dev/pts", "/proc", "/usr"): doors[f"write {{where}}"] = create(f"{{where}}/new")
            say(doors)
        """


if __name__ == "__main__":
    main()
