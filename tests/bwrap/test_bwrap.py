"""The drop-in for bubblewrap, as its callers meet it: what each option does, in which order, with
which words and modes, for root and a plain user on both back ends."""

import fcntl
import json
import os
import pathlib
import pty
import signal
import stat
import struct
import subprocess
import sys
import termios

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import (BELLJAR, BELLJAR_SOURCE, STAGE, SandboxTest, callers, environment, main,
                     wait_for)

BWRAP = STAGE / "bwrap"
if not BWRAP.exists():
    subprocess.run(["strip", "-o", BWRAP, BELLJAR_SOURCE.parent / "bwrap"], check=True)
    BWRAP.chmod(0o755)

HOST = ("--ro-bind", "/", "/")
RUN = ("--bind", "/", "/", "--tmpfs", "/tmp")
VARIANTS = ((), ("--unshare-user-try",), ("--unshare-pid",), ("--unshare-user-try", "--unshare-pid"))


class BwrapTest(SandboxTest):
    """As root with all its capabilities and as a plain user: bubblewrap knows no others."""

    def __init_subclass__(cls, **kwargs):
        for name, function in vars(cls).items():
            if name.startswith("test_") and not hasattr(function, "callers"):
                function.callers = ("root", "user")
        super().__init_subclass__(**kwargs)

    def start_bwrap(self, *arguments, **more):
        return self.start(*arguments, binary=BWRAP, **more)

    def bwrap(self, *arguments, **more):
        return self.start_bwrap(*arguments, **more).finish()

    def good(self, *arguments, **more):
        """It runs well; its output without the last newline."""
        run = self.bwrap(*arguments, **more)
        self.assertEqual(run.code, 0, str(run))
        return run.out.rstrip("\n")

    def bad(self, *arguments, says="", code=1, **more):
        run = self.bwrap(*arguments, **more)
        self.assertEqual(run.code, code, str(run))
        self.assertIn(says, run.err)
        if code == 1:
            self.assertTrue(run.err.startswith(("bwrap: ", "<")), str(run))
        return run

    def back(self):
        """What chooses the back end of a launch that the harness does not start."""
        return {"BELLJAR_BACK_END": "legacy"} if self.back_end == "legacy" else {}

    def fd_with(self, content):
        """A descriptor, to be closed with the test, that holds `content`."""
        read, write = os.pipe()
        os.write(write, content if isinstance(content, bytes) else content.encode())
        os.close(write)
        self.addCleanup(os.close, read)
        return read

    def mode_of(self, path, *arguments):
        return self.good(*arguments, "stat", "-c", "%a", path)


class Basics(BwrapTest):
    def test_help_names_the_program_as_it_was_called(self):
        self.assertIn(f"usage: {BWRAP} ", self.good("--help"))

    def test_without_a_command_it_prints_the_usage_and_fails(self):
        run = self.bwrap()
        self.assertEqual(run.code, 1)
        self.assertIn("usage: ", run.err)

    def test_belljar_bwrap_is_the_same(self):
        run = self.belljar("bwrap", *HOST, "sh", "-c", "echo inside; exit 7")
        self.assertEqual((run.code, run.out), (7, "inside\n"), str(run))

    def test_a_proc_can_be_had_without_a_dev(self):
        for variant in VARIANTS:
            self.good(*RUN, *variant, "--proc", "/proc", "test", "-e", "/proc/self/status")

    def test_network_proc_and_dev_go_together(self):
        for variant in VARIANTS:
            out = self.good(*RUN, *variant, "--unshare-net", "--proc", "/proc", "--dev", "/dev",
                            "cat", "/proc/net/dev")
            self.assertEqual([line.split(":")[0].strip() for line in out.splitlines()[2:]], ["lo"])

    @callers("user")
    def test_what_its_caller_may_not_read_stays_unread(self):
        for variant in VARIANTS:
            run = self.bwrap(*RUN, *variant, "--proc", "/proc", "--bind", "/etc/shadow", "/tmp/copy",
                             "cat", "/etc/shadow")
            self.assertNotEqual(run.code, 0)
            self.assertEqual(run.out, "")
            self.assertNotEqual(self.bwrap(*RUN, *variant, "ls", "/root").code, 0)
        self.good(*RUN, "cat", "/etc/passwd")  # What can be read elsewhere can be read here.

    def test_a_mount_point_may_be_a_link(self):
        for variant in VARIANTS:
            self.good(*RUN, *variant, "--dir", "/tmp/dir", "--symlink", "dir", "/tmp/link",
                      "--bind", "/etc", "/tmp/link", "test", "-e", "/tmp/dir/passwd")

    def test_an_absolute_link_is_one_of_the_new_root(self):
        self.good(*RUN, "--dir", "/tmp/dir", "--symlink", "/tmp/dir", "/tmp/link",
                  "--ro-bind", "/etc", "/tmp/link/etc", "test", "-e", "/tmp/dir/etc/passwd")

    def test_a_link_is_made_through_a_writable_bind(self):
        self.good(*RUN, "--bind", self.work, "/tmp/w", "--symlink", "text", "/tmp/w/link", "true")
        self.assertEqual(os.readlink(self.work / "link"), "text")
        self.good(*RUN, "--bind", self.work, "/tmp/w", "--symlink", "text", "/tmp/w/link", "true")

    def test_another_link_in_its_place_is_said(self):
        self.bad(*RUN, "--symlink", "/dev/null", "/tmp/l", "--symlink", "/dev/full", "/tmp/l", "true",
                 says="Can't make symlink at /tmp/l: existing destination is /dev/null")

    def test_dev_has_the_usual_names(self):
        names = self.good(*RUN, "--dev", "/dev", "ls", "/dev").split()
        self.assertLessEqual({"stdin", "stdout", "stderr", "null", "zero", "full", "random", "urandom",
                              "tty", "fd", "core", "pts", "ptmx", "shm"}, set(names))
        self.good(*RUN, "--dev", "/dev", "sh", "-c", "echo > /dev/null; head -c1 /dev/zero")

    def test_mounts_can_be_made_in_a_dev(self):
        self.good(*RUN, "--dev", "/dev", "--dev-bind", "/dev/null", "/dev/mine/null",
                  "--tmpfs", "/dev/shm", "sh", "-c", "echo > /dev/mine/null && touch /dev/shm/x")

    def test_as_pid_1_the_command_is_it(self):
        self.assertEqual(self.good(*RUN, "--unshare-pid", "--as-pid-1", "sh", "-c", "echo $$"), "1")
        self.assertNotEqual(self.good(*RUN, "--unshare-pid", "sh", "-c", "echo $$"), "1")

    def test_the_source_that_is_missing_is_named(self):
        run = self.bad("--bind", self.dir / "none", "/", "true")
        self.assertTrue(run.err.startswith("bwrap: Can't find source path"), run.err)

    @callers("root")
    def test_a_source_that_owner_and_mode_keep_from_root_in_a_user_namespace_is_told_with_the_reason(self):
        closed = self.make_directory("closed", owner=self.uid, mode=0o700)
        (closed / "below").mkdir()
        run = self.bad(*HOST, "--unshare-user", "--bind", closed / "below", "/mnt", "true", says="Permission denied")
        self.assertIn("owner and mode of it", run.err)
        self.good(*HOST, "--bind", closed / "below", "/mnt", "true")

    def test_optional_binds_pass_over_what_is_missing(self):
        for option in ("--bind-try", "--ro-bind-try", "--dev-bind-try"):
            self.good(*RUN, option, self.dir / "none", "/tmp/x", "test", "!", "-e", "/tmp/x")

    def test_an_empty_source_is_refused(self):
        for option in ("--bind", "--bind-try", "--ro-bind-try"):
            self.bad(*RUN, option, "", "/tmp/x", "true", says="Can't find source path")

    def test_a_relative_source_is_not_looked_up_from_the_root(self):
        self.bad(*RUN, "--bind", "etc/passwd", "/tmp/x", "true", says="etc/passwd")
        self.good(*RUN, "--bind-try", "etc/passwd", "/tmp/x", "test", "!", "-e", "/tmp/x")


class Words(BwrapTest):
    def test_options_come_from_descriptors_too(self):
        fds = [self.fd_with(f"--setenv\0V{i}\0{i}\0") for i in range(3)]
        args = [word for fd in fds for word in ("--args", fd)]
        self.assertEqual(self.good(*RUN, *args, "sh", "-c", "echo $V0$V1$V2", fds=fds), "012")

    def test_what_has_been_read_leaves_no_descriptor(self):
        fd = self.fd_with("--setenv\0A\0b\0")
        listed = self.good("--dev-bind", "/", "/", "--args", fd, "ls", "/proc/self/fd", fds=[fd]).split()
        self.assertEqual(listed, ["0", "1", "2", "3"])  # The last is ls's own.

    def test_two_dashes_end_the_options(self):
        self.assertEqual(self.good(*HOST, "--", "echo", "a"), "a")
        program = self.make_file("--odd", "#!/bin/sh\necho odd\n", mode=0o755)
        found = environment(PATH=f"{program.parent}:/usr/bin:/bin")
        self.assertEqual(self.good(*HOST, "--", "--odd", env=found), "odd")
        self.assertEqual(self.good(*HOST, "--", "sh", "-c", "echo $1", "sh", "--help"), "--help")

    def test_the_last_chdir_counts_and_the_others_are_said(self):
        run = self.bwrap(*HOST, "--chdir", "/etc", "--chdir", "/usr", "pwd")
        self.assertEqual(run.out, "/usr\n")
        self.assertIn("bwrap: Only the last --chdir option will take effect", run.err)
        run = self.bwrap("--level-prefix", *HOST, "--chdir", "/etc", "--chdir", "/usr", "true")
        self.assertIn("<4>bwrap: Only the last --chdir option will take effect", run.err)
        self.bad(*HOST, "--level-prefix", "--unshare-what", "x", says="<3>bwrap: Unknown option")

    def test_a_size_that_is_none_is_refused(self):
        for size in ("0", "123bogus", "", "-12345678", " -12345678", str(2**64), str(2**63 + 1)):
            self.bad(*RUN, "--size", size, "--tmpfs", "/tmp/x", "true", says="--size")

    def test_perms_and_size_count_once(self):
        self.bad(*RUN, "--perms", "0700", "--perms", "0700", "--dir", "/tmp/x", "true", says="twice")
        self.bad(*RUN, "--size", "5", "--size", "5", "--tmpfs", "/tmp/x", "true", says="twice")

    def test_perms_and_size_are_about_the_next_option_wherever_it_stands(self):
        fds = [self.fd_with("--tmpfs\0/tmp/t\0"), self.fd_with("--perms\0" "0700\0")]
        self.assertEqual(self.good(*RUN, "--perms", "0700", "--args", fds[0], "stat", "-c", "%a", "/tmp/t",
                                   fds=[fds[0]]), "700")
        self.bad(*RUN, "--args", fds[1], "--tmpfs", "/tmp/t", "true", fds=[fds[1]], says="--perms must be followed by")

    def test_a_directory_without_a_name_is_none(self):
        self.bad(*HOST, "--chdir", "", "true", says="Can't chdir to : No such file")

    def test_a_file_has_no_name_that_ends_in_a_slash(self):
        fd = self.fd_with("x")
        for words in (("--ro-bind", "/etc/passwd"), ("--bind-try", "/etc/passwd"), ("--file", fd), ("--bind-data", fd)):
            self.bad(*RUN, *words, "/tmp/x/", "true", fds=[fd], says="Can't create file at /tmp/x/: Is a directory")
        self.good(*RUN, "--ro-bind", "/etc", "/tmp/x/", "test", "-e", "/tmp/x/passwd")

    def test_a_stream_that_is_closed_leaves_no_descriptor_of_ours(self):
        for closed in ("<&-", ">&-", "<&- >&-"):
            script = f'exec {closed}; exec "$@"'
            said = "ls /proc/self/fd >&2"
            run = self.bwrap(*HOST, "sh", "-c", said, wrap=("sh", "-c", script, "sh"))
            self.assertEqual(run.err.split(), ["0", "1", "2", "3"], str(run))  # The last is ls's own.

    def test_the_environment_is_as_the_options_say(self):
        mine = environment(KEEP="k", DROP="d")
        self.assertEqual(self.good(*HOST, "--setenv", "NEW", "n", "--unsetenv", "DROP",
                                   "sh", "-c", "echo $KEEP$DROP$NEW", env=mine), "kn")
        self.assertEqual(self.good(*HOST, "--clearenv", "--chdir", "/", "/usr/bin/env", env=mine), "PWD=/")

    def test_the_command_can_have_another_name(self):
        self.assertEqual(self.good(*HOST, "--argv0", "other", "sh", "-c", "echo $0"), "other")

    def test_the_exit_status_is_the_commands(self):
        self.assertEqual(self.bwrap(*HOST, "sh", "-c", "exit 42").code, 42)
        self.assertEqual(self.bwrap(*HOST, "--unshare-pid", "sh", "-c", "exit 42").code, 42)
        for variant in ((), ("--unshare-pid",)):
            run = self.bwrap(*HOST, *variant, "sh", "-c", "kill -KILL $$")
            self.assertEqual(run.code, 137)

    def test_a_command_that_cannot_be_started_is_named(self):
        for variant in ((), ("--unshare-pid",)):
            self.bad(*HOST, *variant, "/no/such", says="execvp /no/such: No such file or directory")
            self.bad(*HOST, *variant, "/", says="execvp /: ")

    def test_a_text_without_a_first_line_is_a_script(self):
        program = self.make_file("script", "echo $1 $2\n", mode=0o755)
        self.assertEqual(self.good(*HOST, program, "a", "b"), "a b")

    def test_a_missing_loader_is_told_from_a_missing_program(self):
        self.bad("--ro-bind", "/usr/bin", "/usr/bin", "/usr/bin/env",
                 says="which is not in the sandbox")


class Files(BwrapTest):
    def test_the_same_tree_at_the_same_place(self):
        mark = self.make_file("mark", "m")
        self.assertEqual(self.good("--bind", "/", "/", "cat", mark), "m")
        self.assertEqual(self.good("--bind", "/", "/", "--bind", self.dir, self.dir, "cat", mark), "m")
        self.assertEqual(self.good("--bind", "/", "/", "--bind", self.dir, "/mnt", "cat", "/mnt/mark"), "m")

    def test_another_directory_at_tmp_or_below(self):
        self.make_file("mark", "m")
        self.assertEqual(self.good("--bind", "/", "/", "--bind", self.dir, "/tmp", "ls", "/tmp").split(),
                         ["mark", "work"])
        names = self.good("--bind", "/", "/", "--tmpfs", "/tmp", "--bind", self.dir, "/tmp/x/y",
                          "ls", "-A", "/tmp", "/tmp/x/y").split()
        self.assertNotIn("oldroot", names)
        self.assertNotIn("newroot", names)
        self.assertEqual(self.good("--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink",
                                   "usr/lib64", "/lib64", "/usr/bin/ls", "-A", "/").split(),
                         ["lib", "lib64", "usr"])

    def test_what_is_made_to_be_mounted_on(self):
        self.assertEqual(self.mode_of("/tmp/a", *RUN, "--bind", self.dir, "/tmp/a/b/c"), "755")
        self.assertEqual(self.good(*RUN, "--ro-bind", "/etc/passwd", "/tmp/f", "stat", "-c", "%F", "/tmp/f"),
                         "regular file")

    def test_a_missing_mount_point_stays_on_the_host_behind_a_writable_bind(self):
        self.good("--bind", "/", "/", "--ro-bind", "/etc/passwd", self.work / "f",
                  "--ro-bind", "/etc", self.work / "d", "true")
        self.assertEqual(stat.S_IMODE((self.work / "f").stat().st_mode), 0o444)
        self.assertEqual(stat.S_IMODE((self.work / "d").stat().st_mode), 0o755)

    def test_modes_of_directories(self):
        run = (*RUN, "--perms", "1741", "--dir", "/tmp/a", "--dir", "/tmp/b", "--perms", "0700",
               "--dir", "/tmp/b", "--chmod", "1755", "/tmp/c")
        with_c = (*RUN, "--dir", "/tmp/c", *run[len(RUN):])
        self.assertEqual(self.good(*with_c, "stat", "-c", "%a", "/tmp/a", "/tmp/b", "/tmp/c").split(),
                         ["1741", "755", "1755"])

    def test_directories_made_on_the_way_follow_the_mode(self):
        for mode, parent in (("0755", "755"), ("0700", "700"), ("0600", "700"), ("0750", "750"),
                             ("0640", "750"), ("0705", "705"), ("0604", "705"), ("7777", "755")):
            self.assertEqual(self.mode_of("/tmp/p", *RUN, "--perms", mode, "--dir", "/tmp/p/x"), parent, mode)

    def test_modes_and_sizes_of_a_tmpfs(self):
        self.assertEqual(self.mode_of("/tmp/t", *RUN, "--tmpfs", "/tmp/t"), "755")
        self.assertEqual(self.mode_of("/tmp/t", *RUN, "--perms", "1777", "--tmpfs", "/tmp/t"), "1777")
        for words in (("--size", "1048576", "--perms", "1777"), ("--perms", "1777", "--size", "1048576")):
            out = self.good(*RUN, *words, "--tmpfs", "/tmp/t", "df", "--output=size", "-k", "/tmp/t")
            self.assertEqual(out.split()[-1], "1024")

    def test_modes_and_content_of_what_comes_by_a_descriptor(self):
        for option, mode in (("--file", "666"), ("--bind-data", "600"), ("--ro-bind-data", "600")):
            fds = [self.fd_with("content"), self.fd_with("more")]
            out = self.good(*RUN, option, fds[0], "/tmp/a", "--perms", "0640", option, fds[1], "/tmp/b",
                            "sh", "-c", "stat -c %a /tmp/a /tmp/b; cat /tmp/a /tmp/b", fds=fds)
            self.assertEqual(out.split(), [mode, "640", "contentmore"], option)

    def test_data_that_is_bound_read_only_cannot_be_written(self):
        fd = self.fd_with("x")
        run = self.bwrap(*RUN, "--ro-bind-data", fd, "/tmp/a", "sh", "-c", "echo y > /tmp/a", fds=[fd])
        self.assertNotEqual(run.code, 0)
        fd = self.fd_with("x")
        self.good(*RUN, "--bind-data", fd, "/tmp/a", "sh", "-c", "echo y > /tmp/a", fds=[fd])

    def test_a_descriptor_gives_its_content_once(self):
        fd = self.fd_with("x")
        self.bad(*RUN, "--file", fd, "/tmp/a", "--file", fd, "/tmp/b", "true", fds=[fd], says="/tmp/b")

    def test_a_file_that_is_there_is_emptied_first(self):
        self.make_file("work/f", "longer than that", owner=self.uid)
        fd = self.fd_with("new")
        self.good(*RUN, "--file", fd, self.work / "f", "true", fds=[fd])
        self.assertEqual((self.work / "f").read_text(), "new")

    def test_what_a_descriptor_is_on_can_be_bound(self):
        (self.work / "mark").write_text("m")
        fd = os.open(self.work, os.O_PATH if self.caller != "user" else os.O_RDONLY)
        self.addCleanup(os.close, fd)
        self.assertEqual(self.good("--bind", "/", "/", "--bind-fd", fd, "/tmp", "cat", "/tmp/mark",
                                   fds=[fd]), "m")
        run = self.bwrap("--bind", "/", "/", "--ro-bind-fd", fd, "/tmp", "touch", "/tmp/x", fds=[fd])
        self.assertNotEqual(run.code, 0)

    def test_read_only_is_read_only_below_too(self):
        self.assertNotEqual(self.bwrap(*HOST, "touch", self.work / "x").code, 0)
        self.good("--bind", "/", "/", "touch", self.work / "x")
        self.assertNotEqual(self.bwrap("--bind", "/", "/", "--ro-bind", self.work, self.work,
                                       "touch", self.work / "y").code, 0)

    def test_operations_take_effect_in_their_order(self):
        fresh = ("--bind", "/", "/", "--tmpfs", "/mnt")
        self.good(*fresh, "--dir", "/mnt/d", "--remount-ro", "/mnt", "test", "-d", "/mnt/d")
        self.bad(*fresh, "--remount-ro", "/mnt", "--dir", "/mnt/d", "true",
                 says="Can't mkdir /mnt/d: Read-only file system")

    def test_remount_ro_is_for_mounts(self):
        self.bad(*RUN, "--dir", "/tmp/d", "--remount-ro", "/tmp/d", "true", says="Can't remount readonly on /tmp/d")
        run = self.bwrap(*RUN, "--tmpfs", "/tmp/d", "--remount-ro", "/tmp/d", "touch", "/tmp/d/x")
        self.assertNotEqual(run.code, 0)

    def test_a_message_queue_file_system(self):
        self.good(*RUN, "--unshare-ipc", "--mqueue", "/tmp/q", "test", "-d", "/tmp/q")

    def test_nothing_can_be_used_as_a_device_but_through_dev_bind(self):
        self.assertNotEqual(self.bwrap("--bind", "/", "/", "sh", "-c", "echo > /dev/null").code, 0)
        self.good("--dev-bind", "/", "/", "sh", "-c", "echo > /dev/null")

    @callers("root")
    def test_no_mount_comes_from_the_host_later(self):
        private = self.make_directory("m")
        script = 'mount --make-rshared /; coproc "$1" --ro-bind / / sh -c "echo ready; read x; ls -A $2; echo end"; ' \
                 'read -ru "${COPROC[0]}" word; mount -t tmpfs t "$2"; touch "$2/late"; ls "$2"; ' \
                 'echo >&"${COPROC[1]}"; cat <&"${COPROC[0]}"; wait'
        done = subprocess.run(["unshare", "--mount", "--propagation", "private", "bash", "-c", script, "bash", BWRAP,
                               private], capture_output=True, text=True, timeout=30, env={**environment(),
                                                                                           **dict(self.back())})
        self.assertEqual(done.stdout.split(), ["late", "end"], done.stderr)


class Overlays(BwrapTest):
    def layers(self):
        for name in ("low", "high", "upper", "work2"):
            self.make_directory(f"work/{name}", owner=self.uid)
        self.make_file("work/low/a", "low", owner=self.uid)
        self.make_file("work/high/a", "high", owner=self.uid)
        self.make_file("work/low/b", "b", owner=self.uid)
        sources = ("--overlay-src", self.work / "low", "--overlay-src", self.work / "high")
        return (*HOST, "--tmpfs", "/tmp", *sources)

    def test_writes_land_in_the_upper_and_the_last_source_wins(self):
        out = self.good(*self.layers(), "--overlay", self.work / "upper", self.work / "work2", "/tmp/o",
                        "sh", "-c", "cat /tmp/o/a /tmp/o/b; echo new > /tmp/o/c")
        self.assertEqual(out, "highb")
        self.assertEqual((self.work / "upper" / "c").read_text(), "new\n")
        self.assertFalse((self.work / "low" / "c").exists())

    def test_writes_to_a_temporary_one_vanish(self):
        layers = self.layers()
        out = self.good(*layers, "--tmp-overlay", "/tmp/o", *layers[5:], "--tmp-overlay", "/tmp/p",
                        "sh", "-c", "echo new > /tmp/o/c; ls /tmp/o /tmp/p")
        self.assertEqual(out.split(), ["/tmp/o:", "a", "b", "c", "/tmp/p:", "a", "b"])
        self.assertEqual(sorted(path.name for path in (self.work / "low").iterdir()), ["a", "b"])

    def test_a_read_only_one_takes_no_writes(self):
        layers = (*self.layers(), "--ro-overlay", "/tmp/o")
        self.assertEqual(self.good(*layers, "cat", "/tmp/o/a"), "high")
        self.assertNotEqual(self.bwrap(*layers, "touch", "/tmp/o/x").code, 0)

    def test_names_with_signs_are_names(self):
        self.make_directory('work/a,b:c\\"d', owner=self.uid)
        self.make_file('work/a,b:c\\"d/f', "f", owner=self.uid)
        self.assertEqual(self.good(*HOST, "--tmpfs", "/tmp", "--overlay-src", self.work / 'a,b:c\\"d',
                                   "--tmp-overlay", "/tmp/o", "cat", "/tmp/o/f"), "f")

    def test_what_is_missing_is_said(self):
        self.bad(*HOST, "--overlay", "/a", "/b", "/c", "true", says="--overlay requires at least one --overlay-src")
        self.bad(*HOST, "--tmp-overlay", "/c", "true", says="--tmp-overlay requires at least one --overlay-src")
        self.bad(*HOST, "--overlay-src", "/usr", "--ro-overlay", "/c", "true",
                 says="--ro-overlay requires at least two --overlay-src")
        self.bad(*HOST, "--overlay-src", "/usr", "true", says="--overlay-src must be followed by")

    def test_set_user_id_programs_and_devices_have_no_force_in_it(self):
        out = self.good(*self.layers(), "--tmp-overlay", "/tmp/o", "--proc", "/proc",
                        "cat", "/proc/self/mountinfo")
        line = next(line for line in out.splitlines() if " /tmp/o " in line)
        self.assertIn("nosuid", line)
        self.assertIn("nodev", line)


class Namespaces(BwrapTest):
    KINDS = {"ipc": "--unshare-ipc", "net": "--unshare-net", "pid": "--unshare-pid", "uts": "--unshare-uts"}

    def pipe(self):
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        return read, write

    def drained(self, read):
        data = b""
        while more := os.read(read, 65536):
            data += more
        return data.decode()

    def test_what_was_made_is_told_as_the_command_sees_it(self):
        info, status = self.pipe(), self.pipe()
        running = self.start_bwrap(*HOST, *self.KINDS.values(), "--proc", "/proc", "--info-fd", info[1],
                                   "--json-status-fd", status[1], "sh", "-c",
                                   "stat -Lc %i /proc/self/ns/ipc /proc/self/ns/mnt /proc/self/ns/net "
                                   "/proc/self/ns/pid /proc/self/ns/uts; exit 42", fds=[info[1], status[1]])
        os.close(info[1])
        os.close(status[1])
        run = running.finish()
        self.assertEqual(run.code, 42, str(run))
        told, lines = json.loads(self.drained(info[0])), self.drained(status[0]).splitlines()
        self.assertEqual(lines[-1], '{ "exit-code": 42 }')
        first = json.loads(lines[0])
        self.assertEqual(first, told)
        self.assertIn(f'"child-pid": {told["child-pid"]}', lines[0])
        inodes = [str(told[f"{kind}-namespace"]) for kind in ("ipc", "mnt", "net", "pid", "uts")]
        self.assertEqual(run.out.split(), inodes)

    def test_only_what_is_new_is_told(self):
        info = self.pipe()
        running = self.start_bwrap(*HOST, "--info-fd", info[1], "true", fds=[info[1]])
        os.close(info[1])
        running.finish()
        self.assertEqual(set(json.loads(self.drained(info[0]))), {"child-pid", "mnt-namespace"})

    def test_a_command_that_never_ran_has_no_exit_code(self):
        for variant in ((), ("--unshare-pid",)):
            status = self.pipe()
            running = self.start_bwrap(*HOST, *variant, "--json-status-fd", status[1], "/", fds=[status[1]])
            os.close(status[1])
            self.assertEqual(running.finish().code, 1)
            self.assertNotIn("exit-code", self.drained(status[0]))

    def test_it_can_be_nested_by_its_own_executable(self):
        inner = ("--unshare-all", *HOST, "--tmpfs", "/tmp", "echo", "deep")
        self.assertEqual(self.good(*RUN, "--unshare-user", "--uid", "0", "--gid", "0",
                                   "--cap-add", "ALL", "--dev-bind", "/dev", "/dev", BWRAP, *inner), "deep")

    def test_a_user_namespace_can_be_forbidden(self):
        unshare = ("unshare", "--user", "true")
        self.good(*RUN, "--unshare-user", *unshare)
        for more in ((), ("--uid", "0", "--cap-add", "ALL"), ("--unshare-pid",)):
            run = self.bwrap(*RUN, "--unshare-user", *more, "--disable-userns", *unshare)
            self.assertNotEqual(run.code, 0, str(run))
            self.assertIn("No space left", run.err)
        self.good(*RUN, "--unshare-user", "--disable-userns", "--assert-userns-disabled", "true")
        self.bad(*RUN, "--unshare-user", "--assert-userns-disabled", "true", says="not disabled")

    def test_raising_the_limit_again_does_not_help(self):
        run = self.bwrap(*RUN, "--dev-bind", "/dev", "/dev", "--unshare-user", "--uid", "0", "--cap-add", "ALL",
                         "--disable-userns", "sh", "-c",
                         "echo 100 > /proc/sys/user/max_user_namespaces; unshare --user true")
        self.assertNotEqual(run.code, 0, str(run))

    def test_ids_are_mapped(self):
        self.assertEqual(self.good(*HOST, "--unshare-user", "--uid", "7", "--gid", "8", "id", "-u"), "7")
        if self.caller == "user":
            self.assertEqual(self.good(*HOST, "id", "-u"), str(self.uid))
        if self.caller == "root":
            self.bad(*HOST, "--uid", "7", "true", says="requires --unshare-user")

    def test_a_host_name_of_its_own(self):
        self.assertEqual(self.good(*HOST, "--unshare-uts", "--hostname", "inner", "uname", "-n"), "inner")

    def test_a_user_namespace_can_be_joined(self):
        holder = self.start_bwrap(*HOST, "--unshare-user", "--json-status-fd", 2, "sh", "-c", "echo up; read x",
                                  stdin=subprocess.PIPE)
        holder.wait_for_output("up")
        pid = json.loads(holder.process.stderr.readline())["child-pid"]
        fd = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
        self.addCleanup(os.close, fd)
        there = str(os.fstat(fd).st_ino)
        self.assertEqual(self.good(*HOST, "--userns", fd, "stat", "-Lc", "%i", "/proc/self/ns/user", fds=[fd]), there)
        holder.process.stdin.close()
        holder.process.stdin = None
        holder.stdin = None
        holder.finish()

    def joinable(self, *kinds):
        """Descriptors of namespaces that a sandbox has which ends with the test."""
        holder = self.start_bwrap(*HOST, "--unshare-user", "--unshare-pid", "--json-status-fd", 2,
                                  "sh", "-c", "echo up; read x", stdin=subprocess.PIPE)
        holder.wait_for_output("up")
        pid = json.loads(holder.process.stderr.readline())["child-pid"]
        fds = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind in kinds]

        def end():
            for fd in fds:
                os.close(fd)
            holder.process.stdin.close()
            holder.process.stdin = holder.stdin = None
            holder.finish()
        self.addCleanup(end)
        return fds

    def test_a_pid_namespace_can_be_joined(self):
        user, pids = self.joinable("user", "pid")
        self.assertEqual(self.good(*HOST, "--userns", user, "--pidns", pids, "stat", "-Lc", "%i",
                                   "/proc/self/ns/pid", fds=[user, pids]), str(os.fstat(pids).st_ino))

    def test_a_pid_namespace_can_be_made_below_one_that_is_joined(self):
        user, pids = self.joinable("user", "pid")
        both = ("--userns", user, "--pidns", pids)
        for more in ((), ("--as-pid-1",)):
            out = self.good(*HOST, *both, "--unshare-pid", *more, "--proc", "/proc", "sh", "-c",
                            "stat -Lc %i /proc/self/ns/pid; ls /proc; exit 0", fds=[user, pids]).split()
            self.assertNotIn(int(out[0]), (os.fstat(pids).st_ino, os.stat("/proc/self/ns/pid").st_ino))
            self.assertEqual(sorted(name for name in out[1:] if name.isdigit())[0], "1")
            self.assertLessEqual(sum(name.isdigit() for name in out[1:]), 3, "it shows its own processes alone")
        # What is below is seen from the one that was joined, by another number than its own.
        running = self.start_bwrap(*HOST, *both, "--unshare-pid", "--unshare-uts", "--hostname", "below",
                                   "sh", "-c", "echo up; read x", fds=[user, pids], stdin=subprocess.PIPE)
        running.wait_for_output("up")
        seen = self.good(*HOST, *both, "--proc", "/proc", "sh", "-c",
                         "for p in /proc/[0-9]*; do grep -h NSpid $p/status; done; true", fds=[user, pids])
        self.assertTrue(any(len(line.split()) == 3 for line in seen.splitlines()), seen)
        running.process.stdin.close()
        running.process.stdin = running.stdin = None
        self.assertEqual(running.finish().code, 1)

    def test_the_end_of_a_command_in_a_namespace_below_is_told(self):
        user, pids = self.joinable("user", "pid")
        for code in (0, 42):
            self.assertEqual(self.bwrap(*HOST, "--userns", user, "--pidns", pids, "--unshare-pid", "sh", "-c",
                                        f"exit {code}", fds=[user, pids]).code, code)
        self.assertEqual(self.bwrap(*HOST, "--userns", user, "--pidns", pids, "--unshare-pid", "sh", "-c",
                                    "kill -TERM $$", fds=[user, pids]).code, 143)

    @callers("user")
    def test_somebody_else_can_write_the_maps(self):
        info, block = self.pipe(), os.pipe()
        running = self.start_bwrap(*HOST, "--unshare-user", "--info-fd", info[1], "--userns-block-fd", block[0],
                                   "id", "-u", fds=[info[1], block[0]])
        os.close(info[1])
        os.close(block[0])
        pid = json.loads(os.read(info[0], 4096))["child-pid"]
        pathlib.Path(f"/proc/{pid}/setgroups").write_text("deny")
        pathlib.Path(f"/proc/{pid}/gid_map").write_text(f"6 {self.gid} 1")
        pathlib.Path(f"/proc/{pid}/uid_map").write_text(f"5 {self.uid} 1")
        os.write(block[1], b"x")
        os.close(block[1])
        self.assertEqual(running.finish().out, "5\n")

    def test_the_command_waits_for_the_block_fd(self):
        for variant in ((), ("--unshare-pid",)):
            block = os.pipe()
            running = self.start_bwrap(*HOST, *variant, "--block-fd", block[0], "echo", "ran", fds=[block[0]])
            os.close(block[0])
            self.assertIsNone(running.process.poll())
            os.write(block[1], b"x")
            os.close(block[1])
            self.assertEqual(running.finish().out, "ran\n")


class Capabilities(BwrapTest):
    SHOW = "import pathlib; print(*[l.split()[1] for l in pathlib.Path('/proc/self/status').read_text()." \
           "splitlines() if l.startswith(('CapPrm', 'CapEff', 'CapAmb'))])"

    def sets(self, *options):
        return self.good(*HOST, *options, "/usr/bin/python3", "-c", self.SHOW).split()

    @callers("user")
    def test_a_plain_caller_leaves_none(self):
        for options in ((), ("--unshare-pid",), ("--unshare-user", "--uid", "0"), ("--unshare-all",)):
            self.assertEqual({int(bits, 16) for bits in self.sets(*options)}, {0}, options)

    def test_those_that_are_added_are_in_force(self):
        self.assertEqual({int(bits, 16) for bits in self.sets("--unshare-user", "--cap-drop", "ALL",
                                                              "--cap-add", "CAP_NET_BIND_SERVICE")}, {1 << 10})

    @callers("root")
    def test_root_keeps_its_own_unless_told_otherwise(self):
        outside = subprocess.run(["/usr/bin/python3", "-c", self.SHOW], capture_output=True, text=True).stdout.split()
        self.assertEqual(self.sets(), outside)
        self.assertEqual(self.sets("--unshare-all")[:2], outside[:2])
        self.assertEqual(int(self.sets("--cap-drop", "ALL")[0], 16), 0)
        left = int(self.sets("--cap-drop", "CAP_KILL", "--cap-drop", "CAP_FOWNER")[0], 16)
        self.assertEqual((left >> 5 & 1, left >> 3 & 1, left >> 10 & 1), (0, 0, 1))

    READ = "cat /proc/$PPID/status"

    def held_by_the_reaper(self, text):
        return {int(line.split()[1], 16) for line in text.splitlines()
                if line.startswith(("CapInh", "CapPrm", "CapEff", "CapAmb"))}

    def test_the_reaper_has_none_whatever_the_command_keeps(self):
        for options in (("--unshare-pid",), ("--unshare-all",), ("--lock-file", "/etc/passwd"),
                        ("--unshare-user", "--unshare-pid", "--cap-add", "ALL"),
                        ("--unshare-user", "--uid", "0", "--unshare-pid", "--cap-add", "CAP_KILL")):
            out = self.good(*HOST, *options, "--proc", "/proc", "sh", "-c", self.READ)
            self.assertEqual(self.held_by_the_reaper(out), {0}, options)

    def test_the_reaper_has_none_while_the_command_is_still_held_back(self):
        info, block = os.pipe(), os.pipe()
        running = self.start_bwrap(*HOST, "--unshare-user", "--unshare-pid", "--cap-add", "ALL",
                                   "--info-fd", info[1], "--block-fd", block[0], "true",
                                   fds=[info[1], block[0]])
        os.close(info[1])
        os.close(block[0])
        reaper = json.loads(os.read(info[0], 4096))["child-pid"]
        status = pathlib.Path(f"/proc/{reaper}/status")
        children = pathlib.Path(f"/proc/{reaper}/task/{reaper}/children")
        wait_for(lambda: children.read_text() and self.held_by_the_reaper(status.read_text()) == {0}, 10,
                 "a reaper without capabilities beside a command that has not begun")
        self.assertIsNone(running.process.poll())
        command = pathlib.Path(f"/proc/{children.read_text().strip()}/status").read_text()
        self.assertNotEqual(self.held_by_the_reaper(command), {0}, "what is looked at could not show any")
        os.write(block[1], b"x")
        os.close(block[1])
        self.assertEqual(running.finish().code, 0)
        os.close(info[0])

    def test_a_command_that_is_held_back_ends_with_its_reaper(self):
        info, block = os.pipe(), os.pipe()
        running = self.start_bwrap(*HOST, "--unshare-pid", "--info-fd", info[1], "--block-fd", block[0], "true",
                                   fds=[info[1], block[0]])
        os.close(info[1])
        os.close(block[0])
        reaper = json.loads(os.read(info[0], 4096))["child-pid"]
        children = pathlib.Path(f"/proc/{reaper}/task/{reaper}/children")
        wait_for(children.read_text, 10, "the command, which waits")
        command = pathlib.Path(f"/proc/{children.read_text().strip()}")
        os.kill(reaper, signal.SIGKILL)
        run = running.finish()
        self.assertEqual(run.code, 255)
        self.assertIn("was killed from outside", run.err)
        wait_for(lambda: not command.exists(), 10, "the end of the command")
        os.close(info[0])
        os.close(block[1])

    def test_nothing_is_gained_by_exec(self):
        self.assertIn("1", self.good(*HOST, "grep", "NoNewPrivs", "/proc/self/status"))

    def test_an_unknown_one_is_refused(self):
        self.bad(*HOST, "--cap-add", "CAP_FLY", "true", says="unknown cap: CAP_FLY")
        for name in ("64", "-1", "5x", ""):
            self.bad(*HOST, "--cap-add", name, "true", says="unknown cap: ")

    @callers("user")
    def test_it_can_be_named_by_its_number(self):
        for name in ("5", "CAP_KILL"):
            out = self.good(*HOST, "--cap-add", name, "grep", "CapEff", "/proc/self/status")
            self.assertEqual(int(out.split()[1], 16), 1 << 5)


class Remedies(BwrapTest):
    """What a failure says to do is something that a caller of bwrap can do."""

    def remedy(self, *arguments, **more):
        run = self.bad(*arguments, **more)
        for foreign in ("belljar", "policy", "namespaces.", "-v "):
            self.assertNotIn(foreign, run.err.replace(str(self.dir), ""))
        return run.err.partition("bwrap: remedy: ")[2]

    def test_a_program_that_is_not_shown(self):
        self.assertIn("--ro-bind SRC DEST", self.remedy("--ro-bind", "/etc", "/etc", "true"))
        self.assertIn("--ro-bind SRC DEST", self.remedy(*HOST, "no-such-program"))

    def test_a_filter_that_is_none(self):
        fd = self.fd_with(bytes(8))
        self.assertIn("sock_filter", self.remedy(*HOST, "--seccomp", fd, "true", fds=[fd]))

    def test_a_file_on_a_directory(self):
        self.assertIn("a directory alone", self.remedy(*RUN, "--dir", "/tmp/d", "--ro-bind", "/etc/passwd", "/tmp/d", "true"))

    @callers("user")
    def test_message_queues_of_somebody_elses(self):
        self.assertIn("--unshare-ipc", self.remedy(*RUN, "--mqueue", "/tmp/q", "true"))
        self.good(*RUN, "--unshare-ipc", "--mqueue", "/tmp/q", "true")


class Ends(BwrapTest):
    def lock_is_free(self, path):
        with open(path, "r+") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
            return True

    def test_all_ends_with_a_parent_that_is_killed(self):
        for variant in ((), ("--unshare-pid",)):
            lock = self.make_file("work/lock", owner=self.uid, mode=0o666)
            parent = self.start("-c", '"$@" & wait', "sh", BWRAP, *HOST, *variant, "--die-with-parent",
                                "--lock-file", lock, "sh", "-c", "echo up; exec sleep 60", binary="/bin/sh")
            parent.wait_for_output("up")
            self.assertFalse(self.lock_is_free(lock))
            parent.process.kill()
            wait_for(lambda: self.lock_is_free(lock), 5, "the end of the sandbox")
            parent.process.wait()

    def test_a_sync_fd_is_open_as_long_as_the_sandbox_is_there(self):
        read, write = os.pipe()
        running = self.start_bwrap(*HOST, "--sync-fd", write, "sh", "-c", "echo up; read x", fds=[write],
                                   stdin=subprocess.PIPE)
        os.close(write)
        running.wait_for_output("up")
        os.set_blocking(read, False)
        self.assertRaises(BlockingIOError, os.read, read, 1)
        running.process.stdin.close()
        running.process.stdin = None
        running.stdin = None
        running.finish()
        os.set_blocking(read, True)
        self.assertEqual(os.read(read, 1), b"")
        os.close(read)

    def test_what_the_command_has_started_goes_on_in_a_pid_namespace(self):
        block = os.pipe()
        mark = self.work / "mark"
        # The reaper keeps the streams, as bubblewrap's does: who waits for their end waits for all of it.
        command = (BWRAP, "--dev-bind", "/", "/", "--unshare-pid", "sh", "-c", f"(read x <&{block[0]}; echo done > {mark}) &")
        done = subprocess.run(list(map(str, (*self.prefix(), *command))), stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=[block[0]], timeout=30)
        self.assertEqual(done.returncode, 0)
        self.assertFalse(mark.exists())
        os.close(block[0])
        os.close(block[1])
        wait_for(lambda: mark.exists() and mark.read_text() == "done\n", 5, "what went on")

    def test_it_ends_with_the_command_where_it_must_die_with_its_parent(self):
        running = self.bwrap("--dev-bind", "/", "/", "--unshare-pid", "--die-with-parent", "sh", "-c",
                             "sleep 60 >/dev/null 2>&1 </dev/null & true")
        self.assertEqual(running.code, 0)  # And nothing is left, as each test here checks.

    def test_a_caller_that_ignores_its_children_hears_how_the_command_has_ended(self):
        ignoring = ("env", "--ignore-signal=CHLD")
        for variant in ((), ("--unshare-pid",), ("--unshare-pid", "--as-pid-1"), ("--die-with-parent",)):
            run = self.bwrap(*HOST, *variant, "sh", "-c", "exit 5", wrap=ignoring)
            self.assertEqual(run.code, 5, str(run))

    def test_signals_reach_the_command(self):
        for variant in ((), ("--unshare-pid",), ("--unshare-pid", "--as-pid-1")):
            running = self.start_bwrap(*HOST, *variant, "sh", "-c",
                                       "trap 'echo got; exit 3' TERM; echo up; while :; do sleep 0.05; done")
            running.wait_for_output("up")
            running.send(signal.SIGTERM)
            run = running.finish()
            self.assertEqual((run.code, run.out), (3, "got\n"), str(run))

    def test_a_term_that_nobody_takes_ends_all(self):
        for variant in ((), ("--unshare-pid",), ("--unshare-pid", "--as-pid-1")):
            running = self.start_bwrap(*HOST, *variant, "sh", "-c", "echo up; exec sleep 60")
            running.wait_for_output("up")
            running.send(signal.SIGTERM)
            self.assertEqual(running.finish().code, -signal.SIGTERM)

    def test_a_first_process_that_ignores_a_term_goes_on(self):
        running = self.start_bwrap(*HOST, "--unshare-pid", "--as-pid-1", "sh", "-c",
                                   "trap '' TERM; echo up; read x; echo on", stdin=subprocess.PIPE)
        running.wait_for_output("up")
        running.send(signal.SIGTERM)
        running.process.stdin.close()
        running.process.stdin = None
        running.stdin = None
        run = running.finish()
        self.assertEqual((run.code, run.out), (0, "on\n"), str(run))

    def test_a_term_that_ends_the_command_ends_what_it_has_left_running(self):
        running = self.start_bwrap(*HOST, "--unshare-pid", "sh", "-c", "sleep 60 & echo up; exec sleep 60")
        running.wait_for_output("up")
        running.send(signal.SIGTERM)
        self.assertEqual(running.finish().code, -signal.SIGTERM)

    def at_a_terminal(self, *arguments):
        """The session's leader on a terminal, whose other end is returned, with a command that has begun."""
        master, slave = pty.openpty()
        # A shell would handle SIGINT until its exec.
        up = ("/usr/bin/python3", "-c", "import signal; signal.signal(2, signal.SIG_DFL); print('up', flush=True); signal.pause()")
        process = subprocess.Popen(list(map(str, (*self.prefix(), BWRAP, *arguments, *up))),
                                   stdin=slave, stdout=slave, stderr=slave, start_new_session=True, cwd=self.work,
                                   preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        seen = b""
        while b"up\r\n" not in seen:  # A terminal passes the line's end on by itself.
            seen += os.read(master, 100)
        return process, master

    SESSIONS = ((), ("--new-session",), ("--unshare-pid", "--die-with-parent"),
                ("--new-session", "--unshare-pid", "--die-with-parent"), ("--unshare-pid", "--as-pid-1"))

    def test_keys_reach_the_command_whatever_its_session(self):
        for variant in self.SESSIONS:
            for key, number in ((b"\x03", signal.SIGINT), (b"\x1c", signal.SIGQUIT)):
                with self.subTest(variant=variant, number=number.name):
                    process, master = self.at_a_terminal(*HOST, *variant)
                    os.write(master, key)
                    self.assertEqual(process.wait(10), -number)
                    os.close(master)

    def test_a_terminal_that_hangs_up_ends_the_command_whatever_its_session(self):
        for variant in self.SESSIONS:
            with self.subTest(variant=variant):
                process, master = self.at_a_terminal(*HOST, *variant)
                os.close(master)
                self.assertEqual(process.wait(10), -signal.SIGHUP)

    def test_it_is_not_stopped_where_nobody_could_let_it_go_on(self):
        running = self.start_bwrap(*HOST, "sh", "-c", "echo up; exec sleep 60", start_new_session=True)
        running.wait_for_output("up")
        running.send(signal.SIGTSTP)
        running.send(signal.SIGTERM)
        self.assertEqual(running.finish().code, -signal.SIGTERM)

    def test_too_few_descriptors_are_told_as_such(self):
        for limit in (12, 15, 18, 21):
            run = self.bwrap(*HOST, "--unshare-pid", "true", wrap=("prlimit", f"--nofile={limit}"))
            self.assertTrue(run.code == 0 or "Too many open files" in run.err, f"{limit}: {run}")
        self.good(*HOST, "--unshare-pid", "true", wrap=("prlimit", "--nofile=64"))

    def test_a_session_of_its_own_where_asked_for(self):
        mine = ("/usr/bin/python3", "-c", "import os; print(os.getsid(0))")
        self.assertEqual(self.good(*HOST, *mine), str(os.getsid(0)))
        self.assertNotEqual(self.good(*HOST, "--new-session", *mine), str(os.getsid(0)))

    def test_descriptors_that_no_option_names_are_inherited(self):
        fd = self.fd_with("held")
        self.assertEqual(self.good(*HOST, "sh", "-c", f"cat <&{fd}", fds=[fd]), "held")


class Holes(BwrapTest):
    """What bubblewrap 0.11.1 leaves open."""

    def test_a_link_in_an_untrusted_directory_leads_nowhere_on_the_host(self):
        target = self.make_directory("victim", owner=self.uid, mode=0o777)
        (self.work / "link").symlink_to(f"/oldroot{target}")
        (self.work / "link2").symlink_to(f"../../../../../../../oldroot{target}")
        for link in ("link", "link2"):
            fd = self.fd_with("x")
            self.bwrap("--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
                       "--bind", self.work, "/w", "--dir", f"/w/{link}/made", "--file", fd, f"/w/{link}/file",
                       "/usr/bin/true", fds=[fd])
            self.assertEqual(list(target.iterdir()), [])

    def test_the_reaper_holds_nothing_of_the_launcher(self):
        run = self.bwrap(*HOST, "--unshare-pid", "--proc", "/proc", "--clearenv", "sh", "-c",
                         "cat /proc/1/environ /proc/1/cmdline", env=environment(SECRET="hidden"))
        self.assertNotIn("hidden", run.out)
        self.assertNotIn("bind", run.out)

    @callers("root")
    def test_root_cannot_change_the_kernel_through_proc(self):
        write = "cat /proc/sys/kernel/domainname > /proc/sys/kernel/domainname"
        for variant in ((), ("--unshare-pid",)):
            self.assertNotEqual(self.bwrap(*HOST, *variant, "--proc", "/proc", "sh", "-c", write).code, 0)
        self.good("--dev-bind", "/", "/", "sh", "-c", write)

    def test_an_empty_optional_source_shows_nothing(self):
        self.bad("--bind-try", "", "", "ls", "/", says="Can't find source path")


class Seccomp(BwrapTest):
    def program(self, *calls, allow):
        """A filter of the machine's own numbers: these calls alone, or all but these."""
        numbers = {"write": 1, "getuid": 102, "gettid": 186}
        listed, other = (0x7fff0000, 0x00050001) if allow else (0x00050001, 0x7fff0000)
        code = [struct.pack("HBBI", 0x20, 0, 0, 0)]
        for call in calls:
            code.append(struct.pack("HBBI", 0x15, 0, 1, numbers.get(call, call)))
            code.append(struct.pack("HBBI", 0x06, 0, 0, listed))
        return b"".join([*code, struct.pack("HBBI", 0x06, 0, 0, other)])

    UID = ("/usr/bin/python3", "-c", "import ctypes; print(ctypes.CDLL(None).syscall(102))")

    def test_without_one_all_calls_are_there(self):
        self.assertNotEqual(self.good(*HOST, *self.UID), "-1")

    def test_what_it_refuses_is_refused(self):
        for option in ("--seccomp", "--add-seccomp-fd"):
            for variant in ((), ("--unshare-pid",)):
                fd = self.fd_with(self.program("getuid", allow=False))
                self.assertEqual(self.good(*HOST, *variant, option, fd, *self.UID, fds=[fd]), "-1")

    def test_only_what_it_allows_is_allowed(self):
        # All that a static program which does nothing needs: its exec and its end, and glibc's start.
        allowed = [59, 12, 158, 218, 273, 334, 302, 89, 318, 10, 231, 60, 1, 63, 157, 262, 5, 9, 20]
        for option in ("--seccomp", "--add-seccomp-fd"):
            fd = self.fd_with(self.program(*allowed, allow=True))
            run = self.bwrap("--ro-bind", STAGE, "/stage", option, fd, "/stage/bwrap", "--version", fds=[fd])
            self.assertNotIn("execvp", run.err)

    def test_several_hold_together_in_either_order(self):
        tids = ("/usr/bin/python3", "-c",
                "import ctypes; c = ctypes.CDLL(None); print(c.syscall(102), c.syscall(186))")
        programs = [self.program("getuid", allow=False), self.program("gettid", allow=False)]
        for order in (programs, programs[::-1]):
            fds = [self.fd_with(data) for data in order]
            self.assertEqual(self.good(*HOST, "--add-seccomp-fd", fds[0], "--add-seccomp-fd", fds[1], *tids,
                                       fds=fds), "-1 -1")

    def test_what_is_no_filter_is_refused(self):
        fd = self.fd_with(b"1234567")
        self.bad(*HOST, "--seccomp", fd, "true", fds=[fd], says="must be multiple of 8")
        empty, odd = self.fd_with(b""), self.fd_with(b"1")
        self.bad(*HOST, "--add-seccomp-fd", empty, "--add-seccomp-fd", odd, "true", fds=[empty, odd],
                 says="bwrap: Invalid seccomp data, must be multiple of 8")
        self.bad(*HOST, "--seccomp", "0a", "true", says="bwrap: Invalid fd: 0a")
        fd = self.fd_with(self.program(allow=False))
        self.bad(*HOST, "--add-seccomp-fd", fd, "--add-seccomp-fd", fd, "true", fds=[fd],
                 says="bwrap: Can't read seccomp data: ")
        self.bad(*HOST, "--seccomp", 0, "--add-seccomp-fd", 0, "true",
                 says="--add-seccomp-fd cannot be combined with --seccomp")
        fd = self.fd_with(self.program(allow=False))
        self.bad(*HOST, "--add-seccomp-fd", fd, "--seccomp", fd, "true", fds=[fd],
                 says="--seccomp cannot be combined with --add-seccomp-fd")

    def test_it_does_not_bind_the_reaper(self):
        fd = self.fd_with(self.program(61, allow=False))  # wait4
        self.assertEqual(self.bwrap(*HOST, "--unshare-pid", "--seccomp", fd, "sh", "-c", "exit 3", fds=[fd]).code, 3)


if __name__ == "__main__":
    main()
