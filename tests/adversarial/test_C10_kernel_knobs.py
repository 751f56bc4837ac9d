"""C10 (CVE-2022-0492, runc CVE-2025-52881)"""

from adversarial.case import NO_FILTER, Case, main, opened
from harness import as_root


class C10(Case):
    """A file of /proc or /sys that commands the host's kernel can be opened for writing. (It is not written.)"""

    control_opens = {"/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches"}
    callers_of_control = ("root",)
    back_ends_of_control = ("modern",)

    def variants(self):
        powerful = {"identity": {"inside_uid": 0, "inside_gid": 0}, "capabilities": ["SYS_ADMIN", "DAC_OVERRIDE"]}
        return [{}, {**NO_FILTER, **powerful}]

    def program(self):
        return """
            import glob
            paths = ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/fs/binfmt_misc/register",
                     "/sys/kernel/uevent_helper", "/proc/sysrq-trigger", "/proc/sys/vm/drop_caches",
                     "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/hotplug", "/proc/sys/kernel/randomize_va_space",
                     "/proc/sys/user/max_user_namespaces", "/proc/sys/net/ipv4/ip_forward", "/proc/timer_list",
                     "/proc/acpi/wakeup", "/proc/scsi/scsi", "/proc/kcore", "/proc/irq/default_smp_affinity",
                     *glob.glob("/sys/fs/cgroup/*/release_agent"), *glob.glob("/sys/fs/cgroup/*/cgroup.procs")]
            say({path: probe_open(path, os.O_WRONLY) for path in paths})
        """

    @as_root
    def test_with_the_control_off_the_attack_succeeds(self):
        """root on the host opens them."""
        self.assertLessEqual(self.control_opens, opened(self.on_this_host(self.program())))


if __name__ == "__main__":
    main()
