"""P01 (hidepid, Docker's masked paths)"""

from adversarial.case import Case, main, merge

KERNEL_FILES = ("kcore", "kallsyms", "keys", "key-users", "timer_list", "interrupts", "config.gz", "cmdline", "scsi/scsi",
                "latency_stats", "sched_debug", "irq/default_smp_affinity", "acpi/wakeup", "sysrq-trigger", "modules",
                "kmsg", "iomem", "slabinfo", "partitions", "bus/pci/devices")
PIDS = {"filesystem": {"mounts": {"/proc": {"type": "proc", "subset": "pid"}}}}


class P01(Case):
    """/proc shows another's process, or a file of the kernel that tells of the host."""

    control_opens = {"interrupts", "kallsyms", "cmdline"}

    def variants(self):
        return [PIDS]

    def program(self):
        return f"""
            others = [pid for pid in range(1, 400) if os.path.exists(f"/proc/{{pid}}") and pid not in (1, os.getpid())]
            def read(name):
                try:
                    with open("/proc/" + name, "rb") as file: file.read(64)
                except OSError as error: return errno.errorcode[error.errno]
                return "open"
            say({{"another's process": "open" if others else "none", "the environment of init": probe_open("/proc/1/environ"),
                 **{{name: read(name) for name in {KERNEL_FILES!r}}}}})
        """

    def attack_with_control_off(self):
        return self.attack(merge(PIDS, {"filesystem": {"mounts": {"/proc": {"subset": "all"}}}}))

    def test_no_door_is_open(self):
        """With processes only; and what the presets mask, in a whole one."""
        self.check_no_door_is_open()
        masked = {f"/proc/{name}": "a test" for name in KERNEL_FILES[:11]}
        doors = self.attack({"filesystem": {"mask": masked}})
        self.assertEqual({name for name in KERNEL_FILES[:11] if doors[name] == "open"}, set(), doors)


if __name__ == "__main__":
    main()
