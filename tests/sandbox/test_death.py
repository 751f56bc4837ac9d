"""When belljar dies, SIGKILL included, nothing of its sandbox survives; nor does it survive its command."""

import os
import random
import signal
import time

from harness import SandboxTest, descendants, long, main, wait_for, wait_for_no_descendants

DAEMON = """
    if os.fork() == 0:
        os.setsid()
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        if os.fork() == 0:
            os.chdir('/')
            while True: time.sleep(60)
        os._exit(0)
    os.wait()
"""
STOPPED = """
    for _ in range(3):
        if os.fork() == 0:
            if os.fork() == 0: os.kill(os.getpid(), signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
"""
CHASER = """
    if os.fork() == 0:
        while True:
            os.setsid() if os.getsid(0) != os.getpid() and os.getpgid(0) != os.getpid() else None
            if os.fork(): os._exit(0)
"""
WAIT = """
    print('ready', flush=True)
    while True: time.sleep(60)
"""


class LauncherKilled(SandboxTest):

    def kill_and_look(self, code, at_least):
        running = self.start_inside(code + WAIT)
        running.wait_for_output("ready")
        wait_for(lambda: len(descendants(running.process.pid)) >= at_least, what="the sandbox's processes")
        running.process.kill()
        self.assertEqual(running.process.wait(), -signal.SIGKILL)
        self.assertEqual(wait_for_no_descendants(2.0), [])

    def test_nothing_survives_it(self):
        self.kill_and_look("", at_least=2)

    def test_a_daemon_with_its_own_session_does_not(self):
        self.kill_and_look(DAEMON, at_least=3)

    def test_stopped_processes_do_not(self):
        self.kill_and_look(STOPPED, at_least=5)

    def test_a_chain_of_forks_does_not(self):
        self.kill_and_look(CHASER, at_least=3)

    def test_nothing_survives_it_at_any_moment_of_set_up(self):
        self.kill_at_random_moments(30, seed=1)

    @long
    def test_nor_at_any_of_a_thousand_moments(self):
        self.kill_at_random_moments(1000, seed=2)

    def kill_at_random_moments(self, count, seed):
        chance = random.Random(seed)
        policy = self.policy()
        for _ in range(count):
            running = self.start_sandbox("sleep", "60", policy=policy)
            time.sleep(chance.uniform(0, 0.015))
            running.process.kill()
            running.process.wait()
            self.assertEqual(wait_for_no_descendants(2.0), [])
            running.stop()

    def test_a_stopped_belljar_that_is_killed_takes_its_sandbox_with_it(self):
        running = self.start_sandbox("sleep", "60", status=True)
        running.wait_until_started()
        running.send(signal.SIGSTOP)
        running.process.kill()
        running.process.wait()
        self.assertEqual(wait_for_no_descendants(2.0), [])

    def test_the_death_of_belljars_parent_changes_nothing(self):
        """A caller whose thread or process started it may be gone."""
        marker = self.work / "marker"
        policy = self.policy()
        wrap = ["sh", "-c", '"$@" & exit 0', "sh"]
        running = self.start_sandbox("sh", "-c", f"sleep 0.2; touch {marker}", policy=policy, wrap=wrap)
        running.process.wait()
        wait_for(marker.exists, 5, "the command's file")
        running.finish()


class InitKilled(SandboxTest):

    def test_belljar_reports_a_sandbox_that_is_gone(self):
        running = self.start_sandbox("sleep", "60", status=True)
        os.kill(running.wait_until_started(), signal.SIGKILL)
        run = running.finish()
        self.assertEqual((run.code, run.record["cause"]), (125, "lost"), str(run))


class CommandEnded(SandboxTest):

    def test_nothing_is_left_when_belljar_has_returned(self):
        for code in (DAEMON, STOPPED, CHASER):
            run = self.inside(code + "    sys.exit(4)")
            left = [item for item in descendants() if item[1] != "Z"]
            self.assertEqual((left, run.code), ([], 4), str(run))

    def test_a_command_killed_from_outside_ends_the_sandbox(self):
        running = self.start_inside(DAEMON + WAIT, status=True)
        init = running.wait_until_started()
        running.wait_for_output("ready")
        payload = min(pid for pid, _, _ in descendants(init))
        os.kill(payload, signal.SIGKILL)
        run = running.finish()
        self.assertEqual((run.record["cause"], run.record["signal"]), ("signaled", "SIGKILL"))
        self.assertEqual(descendants(), [])


if __name__ == "__main__":
    main()
