"""The file tree: just what the policy names, with the flags that it names, and nothing made on the host."""

import os
import pathlib
import shutil
import stat
import subprocess
import sys
import textwrap

from harness import TOOLS_STAGED, SandboxTest, as_root, main

MOUNT_POINTS = "say(sorted(line.split()[4] for line in open('/proc/self/mountinfo')))"
MOUNT_FLAGS = "say({l.split()[4]: l.split()[5].split(',') for l in open('/proc/self/mountinfo')})"


def bind(source, **more):
    return {"type": "bind", "source": str(source), **more}


def mounts(**by_name):
    """Mounts at /NAME."""
    return {"filesystem": {"mounts": {f"/{name}": mount for name, mount in by_name.items()}}}


class Binds(SandboxTest):

    def test_a_bind_is_read_only_unless_it_says_otherwise(self):
        data = self.make_directory("data", owner=self.uid)
        code = "say(create('/data/new'))"
        self.assertEqual(self.inside(code, policy=mounts(data=bind(data))).json(), "EROFS")
        self.assertEqual(self.inside(code, policy=mounts(data=bind(data, readonly=True))).json(), "EROFS")
        self.assertEqual(self.inside(code, policy=mounts(data=bind(data, readonly=False))).json(), "open")

    def test_a_read_only_bind_refuses_every_change(self):
        data = self.make_directory("data", owner=self.uid)
        self.make_file("data/file", "x", owner=self.uid)
        code = """
            say([probe_open('/data/file', os.O_RDWR), attempt(os.truncate, '/data/file', 0),
                 attempt(os.unlink, '/data/file'), attempt(os.chmod, '/data/file', 0o777),
                 attempt(os.utime, '/data/file'), attempt(os.rename, '/data/file', '/data/other'),
                 attempt(os.mkdir, '/data/d'), attempt(os.symlink, 'x', '/data/l'),
                 attempt(os.link, '/data/file', '/data/h')])
        """
        run = self.inside(code, policy=mounts(data=bind(data)))
        self.check_exited(run)
        self.assertEqual(run.json(), ["EROFS"] * 9)
        writable = self.inside(code, policy=mounts(data=bind(data, readonly=False)))
        self.assertEqual(writable.json()[:3], ["open"] * 3)

    @as_root
    def test_a_read_only_bind_is_read_only_in_its_submounts_too(self):
        self.make_directory("data/sub", owner=self.uid)
        before = self.on_host(f"""
            mount -t tmpfs -o mode=0777 tmpfs {self.dir}/data/sub
            mkdir {self.dir}/data/sub/deep
            mount -t tmpfs -o mode=0777 tmpfs {self.dir}/data/sub/deep
        """)
        code = "say([create('/data/sub/new'), create('/data/sub/deep/new')])"
        source = self.dir / "data"
        run = self.inside(code, policy=mounts(data=bind(source)), before=before)
        self.assertEqual(run.json(), ["EROFS"] * 2, str(run))
        run = self.inside(code, policy=mounts(data=bind(source, readonly=False)), before=before)
        self.assertEqual(run.json(), ["open"] * 2, str(run))

    @as_root
    def test_nosuid_nodev_and_noexec_reach_submounts(self):
        self.make_directory("data/sub")
        before = self.on_host(f"""
            mount -t tmpfs -o mode=0777 tmpfs {self.dir}/data/sub
            mkdir {self.dir}/data/sub/deep "{self.dir}/data/sub/with blank"
            mount -t tmpfs -o mode=0777 tmpfs {self.dir}/data/sub/deep
            mount -t tmpfs -o mode=0777 tmpfs "{self.dir}/data/sub/with blank"
        """)
        run = self.inside(MOUNT_FLAGS, policy=mounts(data=bind(self.dir / "data", noexec=True)), before=before)
        flags = {path: set(words) for path, words in run.json().items() if path.startswith("/data")}
        self.assertEqual(sorted(flags), ["/data", "/data/sub", "/data/sub/deep", "/data/sub/with\\040blank"])
        for path, words in flags.items():
            self.assertLessEqual({"ro", "nosuid", "nodev", "noexec"}, words, path)

    @as_root
    def test_flags_reach_submounts_behind_a_mount_point_that_is_named_through_a_link(self):
        self.make_directory("outer/sub")
        self.make_directory("inner/deep")
        before = self.on_host(f"mount -t tmpfs -o mode=0777 tmpfs {self.dir}/inner/deep")

        def flags_with(**more):
            pieces = {"/data": bind(self.dir / "outer"), "/to": {"type": "symlink", "source": "data"},
                      "/to/sub": bind(self.dir / "inner", **more)}
            run = self.inside(MOUNT_FLAGS, policy={"filesystem": {"mounts": pieces}}, before=before)
            return set(run.json()["/data/sub/deep"])

        self.assertLessEqual({"ro", "nosuid", "nodev", "noexec"}, flags_with(noexec=True))
        self.assertEqual({"ro", "noexec"} & flags_with(readonly=False), set())

    @as_root
    def test_a_read_only_root_of_the_host_covers_its_submounts(self):
        self.make_directory("sub")
        before = self.on_host(f"""
            mount -t tmpfs -o mode=0777 tmpfs {self.dir}/sub
            mount -t tmpfs -o mode=0777 tmpfs /usr/local/share
        """)
        mounts_of_host = {"/usr": None, "/bin": None, "/lib": None, "/lib64": None}
        policy = {"filesystem": {"root": "host", "mounts": mounts_of_host}}
        run = self.inside("say([create('/usr/local/share/x'), create('/var/lib/x')])", policy=policy, before=before)
        self.assertEqual(run.json()[0], "EROFS", str(run))

    def test_noexec_refuses_programs_and_without_it_they_run(self):
        programs = self.make_directory("programs")
        shutil.copy(TOOLS_STAGED / "setuid_probe", programs / "p")
        code = "import subprocess; say(attempt(lambda: subprocess.run(['/programs/p'], capture_output=True)))"
        noexec = mounts(programs=bind(programs, noexec=True))
        self.assertEqual(self.inside(code, policy=noexec).json(), "EACCES")
        self.assertEqual(self.inside(code, policy=mounts(programs=bind(programs))).json(), "open")

    def test_a_file_can_be_bound(self):
        file = self.make_file("file", "content")
        run = self.inside("say(open('/deep/down/file').read())",
                          policy={"filesystem": {"mounts": {"/deep/down/file": bind(file)}}})
        self.assertEqual(run.json(), "content")

    def test_a_missing_source_is_refused_and_passed_over_when_optional(self):
        missing = self.dir / "missing"
        run = self.sandbox("true", policy=mounts(data=bind(missing)))
        self.check_refused(run, f"No such file or directory: {missing}", "ENOENT", 'filesystem.mounts["/data"]',
                           "policy-1.json:", "remedy:", '"optional": true')
        run = self.inside("say(probe_open('/data'))", policy=mounts(data=bind(missing, optional=True)))
        self.assertEqual(run.json(), "ENOENT")
        self.assertFalse(missing.exists())

    @as_root
    def test_a_source_that_the_sessions_uid_cannot_reach_is_refused(self):
        closed = self.make_directory("closed", mode=0o700)
        self.make_directory("closed/data", owner=self.uid)
        run = self.sandbox("true", policy=mounts(data=bind(closed / "data")))
        self.check_refused(run, "EACCES", "cannot reach", str(closed / "data"), 'filesystem.mounts["/data"]')
        optional = self.sandbox("true", policy=mounts(data=bind(closed / "data", optional=True)))
        self.check_refused(optional, "EACCES")

    def test_a_missing_mount_point_in_a_bind_is_refused_and_not_made(self):
        outer, inner = self.make_directory("outer", owner=self.uid), self.make_directory("inner")
        for readonly in (True, False):
            pieces = {"/outer": bind(outer, readonly=readonly), "/outer/inner": bind(inner)}
            run = self.sandbox("true", policy={"filesystem": {"mounts": pieces}})
            self.check_refused(run, 'filesystem.mounts["/outer/inner"]', "/outer/inner",
                               "belljar creates nothing on the host")
        self.assertEqual(os.listdir(outer), [])

    def test_tmpfs_proc_and_dev_make_no_mount_point_in_a_bind_either(self):
        outer = self.make_directory("outer", owner=self.uid)
        for kind in ("tmpfs", "proc", "dev"):
            policy = {"filesystem": {"mounts": {"/outer": bind(outer, readonly=False), "/outer/x": {"type": kind}}}}
            self.check_refused(self.sandbox("true", policy=policy), 'filesystem.mounts["/outer/x"]')
        self.assertEqual(os.listdir(outer), [])

    def test_an_existing_mount_point_in_a_bind_is_used(self):
        outer, inner = self.make_directory("outer"), self.make_directory("inner")
        self.make_directory("outer/inner")
        self.make_file("inner/found")
        policy = {"filesystem": {"mounts": {"/outer": bind(outer), "/outer/inner": bind(inner)}}}
        self.assertEqual(self.inside("say(os.listdir('/outer/inner'))", policy=policy).json(), ["found"])

    def test_files_directories_and_links_are_not_made_in_a_bind(self):
        outer = self.make_directory("outer", owner=self.uid)
        for mount in ({"type": "file", "content": "x"}, {"type": "dir"}, {"type": "symlink", "source": "x"}):
            policy = {"filesystem": {"mounts": {"/outer": bind(outer, readonly=False), "/outer/x": mount}}}
            self.check_refused(self.sandbox("true", policy=policy),
                               "would be made inside a directory of the host, where nothing is created")
        self.assertEqual(os.listdir(outer), [])

    @as_root
    def test_the_launcher_cannot_be_overwritten_from_inside(self):
        image = (TOOLS_STAGED / "../belljar").read_bytes()
        own = self.make_file("own-belljar", image, owner=self.uid, mode=0o755)
        code = """
            say([probe_open('/own', os.O_WRONLY), attempt(os.unlink, '/own'),
                 attempt(os.rename, '/own', '/o2'), probe_open('/proc/1/exe'),
                 probe_open('/proc/1/exe', os.O_PATH), probe_open('/belljar', os.O_WRONLY)])
        """
        run = self.inside(code, policy=mounts(own=bind(own)), binary=own)
        self.check_exited(run)
        self.assertNotIn("open", run.json())
        self.assertEqual(run.json()[3:5], ["EACCES", "EACCES"])
        # While it runs the kernel says ETXTBSY; the wall behind that is the read-only mount.
        self.assertEqual(self.inside(code, policy=mounts(own=bind(own))).json()[0], "EROFS")
        self.assertEqual(own.read_bytes(), image)

    @as_root
    def test_a_planted_setuid_program_gains_nothing(self):
        for place in ("data/p", "work/p"):
            self.make_directory("data")
            planted = self.make_file(place, (TOOLS_STAGED / "setuid_probe").read_bytes(), owner=0)
            planted.chmod(0o6755)
        policy = mounts(data=bind(self.dir / "data", nosuid=False))
        for program in ("/data/p", str(self.work / "p")):
            run = self.sandbox(program, policy=policy)
            self.check_exited(run)
            self.assertEqual(run.out.split(), [str(self.uid)] * 3 + ["0" * 16])

    @as_root
    def test_a_planted_device_opens_only_where_nodev_is_taken_away(self):
        self.make_directory("data")
        for place in ("data/null", "work/null"):
            os.mknod(self.dir / place, stat.S_IFCHR | 0o666, os.makedev(1, 3))
            os.chmod(self.dir / place, 0o666)
        code = f"say([probe_open('/data/null'), probe_open('{self.work}/null')])"
        self.assertEqual(self.inside(code, policy=mounts(data=bind(self.dir / "data"))).json(), ["EACCES"] * 2)
        open_run = self.inside(code, policy=mounts(data=bind(self.dir / "data", nodev=False)))
        self.assertEqual(open_run.json(), ["open", "EACCES"])


class Root(SandboxTest):

    def test_the_root_is_read_only_and_holds_just_the_mounts(self):
        run = self.inside("""
            say([create('/new'), attempt(os.mkdir, '/d'), attempt(os.unlink, '/bin'), sorted(os.listdir('/'))])
        """, policy={"identity": {"inside_uid": 0, "inside_gid": 0}})
        self.check_exited(run)
        expected = ["belljar", "bin", "dev", "lib", "lib64", "proc", "tmp", "tools", "usr",
                    self.work.relative_to("/").parts[0]]
        self.assertEqual(run.json(), ["EROFS", "EROFS", "EROFS", sorted(expected)])

    def test_a_bind_can_be_the_root(self):
        root = self.make_directory("root")
        for name in ("usr", "lib64", "lib", "work"):
            self.make_directory(f"root/{name}")
        policy = {"filesystem": {"workspace": None, "mounts": {
            "/": bind(root), "/bin": None, "/lib": bind("/usr/lib"), "/lib64": bind("/usr/lib64"), "/proc": None,
            "/dev": None, "/tmp": None, "/tools": None, "/belljar": None}}}
        run = self.sandbox("/usr/bin/ls", "/", policy=policy)
        self.check_exited(run)
        self.assertEqual(run.out.split(), ["lib", "lib64", "usr", "work"])

    def test_above_the_root_is_the_root(self):
        run = self.inside("""
            root, above = os.stat('/'), os.stat('/..')
            os.chdir('/'); os.chdir('../../..')
            say([root.st_ino == above.st_ino, root.st_dev == above.st_dev, os.getcwd(),
                 os.listdir('/proc/self/root') == os.listdir('/')])
        """)
        self.assertEqual(run.json(), [True, True, "/", True])

    def test_mountinfo_holds_exactly_the_planned_mounts(self):
        run = self.inside(MOUNT_POINTS)
        self.check_exited(run)
        nodes = [f"/dev/{name}" for name in ("full", "null", "pts", "random", "shm", "tty", "urandom", "zero")]
        expected = ["/", "/belljar", "/dev", *nodes, "/proc", "/proc/sys", "/tmp", "/tools", "/usr", str(self.work)]
        self.assertEqual(run.json(), sorted(expected))

    def test_no_mount_of_the_sandbox_can_be_changed(self):
        code = """
            MS_REMOUNT, MS_BIND = 32, 4096
            import ctypes
            def mount(flags, target): return call('mount', None, target, None, ctypes.c_ulong(flags), None)
            say([mount(MS_REMOUNT | MS_BIND, '/'), mount(MS_REMOUNT | MS_BIND, '/usr'),
                 call('umount2', '/tmp', 2), call('umount2', '/usr', 2), call('umount2', '/proc/sys', 2),
                 call('chroot', '/tmp')])
        """
        # Without the filter it is the missing capability that refuses.
        for syscalls in ("agent@1", "none"):
            self.assertEqual(self.inside(code, policy={"syscalls": {"base": syscalls}}).json(), ["EPERM"] * 6)

    def test_with_a_capability_and_without_a_filter_a_tmpfs_can_be_unmounted(self):
        run = self.inside("say(call('umount2', '/tmp', 2))",
                          policy={"syscalls": {"base": "none"}, "capabilities": ["SYS_ADMIN"]})
        self.assertEqual(run.json(), "open", str(run))

    def test_the_hosts_root_is_shown_read_only_but_for_what_is_hidden(self):
        base = {"filesystem": {"root": "host", "mounts": {
            "/usr": None, "/bin": None, "/lib": None, "/lib64": None}}}
        shown = self.inside("say(os.listdir('/'))", policy=base)
        self.check_exited(shown)
        self.assertLessEqual({"usr", "etc", "bin", "lib", "opt", "srv"}, set(shown.json()))
        self.assertEqual({"sys", "run"} & set(shown.json()), set())
        hidden = self.inside("say(os.listdir('/'))", policy={"filesystem": {
            **base["filesystem"], "hide": {"/opt": "a test", "/srv": "a test"}}})
        self.assertEqual({"opt", "srv"} & set(hidden.json()), set())

    def test_hiding_what_every_program_needs_is_refused(self):
        run = self.sandbox("true", policy={"filesystem": {"root": "host", "hide": {"/usr": "a test"}}})
        self.check_refused(run, "hiding /usr would leave no program to run", 'filesystem.hide["/usr"]')


class Masks(SandboxTest):

    def test_a_masked_file_cannot_be_opened(self):
        data = self.make_directory("data", owner=self.uid)
        self.make_file("data/secret", "x", owner=self.uid)
        code = "say([probe_open('/data/secret'), probe_open('/data/secret', os.O_WRONLY)])"
        policy = mounts(data=bind(data, readonly=False))
        self.assertEqual(self.inside(code, policy=policy).json(), ["open", "open"])
        policy["filesystem"]["mask"] = {"/data/secret": "a test"}
        self.assertEqual(self.inside(code, policy=policy).json(), ["EACCES", "EACCES"])

    def test_a_masked_directory_is_empty_and_read_only(self):
        data = self.make_directory("data", owner=self.uid)
        self.make_directory("data/secrets", owner=self.uid)
        self.make_file("data/secrets/key", "x", owner=self.uid)
        code = "say([os.listdir('/data/secrets'), create('/data/secrets/new')])"
        policy = mounts(data=bind(data, readonly=False))
        self.assertEqual(self.inside(code, policy=policy).json(), [["key"], "open"])
        policy["filesystem"]["mask"] = {"/data/secrets": "a test"}
        listed, refused = self.inside(code, policy=policy).json()
        self.assertEqual((listed, refused in ("EROFS", "EACCES")), ([], True), refused)

    def test_a_mask_of_what_does_not_exist_creates_nothing(self):
        data = self.make_directory("data", owner=self.uid)
        policy = mounts(data=bind(data, readonly=False))
        missing = ("/data/missing", "/nowhere")
        policy["filesystem"]["mask"] = dict.fromkeys(missing, "a test")
        run = self.inside("say([os.listdir('/data'), probe_open('/nowhere')])", policy=policy)
        self.assertEqual(run.json(), [[], "ENOENT"])
        self.assertEqual(os.listdir(data), [])

    def test_a_mask_that_the_next_run_could_not_find_again_is_refused(self):
        data = self.make_directory("data", owner=self.uid)
        self.make_directory("data/secrets", owner=self.uid)
        policy = mounts(data=bind(data, readonly=False))
        policy["filesystem"]["mask"] = {"/data/secrets/key": "a test"}
        self.check_refused(self.sandbox("true", policy=policy), "uncover it in the next run", "/data/secrets/key")
        policy["filesystem"]["mask"] = {"/data/secrets": "a test"}
        self.assertEqual(self.inside("say(os.listdir('/data/secrets'))", policy=policy).json(), [])

    def test_a_mask_cannot_be_renamed_or_unlinked_away(self):
        data = self.make_directory("data", owner=self.uid)
        self.make_file("data/secret", "x", owner=self.uid)
        policy = mounts(data=bind(data, readonly=False))
        policy["filesystem"]["mask"] = {"/data/secret": "a test"}
        run = self.inside("say([attempt(os.unlink, '/data/secret'), attempt(os.rename, '/data/secret', '/data/s2')])",
                          policy=policy)
        self.assertEqual(run.json(), ["EBUSY", "EBUSY"])
        self.assertEqual((data / "secret").read_text(), "x")

    def test_a_bind_that_a_mask_covers_stays_hidden_and_that_is_said_with_what_shows_it(self):
        data = self.make_directory("data")
        self.make_file("data/key")
        options = [*self.session_options(), "-v", f"{data}:/etc/ssh:ro"]
        for more, listed in (([], ""), (["--set", "filesystem.mask[/etc/ssh]=null"], "key\n")):
            run = self.sandbox("ls", "-A", "/etc/ssh", policy="builtin:dev@1", options=[*options, *more])
            self.assertEqual((run.out, run.code), (listed, 0), str(run))
            hint = "hides what is shown at /etc/ssh; to see it, --set 'filesystem.mask[/etc/ssh]=null'"
            self.assertEqual(hint in run.err, not listed, str(run))

    def test_a_mask_below_a_bind_is_no_reason_for_a_note(self):
        self.make_directory("data/secrets")
        policy = mounts(data=bind(self.dir / "data"))
        policy["filesystem"]["mask"] = {"/data/secrets": "a test"}
        self.assertEqual(self.sandbox("true", policy=policy).err, "")

    def test_the_presets_mask_the_hosts_secrets(self):
        for preset in ("builtin:agent@1", "builtin:dev@1"):
            run = self.sandbox("sh", "-c", "cat /etc/shadow; ls -A /etc/ssh /etc/sudoers.d 2>/dev/null; true",
                               policy=preset, options=self.session_options())
            self.check_exited(run)
            self.assertIn("Permission denied", run.err)
            self.assertNotIn("root:", run.out)


class Tmpfs(SandboxTest):
    FILL = """
        def fill(path, megabytes):
            with open(path, 'wb', buffering=0) as file:
                for _ in range(megabytes):
                    if file.write(bytes(1 << 20)) < 1 << 20: raise OSError(errno.ENOSPC, 'short')
        def make(count):
            for number in range(count): open(f'/small/{number}', 'w').close()
    """

    def run_with(self, code, **tmpfs):
        code = textwrap.dedent(self.FILL) + code
        return self.inside(code, policy=mounts(small={"type": "tmpfs", "mode": "0777", **tmpfs}))

    def test_a_tmpfs_holds_no_more_than_its_size(self):
        run = self.run_with("say([attempt(fill, '/small/a', 2), attempt(fill, '/small/b', 3)])", size="4MiB")
        self.assertEqual(run.json(), ["open", "ENOSPC"])

    def test_a_tmpfs_holds_no_more_files_than_its_inodes(self):
        run = self.run_with("say([attempt(make, 50), attempt(make, 200)])", inodes=100)
        self.assertEqual(run.json(), ["open", "ENOSPC"])

    def test_a_tmpfs_without_a_size_is_bounded_all_the_same(self):
        run = self.inside("s = os.statvfs('/t'); say([s.f_blocks * s.f_frsize, s.f_files])",
                          policy=mounts(t={"type": "tmpfs"}))
        self.assertEqual(run.json(), [256 << 20, 100000])

    def test_the_root_itself_is_small(self):
        run = self.inside("s = os.statvfs('/'); say(s.f_blocks * s.f_frsize)")
        self.assertLessEqual(run.json(), 16 << 20)

    def test_mode_and_flags_are_the_policys(self):
        policy = mounts(a={"type": "tmpfs", "mode": "1777"},
                        b={"type": "tmpfs", "mode": "0711", "readonly": True, "noexec": True})
        run = self.inside("""
            mode = lambda path: oct(os.stat(path).st_mode & 0o7777)
            say([mode('/a'), mode('/b'), create('/a/x'), create('/b/x'),
                 os.statvfs('/b').f_flag & 15, os.statvfs('/a').f_flag & 15])
        """, policy=policy)
        self.assertEqual(run.json(), ["0o1777", "0o711", "open", "EROFS", 15, 6])

    def test_what_is_written_in_one_sandbox_is_not_in_the_next(self):
        self.inside("open('/tmp/left', 'w').write('x'); open('/dev/shm/left', 'w').write('x')")
        run = self.inside("say([os.listdir('/tmp'), os.listdir('/dev/shm')])")
        self.assertEqual(run.json(), [[], []])


class Made(SandboxTest):

    def test_files_directories_and_links_are_made_as_written(self):
        policy = mounts(**{"etc/passwd": {"type": "file", "content": "nobody:x\n", "mode": "0440"},
                           "empty": {"type": "file", "content": ""},
                           "d/e": {"type": "dir", "mode": "0700"},
                           "l": {"type": "symlink", "source": "etc/passwd"}})
        run = self.inside("""
            mode = lambda path: oct(os.stat(path).st_mode)
            say([open('/l').read(), os.readlink('/l'), mode('/etc/passwd'), mode('/d/e'), mode('/empty'),
                 create('/d/e/x')])
        """, policy=policy)
        self.assertEqual(run.json(), ["nobody:x\n", "etc/passwd", "0o100440", "0o40700", "0o100444", "EROFS"])

    def test_the_order_of_the_file_means_nothing(self):
        data = self.make_directory("data")
        self.make_directory("data/sub")
        entries = [("/data", bind(data)), ("/data/sub", {"type": "tmpfs", "mode": "0777"}),
                   ("/data/sub/file", {"type": "file", "content": "x"})]
        for order in (entries, entries[::-1]):
            run = self.inside("say([open('/data/sub/file').read(), create('/data/sub/new')])",
                              policy={"filesystem": {"mounts": dict(order)}})
            self.assertEqual(run.json(), ["x", "open"], str(run))

    @as_root
    def test_mounts_that_the_host_makes_later_do_not_appear(self):
        self.make_directory("data/late")
        before = self.on_host(f"""
            mount --bind {self.dir}/data {self.dir}/data
            mount --make-shared {self.dir}/data
        """)
        code = f"print('ready', flush=True); sys.stdin.readline(); {MOUNT_POINTS}"
        policy = mounts(data=bind(self.dir / "data"))
        running = self.start_inside(code, policy=policy, before=before, stdin=b"go\n")
        running.wait_for_output("ready")
        namespace = pathlib.Path(f"/proc/{running.process.pid}/mountinfo")
        shared = next(line for line in namespace.read_text().splitlines() if "/data " in line)
        self.assertIn("shared:", shared)
        os.system(f"nsenter -m -t {running.process.pid} mount -t tmpfs none {self.dir}/data/late")
        self.assertIn("/data/late", namespace.read_text())
        run = running.finish()
        self.assertEqual([path for path in run.json() if "late" in path], [])
        self.assertIn("/data", run.json())


class Workspace(SandboxTest):

    def test_the_workspace_is_writable_at_its_own_path_and_the_current_directory(self):
        run = self.inside("open('made', 'w').write('x'); say([os.getcwd(), os.listdir('.')])")
        self.assertEqual(run.json(), [str(self.work), ["made"]])
        self.assertEqual((self.work / "made").stat().st_uid, self.uid)

    def test_a_read_only_workspace_is_read_only(self):
        run = self.inside("say(create('new'))", policy={"filesystem": {"workspace": {"readonly": True}}})
        self.assertEqual(run.json(), "EROFS")

    def test_the_current_directory_is_the_workspace_when_it_says_so(self):
        elsewhere = self.make_directory("elsewhere", owner=self.uid)
        run = self.inside("say([os.getcwd(), create('new')])", policy={"filesystem": {"workspace": {"path": "."}}},
                          cwd=elsewhere)
        self.assertEqual(run.json(), [str(elsewhere), "open"])

    def test_the_command_line_chooses_another_one(self):
        elsewhere = self.make_directory("elsewhere", owner=self.uid)
        run = self.inside("say([os.getcwd(), create('new')])", options=["--workspace", elsewhere])
        self.assertEqual(run.json(), [str(elsewhere), "open"])

    @as_root
    def test_a_workspace_out_of_the_uids_reach_is_refused_with_what_to_do(self):
        closed = self.make_directory("closed", mode=0o700)
        run = self.sandbox("true", options=["--workspace", closed])
        self.check_refused(run, f"cannot be reached by uid {self.uid}", "chown", "--workspace DIR", "identity.uid=N")

    @as_root
    def test_a_workspace_that_the_uid_can_only_read_is_read_only_and_that_is_said(self):
        readable = self.make_directory("readable")
        run = self.inside("say(create('new'))", options=["--workspace", readable])
        self.assertEqual(run.json(), "EROFS")
        self.assertIn(f"uid {self.uid} can only read {readable}, so it is read-only inside", run.err)

    def test_the_root_is_no_workspace(self):
        run = self.sandbox("true", options=["--workspace", "/"])
        self.check_refused(run, "is /, which cannot be the workspace")

    def test_a_current_directory_that_holds_the_home_is_not_taken_as_the_workspace(self):
        run = self.sandbox("true", policy={"filesystem": {"workspace": {"path": "."}}}, cwd=self.dir,
                           env={"PATH": "/usr/bin", "HOME": str(self.work)})
        self.check_refused(run, "holds your whole home", "--workspace")

    def test_a_private_home_is_empty_and_writable_and_not_the_hosts(self):
        home = self.make_directory("home", owner=self.uid)
        self.make_file("home/.secret", owner=self.uid)
        run = self.inside("home = os.environ['HOME']; say([home, os.listdir(home), create(home + '/x'),"
                          " oct(os.stat(home).st_mode & 0o777)])",
                          policy={"filesystem": {"home": "private"}, "env": {"pass": ["PATH"]}},
                          env={"PATH": "/usr/bin", "HOME": str(home)})
        self.assertEqual(run.json(), [str(home), [], "open", "0o700"])
        self.assertEqual(os.listdir(home), [".secret"])

    def test_no_spelling_of_path_shows_the_whole_home_as_a_toolchain(self):
        home = self.make_directory("person/home", owner=self.uid)
        self.make_directory("person/home/bin", owner=self.uid)
        self.make_file("person/home/.secret", "x", owner=self.uid)
        link = self.make_link("link", home)
        spellings = ("/", "/.", "/./", "//", "/bin/..", "/./bin/..", "/bin/../..", "/bin/../.", "/./bin/../../home")
        for name in (home, link):
            for spelling in spellings:
                shown = self.home_under_dev(name, f"{name}{spelling}", home)
                self.assertEqual(shown - {"bin"}, set(), f"{name} {spelling}")
        self.assertEqual(self.home_under_dev(home, f"{home}/./bin", home), {"bin"})

    def home_under_dev(self, name, path, home):
        """What a command under dev@1 finds in its home when HOME is `name` and PATH begins with `path`."""
        run = self.sandbox("/usr/bin/ls", "-A", home, policy="builtin:dev@1", options=self.session_options(),
                           env={"PATH": f"{path}:/usr/bin", "HOME": str(name)})
        self.check_exited(run)
        return set(run.out.split())

    def test_a_home_that_is_named_by_a_link_is_not_taken_as_the_workspace_either(self):
        link = self.make_link("link", self.work)
        run = self.sandbox("true", policy={"filesystem": {"workspace": {"path": "."}}}, cwd=self.work,
                           env={"PATH": "/usr/bin", "HOME": str(link)})
        self.check_refused(run, "holds your whole home", "--workspace")

    def test_a_home_that_does_not_exist_is_no_obstacle_or_explained(self):
        run = self.sandbox("true", policy="builtin:dev@1", options=self.session_options(),
                           env={"PATH": "/usr/bin", "HOME": "/home/nobody-here"})
        if run.code != 0:
            self.check_refused(run, "/home/nobody-here", "filesystem.home", "remedy:")

    def test_the_home_can_be_the_workspace_or_a_path(self):
        for home, expected in (("workspace", str(self.work)), ("/tmp", "/tmp")):
            run = self.inside("say(os.environ['HOME'])", policy={"filesystem": {"home": home}})
            self.assertEqual(run.json(), expected)

    def test_agents_see_no_homes_no_other_workspaces_and_no_services(self):
        options = self.session_options()
        run = self.sandbox("sh", "-c", f"ls /; echo; ls -A /run {self.dir} {self.dir.parent} /var",
                           policy="builtin:agent@1", options=options)
        self.check_exited(run)
        top = set(run.out.split("\n\n")[0].splitlines())
        self.assertEqual(top & {"home", "root", "boot", "media", "mnt", "srv", "sys"}, set())
        self.assertIn("/run:\n\n", run.out)
        self.assertIn(f"{self.dir}:\nwork\n", run.out)
        self.assertNotIn("belljar\n", run.out)

    def test_named_sockets_and_fifos_of_the_host_are_not_in_sight(self):
        os.mkfifo(self.dir / "fifo")
        os.chmod(self.dir / "fifo", 0o666)
        options = self.session_options()
        script = f"find / -xdev \\( -type s -o -type p \\) 2>/dev/null; ls {self.dir}/fifo"
        for preset in ("builtin:agent@1", "builtin:dev@1", "builtin:strict@1"):
            run = self.sandbox("sh", "-c", script, policy=preset, options=options)
            self.assertEqual((run.code, run.out), (2, ""), str(run))


class WorkingDirectory(SandboxTest):

    def test_a_working_directory_inside_is_taken(self):
        run = self.sandbox("pwd", options=["-w", "/usr/bin"])
        self.assertEqual(run.out, "/usr/bin\n")

    def test_a_missing_one_or_a_file_is_refused(self):
        missing = str(self.dir / "x")
        for path, name in (("/missing", "ENOENT"), ("/usr/bin/env", "ENOTDIR"), (missing, "ENOENT")):
            run = self.sandbox("true", options=["-w", path])
            self.check_refused(run, name, path, "the directory must exist inside the sandbox")

    def test_links_of_proc_lead_nowhere(self):
        for path in ("/proc/self/cwd", "/proc/self/root", "/proc/1/root", "/proc/self/fd/3", "/proc/self/fd/0"):
            self.check_refused(self.sandbox("pwd", options=["-w", path]), path)

    def test_a_directory_as_a_standard_stream_is_no_door_to_the_host(self):
        for where in ("stdin", "keep"):
            directory = os.open("/", os.O_RDONLY)
            self.addCleanup(os.close, directory)
            if where == "stdin":
                run = self.sandbox("ls", "/proc/self/fd/0/", stdin=directory)
            else:
                run = self.sandbox("true", policy={"io": {"keep": [directory]}}, fds=[directory])
            self.check_refused(run, "is a directory", "EISDIR")

    def test_dots_and_links_end_at_the_sandboxs_root(self):
        self.make_link("work/up", "../../../../../../..", owner=self.uid)
        for path in (f"{self.work}/up", "/..", "/usr/../../.."):
            run = self.sandbox("sh", "-c", "pwd; ls -d /etc /var/lib", options=["-w", path])
            self.assertEqual(run.out, "/\n", str(run))

    def test_dots_end_there_too_while_names_change_elsewhere_on_the_host(self):
        """The kernel's own resolution gives up when any directory moves meanwhile."""
        self.make_directory("moving/a/x"), self.make_directory("moving/b")
        churn = "import os\nwhile True:\n  os.rename('a/x', 'b/x')\n  os.rename('b/x', 'a/x')\n"
        moving = subprocess.Popen([sys.executable, "-c", churn], cwd=self.dir / "moving")
        self.addCleanup(moving.wait)
        self.addCleanup(moving.kill)
        for _ in range(12):
            run = self.sandbox("pwd", options=["-w", "/usr/../../.."])
            self.assertEqual(run.out, "/\n", str(run))

    def test_a_deleted_current_directory_is_refused_as_workspace(self):
        gone = self.make_directory("gone", owner=self.uid)
        run = self.sandbox("true", policy={"filesystem": {"workspace": {"path": "."}}},
                           before=["sh", "-c", f'cd {gone}; rmdir {gone}; exec "$@"', "sh"])
        self.check_refused(run, "the current directory has no name here")


if __name__ == "__main__":
    main()
