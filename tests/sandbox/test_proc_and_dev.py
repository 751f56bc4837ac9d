"""/proc and /dev: views of the sandbox alone, of which nothing of the kernel's can be written."""

import os
import stat

from harness import TOOLS_STAGED, SandboxTest, as_root, back_ends, main

LIST_PROC = "say(sorted(os.listdir('/proc')))"
POWERFUL = {"identity": {"inside_uid": 0, "inside_gid": 0},
            "capabilities": ["SYS_ADMIN", "NET_ADMIN", "DAC_OVERRIDE", "SYS_RESOURCE", "SYS_PTRACE", "FOWNER"]}
MASK_PROC = "mount --bind /dev/null /proc/interrupts"
DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}


def proc(**more):
    return {"filesystem": {"mounts": {"/proc": {"type": "proc", **more}}}}


class Proc(SandboxTest):

    def test_no_file_of_proc_sys_can_be_opened_for_writing(self):
        code = """
            opened, tried = [], 0
            for directory, _, names in os.walk('/proc/sys'):
                for name in names:
                    tried += 1
                    if probe_open(os.path.join(directory, name), os.O_WRONLY) == 'open':
                        opened.append(os.path.join(directory, name))
            say([opened, tried > 300])
        """
        for policy in ({}, POWERFUL):
            run = self.inside(code, policy=policy)
            self.assertEqual(run.json(), [[], True], str(run))

    def test_what_the_namespaces_owner_could_write_is_read_only(self):
        run = self.inside("""
            say([probe_open('/proc/sys/' + name, os.O_WRONLY) for name in
                 ('net/ipv4/ip_forward', 'user/max_user_namespaces', 'kernel/shmmax')])
        """, policy=POWERFUL)
        self.assertEqual(run.json(), ["EROFS"] * 3, str(run))

    def test_kernel_knobs_outside_proc_sys_are_closed(self):
        paths = ["/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe",
                 "/proc/kcore", "/proc/sys/vm/drop_caches", "/proc/sys/fs/binfmt_misc/register",
                 "/proc/1/mem", "/proc/1/oom_score_adj"]
        run = self.inside(f"say([probe_open(path, os.O_WRONLY) for path in {paths}])")
        self.assertNotIn("open", run.json())

    def test_a_subset_holds_processes_only(self):
        run = self.inside(LIST_PROC, policy=proc(subset="pid"))
        self.check_exited(run)
        self.assertEqual(set(run.json()) - {"1", "2"}, {"self", "thread-self"})
        self.assertIn("sys", self.inside(LIST_PROC).json())

    def test_a_read_only_proc_is_read_only(self):
        code = "say(probe_open('/proc/self/comm', os.O_WRONLY))"
        self.assertEqual(self.inside(code).json(), "open")
        self.assertEqual(self.inside(code, policy=proc(readonly=True)).json(), "EROFS")
        self.assertEqual(self.inside(code, policy=proc(readonly=True, subset="pid")).json(), "EROFS")

    def test_hidepid_hides_init_which_nobody_may_trace(self):
        code = "say(['1' in os.listdir('/proc'), probe_open('/proc/1/status')])"
        expected = {"off": [True, "open"], "noaccess": [True, "EPERM"], "invisible": [False, "ENOENT"],
                    "ptraceable": [False, "ENOENT"]}
        for hidepid, said in expected.items():
            for subset in ("all", "pid"):
                run = self.inside(code, policy=proc(hidepid=hidepid, subset=subset))
                self.assertEqual(run.json(), said, f"{hidepid} {subset}")

    def test_there_may_be_no_proc(self):
        run = self.inside("say(os.path.exists('/proc'))", policy={"filesystem": {"mounts": {"/proc": None}}})
        self.assertEqual(run.json(), False, str(run))

    def test_proc_is_nosuid_nodev_noexec(self):
        run = self.inside("say([os.statvfs('/proc').f_flag & 14, os.statvfs('/proc/sys').f_flag & 15])")
        self.assertEqual(run.json(), [14, 15])

    def test_presets_mask_the_kernels_files(self):
        code = """
            names = 'kcore kallsyms keys timer_list interrupts cmdline sysrq-trigger irq acpi'.split()
            empty = lambda path: os.path.isdir(path) and not os.listdir(path)
            say([name for name in names if probe_open('/proc/' + name) == 'open' and not empty('/proc/' + name)])
        """
        options = [*self.session_options(), "-v", f"{TOOLS_STAGED}:/tools:ro"]
        for preset in ("builtin:agent@1", "builtin:dev@1", "builtin:strict@1"):
            run = self.inside(code, policy=preset, options=options)
            self.assertEqual(run.json(), [], f"{preset} {run}")


class MaskedProc(SandboxTest):
    """Where the host's own /proc is masked, as in a container, the kernel allows no fresh one."""

    @as_root
    def test_a_required_proc_refuses_with_what_to_do(self):
        run = self.sandbox("true", before=self.on_host(MASK_PROC))
        self.check_refused(run, "EPERM", 'filesystem.mounts["/proc"]', "remedy:", '"enforce": "prefer"')

    @as_root
    def test_a_preferred_proc_is_absent_and_the_record_says_so(self):
        run = self.inside("say(os.listdir('/proc'))", policy=proc(enforce="prefer"),
                          before=self.on_host(MASK_PROC))
        self.check_exited(run)
        self.assertEqual(run.json(), [])
        self.assertEqual([item["control"] for item in run.record["degraded"]], ["proc_and_dev"])
        self.assertIn("/proc is absent", run.record["degraded"][0]["what"])

    @as_root
    def test_an_unmasked_proc_elsewhere_allows_a_whole_one(self):
        self.make_directory("helper")
        before = self.on_host(f"{MASK_PROC}; mount -t proc proc {self.dir}/helper")
        run = self.inside("say(probe_open('/proc/self/comm', os.O_WRONLY))", before=before,
                          policy=proc(enforce="prefer"))
        self.check_exited(run)
        self.assertEqual((run.json(), run.record["degraded"]), ("open", []))

    @as_root
    def test_a_read_only_one_elsewhere_allows_a_read_only_one(self):
        self.make_directory("helper")
        before = self.on_host(f"""
            {MASK_PROC}
            mount -t proc proc {self.dir}/helper
            mount -o remount,bind,ro {self.dir}/helper
        """)
        code = "say([probe_open('/proc/self/comm', os.O_WRONLY), os.path.exists('/proc/self/status')])"
        run = self.inside(code, policy=proc(enforce="prefer"), before=before)
        self.check_exited(run)
        self.assertEqual(run.json(), ["EROFS", True])
        self.assertIn("/proc is read-only", run.record["degraded"][0]["what"])
        self.check_refused(self.inside(code, before=before), "EPERM", "remedy:")

    @back_ends("legacy")
    def test_a_weaker_one_is_still_read_only_where_the_policy_wants_that(self):
        """Here the kernel allows a /proc of processes only, which would do for a writable one."""
        wrap = [self.tool("without_new_calls"), "ENOSYS+whole_proc"]
        code = "say([probe_open('/proc/self/comm', os.O_WRONLY), os.path.exists('/proc/sys')])"
        for readonly, opens, what in ((True, "EROFS", "read-only, with processes only"),
                                      (False, "open", "with processes only")):
            run = self.inside(code, policy=proc(enforce="prefer", readonly=readonly), wrap=wrap)
            self.check_exited(run)
            self.assertEqual(run.json(), [opens, False], str(run))
            self.assertIn(f"/proc is {what}:", run.record["degraded"][0]["what"])

    @as_root
    def test_a_proc_that_cannot_be_written_refuses_with_what_to_do(self):
        run = self.sandbox("true", before=self.on_host("mount -o remount,bind,ro /proc"))
        self.check_refused(run, "EROFS", "remedy:")

    def test_a_whole_proc_degrades_nothing(self):
        run = self.sandbox("true", policy=proc(enforce="prefer"))
        self.check_exited(run)
        self.assertEqual(run.record["degraded"], [])

    @as_root
    def test_the_hosts_proc_is_never_bound_in_its_place(self):
        run = self.inside("say(os.path.exists('/proc/1'))", policy=proc(enforce="prefer"),
                          before=self.on_host(MASK_PROC))
        self.assertEqual(run.json(), False)


class Dev(SandboxTest):

    def test_dev_holds_six_nodes_five_links_a_pts_and_a_shm(self):
        run = self.inside("say(sorted(os.listdir('/dev')))")
        self.assertEqual(run.json(), sorted([*DEVICES, "fd", "stdin", "stdout", "stderr", "ptmx", "pts", "shm"]))

    def test_the_nodes_are_what_they_are_called(self):
        run = self.inside(f"say({{name: [os.stat('/dev/' + name).st_mode, os.stat('/dev/' + name).st_rdev]"
                          f" for name in {list(DEVICES)}}})")
        for name, (mode, device) in run.json().items():
            self.assertTrue(stat.S_ISCHR(mode), name)
            self.assertEqual((os.major(device), os.minor(device)), DEVICES[name])

    def test_the_nodes_work(self):
        run = self.inside("""
            say([attempt(lambda: open('/dev/null', 'w').write('x')), open('/dev/zero', 'rb').read(2) == bytes(2),
                 len(open('/dev/urandom', 'rb').read(8)), probe_open('/dev/full', os.O_WRONLY)])
        """)
        self.assertEqual(run.json(), ["open", True, 8, "open"])

    def test_nothing_can_be_made_or_changed_in_dev(self):
        run = self.inside("""
            say([create('/dev/new'), attempt(os.unlink, '/dev/null'), attempt(os.mkdir, '/dev/d'),
                 attempt(os.symlink, 'x', '/dev/l'), attempt(os.chmod, '/dev/null', 0o777)])
        """, policy={"identity": {"inside_uid": 0, "inside_gid": 0}})
        self.assertEqual(run.json()[:4], ["EROFS"] * 4, str(run))
        self.assertNotEqual(run.json()[4], "open")

    def test_no_device_node_can_be_made_anywhere(self):
        code = """
            import stat
            say([attempt(os.mknod, '/tmp/n', stat.S_IFCHR | 0o600, os.makedev(1, 3)),
                 attempt(os.mknod, '/tmp/b', stat.S_IFBLK | 0o600, os.makedev(8, 0)),
                 attempt(os.mknod, '/tmp/fifo', stat.S_IFIFO | 0o600)])
        """
        for syscalls in ("agent@1", "none"):
            run = self.inside(code, policy={"syscalls": {"base": syscalls}})
            self.assertEqual(run.json(), ["EPERM", "EPERM", "open"], str(run))

    def test_not_even_by_root_inside_with_the_capability(self):
        code = "import stat; say(attempt(os.mknod, '/tmp/n', stat.S_IFCHR | 0o600, os.makedev(1, 3)))"
        run = self.inside(code, policy={"syscalls": {"base": "none"}, "capabilities": ["MKNOD", "SYS_ADMIN"],
                                        "identity": {"inside_uid": 0, "inside_gid": 0}})
        self.assertEqual(run.json(), "EPERM", str(run))

    def test_shm_is_writable_and_bounded(self):
        run = self.inside("""
            def fill():
                with open('/dev/shm/f', 'wb', buffering=0) as file:
                    for _ in range(8):
                        if file.write(bytes(1 << 20)) < 1 << 20: raise OSError(errno.ENOSPC, 'short')
            def make(): [open(f'/dev/shm/{n}', 'w').close() for n in range(100)]
            first = attempt(fill); os.unlink('/dev/shm/f')
            say([create('/dev/shm/x'), first, attempt(make), os.statvfs('/dev/shm').f_flag & 7])
        """, policy={"filesystem": {"mounts": {"/dev": {"type": "dev", "size": "4MiB", "inodes": 50}}}})
        self.assertEqual(run.json(), ["open", "ENOSPC", "ENOSPC", 6])

    def test_terminals_of_its_own_work_and_the_hosts_are_not_there(self):
        run = self.inside("""
            master, slave = os.openpty()
            os.write(master, b'x\\n')
            say([os.ttyname(slave), os.read(slave, 9).decode(), sorted(os.listdir('/dev/pts'))])
        """)
        self.assertEqual(run.json(), ["/dev/pts/0", "x\n", ["0", "ptmx"]])

    def test_there_is_no_controlling_terminal(self):
        run = self.inside("say(probe_open('/dev/tty', os.O_RDWR))")
        self.assertEqual(run.json(), "ENXIO")

    def test_sysfs_and_cgroups_are_not_there(self):
        for preset in ("builtin:agent@1", "builtin:dev@1", "builtin:strict@1"):
            run = self.sandbox("ls", "-d", "/sys", policy=preset, options=self.session_options())
            self.assertEqual((run.code, run.out), (2, ""), str(run))


if __name__ == "__main__":
    main()
