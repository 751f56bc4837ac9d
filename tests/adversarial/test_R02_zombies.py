"""R02 (measured: orphans stayed zombies and filled RLIMIT_NPROC)"""

from adversarial.case import Case, main


class R02(Case):
    """Orphans that have ended stay zombies of init, and count against the number of processes."""

    control_opens = {"zombies"}
    is_control = False

    def program(self):
        return f"""
            if {self.is_control}:
                libc().prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: they come to us, who do not wait.
            for _ in range(200):
                child = os.fork()
                if child == 0:
                    os.fork()
                    os._exit(0)
                os.waitpid(child, 0)
            def state(pid):
                try: return status(pid)["State"][0]
                except OSError: return "gone"
            end = time.monotonic() + {0.2 if self.is_control else 10}
            while True:
                left = [pid for pid in filter(str.isdigit, os.listdir("/proc")) if state(pid) == "Z"]
                if not left or time.monotonic() > end: break
            say({{"zombies": "open" if left else "none"}})
        """

    def attack_with_control_off(self):
        self.is_control = True
        return self.attack({})


if __name__ == "__main__":
    main()
