"""What bubblewrap's own suite asks of a launcher and test_bwrap.py does not: in our words, by what it is about."""

import errno
import functools
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import TOOLS_STAGED, as_root, callers, environment, leave_out, main
from test_bwrap import BWRAP, HOST, RUN, VARIANTS, BwrapTest

NEW = ("--unshare-net", "--proc", "/proc", "--dev", "/dev")
FUSE = os.access("/dev/fuse", os.F_OK) and shutil.which("bindfs") and shutil.which("fusermount")


class Reports(BwrapTest):
    def told(self, option, *arguments, fds=()):
        """The run, and what it has written to the descriptor of `option`."""
        read, write = os.pipe()
        running = self.start_bwrap(option, write, *arguments, fds=[write, *fds])
        os.close(write)
        run = running.finish()
        with os.fdopen(read) as pipe:
            return run, pipe.read()

    def test_a_launch_that_fails_before_the_command_has_no_exit_code(self):
        for variant in ((), ("--unshare-pid",), ("--die-with-parent",)):
            run, status = self.told("--json-status-fd", *HOST, *variant, "--chdir", "/no/such", "true")
            self.assertEqual(run.code, 1, str(run))
            self.assertIn("/no/such", run.err)
            self.assertNotIn("exit-code", status)
            fd = self.fd_with(bytes(8))  # One instruction that no kernel accepts.
            run, status = self.told("--json-status-fd", *HOST, *variant, "--seccomp", fd, "true", fds=[fd])
            self.assertEqual(run.code, 1, str(run))
            self.assertTrue(run.err.startswith("bwrap: "), run.err)
            self.assertNotIn("exit-code", status)
            run, status = self.told("--json-status-fd", *HOST, *variant, "true")
            self.assertEqual(json.loads(status.splitlines()[-1]), {"exit-code": 0}, str(run))

    def test_a_command_whose_birth_cannot_be_told_does_not_begin(self):
        begun = self.work / "begun"
        reading = os.open("/dev/null", os.O_RDONLY)
        self.addCleanup(os.close, reading)
        deaf, mouth = os.pipe()
        os.close(deaf)
        self.addCleanup(os.close, mouth)
        for option, name in (("--info-fd", "info_fd"), ("--json-status-fd", "json_status_fd")):
            for variant in ((), ("--unshare-pid",)):
                for fd, why in ((99, "Bad file descriptor"), (reading, "Bad file descriptor"), (mouth, "Broken pipe")):
                    self.bad("--bind", "/", "/", *variant, option, fd, "touch", begun, fds=[] if fd == 99 else [fd],
                             says=f"Write to {name}: {why}")
                    self.assertFalse(begun.exists())
        self.told("--info-fd", "--bind", "/", "/", "touch", begun)
        self.assertTrue(begun.exists())

    def test_a_command_that_is_told_of_ends_by_a_pipe_that_nobody_reads(self):
        for option in ("--info-fd", "--json-status-fd"):
            run, _ = self.told(option, *HOST, "bash", "-c", "yes | head -n1 >/dev/null; echo ${PIPESTATUS[0]}")
            self.assertEqual(run.out, "141\n", str(run))

    def test_the_information_has_the_pid_on_a_line_of_its_own(self):
        _, info = self.told("--info-fd", *HOST, "--unshare-pid", "true")
        self.assertRegex(info, re.compile(r'^\s*"child-pid": \d+,?$', re.MULTILINE))

    def test_the_message_about_a_missing_source_names_it(self):
        for missing in (self.dir / "none", self.dir / "none" / "deeper"):
            run = self.bad(*HOST, "--bind", missing, "/mnt", "true")
            self.assertRegex(run.err, f"^bwrap: Can't find source path {re.escape(str(missing))}: No such file")

    def test_the_message_about_a_source_that_leads_nowhere_is_whole(self):
        message = "bwrap: --overlay-src must be followed by another --overlay-src or one of --overlay, " \
                  "--tmp-overlay, or --ro-overlay\n"
        for more in ((), ("--chdir", "/"), ("--tmpfs", "/tmp"), ("--setenv", "A", "b"), ("true",), ("--", "true")):
            run = self.bad(*HOST, "--overlay-src", "/usr", *more)
            self.assertEqual(run.err, message, more)


class Words(BwrapTest):
    def test_after_the_two_dashes_a_known_option_is_the_commands_name(self):
        for name in ("--version", "--help", "--tmpfs"):
            self.bad(*HOST, "--", name, says=f"execvp {name}: No such file or directory")
            program = self.make_file(name, "#!/bin/sh\necho command $1\n", mode=0o755)
            mine = environment(PATH=f"{program.parent}:/usr/bin:/bin")
            self.assertEqual(self.good(*HOST, "--", name, "--unshare-pid", env=mine), "command --unshare-pid")

    def test_a_variable_that_is_there_gets_the_new_value(self):
        self.assertEqual(self.good(*HOST, "--setenv", "MINE", "new", "--setenv", "TWICE", "1", "--setenv", "TWICE", "2",
                                   "sh", "-c", "echo $MINE $TWICE", env=environment(MINE="old")), "new 2")

    def test_a_cleared_environment_has_the_directory_alone(self):
        self.assertEqual(self.good(*HOST, "--clearenv", "/usr/bin/env", env=environment(MINE="m")), f"PWD={self.work}")

    def test_without_another_name_the_command_has_its_own(self):
        self.assertEqual(self.good(*HOST, "sh", "-c", "tr '\\0' '\\n' < /proc/$$/cmdline | head -n1"), "sh")
        self.assertEqual(self.good(*HOST, "/bin/sh", "-c", "tr '\\0' '\\n' < /proc/$$/cmdline | head -n1"), "/bin/sh")


class Files(BwrapTest):
    @as_root
    @callers("user")
    def test_what_its_caller_may_not_read_cannot_be_read_through_a_bind(self):
        closed = self.make_directory("closed", mode=0o700)
        self.make_file("closed/file", "secret")
        for path in ("/etc/shadow", closed / "file"):
            for variant in VARIANTS:
                for words in (("--bind", path, "/tmp/copy", "cat", "/tmp/copy"), ("cat", path)):
                    run = self.bwrap(*RUN, *variant, *NEW, *words)
                    self.assertNotEqual(run.code, 0, str(run))
                    self.assertEqual(run.out, "", str(run))
        for variant in VARIANTS:
            run = self.bwrap(*RUN, *variant, *NEW, "--bind", closed, "/tmp/copy", "cat", "/tmp/copy/file")
            self.assertNotEqual(run.code, 0, str(run))
            self.assertEqual(run.out, "", str(run))
            closed.chmod(0o755)  # It is for the mode alone.
            self.assertEqual(self.good(*RUN, *variant, *NEW, "--bind", closed / "file", "/tmp/copy",
                                       "cat", "/tmp/copy"), "secret")
            closed.chmod(0o700)

    @functools.partial(leave_out, condition=not FUSE)
    @as_root
    def test_a_fuse_file_system_of_the_callers_can_be_bound(self):
        source, place = self.make_directory("source", owner=self.uid), self.make_directory("place", owner=self.uid)
        self.make_file("source/mark", "m", owner=self.uid)
        names = pathlib.Path("/etc/passwd").read_text()
        self.make_file("passwd", f"caller:x:{self.uid}:{self.gid}::/:/bin/sh\n{names}")
        # In a mount namespace that only this launch has, where its caller has a name, which fusermount asks for,
        # and may open the device. It is the caller's alone: nobody else can look into it, not even root.
        script = 'mount --bind "$1" /etc/passwd; mount -t tmpfs fuse /dev/shm; mknod -m 666 /dev/shm/fuse c 10 229; ' \
                 'mount --bind /dev/shm/fuse /dev/fuse; $2 bindfs --no-allow-other "$3" "$4"; place=$4; shift 4; ' \
                 'code=0; "$@" || code=$?; umount "$place"; exit "$code"'
        mine = f"setpriv --reuid={self.uid} --regid={self.gid} --clear-groups" if self.caller == "user" else ""
        before = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh",
                  self.dir / "passwd", mine, source, place]
        for variant in VARIANTS:
            self.assertEqual(self.good(*RUN, *variant, "--proc", "/proc", "--dev", "/dev", "--bind", place, "/tmp/fuse",
                                       "sh", "-c", "cat /tmp/fuse/mark; stat -fc %T /tmp/fuse", before=before),
                             "mfuseblk", variant)

    def test_a_socket_on_a_socket_is_a_socket(self):
        sockets = []
        for name in ("a", "b"):
            sockets.append(socket.socket(socket.AF_UNIX))
            self.addCleanup(sockets[-1].close)
            sockets[-1].bind(str(self.work / name))
            os.chmod(self.work / name, 0o777)
            sockets[-1].listen()
        there = f"{os.stat(self.work / 'a').st_ino} socket"
        for target in (self.work / "a", self.work / "b"):
            self.assertEqual(self.good("--bind", "/", "/", "--bind", self.work / "a", target,
                                       "stat", "-c", "%i %F", target), there)

    def test_the_hosts_tmp_is_there_where_it_is_bound(self):
        place = pathlib.Path(tempfile.mkdtemp(prefix="belljar-tests-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, place)
        place.chmod(0o755)
        (place / "mark").write_text("m")
        (place / "mark").chmod(0o644)
        self.assertEqual(self.good("--bind", "/", "/", "cat", place / "mark"), "m")
        self.assertEqual(self.good("--bind", "/", "/", "--bind", "/tmp", "/tmp", "cat", place / "mark"), "m")
        self.assertEqual(self.good("--bind", "/", "/", "--bind", "/tmp", "/mnt", "cat", f"/mnt/{place.name}/mark"), "m")

    def test_content_that_is_bound_below_another_tmp_is_there(self):
        self.make_file("mark", "m")
        for place in ("/tmp", "/tmp/x", "/tmp/x/y"):
            self.assertEqual(self.good(*RUN, "--bind", self.dir, place, "cat", f"{place}/mark"), "m")
        self.assertEqual(self.good(*RUN, "--bind", self.dir / "mark", "/tmp/x/file", "cat", "/tmp/x/file"), "m")

    def test_parents_are_closed_to_those_to_whom_the_mode_gives_nothing(self):
        for mode, parent in (("1777", "755"), ("0644", "755"), ("0710", "750"), ("0720", "750"), ("0000", "700"),
                             (None, "755")):
            perms = ("--perms", mode) if mode else ()
            fd = self.fd_with("x")
            out = self.good(*RUN, *perms, "--dir", "/tmp/d/e/f", *perms, "--tmpfs", "/tmp/t/e/f", *perms,
                            "--file", fd, "/tmp/f/e/f", "stat", "-c", "%a", "/tmp/d", "/tmp/d/e", "/tmp/t", "/tmp/t/e",
                            "/tmp/f", "/tmp/f/e", fds=[fd])
            self.assertEqual(out.split(), [parent] * 6, mode)

    def test_a_size_needs_no_mode(self):
        out = self.good(*RUN, "--size", "1048576", "--tmpfs", "/tmp/t", "sh", "-c",
                        "df --output=size -k /tmp/t; stat -c %a /tmp/t")
        self.assertEqual(out.split()[-2:], ["1024", "755"])
        out = self.good(*RUN, "--size", "1048576", "--tmpfs", "/tmp/t", "--tmpfs", "/tmp/u",
                        "df", "--output=size", "-k", "/tmp/u")
        self.assertNotEqual(out.split()[-1], "1024", "it is for the next one alone")


class Overlays(BwrapTest):
    def setUp(self):
        super().setUp()
        for name in ("low", "high", "upper", "scratch"):
            self.make_directory(f"work/{name}", owner=self.uid)
        for layer, names in (("low", "ab"), ("high", "a")):
            for name in names:
                self.make_file(f"work/{layer}/{name}", f"{layer}\n", owner=self.uid)

    BASE = (*HOST, "--tmpfs", "/tmp")

    def sources(self):
        return "--overlay-src", self.work / "low", "--overlay-src", self.work / "high"

    def content(self):
        """What all of the layers hold on the host."""
        return {str(path.relative_to(self.work)): path.read_text()
                for name in ("low", "high", "upper") for path in (self.work / name).iterdir()}

    def test_the_upper_wins_over_all_sources(self):
        self.make_file("work/upper/a", "upper\n", owner=self.uid)
        self.make_file("work/upper/c", "more\n", owner=self.uid)
        self.assertEqual(self.good(*self.BASE, *self.sources(), "--overlay", self.work / "upper", self.work / "scratch",
                                   "/tmp/o", "sh", "-c", "cat /tmp/o/a /tmp/o/b /tmp/o/c").split(),
                         ["upper", "low", "more"])

    def test_what_is_written_over_comes_up(self):
        before = self.content()
        self.assertEqual(self.good(*self.BASE, *self.sources(), "--overlay", self.work / "upper", self.work / "scratch",
                                   "/tmp/o", "sh", "-c", "echo new > /tmp/o/a; echo more >> /tmp/o/b; "
                                   "cat /tmp/o/a /tmp/o/b").split(), ["new", "low", "more"])
        self.assertEqual(self.content(), {**before, "upper/a": "new\n", "upper/b": "low\nmore\n"})

    def test_relative_names_are_of_the_callers_directory_and_parents_are_made(self):
        self.assertEqual(self.good(*self.BASE, "--overlay-src", "low", "--overlay-src", "./high", "--overlay", "upper",
                                   "../work/scratch", "/tmp/x/y/o", "sh", "-c",
                                   "echo new > /tmp/x/y/o/c; cat /tmp/x/y/o/a; stat -c %a /tmp/x /tmp/x/y").split(),
                         ["high", "755", "755"])
        self.assertEqual((self.work / "upper" / "c").read_text(), "new\n")
        for option, sources in (("--tmp-overlay", ("low",)), ("--ro-overlay", ("low", "high"))):
            words = [word for source in sources for word in ("--overlay-src", source)]
            self.assertEqual(self.good(*self.BASE, *words, option, "/tmp/x/y/o", "cat", "/tmp/x/y/o/a"), sources[-1])

    def test_names_with_signs_are_names_in_every_role(self):
        for name in ("a b", 'a"b', "a:b", "a,b", "a\\b", ' "":,\\', "\\:\\,"):
            source, upper, work = (self.make_directory(f"work/{name}.{role}", owner=self.uid)
                                   for role in ("source", "upper", "work"))
            self.make_file(f"work/{name}.source/f", "f\n", owner=self.uid)
            self.assertEqual(self.good(*self.BASE, "--overlay-src", source, "--overlay", upper, work, "/tmp/o",
                                       "sh", "-c", "cat /tmp/o/f; echo new > /tmp/o/g"), "f", name)
            self.assertEqual((upper / "g").read_text(), "new\n", name)
            self.assertEqual(self.good(*self.BASE, "--overlay-src", source, "--overlay-src", upper, "--ro-overlay",
                                       "/tmp/o", "cat", "/tmp/o/f", "/tmp/o/g").split(), ["f", "new"], name)
            self.assertEqual(self.good(*self.BASE, "--overlay-src", source, "--tmp-overlay", f"/tmp/{name}",
                                       "cat", f"/tmp/{name}/f"), "f", name)

    def test_what_is_written_over_in_a_temporary_one_stays_in_it(self):
        before = self.content()
        out = self.good(*self.BASE, *self.sources(), "--tmp-overlay", "/tmp/o",
                        *self.sources(), "--tmp-overlay", "/tmp/p", "sh", "-c",
                        "cat /tmp/o/a; echo new > /tmp/o/a; cat /tmp/o/a /tmp/p/a; "
                        f"cat {self.work}/low/a {self.work}/high/a")
        self.assertEqual(out.split(), ["high", "new", "high", "low", "high"])
        self.assertEqual(self.content(), before)

    def test_a_read_only_one_needs_two_sources_and_takes_no_writes(self):
        self.bad(*self.BASE, "--ro-overlay", "/tmp/o", "true", says="--ro-overlay requires at least two --overlay-src")
        self.bad(*self.BASE, "--overlay-src", self.work / "low", "--ro-overlay", "/tmp/o", "true",
                 says="--ro-overlay requires at least two --overlay-src")
        before = self.content()
        for write in ("echo new > /tmp/o/a", "echo new > /tmp/o/c", "rm /tmp/o/b", "chmod 600 /tmp/o/b"):
            run = self.bwrap(*self.BASE, *self.sources(), "--ro-overlay", "/tmp/o", "sh", "-c", write)
            self.assertNotEqual(run.code, 0, write)
            self.assertIn("Read-only file system", run.err)
        self.assertEqual(self.content(), before)


class Namespaces(BwrapTest):
    AS_ROOT_INSIDE = ("--unshare-user", "--uid", "0", "--gid", "0", "--cap-add", "ALL")
    OUTER = (*AS_ROOT_INSIDE, "--bind", "/", "/", "--bind", "/proc", "/proc")
    SELF = ("--", "/proc/self/exe")

    def test_it_can_be_nested_by_the_name_of_the_process(self):
        for inner in (("--bind", "/", "/", "--bind", "/proc", "/proc"), HOST,
                      ("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"),
                      ("--ro-bind", "/", "/", "--tmpfs", "/tmp", "--proc", "/proc", "--dev", "/dev")):
            self.assertEqual(self.good(*self.OUTER, *self.SELF, "--unshare-all", *inner, "echo", "deep"), "deep", inner)

    def test_it_can_be_nested_in_a_read_only_layout(self):
        layout = [word for path in ("/usr", "/etc") for word in ("--ro-bind", path, path)]
        for name in ("bin", "lib", "lib64", "sbin"):
            layout += ["--symlink", f"usr/{name}", f"/{name}"]
        for more in ((), ("--proc", "/proc"), ("--proc", "/proc", "--dev", "/dev")):
            out = self.good(*self.OUTER, "--ro-bind", "/", "/", "--bind", "/proc", "/proc", *self.SELF, "--unshare-all",
                            *layout, *(more or ("--bind", "/proc", "/proc")), "cat", "/proc/self/mountinfo")
            places = {line.split()[4]: line.split()[5].split(",") for line in out.splitlines()}
            self.assertIn("/usr", places)
            self.assertIn("ro", places["/usr"])
            run = self.bwrap(*self.OUTER, *self.SELF, "--unshare-all", *layout, *more, "touch", "/usr/belljar-was-here")
            self.assertNotEqual(run.code, 0, str(run))
            self.assertIn("Read-only file system", run.err)

    def test_three_can_be_nested(self):
        again = ("--unshare-all", *self.AS_ROOT_INSIDE, "--bind", "/", "/", "--bind", "/proc", "/proc")
        self.assertEqual(self.good(*self.OUTER, *self.SELF, *again, *self.SELF, *again, "echo", "deep"), "deep")
        # Without uid 0 nothing of a /proc needs protection, so that a new one can be had below it.
        again = ("--unshare-all", "--dev-bind", "/", "/", "--proc", "/proc")
        if self.caller == "user":
            self.assertEqual(self.good(*again, *self.SELF, *again, *self.SELF, *again, "echo", "deep"), "deep")

    @callers("user")
    def test_a_new_proc_can_be_had_below_that_of_a_plain_callers_uid_0(self):
        # It is not the host's uid 0, who alone could change anything through a /proc.
        again = ("--unshare-all", *self.AS_ROOT_INSIDE, "--bind", "/", "/", "--proc", "/proc")
        self.assertEqual(self.good(*self.OUTER, *self.SELF, *again, *self.SELF, *again, "echo", "deep"), "deep")

    def test_where_none_is_made_it_is_not_taken_for_disabled(self):
        self.bad(*RUN, "--assert-userns-disabled", "true", says="not disabled")

    def test_no_nested_one_gets_round_the_ban(self):
        nested = (BWRAP, "--unshare-user", "--bind", "/", "/")
        raised = 'echo "$0" > /proc/sys/user/max_user_namespaces; exec "$@"'
        for ids in ((), ("--uid", "0", "--gid", "0", "--cap-add", "ALL")):
            outer = ("--unshare-user", *ids, "--bind", "/", "/", "--dev-bind", "/dev", "/dev")
            self.assertEqual(self.good(*outer, *nested, "echo", "deep"), "deep")  # So it is for the ban alone.
            self.assertEqual(self.good(*outer, "--disable-userns", "echo", "outer"), "outer")
            for limit in (None, 2, 100):
                before = ("sh", "-c", raised, limit) if limit else ()
                for more in ((), ("--assert-userns-disabled",), ("--disable-userns",)):
                    run = self.bwrap(*outer, "--disable-userns", *before, *nested, *more, "echo", "deep")
                    self.assertNotEqual(run.code, 0, f"{ids} {limit} {more} {run}")
                    self.assertEqual(run.out, "", str(run))
                    self.assertIn("bwrap: ", run.err)

    def test_the_ban_holds_for_a_nested_one_that_asks_for_no_user_namespace(self):
        outer = (*self.AS_ROOT_INSIDE, "--disable-userns", "--bind", "/", "/", "--dev-bind", "/dev", "/dev")
        nested = (BWRAP, "--bind", "/", "/", "--assert-userns-disabled")
        self.assertEqual(self.good(*outer, *nested, "echo", "deep"), "deep")


class Capabilities(BwrapTest):
    KINDS = ("CapInh", "CapPrm", "CapEff", "CapAmb")

    def printed(self, text):
        """What capsh prints, but for what no_new_privs changes in it."""
        return [line for line in text.splitlines() if "no-new-privs" not in line] + \
               re.findall(r"^Securebits: .*?(?=\s*\(no-new-privs)", text, re.MULTILINE)

    def outside(self, *command):
        return subprocess.run([*map(str, self.prefix()), *command], capture_output=True, text=True, check=True,
                              env=environment(), cwd=self.work, stdin=subprocess.DEVNULL).stdout

    @callers("root")
    def test_root_is_inside_what_it_is_outside(self):
        lines = ("grep", "-E", "^(Cap|Uid|Gid|Groups)", "/proc/self/status")
        for options in ((), ("--unshare-pid",), ("--unshare-pid", "--as-pid-1")):
            inside = self.good(*HOST, *options, "capsh", "--print")
            self.assertEqual(self.printed(inside), self.printed(self.outside("capsh", "--print").rstrip("\n")), options)
            self.assertEqual(self.good(*HOST, *options, *lines), self.outside(*lines).rstrip("\n"), options)

    @callers("root")
    def test_root_without_any_has_none(self):
        for options in ((), ("--unshare-pid",), ("--unshare-pid", "--as-pid-1")):
            out = self.good(*HOST, *options, "--cap-drop", "ALL", "capsh", "--print")
            self.assertIn("Current: =", out.splitlines(), options)
            out = self.good(*HOST, *options, "--cap-drop", "CAP_KILL", "--cap-drop", "CAP_FOWNER", "sh", "-c",
                            "for name in kill fowner net_bind_service; do "
                            "capsh --has-p=cap_$name >&2 && echo $name; done; true")
            self.assertEqual(out, "net_bind_service", options)

    @callers("user")
    def test_the_first_process_of_a_plain_callers_has_none(self):
        for options in ((), ("--as-pid-1",), ("--unshare-user-try",), ("--as-pid-1", "--unshare-user-try")):
            out = self.good(*HOST, "--unshare-pid", *options, "--proc", "/proc", "cat", "/proc/1/status")
            held = [int(line.split()[1], 16) for line in out.splitlines() if line.startswith(self.KINDS)]
            self.assertEqual(held, [0] * len(self.KINDS), options)


class Seccomp(BwrapTest):
    """Filters, and how the calls that they name are answered."""

    NUMBERS = {"chmod": 268, "chroot": 161, "clone3": 435, "listen": 50, "prctl": 157, "ioctl": 16}
    REQUESTS = {"tiocnotty": 0x5422, "tiocsti": 0x5412}
    CALLS = ("chmod", "chroot", "clone3", "tiocnotty", "tiocsti", "tiocsti_high", "listen", "prctl")
    # All that a static program needs which does nothing: its exec, the start of its library, a line, and its end.
    LEAST = (59, 12, 158, 218, 273, 334, 302, 89, 267, 318, 10, 1, 231, 60)
    ALLOW, REFUSE = 0x7fff0000, 0x00050000

    def program(self, calls, listed, other):
        """One action for these calls and requests, another one for all others."""
        code = []
        for call in calls:
            if call in self.REQUESTS:  # The low half of the request is all that the kernel looks at.
                code += [(0x20, 0, 0, 0), (0x15, 0, 3, self.NUMBERS["ioctl"]), (0x20, 0, 0, 24),
                         (0x15, 0, 1, self.REQUESTS[call]), (0x06, 0, 0, listed)]
            else:
                code += [(0x20, 0, 0, 0), (0x15, 0, 1, self.NUMBERS.get(call, call)), (0x06, 0, 0, listed)]
        return b"".join(struct.pack("HBBI", *step) for step in [*code, (0x06, 0, 0, other)])

    def only(self, *calls, refused_with):
        return self.program([*self.LEAST, *calls], self.ALLOW, self.REFUSE | refused_with)

    def all_but(self, *calls, refused_with):
        return self.program(calls, self.REFUSE | refused_with, self.ALLOW)

    TOOL = TOOLS_STAGED / "answers"

    def answers(self, text):
        return {line.split()[0]: int(line.split()[1]) for line in text.splitlines()}

    def outside(self):
        done = subprocess.run(list(map(str, [*self.prefix(), self.TOOL, *self.CALLS])), capture_output=True, text=True,
                              check=True, cwd=self.work)
        return self.answers(done.stdout)

    def inside(self, *programs, option="--add-seccomp-fd", more=()):
        fds = [self.fd_with(data) for data in programs]
        words = [word for fd in fds for word in (option, fd)]
        return self.answers(self.good(*HOST, *more, *words, self.TOOL, *self.CALLS, fds=fds))

    def changed(self, answers):
        """The calls that are answered otherwise than without a sandbox."""
        outside = self.outside()
        return {call: answer for call, answer in answers.items() if answer != outside[call]}

    WAYS = [(option, more) for option in ("--seccomp", "--add-seccomp-fd")
            for more in ((), ("--unshare-pid",), ("--unshare-pid", "--as-pid-1"))]

    def test_without_a_filter_the_kernel_answers_as_without_a_sandbox(self):
        for more in ((), ("--unshare-pid",), ("--unshare-pid", "--as-pid-1"), ("--unshare-all",)):
            self.assertEqual(self.changed(self.inside(more=more)), {}, more)

    def test_a_list_of_what_is_allowed(self):
        # Neither seccomp nor execveat, clone, fork or wait4 is on it: what loads it must not need them afterwards.
        program = self.only("chmod", "listen", "prctl", "tiocnotty", refused_with=errno.EHOSTUNREACH)
        refused = ("chroot", "clone3", "tiocsti", "tiocsti_high")
        for option, more in self.WAYS:
            self.assertEqual(self.changed(self.inside(program, option=option, more=more)),
                             dict.fromkeys(refused, errno.EHOSTUNREACH), (option, more))

    def test_a_list_of_what_is_refused(self):
        # With the very call that loads it.
        listed = ("chmod", "clone3", "prctl", "tiocnotty", "tiocsti")
        program = self.all_but(*listed, refused_with=errno.ECONNREFUSED)
        for option, more in self.WAYS:
            self.assertEqual(self.changed(self.inside(program, option=option, more=more)),
                             dict.fromkeys((*listed, "tiocsti_high"), errno.ECONNREFUSED), (option, more))

    def both(self):
        return (self.all_but("chmod", "chroot", "tiocsti", refused_with=errno.ECONNREFUSED),
                self.only("chmod", "listen", "prctl", "tiocnotty", "tiocsti", refused_with=errno.EHOSTUNREACH))

    REFUSED_BY_ONE = {"chmod": errno.ECONNREFUSED, "tiocsti": errno.ECONNREFUSED, "tiocsti_high": errno.ECONNREFUSED,
                      "clone3": errno.EHOSTUNREACH}

    def test_what_is_refused_and_then_what_is_allowed(self):
        refused, allowed = self.both()
        for more in ((), ("--unshare-pid",)):
            self.assertEqual(self.changed(self.inside(refused, allowed, more=more)),
                             {**self.REFUSED_BY_ONE, "chroot": errno.EHOSTUNREACH}, more)

    def test_what_is_allowed_and_then_what_is_refused(self):
        refused, allowed = self.both()
        for more in ((), ("--unshare-pid",)):
            self.assertEqual(self.changed(self.inside(allowed, refused, more=more)),
                             {**self.REFUSED_BY_ONE, "chroot": errno.ECONNREFUSED}, more)

    def test_a_descriptor_below_none_is_refused(self):
        for option in ("--add-seccomp-fd", "--seccomp"):
            run = self.bad(*HOST, option, -1, "true")
            self.assertEqual(run.err.splitlines()[0], "bwrap: Invalid fd: -1")


if __name__ == "__main__":
    main()
