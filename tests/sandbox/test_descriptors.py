"""Descriptors and standard streams: 0, 1, 2 and what the policy names, nothing else, in payload and init."""

import json
import os
import pathlib
import pty

from harness import AS_ROOT, SandboxTest, as_root, back_ends, main

# Listing opens one more, which is closed afterwards.
LIST = "say(sorted(int(n) for n in os.listdir('/proc/self/fd') if os.path.lexists('/proc/self/fd/' + n)))"
NUMBERS = (3, 4, 255, 1023, 4000)


def open_files_of(pid):
    return {int(entry.name): os.readlink(entry) for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir()}


class Inherited(SandboxTest):

    def setUp(self):
        super().setUp()
        self.secret = self.make_file("secret", "a secret", owner=self.uid)
        self.opened = []
        for number in NUMBERS:
            fd = os.open(self.secret, os.O_RDWR)
            if fd != number and number not in self.held():
                os.dup2(fd, number, inheritable=True)
                os.close(fd)
                self.opened.append(number)
        self.addCleanup(lambda: [os.close(number) for number in self.opened])

    def held(self):
        return {int(name) for name in os.listdir("/proc/self/fd")}

    def test_no_descriptor_of_the_callers_is_in_the_payload(self):
        self.assertIn(4000, self.opened)
        run = self.inside(LIST, fds=self.opened)
        self.check_exited(run)
        self.assertEqual(run.json(), [0, 1, 2])

    @as_root
    def test_nor_in_init_which_keeps_only_its_own(self):
        running = self.start_sandbox("sleep", "30", fds=self.opened, status=True)
        files = open_files_of(running.wait_until_started())
        callers = [os.readlink(f"/proc/{running.process.pid}/fd/{number}") for number in range(3)]
        more = sorted(path.split(":")[0] for number, path in files.items() if number > 2)
        self.assertEqual(more, ["anon_inode", "socket"], files)
        standard = {path for number, path in files.items() if number < 3}
        self.assertLessEqual(standard, {*callers, "/dev/null"})

    def test_a_kept_descriptor_is_there_and_works_and_no_other(self):
        code = LIST + "; os.lseek(4000, 0, 0); print(os.read(4000, 99))"
        run = self.inside(code, fds=self.opened, policy={"io": {"keep": [4000]}})
        self.check_exited(run)
        self.assertEqual(run.out, "[0, 1, 2, 4000]\nb'a secret'\n")

    @as_root
    def test_a_kept_descriptor_is_not_in_init(self):
        running = self.start_sandbox("sleep", "30", fds=self.opened, status=True, policy={"io": {"keep": [4000]}})
        files = open_files_of(running.wait_until_started())
        self.assertNotIn(str(self.secret), files.values())

    def test_a_kept_descriptor_that_is_not_open_refuses(self):
        run = self.sandbox("true", policy={"io": {"keep": [77]}})
        self.check_refused(run, "EBADF", "io.keep", "77")

    def test_the_descriptors_of_belljars_own_reports_cannot_be_kept(self):
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        self.addCleanup(os.close, write)
        policy = self.policy({"io": {"keep": [write]}})
        for option in (f"--record=fd:{write}", f"--status-fd={write}"):
            run = self.belljar("run", "--policy", policy, option, "--", "true", fds=[write])
            self.check_refused(run, f"io.keep: descriptor {write} is where belljar reports")
        self.assertEqual(self.belljar("run", "--policy", policy, "--", "true", fds=[write]).code, 0)

    @back_ends("legacy")
    def test_without_close_range_nothing_is_inherited_either(self):
        wrap = [self.tool("without_new_calls"), "ENOSYS+close_range"]
        policy = {"limits": {"rlimits": {"nofile": 64}}}
        run = self.inside(LIST, fds=self.opened, wrap=wrap, policy=policy)
        self.check_exited(run)
        self.assertEqual(run.json(), [0, 1, 2])
        if not AS_ROOT:
            return
        running = self.start_sandbox("sleep", "30", fds=self.opened, wrap=wrap, status=True)
        self.assertNotIn(str(self.secret), open_files_of(running.wait_until_started()).values())

    def test_belljars_record_and_status_descriptors_are_not_inherited(self):
        run = self.start_inside(LIST, status=True).finish()
        self.assertEqual(run.json(), [0, 1, 2])


class ClosedStandardStreams(SandboxTest):

    def run_with_closed(self, closing):
        report = self.work / "report"
        code = f"""
            files = {{fd: os.readlink(f'/proc/self/fd/{{fd}}') for fd in range(3)}}
            json.dump([files, sorted(int(n) for n in os.listdir('/proc/self/fd'))], open({str(report)!r}, 'w'))
            for fd in range(3):
                try: os.write(fd, b'x')
                except OSError: pass
        """
        run = self.inside(code, wrap=["sh", "-c", f'exec "$@" {closing}', "sh"])
        self.assertEqual((run.code, run.record["cause"]), (0, "exited"), str(run))
        return json.loads(report.read_text())

    def test_closed_streams_read_and_write_nothing_and_expose_nothing_of_ours(self):
        for closing, closed in (("<&-", "0"), (">&-", "1"), ("2>&-", "2"), ("<&- >&- 2>&-", "012")):
            files, numbers = self.run_with_closed(closing)
            for fd in closed:
                # The host's node: from inside it has no path.
                self.assertIn("null", files[fd], closing)
            self.assertEqual(numbers[:3], [0, 1, 2])


class StandardStreams(SandboxTest):

    def test_streams_are_the_callers(self):
        run = self.inside("print(sys.stdin.read()); print('err', file=sys.stderr)", stdin=b"in")
        self.assertEqual((run.out, run.err), ("in\n", "err\n"))

    def test_null_streams_read_and_write_nothing(self):
        code = "say(len(sys.stdin.read())); print('err', file=sys.stderr); sys.exit(3)"
        run = self.inside(code, stdin=b"in", policy={"io": {"stdin": "null"}})
        self.assertEqual((run.out, run.code), ("0\n", 3))
        run = self.inside(code, stdin=b"in", policy={"io": {"stdout": "null", "stderr": "null"}})
        self.assertEqual((run.out, run.err, run.code), ("", "", 3))

    def test_null_on_the_command_line_is_the_word_and_in_a_file_is_nothing_said(self):
        code = "say(len(sys.stdin.read()))"
        run = self.inside(code, stdin=b"in", options=["--set", "io.stdin=null"])
        self.assertEqual(run.json(), 0, str(run))
        run = self.inside(code, stdin=b"in", policy=self.make_file("null.json", json.dumps(
            {**self.base_policy(), "io": {"stdin": None}})))
        self.assertEqual(run.json(), 2, str(run))

    def test_binary_data_passes_unchanged(self):
        data = bytes(range(256)) * 4096
        run = self.sandbox("cat", stdin=data)
        self.assertEqual(run.raw_out, data)

    def test_a_terminal_can_be_read_and_written(self):
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        running = self.start_sandbox("head", "-n", "1", stdin=slave)
        os.close(slave)
        os.write(master, b"a line\n")
        self.assertEqual(running.finish().out, "a line\n")

    def test_the_payload_leads_a_process_group_of_its_own_in_inits_session(self):
        run = self.inside("say([os.getpid(), os.getpgid(0), os.getsid(0)])")
        self.assertEqual(run.json(), [2, 2, 1])


if __name__ == "__main__":
    main()
