"""limits.disk: what the command can write is measured from outside, without being led anywhere, and the command
is ended above the limit; a single file never outgrows it."""

import time

from harness import SandboxTest, back_ends, callers, main

MIB = 1 << 20


def limit(size, **more):
    return {"limits": {"disk": size, **more}}


class Disk(SandboxTest):

    def check_ended(self, run):
        self.assertEqual((run.record["cause"], run.record["limits"], run.code), ("disk", ["disk"], 137), str(run))
        self.assertIn("more on disk than it may", run.err)

    def fill(self, files, directory=None, then=""):
        """Code that writes so many files of 1 MiB each; `then` is what follows, a line each."""
        return "\n".join([f"for i in range({files}):",
                          f"    with open('{directory or self.work}/%d' % i, 'wb') as file: file.write(bytes({MIB}))",
                          then])

    @back_ends("modern")
    def test_many_files_together_end_the_command_while_it_runs(self):
        run = self.inside(self.fill(6, then="time.sleep(20)"), policy=limit("4MiB"))
        self.check_ended(run)
        self.assertLess(run.seconds, 8)

    def test_a_command_that_ends_before_anybody_looked_is_found_out(self):
        self.check_ended(self.inside(self.fill(6), policy=limit("4MiB")))

    @back_ends("modern")
    def test_below_the_limit_nothing_happens(self):
        run = self.inside(self.fill(3, then="time.sleep(1.5)"), policy=limit("4MiB"))
        self.check_exited(run)
        self.assertEqual(run.record["limits"], [])

    def test_a_single_file_stops_at_the_limit(self):
        run = self.sandbox("dd", "if=/dev/zero", f"of={self.work}/big", "bs=1M", "count=8", policy=limit("2MiB"))
        self.assertEqual((run.record["cause"], run.record["signal"]), ("disk", "SIGXFSZ"), str(run))
        self.assertEqual((self.work / "big").stat().st_size, 2 * MIB)

    def test_a_lower_limit_of_files_stays_the_files(self):
        policy = limit("8MiB", rlimits={"fsize": "1MiB"})
        run = self.sandbox("dd", "if=/dev/zero", f"of={self.work}/big", "bs=1M", "count=4", policy=policy)
        self.assertEqual(run.record["cause"], "file_size", str(run))
        policy = limit("2MiB", rlimits={"fsize": "unlimited"})
        self.assertEqual(self.inside("import resource; say(resource.getrlimit(resource.RLIMIT_FSIZE))",
                                     policy=policy).json(), [2 * MIB, 2 * MIB])

    @back_ends("modern")
    def test_a_sparse_file_counts_what_it_holds(self):
        code = f"os.truncate(os.open('{self.work}/hole', os.O_CREAT | os.O_WRONLY), {3 * MIB}); time.sleep(1.2)"
        self.check_exited(self.inside(code, policy=limit("4MiB")))

    @back_ends("modern")
    def test_a_file_with_two_names_counts_once(self):
        code = self.fill(3, then=f"for i in range(3): os.link('{self.work}/%d' % i, '{self.work}/again%d' % i)\n"
                                 "time.sleep(1.2)")
        self.check_exited(self.inside(code, policy=limit("4MiB")))

    def test_writable_binds_count_with_the_workspace(self):
        data = self.make_directory("data", owner=self.uid)
        mounts = {"/data": {"type": "bind", "source": str(data), "readonly": False}}
        policy = {**limit("5MiB"), "filesystem": {"mounts": mounts}}
        self.check_exited(self.inside(self.fill(3), policy=policy))
        self.check_ended(self.inside(self.fill(3, "/data"), policy=policy))

    def test_what_is_bound_read_only_and_what_is_memory_do_not_count(self):
        data = self.make_directory("data", owner=self.uid)
        (data / "much").write_bytes(bytes(6 * MIB))
        mounts = {"/data": {"type": "bind", "source": str(data)}}
        policy = {**limit("4MiB"), "filesystem": {"mounts": mounts}}
        self.check_exited(self.inside(self.fill(6, "/tmp"), policy=policy))

    def test_a_place_that_is_full_already_refuses_the_launch(self):
        for i in range(5):
            (self.work / str(i)).write_bytes(bytes(MIB))
        run = self.sandbox("true", policy=limit("4MiB"))
        self.check_refused(run, "already holds", "limits.disk", "make room")
        self.check_exited(self.sandbox("true", policy=limit("8MiB")))

    @back_ends("modern")
    def test_links_lead_nowhere(self):
        outside = self.make_directory("outside")
        (outside / "much").write_bytes(bytes(6 * MIB))
        code = f"""
            os.symlink("{outside}", "{self.work}/dir")
            os.symlink("{outside}/much", "{self.work}/file")
            os.symlink("/proc/self/root", "{self.work}/root")
            time.sleep(1.2)
        """
        self.check_exited(self.inside(code, policy=limit("4MiB")))

    @back_ends("modern")
    def test_a_swarm_of_moving_directories_and_links_does_not_mislead_it(self):
        outside = self.make_directory("outside")
        (outside / "much").write_bytes(bytes(6 * MIB))
        code = f"""
            os.chdir("{self.work}")
            os.mkdir("a")
            end = time.monotonic() + 2.5
            while time.monotonic() < end:
                os.rename("a", "b")
                os.symlink("{outside}", "a")
                os.unlink("a")
                os.rename("b", "a")
        """
        self.check_exited(self.inside(code, policy=limit("4MiB")))

    # Root reads every directory; a plain user's belljar is stopped by the mode.
    @back_ends("modern")
    def test_a_directory_that_hides_its_content_does_not_help(self):
        hidden = f"{self.work}/x"
        code = f"os.mkdir('{hidden}')\n" + self.fill(6, hidden, then=f"os.chmod('{hidden}', 0)\ntime.sleep(20)")
        self.check_ended(self.inside(code, policy=limit("4MiB")))

    @callers("user")
    @back_ends("modern")
    def test_what_cannot_be_measured_counts_as_too_much(self):
        code = f"""
            os.mkdir("{self.work}/x", 0)
            time.sleep(20)
        """
        self.check_ended(self.inside(code, policy=limit("4MiB")))

    @back_ends("modern")
    def test_nor_does_depth(self):
        code = f"""
            os.chdir("{self.work}")
            for _ in range(150):
                os.mkdir("d")
                os.chdir("d")
            time.sleep(20)
        """
        run = self.inside(code, policy=limit("4MiB"))
        self.check_ended(run)

    @back_ends("modern")
    def test_many_files_hold_up_neither_signals_nor_the_wall_time(self):
        for i in range(3000):
            (self.work / f"f{i}").touch()
        began = time.monotonic()
        run = self.sandbox("sleep", "30", policy=limit("64MiB", wall_time="1500ms"))
        self.assertEqual((run.code, run.record["cause"]), (124, "wall_time"), str(run))
        self.assertLess(time.monotonic() - began, 5)


if __name__ == "__main__":
    main()
