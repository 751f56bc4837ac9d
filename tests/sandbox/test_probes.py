"""Every control's own probe, in each preset: refused with exactly this errno. A better result fails
too, until the table says so. The last column is the same probe where all that can be switched off is."""

import os

from harness import BELLJAR, SandboxTest, main, not_sanitized

# name: agent@1, dev@1, strict@1, wide open
PROBES = {
    "leave-cgroup":         ("ENOENT", "ENOENT", "ENOENT", "ENOENT"),
    "unshare-user":         ("EPERM", "EPERM", "EPERM", "open"),
    "unshare-mount":        ("EPERM", "EPERM", "EPERM", "open"),
    "unshare-net":          ("EPERM", "EPERM", "EPERM", "open"),
    "join-init-mount":      ("EACCES", "EACCES", "ENOENT", "EACCES"),
    "setuid-root":          ("EINVAL", "EINVAL", "EINVAL", "open"),
    "setgroups":            ("EPERM", "EPERM", "EPERM", "EPERM"),
    "write-usr":            ("EROFS", "EROFS", "EROFS", "open"),
    "write-etc":            ("EROFS", "EROFS", "EROFS", "open"),
    "write-root":           ("EROFS", "EROFS", "EROFS", "EROFS"),
    "remount-root":         ("EPERM", "EPERM", "EPERM", "open"),
    "unmount-tmp":          ("EPERM", "EPERM", "EPERM", "open"),
    "read-shadow":          ("EACCES", "EACCES", "ENOENT", "ENOENT"),
    "write-core-pattern":   ("EACCES", "EACCES", "ENOENT", "EACCES"),
    "sysrq":                ("EACCES", "EACCES", "ENOENT", "EACCES"),
    "init-environment":     ("EACCES", "EACCES", "ENOENT", "EACCES"),
    "init-memory":          ("EACCES", "EACCES", "ENOENT", "EACCES"),
    "make-device":          ("EPERM", "EPERM", "EPERM", "EROFS"),
    "open-disk":            ("ENOENT", "ENOENT", "ENOENT", "ENOENT"),
    "open-kmsg":            ("ENOENT", "ENOENT", "ENOENT", "ENOENT"),
    "raw-socket":           ("EPERM", "EPERM", "EAFNOSUPPORT", "open"),
    "route-out":            ("open", "ENETUNREACH", "EAFNOSUPPORT", "ENETUNREACH"),
    "reach-metadata":       ("open", "ENETUNREACH", "EAFNOSUPPORT", "ENETUNREACH"),
    "mount-tmpfs":          ("EPERM", "EPERM", "EPERM", "open"),
    "chroot":               ("EPERM", "EPERM", "EPERM", "open"),
    "sethostname":          ("EPERM", "EPERM", "EPERM", "open"),
    "no-new-privs-off":     ("EPERM", "EPERM", "EPERM", "EPERM"),
    "clone3":               ("ENOSYS", "ENOSYS", "ENOSYS", "EINVAL"),
    "io-uring":             ("ENOSYS", "ENOSYS", "ENOSYS", "EFAULT"),
    "keyctl":               ("ENOSYS", "ENOSYS", "ENOSYS", "open"),
    "userfaultfd":          ("ENOSYS", "ENOSYS", "ENOSYS", "open"),
    "vsock":                ("EAFNOSUPPORT", "EAFNOSUPPORT", "EAFNOSUPPORT", "open"),
    "inject-input":         ("EPERM", "EPERM", "EPERM", "EPERM"),
    "trace-self":           ("EPERM", "EPERM", "EPERM", "open"),
    "raise-nofile":         ("EPERM", "EPERM", "EPERM", "EPERM"),
    "extra-descriptors":    ("EBADF", "EBADF", "EBADF", "EBADF"),
    "controlling-terminal": ("ENXIO", "ENXIO", "ENXIO", "ENXIO"),
}
COLUMNS = ("agent@1", "dev@1", "strict@1")


def answers(run):
    return dict(line.split() for line in run.out.splitlines())


class Probes(SandboxTest):

    def column(self, index):
        table = {name: verdicts[index] for name, verdicts in PROBES.items()}
        if not os.path.exists("/proc/sysrq-trigger"):  # CONFIG_MAGIC_SYSRQ
            table["sysrq"] = "ENOENT"
        return table

    def options(self):
        return [*self.session_options(), "-v", f"{BELLJAR}:/belljar:ro"]

    # A sanitizer needs more memory than the presets allow, and libraries.
    @not_sanitized
    def test_each_preset_refuses_what_the_table_says(self):
        for index, preset in enumerate(COLUMNS):
            with self.subTest(preset=preset):
                run = self.sandbox("/belljar", "probe", policy=f"builtin:{preset}", options=self.options())
                self.assertEqual(answers(run), self.column(index), str(run))

    @not_sanitized
    def test_with_everything_switched_off_the_probes_find_open_doors(self):
        mount = {"type": "tmpfs", "mode": "0777", "source": None}
        libraries = {"/usr": mount, "/etc": mount, "/lib": None, "/lib64": None, "/bin": None}
        policy = {"syscalls": {"base": "none"}, "namespaces": {"nested_user": True},
                  "identity": {"inside_uid": 0, "inside_gid": 0}, "filesystem": {"mounts": libraries},
                  "capabilities": ["SYS_ADMIN", "NET_RAW", "SYS_CHROOT", "SETUID", "SETGID", "SYS_PTRACE",
                                   "DAC_OVERRIDE"]}
        run = self.sandbox("/belljar", "probe", policy=policy)
        expected = self.column(3)
        if self.back_end == "legacy":
            expected["clone3"] = "ENOSYS"  # By the filter that makes this back end.
        self.assertEqual(answers(run), expected, str(run))

    def test_an_unknown_probe_is_an_error(self):
        run = self.belljar("probe", "no-such-probe")
        self.assertEqual((run.code, run.out), (2, ""))


if __name__ == "__main__":
    main()
