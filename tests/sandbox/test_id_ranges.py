"""identity.ids: more ids inside than the own one, from /etc/subuid and /etc/subgid. (Both files, and the user's
name in /etc/passwd, are replaced in a mount namespace that only the launch has.)"""

import contextlib
import os
import pathlib
import signal

from harness import TOOLS_STAGED, SandboxTest, as_root, callers, descendants, environment, main, wait_for

FILTER = str(TOOLS_STAGED / "without_new_calls")
FIRST = 700000
MAPS = """
    def table(name): return [[int(word) for word in line.split()] for line in open(name)]
    say([table('/proc/self/uid_map'), table('/proc/self/gid_map')])
"""
BECOME = """
    def become(number):
        os.setresgid(number, number, number)
        os.setresuid(number, number, number)
        open(f'made-{number}', 'w').close()
    say([attempt(lambda: become(5)), attempt(os.setgroups, [1])])
"""


def ids(count, **more):
    return {"identity": {"ids": count, **more}}


class RangeTest(SandboxTest):

    def __init_subclass__(cls, **kwargs):
        for name, test in vars(cls).items():
            if name.startswith("test_"):
                as_root(test)
        super().__init_subclass__(**kwargs)

    def start(self, *arguments, env=None, **more):
        if self.caller == "user" and self.back_end == "legacy":  # A filter would take no_new_privs with it.
            env = {**(environment() if env is None else env), "BELLJAR_BACK_END": "legacy"}
        return super().start(*arguments, env=env, **more)

    def prefix(self, groups=()):
        words = super().prefix(groups)
        return [word for word in words if self.caller != "user" or word not in (FILTER, "ENOSYS")]

    def tables(self, uids=None, gids=None, name="belljar-tests", more=""):
        """A `before` with these tables; each is `OWNER:FIRST:COUNT`, one a line."""
        uids = f"{self.uid}:{FIRST}:65536\n" if uids is None else uids
        passwd = pathlib.Path("/etc/passwd").read_text()
        if name:
            passwd += f"{name}:x:{self.uid}:{self.gid}::/nonexistent:/bin/sh\n"
        files = {"subuid": uids, "subgid": uids if gids is None else gids, "passwd": passwd}
        for file, text in files.items():
            self.make_file(f"etc-{file}", text)
        return self.on_host("".join(f"mount --bind {self.dir}/etc-{file} /etc/{file}\n" for file in files) + more)


class Ranges(RangeTest):

    def test_so_many_ids_exist_inside_and_the_own_one_is_the_sessions(self):
        run = self.inside(MAPS, policy=ids(1000, inside_uid=0, inside_gid=0), before=self.tables())
        self.check_exited(run)
        self.assertEqual(run.json(), [[[0, self.uid, 1], [1, FIRST, 999]], [[0, self.gid, 1], [1, FIRST, 999]]])

    def test_the_own_id_stands_between_them_and_ranges_follow_one_another(self):
        before = self.tables(f"{self.uid}:{FIRST}:40\nother:5:5\nbelljar-tests:{FIRST + 1000}:100\n")
        run = self.inside(MAPS, policy=ids(60, inside_uid=10, inside_gid=90), before=before)
        self.check_exited(run)
        uids, gids = (sorted(table) for table in run.json())
        self.assertEqual(uids, [[0, FIRST, 10], [10, self.uid, 1], [11, FIRST + 10, 30], [41, FIRST + 1000, 19]])
        self.assertEqual(gids, [[0, FIRST, 40], [40, FIRST + 1000, 20], [90, self.gid, 1]])

    def test_without_it_the_own_id_is_all(self):
        run = self.inside(MAPS, before=self.tables())
        self.assertEqual(run.json(), [[[self.uid, self.uid, 1]], [[self.gid, self.gid, 1]]])

    def test_the_capability_to_take_another_id_reaches_those_that_exist(self):
        self.work.chmod(0o777)
        capable = {"capabilities": ["SETUID", "SETGID"]}
        run = self.inside(BECOME, policy={**ids(100), **capable}, before=self.tables())
        self.check_exited(run)
        self.assertEqual(run.json(), ["open", "EPERM"])
        about = os.stat(self.work / "made-5")
        self.assertEqual((about.st_uid, about.st_gid), (FIRST + 5, FIRST + 5))
        self.assertEqual(self.inside(BECOME, policy=capable, before=self.tables()).json()[0], "EINVAL")

    def test_without_the_capability_it_is_of_no_use(self):
        run = self.inside(BECOME, policy=ids(100, inside_uid=0, inside_gid=0), before=self.tables())
        self.check_exited(run)
        self.assertEqual(run.json(), ["EPERM", "EPERM"])

    def test_the_hosts_ids_beyond_the_range_stay_nobody(self):
        run = self.inside("say([os.stat('/usr').st_uid, os.getuid()])", policy=ids(100), before=self.tables())
        self.check_exited(run)
        self.assertEqual(run.json(), [65534, self.uid])


class Refused(RangeTest):

    def test_without_a_range(self):
        run = self.sandbox("true", policy=ids(10), before=self.tables("other:700000:65536\n"))
        self.check_refused(run, f"/etc/subuid gives uid {self.uid} no range of ids", "identity.ids", "--add-subuids")

    def test_with_a_range_of_groups_missing(self):
        run = self.sandbox("true", policy=ids(10), before=self.tables(gids=""))
        self.check_refused(run, f"/etc/subgid gives uid {self.uid} no range of ids", "--add-subgids")

    def test_with_one_that_is_too_small(self):
        run = self.sandbox("true", policy=ids(100), before=self.tables(f"{self.uid}:{FIRST}:99\n"))
        self.check_refused(run, f"/etc/subuid gives uid {self.uid} 99 ids, and 100 are asked for",
                           "a smaller identity.ids")
        run = self.sandbox("true", policy=ids(100, inside_uid=0, inside_gid=0),
                           before=self.tables(f"{self.uid}:{FIRST}:99\n"))
        self.check_exited(run)

    def test_with_one_that_holds_root_or_the_own_id(self):
        run = self.sandbox("true", policy=ids(10), before=self.tables(f"{self.uid}:0:65536\n"))
        self.check_refused(run, "the id 0, which is root", "correct the range in /etc/subuid")
        run = self.sandbox("true", policy=ids(10), before=self.tables(f"{self.uid}:{self.uid - 5}:10\n"))
        self.check_refused(run, f"its own id {self.uid}")

    @callers("user")
    def test_without_the_program_that_maps(self):
        hide = ("mkdir {0}/over; mount -t tmpfs none {0}/over; mkdir {0}/over/up {0}/over/work; mount -t overlay -o "
                "lowerdir=/usr/bin,upperdir={0}/over/up,workdir={0}/over/work none /usr/bin; rm /usr/bin/newuidmap")
        run = self.sandbox("true", policy=ids(10), before=self.tables(more=hide.format(self.dir)))
        self.check_refused(run, "newuidmap is not installed", "ENOENT", "apt-get install uidmap")

    @callers("user")
    def test_with_a_program_that_somebody_else_can_have_written(self):
        for owner, mode in ((self.uid, 0o4755), (0, 0o4775)):
            fake = self.make_file("fake", "#!/bin/sh\ntouch /var/tmp/belljar-was-fooled\n", owner=owner, mode=mode)
            before = self.tables(more=f"mount --bind {fake} /usr/bin/newgidmap")
            self.check_refused(self.sandbox("true", policy=ids(10), before=before),
                               "/usr/bin/newgidmap is not trusted", "EPERM")
            fake.unlink()

    @callers("user")
    def test_path_does_not_choose_the_program(self):
        fooled = self.make_directory("bin", owner=self.uid)
        for name in ("newuidmap", "newgidmap"):
            self.make_file(f"bin/{name}", f"#!/bin/sh\ntouch {fooled}/was-run\n", owner=self.uid, mode=0o755)
        run = self.inside(MAPS, policy=ids(10), before=self.tables(), env={"PATH": f"{fooled}:/usr/bin:/bin"})
        self.check_exited(run)
        self.assertFalse((fooled / "was-run").exists())

    @callers("user")
    def test_under_no_new_privs(self):
        wrap = ["setpriv", "--no-new-privs"]
        run = self.sandbox("true", policy=ids(10), before=self.tables(), wrap=wrap)
        self.check_refused(run, "newuidmap has no privileges for a caller with no_new_privs", "no-new-privileges")
        self.check_exited(self.sandbox("true", before=self.tables(), wrap=wrap))

    @callers("user")
    def test_a_program_that_takes_its_time_can_be_interrupted(self):
        # sleep(1) adds the numbers that it gets up.
        before = self.tables(more="mount --bind /bin/sleep /usr/bin/newuidmap")
        running = self.start_sandbox("true", policy=ids(10), before=before)

        def is_running():
            for pid, _, _ in descendants(running.process.pid):
                with contextlib.suppress(FileNotFoundError):  # Those before it come and go.
                    if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"newuidmap\0"):
                        return True
            return False

        wait_for(is_running, seconds=20, what="the program")
        running.send(signal.SIGWINCH)  # Not one that ends it.
        running.send(signal.SIGTERM)
        run = running.finish()
        self.assertEqual((run.record["cause"], run.record["by"], run.record["signal"], run.code),
                         ("killed", "signal", "SIGTERM", -signal.SIGTERM), str(run))

    @callers("root")
    def test_a_map_that_the_kernel_does_not_report_is_refused(self):
        log = self.dir / "log"

        def traced(*more):
            return self.sandbox("true", policy=ids(10), before=self.tables(),
                                wrap=["strace", "-o", log, "-e", "trace=write", *more])

        self.check_exited(traced())
        writes = [line for line in log.read_text().splitlines() if line.startswith("write(")]
        maps = [place for place, line in enumerate(writes, 1) if str(FIRST) in line]
        self.assertEqual(len(maps), 2, writes)
        for kind, place in zip(("uid", "gid"), maps):
            # The call says that all is written, and nothing is.
            length = writes[place - 1].rsplit("= ", 1)[1]
            run = traced("-e", f"inject=write:retval={length}:when={place}")
            self.check_refused(run, f"the kernel does not report the {kind} map that belljar was to write", "EPROTO",
                               "identity.ids")

    @callers("user")
    def test_what_the_program_says_is_told(self):
        run = self.sandbox("true", policy=ids(10), before=self.tables(name=None))
        self.check_refused(run, "newuidmap maps nothing: ", "user name", "man 1 newuidmap")


if __name__ == "__main__":
    main()
