"""rlimits and wall time: set soft and hard, read back, felt, and named by the record when they end a run."""

import resource
import time

from harness import SANITIZED, SandboxTest, callers, main

VALUES = {"as": ("2GiB", 2 << 30), "core": ("0B", 0), "cpu": ("100s", 100), "data": ("1GiB", 1 << 30),
          "fsize": ("1MiB", 1 << 20), "memlock": ("64KiB", 64 << 10), "msgqueue": ("0B", 0), "nofile": (64, 64),
          "nproc": (20, 20), "rtprio": (0, 0), "nice": (0, 0), "rttime": ("500ms", 500000), "sigpending": (100, 100),
          "stack": ("1MiB", 1 << 20)}


def rlimits(**values):
    return {"limits": {"rlimits": values}}


class Rlimits(SandboxTest):

    def test_each_is_set_soft_and_hard_and_cannot_be_raised(self):
        wanted = {name: text for name, (text, _) in VALUES.items()}
        if SANITIZED:
            del wanted["as"]
        run = self.inside("""
            import resource
            found = {}
            for name in %s:
                number = getattr(resource, 'RLIMIT_' + name.upper(), 15)  # Python does not know RTTIME.
                soft, hard = resource.getrlimit(number)
                try: resource.setrlimit(number, (soft, hard + 1)); raised = True
                except (ValueError, OSError): raised = False
                found[name] = [soft, hard, raised]
            say(found)
        """ % list(wanted), policy=rlimits(**wanted))
        self.check_exited(run)
        for name, found in run.json().items():
            self.assertEqual(found, [VALUES[name][1], VALUES[name][1], False], name)

    def test_the_callers_stay_where_the_policy_names_none(self):
        run = self.inside("import resource; say(resource.getrlimit(resource.RLIMIT_NOFILE))")
        self.assertEqual(tuple(run.json()), resource.getrlimit(resource.RLIMIT_NOFILE))

    def test_open_files_end_at_nofile(self):
        code = "say(attempt(lambda: [os.open('/dev/null', 0) for _ in range(200)]))"
        self.assertEqual(self.inside(code, policy=rlimits(nofile=64)).json(), "EMFILE")
        self.assertEqual(self.inside(code).json(), "open")

    def test_processes_end_at_nproc(self):
        code = "say(attempt(lambda: [os.fork() or os._exit(signal.pause() or 0) for _ in range(40)]))"
        self.assertEqual(self.inside(code, policy=rlimits(nproc=20)).json(), "EAGAIN")
        self.assertEqual(self.inside(code).json(), "open")

    def test_a_fork_bomb_is_held_and_gone_at_its_wall_time(self):
        # The command itself forks once, before there is a bomb that could have its fork refused.
        run = self.sandbox("sh", "-c", "sh -c 'bomb() { bomb | bomb & }; bomb' & exec sleep 30",
                           policy={"limits": {"rlimits": {"nproc": 40}, "wall_time": "400ms"}})
        self.assertEqual((run.code, run.record["cause"]), (124, "wall_time"), str(run)[-500:])
        self.assertLess(run.seconds, 3)

    def test_memory_ends_at_as(self):
        code = """
            def grow():
                try: bytearray(600 << 20)
                except MemoryError: return 'MemoryError'
                return 'open'
            say(grow())
        """
        self.assertEqual(self.inside(code, policy=rlimits(**{"as": "512MiB"})).json(), "MemoryError")
        self.assertEqual(self.inside(code).json(), "open")

    def test_files_end_at_fsize_and_the_record_says_so(self):
        run = self.sandbox("dd", "if=/dev/zero", "of=/tmp/f", "bs=1M", "count=4", policy=rlimits(fsize="1MiB"))
        self.assertEqual((run.record["cause"], run.record["signal"], run.record["limits"], run.code),
                         ("file_size", "SIGXFSZ", ["file_size"], 128 + 25), str(run))
        self.check_exited(self.sandbox("dd", "if=/dev/zero", "of=/tmp/f", "bs=1M", "count=4"))

    @callers("root", "user")
    def test_processor_time_ends_at_cpu_and_the_record_says_so(self):
        run = self.inside("while True: pass", policy=rlimits(cpu="1s"))
        self.assertEqual((run.record["cause"], run.record["limits"]), ("cpu_time", ["cpu_time"]), str(run))
        self.assertIn(run.code, (128 + 9, 128 + 24))

    def test_a_signal_of_its_own_is_no_limit(self):
        for number, name in ((9, "SIGKILL"), (24, "SIGXCPU"), (25, "SIGXFSZ")):
            run = self.sandbox("sh", "-c", f"kill -{number} $$")
            self.assertEqual((run.record["cause"], run.record["signal"], run.record["limits"], run.code),
                             ("signaled", name, [], 128 + number))

    def test_no_core_is_dumped(self):
        run = self.inside("os.abort()", policy=rlimits(core="0B"))
        self.assertEqual(run.code, 128 + 6, str(run))
        self.assertEqual(list(self.work.iterdir()), [])

    def test_a_limit_above_the_callers_hard_one_refuses_with_what_to_do(self):
        wrap = ["sh", "-c", 'ulimit -n 100; exec "$@"', "sh"]
        run = self.sandbox("true", policy=rlimits(nofile=200), wrap=wrap)
        self.check_refused(run, "EPERM", 'limits.rlimits.nofile', "the caller's own hard limit is lower", "remedy:")
        self.check_exited(self.sandbox("true", policy=rlimits(nofile=100), wrap=wrap))

    def test_few_open_files_are_enough_to_launch_whatever_the_plan_holds(self):
        for preset in ("builtin:dev@1", "builtin:agent@1", "builtin:strict@1"):
            options = [*self.session_options(), "--set=limits.rlimits.nofile=8"]
            self.check_exited(self.sandbox("true", policy=preset, options=options))

    def test_a_caller_with_few_open_files_can_launch(self):
        wrap = ["sh", "-c", 'ulimit -n 32; exec "$@"', "sh"]
        run = self.sandbox("true", policy="builtin:dev@1", options=self.session_options(), wrap=wrap)
        self.check_exited(run)

    def test_real_time_scheduling_and_negative_nice_are_refused(self):
        run = self.inside("""
            say([attempt(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1)), attempt(os.nice, -5)])
        """, policy=rlimits(rtprio=0))
        self.assertEqual(run.json(), ["EPERM", "EPERM"])


class WallTime(SandboxTest):

    def test_the_command_is_ended_at_its_wall_time(self):
        run = self.sandbox("sleep", "30", policy={"limits": {"wall_time": "150ms"}})
        self.assertEqual((run.code, run.record["cause"], run.record["limits"]), (124, "wall_time", ["wall_time"]))
        self.assertTrue(0.15 <= run.seconds < 2, run.seconds)
        self.assertIn("the command was ended at its wall time", run.err)

    def test_a_shorter_command_is_not(self):
        self.check_exited(self.sandbox("true", policy={"limits": {"wall_time": "10s"}}))

    def test_the_command_line_sets_it_too(self):
        run = self.sandbox("sleep", "30", options=["--timeout", "100ms"])
        self.assertEqual((run.code, run.record["cause"]), (124, "wall_time"))
        self.assertIn("--timeout 100ms", run.err)

    def test_neither_ignoring_nor_stopping_nor_leaving_the_session_helps(self):
        run = self.inside("""
            for number in range(1, 65):
                try: signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError): pass
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0: time.sleep(60)
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(60)
        """, options=["--timeout", "300ms"])
        self.assertEqual((run.code, run.record["cause"]), (124, "wall_time"))
        self.assertLess(run.seconds, 3)

    def test_the_clock_starts_with_the_command(self):
        began = time.monotonic()
        run = self.inside("say(time.monotonic())", options=["--timeout", "5s"])
        self.check_exited(run)
        self.assertGreater(run.json(), began)

    def test_zero_and_nonsense_are_refused(self):
        for text in ("0s", "-1s", "1e300s", "5", "NaN", "1w", "99999999999999999999s"):
            run = self.sandbox("true", options=[f"--timeout={text}"])
            self.check_refused(run, "--timeout")


if __name__ == "__main__":
    main()
