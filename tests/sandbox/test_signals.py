"""Signals: what is sent to belljar reaches the command, and set-up can be interrupted at any moment."""

import fcntl
import os
import pty
import random
import signal
import subprocess
import termios
import time

from harness import BELLJAR, SandboxTest, descendants, environment, main, processes, wait_for

FORWARDED = [signal.Signals[f"SIG{name}"] for name in ("INT", "TERM", "HUP", "QUIT", "WINCH", "USR1", "USR2")]
REPORT = """
    def report(number, frame): os.write(1, signal.Signals(number).name.encode())
    for name in ('INT', 'TERM', 'HUP', 'QUIT', 'WINCH', 'USR1', 'USR2'):
        signal.signal(getattr(signal, 'SIG' + name), report)
    print('ready', flush=True)
    while True: signal.pause()
"""


class Forwarding(SandboxTest):

    def test_each_forwarded_signal_reaches_the_command(self):
        running = self.start_inside(REPORT)
        running.wait_for_output("ready")
        for number in FORWARDED:
            running.send(number)
            running.wait_for_output(number.name)

    def test_a_caller_that_ignores_its_children_hears_how_the_command_has_ended(self):
        ignoring = ("env", "--ignore-signal=CHLD")
        self.assertEqual(self.sandbox("sh", "-c", "exit 5", wrap=ignoring).code, 5)

    def test_they_reach_its_whole_process_group(self):
        running = self.start_inside("""
            child = os.fork()
            name = b'parent\\n' if child else b'child\\n'
            signal.signal(signal.SIGUSR1, lambda *_: os.write(1, name))
            if child: print('ready', flush=True)
            while True: signal.pause()
        """)
        running.wait_for_output("ready")
        time.sleep(0.05)
        running.send(signal.SIGUSR1)
        said = running.wait_for_output("\n")
        said += running.wait_for_output("\n") if said.count("\n") < 2 else ""
        self.assertEqual(sorted(said.split()), ["child", "parent"])

    def test_belljar_ends_as_the_command_does(self):
        for number, code in ((signal.SIGINT, -2), (signal.SIGTERM, -15), (signal.SIGQUIT, -3), (signal.SIGHUP, 129),
                             (signal.SIGUSR1, 138)):
            running = self.start_sandbox("sleep", "30", status=True)
            running.wait_until_started()
            running.send(number)
            run = running.finish()
            self.assertEqual((run.code, run.record["cause"], run.record["by"], run.record["signal"]),
                             (code, "killed", "signal", number.name), str(run))

    def test_a_command_that_ignores_a_signal_goes_on(self):
        running = self.start_inside("""
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print('ready', flush=True)
            time.sleep(0.3)
            sys.exit(5)
        """)
        running.wait_for_output("ready")
        running.send(signal.SIGTERM)
        run = running.finish()
        self.assertEqual((run.code, run.record["cause"]), (5, "exited"))

    def test_a_command_that_exits_on_a_signal_has_exited(self):
        running = self.start_inside("""
            signal.signal(signal.SIGTERM, lambda *_: os._exit(3))
            print('ready', flush=True)
            while True: time.sleep(0.01)  # pause() could begin after the signal has come.
        """)
        running.wait_for_output("ready")
        running.send(signal.SIGTERM)
        run = running.finish()
        self.assertEqual((run.code, run.record["cause"]), (3, "exited"))

    def test_other_signals_end_nothing(self):
        running = self.start_sandbox("sleep", "0.3", status=True)
        running.wait_until_started()
        for name in ("ALRM", "PIPE", "VTALRM", "CHLD", "IO", "PROF"):
            running.send(signal.Signals[f"SIG{name}"])
        self.check_exited(running.finish())

    def test_the_command_starts_with_signals_as_a_program_expects_them(self):
        """Neither what belljar blocks for itself nor what a caller in Python ignores."""
        run = self.sandbox("grep", "^Sig[BI]", "/proc/self/status")
        self.assertEqual(run.out.split(), ["SigBlk:", "0" * 16, "SigIgn:", "0" * 16])

    def test_a_hangup_that_the_caller_ignores_stays_ignored(self):
        run = self.sandbox("grep", "SigIgn", "/proc/self/status", wrap=["sh", "-c", 'trap "" HUP; exec "$@"', "sh"])
        self.assertEqual(int(run.out.split()[1], 16), 1 << (signal.SIGHUP - 1))

    def test_the_payload_can_signal_its_own_and_nobody_else(self):
        run = self.inside("""
            child = os.fork() or signal.pause()
            say([attempt(os.kill, child, 15), attempt(os.kill, 1, 9), os.path.exists('/proc/1'),
                 attempt(os.kill, 12345, 0)])
        """)
        self.assertEqual(run.json(), ["open", "open", True, "ESRCH"], str(run))


class AtTheEnd(SandboxTest):

    def test_a_signal_as_the_command_ends_does_not_lose_its_exit_code(self):
        """Init finds the command's end and belljar's message at once, and ends without reading the second."""
        running = self.start_sandbox("sh", "-c", "read line; exit 6", status=True)
        init = running.wait_until_started()
        payload = descendants(init)[0][0]
        os.kill(init, signal.SIGSTOP)
        running.process.stdin.write(b"go\n")
        running.process.stdin.flush()
        wait_for(lambda: processes()[payload][1] == "Z", what="the command's end")
        running.send(signal.SIGTERM)
        time.sleep(0.05)
        running.send(signal.SIGSTOP)
        os.kill(init, signal.SIGCONT)
        wait_for(lambda: processes()[init][1] == "Z", what="init's end")
        running.send(signal.SIGCONT)
        run = running.finish()
        self.assertEqual((run.code, run.record["cause"]), (6, "exited"), str(run))


class JobControl(SandboxTest):
    """An interactive shell at a terminal, which stops and continues belljar as its job."""

    def setUp(self):
        super().setUp()
        self.terminal, other = pty.openpty()
        self.addCleanup(os.close, self.terminal)
        self.shell = subprocess.Popen(
            [*self.prefix(), "bash", "--norc", "--noprofile", "-i"], stdin=other, stdout=other, stderr=other,
            cwd=self.work, env=environment(PS1="$ ", HISTFILE="", INPUTRC="/dev/null", TERM="dumb"),
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(other)
        self.addCleanup(self.end_shell)

    def end_shell(self):
        """Without its terminal's master the shell gets a hangup; nobody waits for it in vain."""
        self.shell.kill()
        self.shell.wait()

    def type(self, text):
        os.write(self.terminal, text.encode())

    def family(self):
        """belljar, init and the command: three generations below the shell."""
        return [pid for pid, _, _ in descendants(self.shell.pid)]

    def states(self):
        return [state for _, state, _ in descendants(self.shell.pid)]

    def await_states(self, *expected):
        wait_for(lambda: self.states() == list(expected), 5, f"{expected}, not {self.states()},")

    def test_ctrl_z_stops_belljar_and_the_command_and_fg_continues_both(self):
        self.type(f"{BELLJAR} run --policy {self.policy()} -- sleep 300\n")
        self.await_states("S", "S", "S")
        for _ in range(2):
            self.type("\x1a")
            self.await_states("T", "S", "T")
            self.type("fg\n")
            self.await_states("S", "S", "S")
        self.type("\x03")
        wait_for(lambda: not self.family(), what="the end of the job")

    def test_a_stopped_job_continues_in_the_background_and_can_be_ended(self):
        self.type(f"{BELLJAR} run --policy {self.policy()} -- sleep 300\n")
        self.await_states("S", "S", "S")
        self.type("\x1a")
        self.await_states("T", "S", "T")
        self.type("bg\n")
        self.await_states("S", "S", "S")
        self.type("kill %1\n")
        wait_for(lambda: not self.family(), what="the end of the job")


class DuringSetUp(SandboxTest):

    def test_a_signal_at_any_moment_leaves_nothing(self):
        chance = random.Random(7)
        for number in (signal.SIGTERM, signal.SIGINT) * 8:
            running = self.start_sandbox("sleep", "30")
            time.sleep(chance.uniform(0, 0.015))
            running.send(number)
            self.assertEqual(running.finish().code, -number)

    def test_a_stopped_sandbox_can_be_ended(self):
        running = self.start_sandbox("sleep", "30", status=True)
        init = running.wait_until_started()
        payload = descendants(init)[0][0]
        os.kill(payload, signal.SIGSTOP)
        running.next_event("stopped")
        running.send(signal.SIGTERM)
        time.sleep(0.05)
        self.assertTrue(os.path.exists(f"/proc/{payload}"))
        os.kill(payload, signal.SIGCONT)
        self.assertEqual(running.finish().code, -signal.SIGTERM)
        wait_for(lambda: not os.path.exists(f"/proc/{init}"))


if __name__ == "__main__":
    main()
