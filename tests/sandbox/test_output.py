"""limits.output: so many bytes pass on, in order, and then the command is ended; a reader that does not read or
is gone holds up neither belljar's clock nor its signals."""

import fcntl
import os
import signal
import time

from harness import SandboxTest, main, once


def limit(size, **more):
    return {"limits": {"output": size, **more}}


class Output(SandboxTest):

    def check_ended(self, run):
        self.assertEqual((run.record["cause"], run.record["limits"], run.code), ("output", ["output"], 137), str(run)[:900])
        self.assertIn("more output than it may", run.err)

    def test_what_is_above_the_limit_is_cut_and_the_command_ended(self):
        run = self.sandbox("yes", policy=limit("100000B"))
        self.check_ended(run)
        self.assertEqual(run.raw_out, (b"y\n" * 50000))

    def test_exactly_the_limit_is_no_fault(self):
        run = self.inside("sys.stdout.write('x' * 5000)", policy=limit("5000B"))
        self.check_exited(run)
        self.assertEqual(run.out, "x" * 5000)
        run = self.inside("sys.stdout.write('x' * 5001)", policy=limit("5000B"))
        self.check_ended(run)
        self.assertEqual(run.out, "x" * 5000)

    def test_both_streams_count_together(self):
        code = "os.write(1, b'o' * 3000); os.write(2, b'e' * 3000); time.sleep(0.2)"
        run = self.inside(code, policy=limit("4000B"))
        self.check_ended(run)
        self.assertEqual(len(run.out) + run.err.count("e" * 1000) * 1000, 4000, str(run))
        self.check_exited(self.inside(code, policy=limit("6000B")))

    def test_a_stream_that_goes_nowhere_does_not_count(self):
        code = "os.write(1, b'o' * 3000); os.write(2, b'e' * 3000)"
        self.check_exited(self.inside(code, policy={**limit("4000B"), "io": {"stderr": "null"}}))

    def test_all_of_it_arrives_in_order(self):
        run = self.sandbox("seq", "200000", policy=limit("16MiB"))
        self.check_exited(run)
        self.assertEqual(run.out.splitlines(), [str(number) for number in range(1, 200001)])

    def test_streams_that_are_one_keep_their_common_order(self):
        code = "for i in range(2000): os.write(1 + i % 2, b'%d\\n' % i)"
        run = self.inside(code, policy=limit("1MiB"), wrap=["sh", "-c", 'exec "$@" 2>&1', "sh"])
        self.check_exited(run)
        self.assertEqual(run.out.split(), [str(number) for number in range(2000)])

    def test_the_exit_code_is_the_commands(self):
        run = self.sandbox("sh", "-c", "echo out; echo err >&2; exit 3", policy=limit("1KiB"))
        self.check_exited(run, 3)
        self.assertEqual((run.out, run.err), ("out\n", "err\n"))

    def test_without_a_limit_the_command_has_the_callers_descriptors(self):
        code = "say([os.fstat(1).st_ino, os.fstat(2).st_ino])"
        for policy, same in ((None, True), (limit("1KiB"), False)):
            running = self.start_inside(code, policy=policy)
            inodes = [os.fstat(stream.fileno()).st_ino for stream in (running.process.stdout, running.process.stderr)]
            self.assertEqual(running.finish().json() == inodes, same)

    def test_what_the_command_wrote_before_its_wall_time_arrives(self):
        run = self.sandbox("sh", "-c", "echo early; sleep 30", policy=limit("1KiB", wall_time="200ms"))
        self.assertEqual((run.code, run.record["cause"], run.out), (124, "wall_time", "early\n"))

    def test_what_is_started_in_the_background_does_not_hold_it_open(self):
        run = self.sandbox("sh", "-c", "sleep 30 & echo done", policy=limit("1KiB"))
        self.check_exited(run)
        self.assertLess(run.seconds, 3)


class Readers(SandboxTest):

    def unread(self, code, **more):
        """A run whose standard output is a pipe that nobody reads; answers with the run and the pipe."""
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        running = self.start_inside(code, wrap=["sh", "-c", f'exec "$@" >&{write}', "sh"], fds=[write], **more)
        os.close(write)
        return running, read

    def test_the_wall_time_holds_while_nobody_reads(self):
        running, _ = self.unread("while True: os.write(1, b'x' * 4096)", policy=limit("16MiB", wall_time="300ms"))
        run = running.finish()
        self.assertEqual((run.code, run.record["cause"]), (124, "wall_time"), str(run))
        self.assertLess(run.seconds, 5)

    def test_it_holds_after_the_commands_own_end_too(self):
        running, _ = self.unread("os.write(1, b'x' * 65536); os.write(1, b'x' * 60000)",
                                 policy=limit("16MiB", wall_time="500ms"))
        run = running.finish()
        self.assertEqual((run.code, run.record["cause"]), (124, "wall_time"), str(run))

    def test_a_signal_ends_it_while_nobody_reads(self):
        running, _ = self.unread("while True: os.write(1, b'x' * 4096)", policy=limit("16MiB"), status=True)
        running.wait_until_started()
        time.sleep(0.2)
        running.send(signal.SIGTERM)
        self.assertEqual(running.finish().record["cause"], "killed")

    def test_a_slow_reader_gets_everything(self):
        running, read = self.unread("os.write(1, b'x' * 300000)", policy=limit("16MiB"))
        got = 0
        while more := os.read(read, 20000):
            got += len(more)
            time.sleep(0.005)
        self.assertEqual(got, 300000)
        self.check_exited(running.finish())

    def test_a_reader_that_is_gone_is_felt_by_the_command(self):
        read, write = os.pipe()
        os.close(read)
        code = """
            try:
                while True: os.write(1, b'x' * 4096)
            except BrokenPipeError: os._exit(7)
        """
        running = self.start_inside(code, policy=limit("16MiB", wall_time="10s"),
                                    wrap=["sh", "-c", f'exec "$@" >&{write}', "sh"], fds=[write])
        os.close(write)
        self.check_exited(running.finish(), 7)

    def test_a_descriptor_that_does_not_block_stays_so_and_loses_nothing(self):
        read, write = os.pipe()
        os.set_blocking(write, False)
        fcntl.fcntl(write, 1031, 4096)  # F_SETPIPE_SZ
        running = self.start_inside("os.write(1, b'x' * 50000)", policy=limit("1MiB"),
                                    wrap=["sh", "-c", f'exec "$@" >&{write}', "sh"], fds=[write])
        got = b""
        while len(got) < 50000:  # Not until its end: with our own end open there is no end of file.
            got += os.read(read, 65536)
            time.sleep(0.002)
        running.process.wait(timeout=10)
        os.set_blocking(read, False)
        self.assertRaises(BlockingIOError, os.read, read, 1)
        self.assertFalse(os.get_blocking(write))
        os.close(write)
        os.close(read)
        self.assertEqual(len(got), 50000)
        self.check_exited(running.finish())

    def test_a_file_is_written_where_its_offset_is(self):
        path = self.make_file("log", "before\n", owner=self.uid)
        run = self.sandbox("echo", "after", policy=limit("1KiB"), wrap=["sh", "-c", f'exec "$@" >>{path}', "sh"])
        self.check_exited(run)
        self.assertEqual(path.read_text(), "before\nafter\n")

    @once
    def test_explain_names_the_line(self):
        run = self.belljar("explain", "--policy", self.policy(limit("1MiB")))
        self.assertIn("pass at most 1 MiB on from descriptors 1, 2", run.out, str(run))
        self.assertNotIn("pass at most", self.belljar("explain", "--policy", self.policy()).out)


if __name__ == "__main__":
    main()
