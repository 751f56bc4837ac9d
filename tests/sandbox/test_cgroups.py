"""memory, swap, processes, cpus and cpu_time of a whole sandbox, by cgroups of version 1: felt, named by the record,
out of the command's reach, and gone at the end. (Version 2: tests/vm, tests/unit/launcher/cgroup_test.cpp.)"""

import os
import pathlib
import signal

from cgroup_places import HAS_V1, HERE, ROOT, Places
from harness import SESSION_UID, SandboxTest, as_root, callers, leave_out, main, wait_for


def limits(**values):
    return {"limits": values}


class CgroupTest(Places, SandboxTest):
    """Makes its places as root, where the hierarchies of version 1 are."""

    def __init_subclass__(cls, **kwargs):
        for name, test in vars(cls).items():
            if name.startswith("test_"):
                leave_out(as_root(test), not HAS_V1)
        super().__init_subclass__(**kwargs)

    def setUp(self):
        super().setUp()
        self.make_places()

    def inside(self, code, **more):
        return super().inside(code, **{"before": self.placed(), **more})

    def sandbox(self, *command, **more):
        return super().sandbox(*command, **{"before": self.placed(), **more})


class Felt(CgroupTest):

    def test_memory_ends_the_command_and_the_record_says_so(self):
        code = "say(len(bytearray(200 << 20)))"
        run = self.inside(code, policy=limits(memory="64MiB"))
        self.assertEqual((run.record["cause"], run.record["signal"], run.record["limits"], run.code),
                         ("memory", "SIGKILL", ["memory"], 128 + 9), str(run))
        self.assertIn("more memory than its limit, ", run.err)
        self.check_exited(self.inside(code, policy=limits(memory="512MiB")))

    def test_memory_is_that_of_all_processes_together(self):
        code = """
            for _ in range(4):
                if os.fork() == 0:
                    kept = bytearray(30 << 20)
                    time.sleep(0.5)
                    os._exit(0)
            say([os.wait()[1] for _ in range(4)])
        """
        self.assertEqual(self.inside(code, policy=limits(memory="64MiB")).record["cause"], "memory")
        self.assertEqual(self.inside(code).json(), [0, 0, 0, 0])

    def test_when_memory_runs_out_nothing_goes_on_half_broken(self):
        run = self.inside("""
            if os.fork() == 0:
                bytearray(200 << 20)
                os._exit(0)
            os.wait()
            time.sleep(1)
            say("went on")
        """, policy=limits(memory="64MiB"))
        self.assertEqual((run.record["cause"], run.out), ("memory", ""), str(run))

    def test_swap_does_not_stand_in_for_memory(self):
        for more in ({}, {"swap": "0B"}, {"swap": "8MiB"}):
            run = self.inside("bytearray(200 << 20)", policy=limits(memory="64MiB", **more))
            self.assertEqual(run.record["cause"], "memory", str(run))

    def test_processes_end_at_their_number(self):
        code = "say(attempt(lambda: [os.fork() or os._exit(signal.pause() or 0) for _ in range(40)]))"
        run = self.inside(code, policy=limits(processes=20))
        self.assertEqual((run.json(), run.record["cause"], run.record["limits"]),
                         ("EAGAIN", "exited", ["processes"]), str(run))
        run = self.inside(code)
        self.assertEqual((run.json(), run.record["limits"]), ("open", []))

    def test_the_number_of_processes_counts_no_process_of_belljar(self):
        self.check_exited(self.sandbox("true", policy=limits(processes=1)))
        code = "say(attempt(lambda: os.fork() or os._exit(0)))"
        self.assertEqual(self.inside(code, policy=limits(processes=1)).json(), "EAGAIN")
        self.assertEqual(self.inside(code, policy=limits(processes=2)).json(), "open")

    def test_a_fork_bomb_is_held_and_named(self):
        run = self.sandbox("sh", "-c", "bomb() { bomb | bomb & }; bomb; sleep 0.3; exit 3",
                           policy=limits(processes=30, wall_time="10s"))
        self.assertEqual((run.record["cause"], run.record["limits"]), ("processes", ["processes"]), str(run)[-600:])
        self.assertIn(run.code, (2, 3))  # The shell gives up by itself when it is its own fork that is refused.
        self.assertLess(run.seconds, 5)

    def test_processors_are_shared_out(self):
        code = """
            began, used = time.monotonic(), time.process_time()
            while time.monotonic() < began + 0.8: pass
            say((time.process_time() - used) / (time.monotonic() - began))
        """
        self.assertLess(self.inside(code, policy=limits(cpus=0.1)).json(), 0.2)
        self.assertGreater(self.inside(code, policy=limits(cpus=2)).json(), 0.2)

    def test_the_record_has_the_peak_of_all_processes(self):
        run = self.inside("bytearray(30 << 20)", policy=limits(memory="512MiB"))
        usage = run.record["usage"]
        self.assertTrue(30 << 10 < usage["peak_memory_kib"] < 512 << 10, usage)
        self.assertNotIn("max_rss_of_one_process_kib", usage)
        self.assertNotIn("peak_memory_kib", self.inside("pass").record["usage"])


SPIN = """
    def spin(seconds):
        end = time.process_time() + seconds
        while time.process_time() < end: pass

    def child(work):
        pid = os.fork()
        if pid == 0:
            work()
            os._exit(0)
        return pid
"""
# Each uses at least two seconds in all, and no process of the last four more than a third of one.
ONE = SPIN + """
    spin(2)
"""
MANY = SPIN + """
    for _ in range(8): child(lambda: spin(0.3))
    for _ in range(8): os.wait()
"""
SHORT_LIVED = SPIN + """
    for _ in range(70):
        child(lambda: spin(0.03))
        os.wait()
"""
ORPHANS = SPIN + """
    def orphan():
        os.setsid()
        child(lambda: spin(0.1))  # Which ends after its parent, and so is init's to wait for.
    for _ in range(21):
        end, held = os.pipe()
        child(orphan)
        os.close(held)
        os.wait()
        os.read(end, 1)
        os.close(end)
"""
UNWAITED = SPIN + """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in range(70):
        child(lambda: spin(0.03))
        attempt(os.wait)
"""


class CpuTime(CgroupTest):

    def check_ended_by_it(self, code, **more):
        run = self.inside(code, policy=limits(cpu_time="1s", wall_time="60s"), timeout=90, **more)
        self.assertEqual((run.record["cause"], run.record["signal"], run.record["limits"], run.code),
                         ("cpu_time", "SIGKILL", ["cpu_time"], 128 + 9), str(run))
        self.assertIn("was ended at its CPU time, ", run.err)
        self.assertIn("limits.cpu_time", run.err)
        self.assertGreaterEqual(run.record["usage"]["cpu_us"], 1_000_000)
        self.assertEqual(run.record["degraded"], [])

    def check_runs_without_it(self, code, **more):
        run = self.inside(code, policy=limits(cpu_time="1h"), timeout=90, **more)
        self.check_exited(run)
        self.assertEqual(run.record["limits"], [])
        self.assertGreaterEqual(run.record["usage"]["cpu_us"], 2_000_000)

    def test_it_ends_one_process_that_spins(self):
        self.check_ended_by_it(ONE)
        self.check_runs_without_it(ONE)

    @callers("root", "user")
    def test_it_is_that_of_all_processes_together(self):
        self.check_ended_by_it(MANY)
        self.check_runs_without_it(MANY)

    @callers("root", "user")
    def test_children_that_live_for_a_moment_count(self):
        self.check_ended_by_it(SHORT_LIVED)
        self.check_runs_without_it(SHORT_LIVED)

    @callers("root", "user")
    def test_children_of_children_that_have_ended_count(self):
        self.check_ended_by_it(ORPHANS)
        self.check_runs_without_it(ORPHANS)

    @callers("root", "user")
    def test_children_that_nobody_waits_for_count(self):
        self.check_ended_by_it(UNWAITED)
        self.check_runs_without_it(UNWAITED)

    def test_waiting_is_not_counted(self):
        run = self.sandbox("sleep", "1.5", policy=limits(cpu_time="1s"))
        self.check_exited(run)
        self.assertLess(run.record["usage"]["cpu_us"], 1_000_000)

    def test_without_it_nothing_is_counted(self):
        self.assertNotIn("cpu_us", self.sandbox("true").record["usage"])


class CpuTimeUncounted(CgroupTest):

    def test_a_command_whose_cgroup_is_taken_away_does_not_run_for_ever(self):
        policy = limits(cpu_time="2s")
        running = self.start_inside("while True: pass", policy=policy, before=self.placed(), status=True, timeout=60)
        running.wait_until_started()
        (name,) = self.cgroups()
        place = ROOT / "cpuacct" / HERE
        for pid in (place / name / "cgroup.procs").read_text().split():
            (place / "cgroup.procs").write_text(pid)
        wait_for(lambda: not (place / name / "cgroup.procs").read_text(), what="an empty cgroup")
        (place / name).rmdir()
        run = running.finish()
        self.check_refused(run, "could not read the number in", f"{name}/cpuacct.usage", "limits.cpu_time", "leave the cgroup")
        self.assertNotIn("cpu_us", run.record["usage"])


class CpuTimeWithoutACgroup(CpuTime):
    """belljar looks at the processes, where the policy prefers that to no launch."""

    def blocked(self):
        return self.on_host("mount -o remount,bind,ro /sys/fs/cgroup/cpuacct")

    def inside(self, code, policy=None, **more):
        policy = {"limits": {**policy["limits"], "enforce": "prefer"}}
        run = super().inside(code, policy=policy, before=self.blocked(), **more)
        (item,) = run.record["degraded"]
        self.assertTrue(item["what"].startswith("limits.cpu_time needs a cgroup, and none can be made"), item)
        run.record["degraded"] = []
        return run

    # The one thing that looking cannot see, and the reason for "prefer".
    @callers("root", "user")
    def test_children_that_nobody_waits_for_count(self):
        run = self.inside(UNWAITED, policy=limits(cpu_time="1s"), timeout=90)
        self.check_exited(run)
        self.assertLess(run.record["usage"]["cpu_us"], 1_000_000)

    def test_waiting_is_not_counted(self):
        run = self.inside("time.sleep(1.5)", policy=limits(cpu_time="1s"))
        self.check_exited(run)

    def test_without_it_nothing_is_counted(self):
        run = self.sandbox("true", policy=limits(cpu_time="1s"), before=self.blocked())
        self.check_refused(run, "limits.cpu_time needs a cgroup", "EROFS" if self.privileged else "cpuacct",
                           'limits.enforce "prefer"')


class OutOfReach(CgroupTest):

    def membership(self, pid):
        """The cgroups of a process, as the host names them: controller -> path."""
        lines = pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        return {line.split(":")[1]: line.split(":")[2] for line in lines}

    def members(self, cgroup):
        return (cgroup / "cgroup.procs").read_text().split()

    def test_each_limit_is_set_and_the_whole_sandbox_is_in(self):
        running = self.start_inside(
            "child = os.fork() or os._exit(signal.pause() or 0); print('ready', flush=True); sys.stdin.read()",
            policy=limits(memory="64MiB", swap="8MiB", processes=20, cpus=0.5, cpu_time="1h"), before=self.placed(),
            status=True, stdin=None)
        pid = running.wait_until_started()
        running.wait_for_output("ready")
        name = self.cgroups()[0]
        self.assertEqual(self.cgroups(), [name] * 4)
        values = {"memory/memory.limit_in_bytes": 64 << 20, "memory/memory.memsw.limit_in_bytes": 72 << 20,
                  "pids/pids.max": 21, "cpu/cpu.cfs_quota_us": 50000, "cpu/cpu.cfs_period_us": 100000}
        for file, value in values.items():
            controller, leaf = file.split("/")
            self.assertEqual(int((ROOT / controller / HERE / name / leaf).read_text()), value, file)
        for place in self.places:
            # A list that is read while processes come and go elsewhere can lack some.
            wait_for(lambda: str(pid) in self.members(place / name) and len(self.members(place / name)) == 3)
            self.assertNotIn(str(running.process.pid), self.members(place / name))
        running.send(signal.SIGTERM)
        running.finish()

    def test_the_cgroup_namespace_begins_at_the_sandboxs_own(self):
        code = "say([line.strip().split(':')[2] for line in open('/proc/self/cgroup') if ':memory:' in line])"
        policy = limits(memory="64MiB")
        self.assertEqual(self.inside(code, policy=policy).json(), ["/"])
        path = self.inside(code, policy={**policy, "namespaces": {"cgroup": "shared"}}).json()[0]
        self.assertTrue(path.startswith(f"/{HERE}/belljar-"), path)

    def view(self, readonly):
        mount = {"type": "bind", "source": str(ROOT), "readonly": readonly}
        return {"mounts": {"/cgroups": mount}}

    # The plain user owns the place and what is made in it, so that nothing but the mount is in the way.
    @callers("user")
    def test_the_command_can_neither_leave_nor_change_it(self):
        code = f"""
            import glob
            own = glob.glob("/cgroups/memory/{HERE}/belljar-*")
            say([attempt(lambda: open(path, "w").close()) for path in
                 ("/cgroups/memory/{HERE}/cgroup.procs", own[0] + "/memory.limit_in_bytes")])
        """
        policy = {**limits(memory="64MiB"), "filesystem": self.view(True)}
        self.assertEqual(self.inside(code, policy=policy).json(), ["EROFS", "EROFS"])

    @callers("user")
    def test_with_a_writable_view_it_could_so_that_is_refused(self):
        code = f'say(attempt(lambda: open("/cgroups/memory/{HERE}/cgroup.procs", "w").close()))'
        policy = {"filesystem": self.view(False)}
        self.assertEqual(self.inside(code, policy=policy).json(), "open")
        self.check_refused(self.inside(code, policy={**policy, **limits(memory="64MiB")}),
                           "could change its own limits in /sys/fs/cgroup/memory", "readonly")

    @callers("user")
    def test_the_probe_finds_a_door_that_is_left_open(self):
        policy = {"filesystem": {"mounts": {"/sys/fs/cgroup": {
            "type": "bind", "source": str(self.places[0]), "readonly": False}}}}
        self.assertEqual(self.sandbox("/belljar", "probe", "leave-cgroup", policy=policy).out, "leave-cgroup trying\nleave-cgroup open\n")
        policy["filesystem"]["mounts"]["/sys/fs/cgroup"]["readonly"] = True
        self.assertEqual(self.sandbox("/belljar", "probe", "leave-cgroup", policy=policy).out, "leave-cgroup trying\nleave-cgroup EROFS\n")

    @callers("user")
    def test_who_may_mount_could_change_it_so_that_is_refused(self):
        run = self.sandbox("true", policy={**limits(memory="64MiB"), "capabilities": ["SYS_ADMIN"]})
        self.check_refused(run, "could mount its cgroup", "limits.memory", "CAP_SYS_ADMIN")


class Ends(CgroupTest):

    def test_it_is_removed_however_the_run_ends(self):
        policy = limits(memory="64MiB", processes=20)
        self.check_exited(self.sandbox("sh", "-c", "sleep 30 & exit 3", policy=policy), 3)
        self.assertEqual(self.cgroups(), [])
        self.sandbox("no-such-program", policy=policy)
        self.assertEqual(self.cgroups(), [])
        self.sandbox("sleep", "30", policy=policy, options=["--timeout", "100ms"])
        self.assertEqual(self.cgroups(), [])
        refused = self.sandbox("true", policy={**policy, "filesystem": {"mounts": {
            "/x": {"type": "bind", "source": "/no/such/place"}}}})
        self.check_refused(refused)

    def killed(self):
        """A launch whose belljar is killed: what it leaves."""
        running = self.start_sandbox("sleep", "30", policy=limits(memory="64MiB"), before=self.placed(), status=True)
        running.wait_until_started()
        running.send(signal.SIGKILL)
        running.finish()
        return self.cgroups()

    def test_what_a_killed_belljar_leaves_is_removed_by_the_next(self):
        left = self.killed()
        self.assertEqual(len(left), 1)
        place = ROOT / "memory" / HERE / left[0]
        wait_for(lambda: place.joinpath("cgroup.procs").read_text() == "", what="an empty cgroup")
        running = self.start_sandbox("sleep", "30", policy=limits(memory="64MiB"), before=self.placed(), status=True)
        running.wait_until_started()
        self.assertNotIn(left[0], self.cgroups())
        # One that is in use stays, as does a name that is not ours, or of another pid namespace.
        used = self.cgroups()
        others = ["somebody", "belljar-1-1-1-1", "belljar-x"]
        for name in others:
            os.mkdir(ROOT / "memory" / HERE / name)
            os.chown(ROOT / "memory" / HERE / name, SESSION_UID if self.caller == "user" else 0, -1)
        self.check_exited(self.sandbox("true", policy=limits(memory="64MiB")))
        self.assertEqual(self.cgroups(), sorted([*used, *others]))
        for name in others:
            os.rmdir(ROOT / "memory" / HERE / name)
        running.send(signal.SIGTERM)
        running.finish()


class NoPlace(CgroupTest):

    def read_only(self):
        moves = f"echo $$ > {self.places[0]}/cgroup.procs; "
        return self.on_host(moves + "mount -o remount,bind,ro /sys/fs/cgroup/memory")

    def test_without_a_place_the_launch_is_refused_with_what_to_change(self):
        run = self.sandbox("true", policy=limits(memory="64MiB"), before=self.read_only())
        self.check_refused(run, "limits.memory needs a cgroup, and none can be made", "EROFS",
                           "writable-cgroups=true", 'limits.enforce "prefer"')

    @callers("user")
    def test_a_plain_user_is_told_how_to_get_one(self):
        run = self.sandbox("true", policy=limits(processes=20), before=())
        self.check_refused(run, "limits.processes needs a cgroup", "EACCES",
                           "systemd-run --user --scope -p Delegate=yes", "chown")

    def test_a_policy_that_prefers_goes_on_and_says_so(self):
        policy = limits(memory="64MiB", processes=20, enforce="prefer")
        run = self.inside("say(len(bytearray(100 << 20)))", policy=policy, before=self.read_only())
        self.check_exited(run)
        whats = [item["what"] for item in run.record["degraded"] if item["control"] == "cgroup"]
        self.assertTrue(whats[0].startswith("limits.memory needs a cgroup"), whats)
        self.assertEqual(len(whats), 2 if self.caller == "user" else 1, whats)

    def test_swap_alone_is_refused(self):
        self.check_refused(self.sandbox("true", policy=limits(swap="1MiB")), "limits.memory too")


if __name__ == "__main__":
    main()
