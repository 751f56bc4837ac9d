"""P02 (runc CVE-2023-25809)"""

from adversarial.case import Case, bind, main


class P02(Case):
    """The host's devices are read in /sys, or a file of another cgroup is opened for writing."""

    control = {"filesystem": {"mounts": {"/sys": bind("/sys")}}}
    control_opens = {"list /sys", "block devices"}

    def program(self):
        return """
            import glob
            doors = {"list /sys": attempt(os.listdir, "/sys"), "block devices": attempt(os.listdir, "/sys/block"),
                     "network devices": attempt(os.listdir, "/sys/class/net"),
                     "cgroups": attempt(os.listdir, "/sys/fs/cgroup")}
            doors |= {path: probe_open(path, os.O_WRONLY) for path in
                      ("/sys/fs/cgroup/cgroup.procs", *glob.glob("/sys/fs/cgroup/*/cgroup.procs"),
                       *glob.glob("/sys/fs/cgroup/*/release_agent"), "/sys/power/state", "/sys/kernel/uevent_helper")}
            say(doors)
        """


if __name__ == "__main__":
    main()
