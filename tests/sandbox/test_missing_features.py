"""A host that lacks something: refused with what to do, never a sandbox that holds less than it says (F03)."""

import sys

from harness import SandboxTest, as_root, back_ends, callers, environment, main

STATE = ["/tools/state"]

# Enters a user namespace that maps all ids to themselves and allows no further one, and executes the rest.
NO_MORE_USER_NAMESPACES = """
import ctypes, os, sys
here, unshared, mapped = os.getpid(), os.pipe(), os.pipe()
if os.fork() == 0:
    os.read(unshared[0], 1)
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{here}/{name}", "w") as file:
            file.write("0 0 4294967295")
    os.write(mapped[1], b"x")
    os._exit(0)
ctypes.CDLL(None).unshare(0x10000000)
os.write(unshared[1], b"x")
os.read(mapped[0], 1)
os.wait()
with open("/proc/sys/user/max_user_namespaces", "w") as file:
    file.write("0")
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Missing(SandboxTest):

    @as_root
    def test_without_user_namespaces_the_launch_is_refused(self):
        """In a user namespace whose own limit is 0, as a host's can be."""
        run = self.sandbox("touch", "ran", before=[sys.executable, "-c", NO_MORE_USER_NAMESPACES])
        self.check_refused(run, "ENOSPC", "remedy:", "user.max_user_namespaces")
        self.assertFalse((self.work / "ran").exists())

    @as_root
    @callers("root", "five")
    def test_root_that_cannot_change_ids_is_refused_but_for_uid_0(self):
        for bounding in ("-all", "-all,+chown,+kill", "-all,+setuid"):
            before = ["setpriv", "--no-new-privs", "--inh-caps=-all", f"--bounding-set={bounding}"]
            run = self.plain_root(before)
            self.check_refused(run, "CAP_SETUID", "CAP_SETGID", "identity.uid")

    def plain_root(self, before):
        """Not through the caller's own setpriv, which could not take more away."""
        self.caller = "root"
        return self.sandbox("true", policy={"filesystem": {"workspace": None}}, before=before)

    @as_root
    def test_without_proc_the_launch_is_refused(self):
        run = self.sandbox("true", before=self.on_host("mount -t tmpfs tmpfs /proc"))
        self.check_refused(run, "/proc", "remedy:")

    @as_root
    def test_a_dev_of_the_host_that_is_not_what_it_seems_is_refused(self):
        """Its null is a file, or a link to one of the host's."""
        nodes = "for n in zero full random urandom tty; do cp -a /dev/$n /mnt; done; mount --move /mnt /dev"
        for null in ("touch /mnt/null", "ln -s /etc/passwd /mnt/null", "cp -a /dev/zero /mnt/null", "true"):
            run = self.sandbox("touch", "ran", before=self.on_host(f"mount -t tmpfs tmpfs /mnt; {null}; {nodes}"))
            self.assertEqual((run.code, (self.work / "ran").exists()), (125, False), f"{null}: {run}")

    @back_ends("legacy")
    def test_older_kernels_give_the_same_sandbox(self):
        """Without close_range, openat2 or statx, which are newer than the oldest kernel."""
        expected = self.sandbox(*STATE)
        self.check_exited(expected)
        for calls in ("close_range", "openat2", "statx", "close_range+openat2+statx"):
            run = self.sandbox(*STATE, wrap=[self.tool("without_new_calls"), f"ENOSYS+{calls}"])
            self.assertEqual(run.out, expected.out, f"{calls} {run}")

    def test_without_any_one_newer_call_it_is_the_same_sandbox(self):
        """One call taken away at a time; the other back end takes over, or another call does."""
        expected = sorted(self.sandbox(*STATE).out.split("|"))
        for calls in ("openat2", "close_range", "statx", "landlock", "clone3", "mount_api"):
            run = self.without(calls, *STATE)
            self.assertEqual(sorted(run.out.split("|")), expected, f"{calls} {run}")

    def without(self, calls, *command, **more):
        return self.sandbox(*command, wrap=[self.tool("without_new_calls"), f"ONLY+{calls}"], any_back_end=True, **more)

    def test_without_landlock_a_policy_that_asks_for_it_is_refused(self):
        run = self.without("landlock", "true", policy={"landlock": {"filesystem": True}})
        self.check_refused(run, "landlock", "remedy:")

    def test_without_openat2_the_record_still_has_a_file_and_follows_no_link(self):
        directory = self.make_directory("records", owner=self.uid)
        self.make_link("linked", str(directory), owner=self.uid)
        for name, code in ("records", 0), ("linked", 125):
            record = self.dir / name / "record.json"
            run = self.belljar("run", "--policy", self.policy(), "--record", record, "--", "true", any_back_end=True,
                               wrap=[self.tool("without_new_calls"), "ONLY+openat2"])
            self.assertEqual((run.code, record.exists()), (code, code == 0), str(run))
            record.unlink(missing_ok=True)

    @back_ends("modern")
    def test_without_pidfd_calls_a_sandbox_still_ends_in_time(self):
        run = self.without("pidfd", "sleep", "1000", policy={"limits": {"wall_time": "300ms"}}, timeout=60)
        self.assertEqual((run.code, run.record["cause"]), (124, "wall_time"), str(run))

    @back_ends("legacy")
    def test_without_pidfd_calls_the_legacy_back_end_is_refused(self):
        run = self.without("pidfd", "touch", "ran")
        self.check_refused(run, "ENOSYS", "remedy:", "pidfd_open")
        self.assertFalse((self.work / "ran").exists())

    @back_ends("legacy")
    def test_calls_that_a_container_forbids_give_the_same_sandbox(self):
        expected = self.sandbox(*STATE)
        run = self.sandbox(*STATE, wrap=[self.tool("without_new_calls"), "EPERM"])
        self.assertEqual(run.out, expected.out, str(run))

    def test_the_back_end_can_be_chosen_by_the_environment(self):
        run = self.sandbox(*STATE, env=environment(BELLJAR_BACK_END="legacy"), any_back_end=True)
        self.assertEqual(run.record["back_end"], "legacy")

    @back_ends("modern")
    def test_both_back_ends_give_the_same_sandbox(self):
        modern = self.sandbox(*STATE)
        legacy = self.sandbox(*STATE, env=environment(BELLJAR_BACK_END="legacy"), any_back_end=True)
        self.assertEqual(sorted(modern.out.split("|")), sorted(legacy.out.split("|")))


if __name__ == "__main__":
    main()
