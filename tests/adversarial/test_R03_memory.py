"""R03 (isolate's documentation)

Without a cgroup the bound is that of each process, times their number, and the size of each tmpfs.
"""

from adversarial.case import AS_ROOT, Case, main
from cgroup_places import HAS_V1, Places
from harness import not_sanitized


class R03(Places, Case):
    """The command takes more memory than it may: in one piece, in a file of memory, or by many processes together."""

    policy_changes = {"limits": {"rlimits": {"as": "400MiB", "fsize": "8MiB"}}}
    control = {"limits": {"rlimits": None}}
    control_opens = {"one piece", "mapped", "a file of memory"}

    def program(self):
        return """
            import mmap
            def piece():
                try: bytearray(500 << 20)
                except MemoryError: return "ENOMEM"
                return "open"
            def file_of_memory():
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                os.ftruncate(os.memfd_create("big"), 16 << 20)
            say({"one piece": piece(), "mapped": attempt(lambda: mmap.mmap(-1, 500 << 20)),
                 "a file of memory": attempt(file_of_memory)})
        """

    TOGETHER = """
        for _ in range(4):
            if os.fork() == 0:
                kept = bytearray(30 << 20)
                time.sleep(0.3)
                os._exit(0)
        for _ in range(4): os.wait()
        say("open")
    """

    def prepare(self):
        self.by_cgroup = HAS_V1 and AS_ROOT and self.back_end == "modern"
        if self.by_cgroup:
            self.make_places()

    def attack(self, changes, **more):
        doors = super().attack(changes, **more)
        if self.by_cgroup:  # Processes that take 120 MiB together.
            limits = {} if changes == self.control else {"memory": "64MiB"}
            run = self.inside(self.TOGETHER, policy={"limits": limits}, before=self.placed())
            doors["many processes"] = "open" if run.out else run.record["cause"]
        return doors

    def attack_with_control_off(self):
        doors = self.attack(self.control)
        self.assertEqual(doors.get("many processes", "open"), "open")
        return doors

    @not_sanitized
    def test_no_door_is_open(self):
        self.check_no_door_is_open()


if __name__ == "__main__":
    main()
