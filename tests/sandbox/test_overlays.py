"""Overlays: directories of the host seen as one, written to in an upper directory, in memory, or not at all."""

import fcntl
import os
import shutil
import stat

from harness import TOOLS_STAGED, SandboxTest, as_root, main

FLAGS = "say({l.split()[4]: l.split()[5].split(',') + [l.split(' - ')[1].split()[0]] for l in open('/proc/self/mountinfo')})"


def overlay(*lower, **more):
    return {"type": "overlay", "lower": [str(path) for path in lower],
            **{key: str(value) if isinstance(value, os.PathLike) else value for key, value in more.items()}}


def at(target="/o", /, mount=None, **more):
    return {"filesystem": {"mounts": {target: mount}}, **more}


class Overlays(SandboxTest):

    def setUp(self):
        super().setUp()
        self.low, self.high = self.make_directory("low"), self.make_directory("high")
        for name, text in (("low/both", "low"), ("high/both", "high"), ("low/only-low", "l"), ("high/only-high", "h")):
            self.make_file(name, text, owner=self.uid)
        self.upper = self.make_directory("upper", owner=self.uid)
        self.scratch = self.make_directory("scratch", owner=self.uid)
        self.before = self.listing()

    def listing(self):
        return {(str(path), path.read_text()) for directory in (self.low, self.high)
                for path in directory.iterdir()}

    def written(self, **more):
        return at(mount=overlay(self.low, self.high, upper=self.upper, work=self.scratch, **more))


class Writing(Overlays):

    def test_the_last_lower_directory_is_on_top(self):
        for mount in (overlay(self.low, self.high), overlay(self.low, self.high, readonly=True),
                      overlay(self.low, self.high, upper=self.upper, work=self.scratch)):
            run = self.inside("say([open('/o/both').read(), sorted(os.listdir('/o'))])", policy=at(mount=mount))
            self.assertEqual(run.json(), ["high", ["both", "only-high", "only-low"]], str(run))

    def test_what_is_written_lands_in_the_upper_directory_and_stays(self):
        code = """
            open('/o/both', 'w').write('new')
            open('/o/made', 'w').write('made')
            os.unlink('/o/only-low')
            say(sorted(os.listdir('/o')))
        """
        run = self.inside(code, policy=self.written())
        self.check_exited(run)
        self.assertEqual(run.json(), ["both", "made", "only-high"])
        self.assertEqual(self.listing(), self.before)
        self.assertEqual([(self.upper / name).read_text() for name in ("both", "made")], ["new", "made"])
        self.assertEqual((self.upper / "made").stat().st_uid, self.uid)
        again = self.inside("say([open('/o/both').read(), sorted(os.listdir('/o'))])", policy=self.written())
        self.assertEqual(again.json(), ["new", ["both", "made", "only-high"]], str(again))

    def test_a_temporary_overlay_forgets(self):
        code = """
            before = open('/o/both').read()
            open('/o/both', 'w').write('new')
            open('/o/made', 'w').write('made')
            os.unlink('/o/only-low')
            say([before, open('/o/both').read(), sorted(os.listdir('/o'))])
        """
        for _ in range(2):
            run = self.inside(code, policy=at(mount=overlay(self.low, self.high)))
            self.assertEqual(run.json(), ["high", "new", ["both", "made", "only-high"]], str(run))
        self.assertEqual(self.listing(), self.before)

    def test_two_temporary_overlays_on_the_same_directories_are_independent(self):
        pieces = {"/o": overlay(self.low), "/p": overlay(self.low)}
        code = "open('/o/x', 'w').close(); say([os.path.exists('/o/x'), os.path.exists('/p/x')])"
        run = self.inside(code, policy={"filesystem": {"mounts": pieces}})
        self.assertEqual(run.json(), [True, False], str(run))

    def test_a_temporary_overlay_has_its_size_files_and_mode(self):
        mount = overlay(self.low, size="1MiB", inodes=20, mode="0750")
        code = """
            def fill(): open('/o/big', 'wb').write(bytes(2 << 20))
            def many():
                for i in range(30): open('/o/%d' % i, 'w').close()
            full = attempt(fill)
            os.truncate('/o/big', 0)
            say([full, attempt(many), oct(os.stat('/o').st_mode & 0o7777), os.stat('/o').st_uid == os.getuid()])
        """
        run = self.inside(code, policy=at(mount=mount))
        self.assertEqual(run.json(), ["ENOSPC", "ENOSPC", "0o750", True], str(run))
        roomy = self.inside(code, policy=at(mount=overlay(self.low, size="8MiB", inodes=100)))
        self.assertEqual(roomy.json()[:2], ["open", "open"], str(roomy))

    def test_a_read_only_overlay_refuses_every_change(self):
        code = """
            say([create('/o/new'), probe_open('/o/both', os.O_RDWR), attempt(os.chmod, '/o/both', 0o777),
                 attempt(os.unlink, '/o/both'), attempt(os.mkdir, '/o/d')])
        """
        changes = overlay(self.low, self.high, readonly=True)
        self.assertEqual(self.inside(code, policy=at(mount=changes)).json(), ["EROFS"] * 5)
        self.assertEqual(self.inside(code, policy=at(mount=overlay(self.low, self.high))).json(), ["open"] * 5)

    def test_a_read_only_overlay_shows_its_upper_and_writes_nothing_to_it(self):
        self.check_exited(self.inside("os.unlink('/o/only-low'); open('/o/made', 'w').close()", policy=self.written()))
        before = sorted(os.listdir(self.upper))
        shutil.rmtree(self.scratch / "work")
        run = self.inside("say([sorted(os.listdir('/o')), create('/o/new')])", policy=self.written(readonly=True))
        self.assertEqual(run.json(), [["both", "made", "only-high"], "EROFS"], str(run))
        self.assertEqual((sorted(os.listdir(self.upper)), os.listdir(self.scratch)), (before, []))

    def test_names_with_signs_of_the_kernels_own_are_right(self):
        names = ["a:b", "a,b", "a\\b", 'a"b', "a b", "a=b:c,d\\:e"]
        lower = []
        for number, name in enumerate(names):
            lower.append(self.make_directory(f"odd/{name}"))
            self.make_file(f"odd/{name}/f{number}")
        upper, scratch = self.make_directory("u:,\\p", owner=self.uid), self.make_directory("w:,\\k", owner=self.uid)
        for more in ({"upper": upper, "work": scratch}, {"readonly": True}, {}):
            run = self.inside("say([sorted(os.listdir('/o')), create('/o/x')])", policy=at(mount=overlay(*lower, **more)))
            self.assertEqual(run.json(), [[f"f{i}" for i in range(len(names))], "EROFS" if "readonly" in more else "open"],
                             str(run))

    def test_as_many_directories_as_a_policy_may_name(self):
        lower = [self.make_directory(f"many/{'x' * 100}{i}") for i in range(64)]
        for i, path in enumerate(lower):
            (path / f"f{i}").touch()
        run = self.inside("say(len(os.listdir('/o')))", policy=at(mount=overlay(*lower, readonly=True)))
        self.assertEqual(run.json(), 64, str(run))

    def test_removed_directories_can_be_made_again_and_are_empty(self):
        self.make_directory("low/dir", owner=self.uid)
        self.make_file("low/dir/old", owner=self.uid)
        code = """
            os.unlink('/o/dir/old'); os.rmdir('/o/dir'); os.mkdir('/o/dir'); open('/o/dir/new', 'w').close()
            say(os.listdir('/o/dir'))
        """
        for mount in (overlay(self.low), overlay(self.low, upper=self.upper, work=self.scratch)):
            self.assertEqual(self.inside(code, policy=at(mount=mount)).json(), ["new"])
        again = self.inside("say(os.listdir('/o/dir'))",
                            policy=at(mount=overlay(self.low, upper=self.upper, work=self.scratch)))
        self.assertEqual(again.json(), ["new"], str(again))

    def test_an_overlay_can_lie_over_the_workspace(self):
        self.make_file("work/kept", "x", owner=self.uid)
        run = self.inside("os.unlink('kept'); open('new', 'w').close(); say(os.listdir('.'))",
                          policy=at(str(self.work), overlay(self.work)))
        self.assertEqual(run.json(), ["new"], str(run))
        self.assertEqual(os.listdir(self.work), ["kept"])


class Confinement(Overlays):

    def test_no_overlay_honours_set_user_id_programs_or_devices(self):
        every = {"/t": overlay(self.low), "/r": overlay(self.low, self.high, readonly=True),
                 "/w": overlay(self.low, upper=self.upper, work=self.scratch, noexec=True, noatime=True)}
        flags = self.inside(FLAGS, policy={"filesystem": {"mounts": every}}).json()
        for target in every:
            self.assertLessEqual({"nosuid", "nodev", "overlay"}, set(flags[target]), target)
        self.assertLessEqual({"noexec", "noatime", "rw"}, set(flags["/w"]))
        self.assertEqual({"noexec", "noatime"} & set(flags["/t"]), set())
        self.assertIn("ro", flags["/r"])

    @as_root
    def test_a_device_in_a_lower_directory_cannot_be_opened(self):
        os.mknod(self.low / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.chmod(self.low / "null", 0o666)
        code = "say([probe_open('/o/null'), probe_open('/b/null')])"
        bind = {"type": "bind", "source": str(self.low), "nodev": False}
        for mount in (overlay(self.low), overlay(self.low, self.high, readonly=True)):
            policy = {"filesystem": {"mounts": {"/o": mount, "/b": bind}}}
            self.assertEqual(self.inside(code, policy=policy).json(), ["EACCES", "open"])

    @as_root
    def test_a_set_user_id_program_in_a_lower_directory_gains_nothing(self):
        program = self.make_file("low/p", (TOOLS_STAGED / "setuid_probe").read_bytes(), owner=0)
        program.chmod(0o6755)
        for mount in (overlay(self.low), overlay(self.low, upper=self.upper, work=self.scratch)):
            run = self.sandbox("/o/p", policy=at(mount=mount))
            self.check_exited(run)
            self.assertEqual(run.out.split(), [str(self.uid)] * 3 + ["0" * 16])

    def test_noexec_refuses_programs(self):
        shutil.copy(TOOLS_STAGED / "setuid_probe", self.low / "p")
        code = "import subprocess; say(attempt(lambda: subprocess.run(['/o/p'], capture_output=True)))"
        self.assertEqual(self.inside(code, policy=at(mount=overlay(self.low, noexec=True))).json(), "EACCES")
        self.assertEqual(self.inside(code, policy=at(mount=overlay(self.low))).json(), "open")

    @as_root
    def test_what_the_lower_owner_keeps_to_itself_stays_closed(self):
        self.make_file("low/secret", "x", owner=0, mode=0o600)
        self.make_file("low/open", "x", owner=0, mode=0o644)
        code = "say([probe_open('/o/secret'), probe_open('/o/open'), probe_open('/o/open', os.O_WRONLY)])"
        run = self.inside(code, policy=at(mount=overlay(self.low)))
        self.assertEqual(run.json(), ["EACCES", "open", "EACCES"], str(run))

    def test_no_name_of_the_host_can_be_read_inside(self):
        run = self.inside("say(open('/proc/self/mountinfo').read())", policy=self.written())
        self.assertNotIn(str(self.low), run.json())
        self.assertIn(" overlay ", run.json())

    def test_nothing_uncovers_what_lies_below_a_temporary_overlay(self):
        code = """
            say([call('umount2', '/o', 0), call('umount2', '/o', 2),
                 'upper' in os.listdir('/o')])
        """
        run = self.inside(code, policy={**at(mount=overlay(self.low)), "syscalls": {"base": "none"}})
        self.assertEqual(run.json(), ["EPERM", "EPERM", False], str(run))

    def test_landlock_holds_an_overlay_as_its_flags_do(self):
        pieces = {"/o": overlay(self.low), "/r": overlay(self.low, self.high, readonly=True)}
        code = "say([create('/o/x'), probe_open('/r/both'), create('/r/x'), attempt(os.mkdir, '/o/d')])"
        for landlock in ({}, {"filesystem": True}):
            run = self.inside(code, policy={"filesystem": {"mounts": pieces}, "landlock": landlock})
            self.assertEqual(run.json()[:2] + run.json()[3:], ["open"] * 3, str(run))
            self.assertIn(run.json()[2], ("EROFS", "EACCES"))

    def test_the_upper_directory_counts_for_the_disk_and_memory_does_not(self):
        fill = "open('/o/big', 'wb').write(bytes(3 << 20)); open('/o/more', 'wb').write(bytes(3 << 20))"
        policy = {**self.written(), "limits": {"disk": "4MiB"}}
        run = self.inside(fill, policy=policy)
        self.assertEqual((run.record["cause"], run.record["limits"]), ("disk", ["disk"]), str(run))
        policy = {**at(mount=overlay(self.low)), "limits": {"disk": "4MiB"}}
        self.check_exited(self.inside(fill, policy=policy))

    def test_inside_a_read_only_bind_it_keeps_its_own_flags(self):
        for name in ("outer/sub", "outer/queues"):
            self.make_directory(name)
        pieces = {"/outer": {"type": "bind", "source": str(self.dir / "outer")}, "/outer/sub": overlay(self.low),
                  "/outer/queues": {"type": "mqueue"}}
        run = self.inside(FLAGS, policy={"filesystem": {"mounts": pieces}})
        self.assertEqual([run.json()[path][0] for path in ("/outer", "/outer/sub", "/outer/queues")],
                         ["ro", "rw", "rw"], str(run))

    def test_can_answers_as_the_command_finds_it(self):
        self.make_file("low/gone", "x")
        self.check_exited(self.inside("os.unlink('/o/gone'); open('/o/mine', 'w').close()", policy=self.written()))
        self.make_file("high/fixed", "x", mode=0o444)
        (self.low / "link").symlink_to("both")
        policy = self.policy(self.written(noexec=True))
        names = ["/o/both", "/o/only-low", "/o/gone", "/o/fixed", "/o/link", "/o/none", "/o/mine", "/o"]
        questions = [f"{verb}:{name}" for verb in ("read", "write", "exec") for name in names]
        run = self.belljar("explain", "--policy", policy, *(f"--can={question}" for question in questions))
        answers = dict(line.split(": ", 2)[:2] for line in run.out.splitlines() if line.count(": ") >= 2)
        code = f"""
            say({{f'{{verb}}:{{name}}': os.access(name, bit) or (verb == 'write' and create(name) == 'open')
                  for verb, bit in (('read', os.R_OK), ('write', os.W_OK), ('exec', os.X_OK)) for name in {names}}})
        """
        found = self.inside(code, policy=policy).json()
        # A directory's x is not noexec's.
        del found["exec:/o"]
        self.assertEqual({question: answers[question] == "yes" for question in found}, found, str(run))


class Refusals(Overlays):

    def test_a_missing_directory_is_refused_by_name(self):
        for more in ({"upper": self.dir / "none", "work": self.scratch}, {"upper": self.upper, "work": self.dir / "none"}):
            run = self.sandbox("true", policy=at(mount=overlay(self.low, **more)))
            self.check_refused(run, f"there is no directory {self.dir}/none", "policy-", "remedy: make it")
        run = self.sandbox("true", policy=at(mount=overlay(self.dir / "none")))
        self.check_refused(run, "ENOENT", f"{self.dir}/none", 'filesystem.mounts["/o"]')
        self.assertFalse((self.dir / "none").exists())

    def test_a_file_is_no_directory(self):
        run = self.sandbox("true", policy=at(mount=overlay(self.low / "both")))
        self.check_refused(run, "ENOTDIR", str(self.low / "both"))

    def test_an_upper_that_the_commands_uid_cannot_write_is_refused(self):
        for name in ("upper", "scratch"):
            path = self.dir / name
            path.chmod(0o555)
            self.check_refused(self.sandbox("true", policy=self.written()), f"{path} is no directory that uid {self.uid}",
                               "can write to", f"let uid {self.uid} write to it")
            path.chmod(0o755)
        self.check_exited(self.sandbox("true", policy=self.written()))

    @as_root
    def test_a_work_directory_on_another_file_system_is_refused(self):
        before = self.on_host(f"mount -t tmpfs -o mode=0777 tmpfs {self.scratch}")
        run = self.sandbox("true", policy=self.written(), before=before)
        self.check_refused(run, f"the work directory {self.scratch} lies on another file system than {self.upper}",
                           'filesystem.mounts["/o"].work')

    @as_root
    def test_a_directory_with_a_mount_below_it_is_refused_with_the_mounts_name(self):
        self.make_directory("low/sub")
        before = self.on_host(f"mount -t tmpfs tmpfs {self.low}/sub")
        run = self.sandbox("true", policy=at(mount=overlay(self.low)), before=before)
        self.check_refused(run, "EINVAL", f"a file system is mounted at {self.low}/sub")

    def test_an_upper_of_a_live_sandbox_is_refused_to_another(self):
        first = self.start_inside("say('up'); sys.stdin.read()", policy=self.written(), stdin=self.held_input())
        first.wait_for_output("up")
        for more in ({"upper": self.upper, "work": self.make_directory("w2", owner=self.uid)},
                     {"upper": self.make_directory("u2", owner=self.uid), "work": self.scratch}):
            run = self.sandbox("true", policy=at(mount=overlay(self.low, **more)))
            self.check_refused(run, "another sandbox is using", "EBUSY", "wait for the other one")
        # Nor is it anybody's layer, whose files would change under its feet.
        other = self.make_directory("other")
        for mount in (overlay(self.upper), overlay(self.low, self.scratch),
                      overlay(self.low, readonly=True, upper=self.upper, work=other)):
            run = self.sandbox("true", policy=at(mount=mount))
            self.check_refused(run, "another sandbox is using", "EBUSY", 'filesystem.mounts["/o"]')
        # Layers that nobody writes to can be shared.
        self.check_exited(self.sandbox("true", policy=at(mount=overlay(self.low))))
        os.close(self.input_end)
        first.finish()
        for mount in (overlay(self.upper), self.written()["filesystem"]["mounts"]["/o"]):
            self.check_exited(self.sandbox("true", policy=at(mount=mount)))

    def test_a_layer_of_a_live_sandbox_is_no_others_upper(self):
        layer = self.make_directory("layer", owner=self.uid)
        first = self.start_inside("say('up'); sys.stdin.read()", policy=at(mount=overlay(self.low, layer)),
                                  stdin=self.held_input())
        first.wait_for_output("up")
        writing = at(mount=overlay(self.low, upper=layer, work=self.scratch))
        self.check_refused(self.sandbox("true", policy=writing), f"another sandbox is using {layer}", "EBUSY")
        os.close(self.input_end)
        first.finish()
        self.check_exited(self.sandbox("true", policy=writing))

    @as_root
    def test_a_lock_of_a_strangers_on_roots_directories_holds_nobody_up(self):
        for mode, expected in ((0o755, "exited"), (0o777, "setup")):
            self.low.chmod(mode)
            held = os.open(self.low, os.O_RDONLY)
            fcntl.flock(held, fcntl.LOCK_EX)
            run = self.sandbox("true", policy=at(mount=overlay(self.low)))
            os.close(held)
            self.assertEqual(run.record["cause"], expected, str(run))

    def held_input(self):
        read, self.input_end = os.pipe()
        self.addCleanup(os.close, read)
        return read

    def test_one_upper_for_two_overlays_of_a_sandbox_is_refused(self):
        mount = overlay(self.low, upper=self.upper, work=self.scratch)
        run = self.sandbox("true", policy={"filesystem": {"mounts": {"/o": mount, "/p": mount}}})
        self.check_refused(run, 'filesystem.mounts["/p"].upper', "is written to", f'the overlay at "/o" has "{self.upper}"')

    def test_no_planted_link_is_a_directory_of_an_overlay(self):
        link = self.make_link("work/link", self.high, owner=self.uid)
        for mount in (overlay(link), overlay(self.low, link), overlay(self.low, upper=link, work=self.scratch),
                      overlay(self.low, upper=self.upper, work=link), overlay(link / "sub")):
            run = self.sandbox("true", policy=at(mount=mount))
            self.check_refused(run, "so it is not followed", "ELOOP", 'filesystem.mounts["/o"]')
        self.assertEqual(self.listing(), self.before)
        self.assertEqual(os.listdir(self.scratch), [])

    @as_root
    def test_a_link_of_roots_is_followed(self):
        link = self.make_link("state", self.dir, owner=0)
        run = self.inside("open('/o/new', 'w').close(); say(sorted(os.listdir('/o')))", policy=at(mount=overlay(
            link / "low", upper=link / "upper", work=link / "scratch")))
        self.assertEqual(run.json(), ["both", "new", "only-low"], str(run))
        self.assertEqual(os.listdir(self.upper), ["new"])

    @as_root
    def test_directories_that_meet_through_a_link_are_refused(self):
        self.make_directory("low/inner")
        link = self.make_link("inner", self.low / "inner", owner=0)
        run = self.sandbox("true", policy=at(mount=overlay(self.low, link)))
        self.check_refused(run, "ELOOP", "one lies in the other")

    def test_a_mount_point_is_made_in_memory_and_not_on_the_host(self):
        made = {"/o/sub": {"type": "tmpfs"}, "/o/note": {"type": "file", "content": "x"}}
        run = self.inside("say([open('/o/note').read(), create('/o/sub/x')])",
                          policy={"filesystem": {"mounts": {"/o": overlay(self.low), **made}}})
        self.assertEqual(run.json(), ["x", "open"], str(run))
        for target, mount in made.items():
            policy = {"filesystem": {"mounts": {**self.written()["filesystem"]["mounts"], target: mount}}}
            self.check_refused(self.sandbox("true", policy=policy), "nothing", target)
        self.assertEqual((os.listdir(self.upper), self.listing()), ([], self.before))

    def test_a_name_that_a_layer_has_is_refused_with_the_remedy(self):
        self.make_directory("low/sub", owner=self.uid, mode=0o700)
        for mount in ({"type": "file", "content": "x"}, {"type": "symlink", "source": "x"}, {"type": "dir"}):
            run = self.sandbox("true", policy={"filesystem": {"mounts": {"/o": overlay(self.low), "/o/both": mount}}})
            self.check_refused(run, "EEXIST", 'filesystem.mounts["/o/both"]', "has that name already: choose another one")
        run = self.inside("say([oct(os.stat('/o/sub').st_mode), open('/o/both').read()])", policy={"filesystem": {
            "mounts": {"/o": overlay(self.low), "/o/sub": {"type": "dir", "mode": "0750"}}}})
        self.assertEqual(run.json(), ["0o40750", "low"], str(run))

    @as_root
    def test_a_lower_directory_of_another_uid_is_named_where_nothing_can_be_made_in_it(self):
        self.make_directory("low/closed")
        made = ({"type": "file", "content": "x"}, {"type": "dir"}, {"type": "symlink", "source": "x"},
                {"type": "tmpfs"}, {"type": "bind", "source": str(self.high)})
        for mount in made:
            with self.subTest(mount["type"]):
                mounts = {"/o": overlay(self.low), "/o/closed/new": mount}
                run = self.sandbox("true", policy={"filesystem": {"mounts": mounts}})
                self.check_refused(run, "EACCES", "the owners and modes of its layers hold", f"uid {self.uid}")
        os.chown(self.low / "closed", self.uid, self.uid)
        for mount in made:
            mounts = {"/o": overlay(self.low), "/o/closed/new": mount}
            self.check_exited(self.sandbox("true", policy={"filesystem": {"mounts": mounts}}))


if __name__ == "__main__":
    main()
