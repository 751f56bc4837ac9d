"""A terminal of the sandbox's own: job control and full-screen programs, and the caller's stays out of reach.

The caller sits at a real terminal: a shell in tmux, whose keys and screen the tests use.
"""

import re
import shlex
import signal
import subprocess
import time

from harness import BELLJAR, SandboxTest, environment, main, not_sanitized, python_command, wait_for

OWN = {"io": {"tty": "auto"}}


class Terminal:
    """A shell at a terminal of its own, by way of tmux."""

    def __init__(self, test, columns=90, rows=30):
        self.test = test
        self.socket = str(test.dir / "tmux")
        self.asked = 0
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows),
                  "env PS1='caller> ' bash --norc --noprofile")
        test.addCleanup(self.close)
        self.wait_for(r"^caller>$")

    def tmux(self, *arguments):
        command = ["tmux", "-S", self.socket, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=self.test.work,
                              env=environment(TERM="xterm", SHELL="/bin/sh")).stdout

    def close(self):
        self.tmux("kill-server")

    def type(self, text):
        self.tmux("send-keys", "-l", text)

    def press(self, *keys):
        self.tmux("send-keys", *keys)

    def enter(self, line):
        self.type(line)
        self.press("Enter")

    def screen(self):
        return self.tmux("capture-pane", "-p")

    def wait_for(self, pattern, seconds=15):
        """The match on the screen, as soon as there is one."""
        deadline = time.monotonic() + seconds
        while True:
            screen = self.screen()
            if found := re.search(pattern, screen, re.MULTILINE):
                return found
            self.test.assertLess(time.monotonic(), deadline, f"no {pattern!r} on the screen:\n{screen}")
            time.sleep(0.03)

    def run(self, *command, policy=None, before="", after=""):
        """Types a `belljar run` of this test's caller and back end."""
        line = self.test.command_line(*command, policy=policy)
        script = self.test.make_file(f"run-{len(line)}-{time.monotonic_ns()}", f"{before} {line} {after}\necho \"done $?\"\n")
        self.enter(f". {script}")

    def settings(self):
        self.asked += 1
        self.enter(f"clear; echo settings {self.asked} $(stty -g | md5sum)")
        return self.wait_for(rf"^settings {self.asked} ([0-9a-f]+)").group(1)


class AtATerminal(SandboxTest):

    def command_line(self, *command, policy=None):
        policy = self.policy({**OWN, "env": {"set": {"TERM": "xterm", "PS1": "inside> "}}, **(policy or {})})
        words = [*self.prefix(), BELLJAR, "run", "--policy", policy, "--", *command]
        return " ".join(shlex.quote(str(word)) for word in words)

    def states(self, name):
        """The states of this test's processes whose command line holds `name`."""
        listed = subprocess.run(["ps", "-eo", "stat,args"], capture_output=True, text=True, check=True).stdout
        return [line.split()[0][0] for line in listed.splitlines() if name in line and "ps -eo" not in line]

    def test_the_command_has_a_terminal_of_the_sandbox(self):
        terminal = Terminal(self)
        terminal.run("sh", "-c", "tty; stty size; test -t 0 && test -t 1 && test -t 2 && echo all three")
        terminal.wait_for(r"^/dev/pts/0\n30 90\nall three\ndone 0$")

    def test_a_shell_has_job_control(self):
        terminal = Terminal(self)
        terminal.run("bash", "--norc", "--noprofile", "-i")
        terminal.wait_for(r"^inside>$")
        self.assertNotIn("no job control", terminal.screen())
        terminal.enter("sleep 99.25")
        wait_for(lambda: self.states("sleep 99.25"), 5, "the job")
        terminal.press("C-z")
        terminal.wait_for(r"Stopped +sleep 99.25\ninside>$")
        terminal.enter("fg")
        wait_for(lambda: self.states("sleep 99.25") == ["S"], 5, "the job to go on")
        terminal.press("C-c")
        terminal.wait_for(r"\^C\ninside>$")
        terminal.enter("exit 7")
        terminal.wait_for(r"^done 7$")

    @not_sanitized  # Its init keeps belljar's command line, by which processes are found here.
    def test_ctrl_z_stops_the_command_and_belljar_and_fg_continues_both(self):
        terminal = Terminal(self)
        before = terminal.settings()
        terminal.run("sh", "-c", "echo ready; exec cat -u - /dev/null")
        terminal.wait_for(r"^ready$")
        terminal.enter("one")
        terminal.wait_for(r"^one\none$")
        terminal.press("C-z")
        terminal.wait_for(r"Stopped")
        self.assertEqual(set(self.states("cat -u - /dev/null")), {"T"})
        self.assertEqual(terminal.settings(), before)
        terminal.enter("fg")
        wait_for(lambda: "T" not in self.states("cat -u - /dev/null"), 5, "both to go on")
        terminal.enter("two")
        terminal.wait_for(r"two\ntwo$")
        terminal.press("C-d")
        wait_for(lambda: self.states("cat -u - /dev/null") == [], 5, "the end")
        self.assertEqual(terminal.settings(), before)

    def test_in_the_background_it_runs_on_without_the_terminal(self):
        terminal = Terminal(self)
        terminal.run("sh", "-c", "echo from behind; sleep 0.3; echo still there", after="&")
        terminal.wait_for(r"from behind[\s\S]*still there")
        terminal.enter("wait; echo code $?")
        terminal.wait_for(r"^code 0$")

    def test_ctrl_c_ends_the_command_and_the_callers_loop(self):
        terminal = Terminal(self)
        terminal.run("sh", "-c", "echo ready; exec sleep 99.5", before="for i in 1 2 3; do", after="; done")
        terminal.wait_for(r"^ready$")
        terminal.press("C-c")
        terminal.wait_for(r"^\^C\n(done 130\n)?caller>$")
        self.assertEqual(self.states("sleep 99.5"), [])

    def test_a_resize_reaches_a_full_screen_program(self):
        terminal = Terminal(self)
        terminal.run(*python_command("""
            import curses
            def show(screen):
                while True:
                    screen.erase()
                    screen.addstr(2, 4, 'size %d %d' % screen.getmaxyx())
                    if screen.getch() == ord('q'): return
            curses.wrapper(show)
        """))
        terminal.wait_for(r"^    size 30 90")
        terminal.tmux("resize-window", "-x", "60", "-y", "20")
        terminal.wait_for(r"^    size 20 60")
        terminal.type("q")
        terminal.wait_for(r"^done \d+$")

    def test_vim_edits_a_file(self):
        terminal = Terminal(self)
        terminal.run("vim.tiny", "-u", "NONE", "-i", "NONE", str(self.work / "text"))
        terminal.wait_for(r"^~")
        terminal.type("ihello")
        terminal.press("Escape")
        terminal.wait_for(r"^hello")
        terminal.press("C-z")
        terminal.wait_for(r"Stopped")
        terminal.enter("fg")
        terminal.wait_for(r"^hello\s*\n~")
        terminal.enter(":wq")
        wait_for((self.work / "text").exists, 5, "the file")
        wait_for(lambda: self.states("vim.tiny -u") == [], 5, "the end")
        self.assertEqual((self.work / "text").read_text(), "hello\n")

    def test_top_shows_the_sandbox_alone(self):
        terminal = Terminal(self)
        terminal.run("top", "-d", "0.5")
        terminal.wait_for(r"Tasks: +2 total")
        terminal.type("q")
        terminal.wait_for(r"^done \d+$")

    def test_what_is_redirected_stays_as_it_is(self):
        terminal = Terminal(self)
        terminal.run("sh", "-c", "test -t 1 || echo stdout is none; tty", after="| cat > out; cat out")
        terminal.wait_for(r"^stdout is none\n/dev/pts/0$")

    def test_the_callers_terminal_is_as_it_was_even_after_a_kill(self):
        terminal = Terminal(self)
        before = terminal.settings()
        terminal.run("sh", "-c", "stty raw -echo; kill -KILL $$")
        terminal.wait_for(r"^done \d+$")
        self.assertEqual(terminal.settings(), before)

    def test_no_key_can_be_pushed_into_the_callers_terminal(self):
        push = """
import fcntl
for number in (0, 1, 2):
    for key in b'echo pushed-$((6*7))\\n':
        try: fcntl.ioctl(number, 0x5412, bytes([key]))  # TIOCSTI
        except OSError as error: print(error.strerror); break
print('tried')
"""
        terminal = Terminal(self)
        terminal.run(*python_command(push), policy={"syscalls": {"base": "none"}})
        terminal.wait_for(r"^tried$")
        time.sleep(0.3)
        self.assertNotIn("pushed-42", terminal.screen())
        # The same on the terminal itself, by root, whom dev.tty.legacy_tiocsti does not stop.
        terminal.enter(f"clear; python3 {self.make_file('push.py', push)}")
        terminal.wait_for(r"^pushed-42$")


class WithoutATerminal(SandboxTest):

    def test_a_new_one_is_made_all_the_same(self):
        run = self.sandbox("sh", "-c", "tty; stty size; cat; echo end", policy={"io": {"tty": "new"}},
                           stdin=b"line\n")
        self.check_exited(run)
        # The first "line" is the terminal's echo, which comes when the key does.
        self.assertEqual(sorted(run.out.split("\r\n")), sorted(["", "/dev/pts/0", "24 80", "line", "line", "end"]))

    def test_auto_makes_none(self):
        run = self.sandbox("sh", "-c", "tty; test -e /dev/tty && (exec 3</dev/tty) 2>/dev/null || echo none",
                           policy=OWN)
        self.assertEqual(run.out, "not a tty\nnone\n", str(run))

    def test_what_was_written_last_arrives(self):
        for _ in range(5):
            run = self.sandbox("seq", "30000", policy={"io": {"tty": "new"}})
            self.check_exited(run)
            self.assertEqual(run.out.split(), [str(n) for n in range(1, 30001)])

    def test_a_reader_that_does_not_read_holds_no_wall_time_up(self):
        running = self.start_sandbox("yes", policy={"io": {"tty": "new"}, "limits": {"wall_time": "1s"}}, status=True)
        running.wait_until_started()
        began = time.monotonic()
        running.process.wait(timeout=20)
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(running.finish().record["cause"], "wall_time")

    def test_a_reader_that_is_gone_hangs_the_terminal_up(self):
        running = self.start_sandbox("yes", policy={"io": {"tty": "new"}}, status=True)
        running.wait_until_started()
        running.process.stdout.close()
        running.process.wait(timeout=20)

    def test_what_goes_to_it_counts_as_output(self):
        for limit, cause in (("10KiB", "output"), ("1MiB", "exited")):
            run = self.sandbox("seq", "10000", policy={"io": {"tty": "new"}, "limits": {"output": limit}})
            self.assertEqual(run.record["cause"], cause, str(run))
        self.assertTrue(run.out.endswith("10000\r\n"), run.out[-20:])
        run = self.sandbox("seq", "10000", policy={"io": {"tty": "new"}, "limits": {"output": "10KiB"}})
        self.assertEqual(len(run.out), 10240)

    def test_a_command_that_stops_itself_stops_nobody_outside(self):
        """Without a terminal no key was pressed: belljar's process group, its caller in it, goes on.

        The group is a job of a shell's, so that the kernel would stop it (it is not orphaned)."""
        job = 'set -m\n(set +m; "$@" & belljar=$!; sleep 1; kill -KILL $belljar; echo went on) &\nwait\n'
        run = self.sandbox("sh", "-c", "kill -STOP $$", policy={"io": {"tty": "new"}}, any_back_end=True,
                           wrap=["bash", self.make_file("job", job)], timeout=10, start_new_session=True)
        self.assertIn("went on", run.out, str(run))

    def test_the_end_arrives_though_signals_come(self):
        """A new size of the terminal is no reason to drop what is still to be read."""
        running = self.start_sandbox("sh", "-c", "seq 20000; echo the end", policy={"io": {"tty": "new"}}, status=True)
        running.wait_until_started()
        time.sleep(0.5)
        for number in (signal.SIGWINCH, signal.SIGCONT, signal.SIGUSR1):
            running.send(number)
        run = running.finish()
        self.assertTrue(run.out.endswith("the end\r\n"), run.out[-40:])

    def test_it_needs_the_sandboxs_own_dev(self):
        run = self.sandbox("true", policy={"io": {"tty": "new"}, "filesystem": {"mounts": {"/dev": None}}})
        self.check_refused(run, "io.tty", 'add "/dev": {"type": "dev"} to filesystem.mounts')


if __name__ == "__main__":
    main()
