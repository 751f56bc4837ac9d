"""How a run ends, and what the record, the exit code and the status lines say of it."""

import contextlib
import json
import os
import signal
import subprocess
import time

from harness import AS_ROOT, BELLJAR, PYTHON_INSIDE, SandboxTest, as_root, back_ends, callers, descendants, main


class Ends(SandboxTest):

    def ends(self, run, cause, code, **record):
        self.assertEqual((run.record["cause"], run.code), (cause, code), str(run))
        for key, value in record.items():
            self.assertEqual(run.record.get(key), value, str(run))

    def test_the_commands_exit_code_is_belljars(self):
        for code in (0, 1, 3, 124, 125, 126, 127, 128, 137, 255):
            self.ends(self.sandbox("sh", "-c", f"exit {code}"), "exited", code, exit_code=code, signal=None)

    def test_a_signal_is_128_and_its_number(self):
        for name in ("KILL", "SEGV", "ABRT", "HUP", "USR1", "SYS"):
            number = signal.Signals[f"SIG{name}"]
            run = self.sandbox("sh", "-c", f"kill -{int(number)} $$",
                               policy={"syscalls": {"base": "none"}})
            self.ends(run, "signaled", 128 + number, signal=number.name, exit_code=None)

    def test_belljar_dies_as_the_command_did_of_int_term_and_quit(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
            run = self.sandbox("sh", "-c", f"kill -{int(number)} $$")
            self.ends(run, "signaled", -number, signal=number.name)

    def test_a_shell_loop_around_belljar_stops_when_the_command_is_interrupted(self):
        self.assertEqual(self.rounds_of_a_loop_with("sleep 30"), 1)

    def test_and_goes_on_when_the_command_takes_the_interrupt(self):
        self.assertEqual(self.rounds_of_a_loop_with('trap "exit 0" INT; sleep 30 & wait'), 2)

    def rounds_of_a_loop_with(self, command):
        """As Ctrl-C at a terminal does, the whole group is interrupted in its first round."""
        script = f"""
            for i in 1 2; do
                "$@" run --policy {self.policy()} -- sh -c 'echo round; test '$i' = 1 || exit; {command}'
            done
        """
        shell = subprocess.Popen([*self.prefix(), "bash", "-c", script, "bash", str(BELLJAR)], cwd=self.work,
                                 stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.addCleanup(shell.kill)
        first = shell.stdout.readline()
        time.sleep(0.05)
        os.killpg(shell.pid, signal.SIGINT)
        return (first + shell.communicate(timeout=20)[0]).count("round")

    def test_a_call_that_the_policy_kills_for_is_named(self):
        run = self.sandbox("sync", policy={"syscalls": {"base": "agent@1", "rules": {"sync": "kill"}}})
        self.ends(run, "syscall", 128 + signal.SIGSYS, signal="SIGSYS")

    def test_the_commands_end_ends_the_rest(self):
        run = self.inside("""
            for _ in range(5):
                if os.fork() == 0:
                    os.setsid()
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)
                    if os.fork() == 0: time.sleep(60)
                    time.sleep(60)
            sys.exit(7)
        """)
        self.ends(run, "exited", 7)
        self.assertLess(run.seconds, 5)

    def test_usage_is_of_the_whole_sandbox(self):
        run = self.inside("""
            end = time.process_time() + 0.05
            if os.fork() == 0:
                while time.process_time() < 0.1: pass
                os._exit(0)
            os.wait()
        """)
        usage = run.record["usage"]
        self.assertGreater(usage["user_us"] + usage["system_us"], 60_000)
        self.assertGreater(usage["max_rss_of_one_process_kib"], 4000)
        self.assertGreaterEqual(usage["wall_us"], 60_000)

    def test_the_record_says_under_what_it_ran(self):
        run = self.sandbox("true")
        said = [run.record[name] for name in ("sandbox", "back_end", "policy", "degraded")]
        self.assertEqual(said, ["on", self.back_end, "test", []])
        self.assertRegex(run.record["policy_digest"], "^sha256:[0-9a-f]{64}$")
        self.assertGreater(run.record["timings"]["setup_us"], 0)
        again = self.sandbox("false")
        self.assertEqual(again.record["policy_digest"], run.record["policy_digest"])
        other = self.sandbox("true", policy={"identity": {"umask": "077"}})
        self.assertNotEqual(other.record["policy_digest"], run.record["policy_digest"])


class Cores(SandboxTest):
    """belljar's memory holds the caller's environment, and the current directory may be the command's."""

    WAITER = """if True:
        import os, resource, sys
        limit = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))
        child = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
        status = os.waitpid(child, 0)[1]
        print(os.WTERMSIG(status), os.WCOREDUMP(status))
    """

    def test_belljar_that_dies_as_the_command_did_of_quit_leaves_no_core(self):
        waiter = [PYTHON_INSIDE, "-S", "-E", "-c", self.WAITER]
        quits = ["sh", "-c", "kill -QUIT $$"]
        run = self.sandbox(*quits, policy={"limits": {"rlimits": {"core": "0B"}}}, wrap=waiter)
        self.assertEqual(run.out, f"{int(signal.SIGQUIT)} False\n", str(run))
        self.assertEqual(list(self.work.iterdir()), [])
        # The control: here another program's death of the same signal does leave one.
        control = subprocess.run([*self.prefix(), *waiter, *quits], cwd=self.work, capture_output=True, text=True)
        self.assertEqual(control.stdout, f"{int(signal.SIGQUIT)} True\n", str(control))


class Refusals(SandboxTest):
    """Exit codes as a shell has them, and texts that tell the cases apart."""

    def refused(self, *command, code, texts, **more):
        run = self.sandbox(*command, **more)
        self.check_refused(run, *texts, code=code)
        return run

    def test_a_command_that_exists_nowhere_is_127(self):
        run = self.refused("no-such-command", code=127, texts=[
            "no-such-command exists neither in the sandbox nor on the host", "ENOENT", "remedy:"])
        self.assertEqual(run.record["setup"]["errno"], "ENOENT")

    def test_a_command_that_only_the_host_has_names_what_shows_it(self):
        self.make_directory("only-here")
        program = self.make_file("only-here/program", "#!/bin/sh\n", mode=0o755)
        self.refused(program, code=127, texts=["exists on the host", "but not in the sandbox",
                                               f"-v {program.parent}:{program.parent}:ro"])

    def test_a_hidden_command_names_the_line_that_hides_it(self):
        program = self.make_file("program", "#!/bin/sh\necho hi\n", mode=0o755)
        options = self.session_options()
        self.refused(program, code=127, policy="builtin:agent@1", options=options,
                     texts=["exists on the host", "builtin:agent@1:", "filesystem.", "-v "])

    def test_the_remedy_of_a_hidden_command_works(self):
        program = self.make_file("program", "#!/bin/sh\necho hi\n", mode=0o755)
        run = self.sandbox(program, options=["-v", f"{program.parent}:{program.parent}:ro",
                                             "--workspace", self.make_directory("elsewhere", owner=self.uid)],
                           policy={"filesystem": {"workspace": None}})
        self.check_exited(run)
        self.assertEqual(run.out, "hi\n")

    def test_a_file_without_execute_permission_is_126(self):
        self.make_file("work/script", "#!/bin/sh\n", owner=self.uid, mode=0o644)
        self.refused("./script", code=126, texts=["has no execute permission", "EACCES", "chmod +x"])

    def test_a_directory_is_126(self):
        self.refused("/usr", code=126, texts=["/usr is a directory"])

    def test_a_program_on_a_noexec_mount_is_126(self):
        self.make_directory("programs")
        self.make_file("programs/p", "#!/bin/sh\n", mode=0o755)
        noexec = {"type": "bind", "source": str(self.dir / "programs"), "noexec": True}
        self.refused("/programs/p", code=126, policy={"filesystem": {"mounts": {"/programs": noexec}}},
                     texts=["lies on a mount where nothing may be executed", "noexec"])

    def test_a_script_without_its_interpreter_is_126(self):
        self.make_file("work/script", "#!/opt/missing/python -u\n", owner=self.uid, mode=0o755)
        self.refused("./script", code=126, texts=["the script asks for the interpreter /opt/missing/python"])

    def test_a_program_without_its_loader_is_126(self):
        policy = {"filesystem": {"mounts": {"/lib64": None, "/lib": None}}}
        self.refused("/usr/bin/true", code=126, policy=policy, texts=["asks for the dynamic loader /lib64/ld-linux"])

    def test_a_file_that_is_no_program_is_126(self):
        self.make_file("work/text", "\x01\x02\x03", owner=self.uid, mode=0o755)
        self.refused("./text", code=126, texts=["ENOEXEC"])

    def test_a_failed_step_names_step_operands_errno_line_and_remedy(self):
        run = self.refused("true", code=125, texts=[], policy={"filesystem": {"mounts": {
            "/data": {"type": "bind", "source": "/no/such/directory"}}}})
        setup = run.record["setup"]
        self.assertRegex(setup["step"], r"^step \d+ of \d+: bind /no/such/directory on /data, read-only$")
        self.assertEqual((setup["control"], setup["errno"]), ("filesystem", "ENOENT"))
        self.assertRegex(setup["policy"], r'policy-1\.json:\d+:\d+ filesystem\.mounts\["/data"\]$')
        self.assertTrue(setup["remedy"])
        for value in setup.values():
            self.assertIn(value, run.err)

    def test_an_empty_command_is_refused(self):
        for command in ([], [""]):
            run = self.belljar("run", "--policy", self.policy(), "--", *command)
            self.check_refused(run, "command")


class Unread(SandboxTest):
    """A reader that does not read holds up neither the wall time nor the end."""

    def end_with_full_pipe(self, option):
        read, write = full_pipe()
        self.addCleanup(os.close, read)
        self.addCleanup(os.close, write)
        run = self.belljar("run", "--policy", self.policy(), "--timeout=200ms", option.format(write), "--",
                           "sleep", "20", fds=[write])
        self.assertIn("the command was ended at its wall time", run.err)
        self.assertLess(run.seconds, 10)
        return run

    @callers("user")
    @back_ends("modern")
    def test_a_status_pipe_that_nobody_reads_does_not_outlast_the_wall_time(self):
        self.assertEqual(self.end_with_full_pipe("--status-fd={}").code, 124)

    @callers("user")
    @back_ends("modern")
    def test_a_record_pipe_that_nobody_reads_is_given_up_and_that_is_said(self):
        run = self.end_with_full_pipe("--record=fd:{}")
        self.assertEqual(run.code, 125)
        self.assertIn("nobody reads it", run.err)

    def test_a_pipe_that_is_read_late_gets_all_of_it(self):
        read, write = full_pipe()
        running = self.start("run", "--policy", self.policy(), f"--record=fd:{write}", f"--status-fd={write}",
                             "--", "true", fds=[write])
        os.close(write)
        time.sleep(0.3)
        with os.fdopen(read, "rb") as pipe:
            said = pipe.read().lstrip(b"x").decode()
        self.assertEqual(running.finish().code, 0)
        self.assertEqual([json.loads(line).get("cause") for line in said.splitlines()], ["exited", None], said)


def full_pipe():
    """The ends of a pipe that takes no byte more."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"x" * 4096)
    os.set_blocking(write, True)
    return read, write


class Arguments(SandboxTest):

    def test_arguments_are_data_whatever_they_look_like(self):
        words = ["--bind", "-x", "--", "%s%n", "a b", "line\nbreak", "", "$(id)", "--record=fd:1", "é", "-" * 5000]
        code = "import json, sys; print(json.dumps(sys.argv[1:]))"
        run = self.sandbox("/usr/bin/python3", "-S", "-E", "-c", code, *words)
        self.check_exited(run)
        self.assertEqual(run.json(), words)

    def test_arguments_need_not_be_text(self):
        word = b"\xff\xfe"
        run = self.sandbox("printf", "%s", os.fsdecode(word))
        self.assertEqual(run.raw_out, word)

    def test_a_program_whose_name_begins_with_a_dash_runs(self):
        self.make_file("work/-rf", "#!/bin/sh\necho \"$0\"\n", owner=self.uid, mode=0o755)
        run = self.sandbox("./-rf")
        self.check_exited(run)
        self.assertEqual(run.out, "./-rf\n")

    def test_the_current_directory_is_not_searched_for_programs(self):
        self.make_file("work/tool", "#!/bin/sh\necho planted\n", owner=self.uid, mode=0o755)
        for path in ("", ".", ":/usr/bin", "work", "::"):
            run = self.sandbox("tool", policy={"env": {"set": {"PATH": path}}})
            self.assertEqual((run.code, run.out), (127, ""), f"{path!r} {run}")


class RecordAndStatus(SandboxTest):

    def test_the_record_goes_to_a_file(self):
        target = self.make_directory("records", owner=self.uid) / "record.json"
        run = self.belljar("run", "--policy", self.policy(), "--record", target, "--", "sh", "-c", "exit 5")
        self.assertEqual((run.code, json.loads(target.read_text())["exit_code"]), (5, 5))
        self.assertEqual(target.read_text().count("\n"), 1)

    def test_a_record_that_cannot_be_written_refuses_before_the_launch(self):
        closed = self.make_directory("closed", mode=0o755)
        places = [self.dir / "no" / "record", "fd:77", "fd:x", "fd:-1", self.work]
        if AS_ROOT and not self.privileged:
            places.append(closed / "record")
        for place in places:
            run = self.belljar("run", "--policy", self.policy(), f"--record={place}", "--", "touch", "ran")
            self.check_refused(run, "--record")
            self.assertFalse((self.work / "ran").exists())

    def test_a_status_descriptor_that_is_not_open_refuses(self):
        run = self.belljar("run", "--policy", self.policy(), "--status-fd", 77, "--", "touch", "ran")
        self.check_refused(run, "--status-fd 77")
        self.assertFalse((self.work / "ran").exists())

    def test_the_status_lines_are_started_and_the_record(self):
        run = self.start_sandbox("sh", "-c", "exit 4", status=True).finish()
        self.assertEqual([event["type"] for event in run.events], ["started", "record"])
        self.assertEqual(run.events[1]["record"], run.record)
        self.assertIsInstance(run.events[0]["pid"], int)

    def test_the_record_of_a_refusal_is_the_only_status_line(self):
        run = self.start_sandbox("no-such-command", status=True).finish()
        self.assertEqual([event["type"] for event in run.events], ["record"])

    def test_stops_and_continuations_are_told(self):
        running = self.start_sandbox("sh", "-c", "kill -STOP $$; sleep 0.2; exit 6", status=True)
        init = running.wait_until_started()
        self.assertEqual(running.next_event("stopped"), {"type": "stopped", "signal": "SIGSTOP"})
        os.kill(descendants(init)[0][0], signal.SIGCONT)
        run = running.finish()
        self.assertEqual([event["type"] for event in run.events], ["started", "stopped", "continued", "record"])
        self.assertEqual(run.code, 6)

    def test_the_command_alone_owns_stdout(self):
        run = self.start_sandbox("true", status=True).finish()
        self.assertEqual((run.out, run.err), ("", ""))

    def test_the_record_cannot_be_forged(self):
        forged = json.dumps({"cause": "exited", "exit_code": 0, "forged": True})
        run = self.start_inside(f"""
            for fd in range(3, 1024):
                try: os.write(fd, {(forged + chr(10)).encode()!r})
                except OSError: pass
            for path in ['/proc/1/fd', '/proc/self/fd']:
                try:
                    for name in os.listdir(path):
                        if path == '/proc/self/fd' and int(name) < 3: continue
                        try: os.write(os.open(path + '/' + name, os.O_WRONLY), b'x')
                        except OSError: pass
                except OSError: pass
            for number in range(1, 65):
                try: os.kill(1, number)
                except OSError: pass
            sys.exit(9)
        """, status=True).finish()
        self.assertEqual((run.code, run.record["cause"], run.record["exit_code"]), (9, "exited", 9), str(run))
        self.assertNotIn(b"forged", run.raw_record)
        self.assertEqual(run.raw_record.count(b"\n"), 1)
        self.assertEqual([event["type"] for event in run.events], ["started", "record"])

    def test_a_child_that_exits_first_is_not_taken_for_the_command(self):
        run = self.inside("""
            if os.fork() == 0: os._exit(1)
            if os.fork() == 0:
                if os.fork() == 0: os._exit(2)
                os._exit(3)
            time.sleep(0.05)
            sys.exit(8)
        """)
        self.assertEqual((run.code, run.record["exit_code"]), (8, 8))

    def test_a_status_reader_that_is_gone_changes_nothing(self):
        read, write = os.pipe()
        os.close(read)
        self.addCleanup(os.close, write)
        run = self.belljar("run", "--policy", self.policy(), "--status-fd", write, "--record", f"fd:{write}", "--",
                           "sh", "-c", "exit 4", fds=[write])
        self.assertEqual(run.code, 4, str(run))

    @as_root
    def test_an_existing_record_file_is_replaced_whole(self):
        self.make_directory("records", owner=self.uid)
        target = self.make_file("records/record", "x" * 100_000, owner=self.uid, mode=0o666)
        self.belljar("run", "--policy", self.policy(), "--record", target, "--", "true")
        self.assertEqual(json.loads(target.read_text())["cause"], "exited")

    def test_what_the_command_puts_in_the_records_place_is_replaced(self):
        host = self.make_file("host-file", "untouched")
        target = self.work / "out.json"
        for text in ("ln -s %s out.json" % host, "echo forged > out.json"):
            run = self.belljar("run", "--policy", self.policy(), "--workspace", self.work, "--record", target, "--",
                               "sh", "-c", f"rm -f out.json; {text}; exit 7")
            self.assertEqual(run.code, 7, str(run))
            self.assertFalse(target.is_symlink())
            self.assertEqual(json.loads(target.read_text())["exit_code"], 7)
        self.assertEqual(host.read_text(), "untouched")

    def test_a_record_is_written_through_no_link_and_into_no_pipe(self):
        fifo = self.work / "pipe"
        os.mkfifo(fifo)
        self.make_link("work/link", "/dev/null", owner=self.uid)
        for target in (fifo, self.work / "link"):
            run = self.belljar("run", "--policy", self.policy(), "--record", target, "--", "true")
            self.assertEqual(run.code, 125, str(run))
            self.assertIn("no regular file", run.err)


if __name__ == "__main__":
    main()
