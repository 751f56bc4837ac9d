"""The sandbox's init: nothing of the launcher is left in it, nobody inside can touch it, and it reaps."""

import ctypes
import errno
import json
import os
import pathlib
import signal
import subprocess

from harness import (BELLJAR, PYTHON_INSIDE, SandboxTest, as_root, callers, descendants, environment, main,
                     not_sanitized)

SECRET = "s3cr3t-that-nobody-may-see"


def maps_of(pid):
    """[(from, to, permissions, name)]"""
    found = []
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        where, permissions, _, _, _, *name = line.split(maxsplit=5)
        begin, end = (int(word, 16) for word in where.split("-"))
        found.append((begin, end, permissions, name[0] if name else ""))
    return found


def memory_holds(pid, text):
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for begin, end, permissions, name in maps_of(pid):
            if "r" not in permissions or name in ("[vsyscall]", "[vvar]", "[vvar_vclock]"):
                continue
            memory.seek(begin)
            for start in range(begin, end, 1 << 20):
                memory.seek(start)
                if text in memory.read(min(1 << 20, end - start)):
                    return True
    return False


class Memory(SandboxTest):

    def start_with_secrets(self):
        running = self.start_sandbox("sh", "-c", "sleep 60; true", SECRET, status=True,
                                     options=["-e", f"TOKEN={SECRET}"], env=environment(API_TOKEN=SECRET))
        return running, running.wait_until_started()

    @not_sanitized
    def test_its_environment_and_command_line_are_empty_for_the_payload(self):
        run = self.inside("""
            say([open('/proc/1/cmdline').read(), probe_open('/proc/1/environ'), probe_open('/proc/1/maps'),
                 probe_open('/proc/1/auxv')])
        """, env=environment(API_TOKEN=SECRET))
        said = run.json()
        self.assertEqual(said[0], "", str(run))
        self.assertNotIn("open", said[1:])
        for text in (run.out, run.err):
            self.assertNotIn(SECRET, text)

    @as_root
    @not_sanitized
    def test_its_environment_and_command_line_are_empty_for_root_outside(self):
        running, init = self.start_with_secrets()
        for name in ("environ", "cmdline"):
            self.assertEqual(pathlib.Path(f"/proc/{init}/{name}").read_bytes(), b"")

    @as_root
    @not_sanitized
    def test_its_memory_is_belljars_image_and_one_arena(self):
        running, init = self.start_with_secrets()
        maps = [item for item in maps_of(init) if item[3] != "[vsyscall]"]
        names = {name for _, _, _, name in maps}
        self.assertEqual(names - {""}, {str(BELLJAR)}, maps)
        anonymous = [(begin, end) for begin, end, _, name in maps if name == ""]
        # The image's own bss and the arena.
        image_end = max(end for _, end, _, name in maps if name)
        # The kernel may put the arena right behind the image and join the two.
        self.assertLessEqual(len([item for item in anonymous if item[0] != image_end]), 1, maps)
        self.assertLessEqual(sum(end - begin for begin, end in anonymous), 256 << 10, maps)

    @as_root
    @not_sanitized
    def test_no_secret_of_environment_or_arguments_is_in_its_memory(self):
        running, init = self.start_with_secrets()
        self.assertTrue(memory_holds(running.process.pid, SECRET.encode()), "belljar itself should hold it")
        self.assertFalse(memory_holds(init, SECRET.encode()))
        self.assertFalse(memory_holds(init, str(self.work).encode()), "the plan")

    def test_other_processes_of_the_sandbox_show_no_secret_of_the_callers(self):
        run = self.inside("""
            found = b''
            for pid in os.listdir('/proc'):
                for name in ('environ', 'cmdline', 'auxv') if pid.isdigit() else ():
                    try: found += open(f'/proc/{pid}/{name}', 'rb').read()
                    except OSError: pass
            say('s3cr3t-that'.encode() + b'-nobody' in found)
        """, env=environment(API_TOKEN=SECRET))
        self.assertEqual(run.json(), False, str(run))


class Touching(SandboxTest):

    def test_no_signal_from_inside_reaches_it(self):
        run = self.inside("""
            for number in range(1, 65):
                try: os.kill(1, number)
                except OSError: pass
            time.sleep(0.05)
            child = os.fork() or os._exit(0)
            os.waitpid(child, 0)
            say(status('1')['State'].split()[0])
        """)
        self.assertEqual((run.json(), run.code), ("S", 0), str(run))

    @as_root
    def test_it_is_not_dumpable(self):
        running = self.start_sandbox("sleep", "60", status=True)
        init = running.wait_until_started()
        payload = descendants(init)[0][0]
        owners = [os.stat(f"/proc/{pid}/status").st_uid for pid in (init, payload)]
        self.assertEqual(owners, [0, self.uid])

    def test_the_kernels_keys_of_the_caller_are_out_of_reach(self):
        keyctl = 250 if os.uname().machine == "x86_64" else 219
        own = ctypes.CDLL(None).syscall(ctypes.c_long(keyctl), 0, -3, 0)
        run = self.inside(f"import ctypes; say(libc().syscall(ctypes.c_long({keyctl}), 0, -3, 0))",
                          policy={"syscalls": {"base": "none"}})
        self.assertNotEqual(run.json(), own)


class TouchingFromOutside(SandboxTest):
    """By a process of the host that has the session's uid, which owns the sandbox's user namespace."""

    @as_root
    def test_another_process_of_the_same_uid_can_neither_read_nor_trace_nor_enter_it(self):
        running = self.start_sandbox("sleep", "60", status=True)
        init = running.wait_until_started()
        answers = self.as_session(lambda: doors_of(init))
        self.assertEqual(opened(answers), set(), answers)

    @as_root
    def test_a_plain_process_of_that_uid_can_be_read_and_traced(self):
        """The control: it is init that refuses, not the kernel as such."""
        plain = self.start_plain()
        answers = self.as_session(lambda: doors_of(plain))
        self.assertEqual(opened(answers), {"mem", "environ", "ns/mnt", "root", "trace"}, answers)

    @as_root
    @callers("root", "five")
    def test_nor_at_any_moment_of_set_up_when_the_launch_is_privileged(self):
        policy = self.policy()
        for _ in range(20):
            running = self.start_sandbox("true", policy=policy)
            found = self.as_session(lambda: doors_during_set_up(running.process.pid))
            self.assertEqual(found, [])
            self.check_exited(running.finish())

    def start_plain(self):
        code = "import ctypes, time; ctypes.CDLL(None).prctl(0x59616d61, -1); print(flush=True); time.sleep(60)"
        words = ["setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups", "--inh-caps=-all"]
        plain = subprocess.Popen([*words, PYTHON_INSIDE, "-c", code], stdout=subprocess.PIPE)
        self.addCleanup(plain.stdout.close)
        self.addCleanup(plain.wait)
        self.addCleanup(plain.kill)
        plain.stdout.readline()
        return plain.pid

    def as_session(self, function):
        """What `function` answers in a process of the host with the session's ids."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.setgroups([])
            os.setresgid(self.gid, self.gid, self.gid)
            os.setresuid(self.uid, self.uid, self.uid)
            os.write(write, json.dumps(function()).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            text = pipe.read()
        os.waitpid(child, 0)
        return json.loads(text)


def doors_of(pid):
    """What of a process lets the caller in, by name: "open" or an errno."""
    libc = ctypes.CDLL(None, use_errno=True)

    def answer(failed):
        return errno.errorcode[ctypes.get_errno()] if failed else "open"

    answers = {name: probe(f"/proc/{pid}/{name}") for name in ("mem", "environ", "ns/mnt", "ns/user", "root")}
    answers["ns/user"] = answers["ns/user"].replace("open", "shown")  # Joining it is what counts.
    pidfd = os.pidfd_open(pid)
    answers["enter"] = answer(libc.setns(pidfd, 0x10000000) != 0)  # CLONE_NEWUSER
    answers["trace"] = answer(libc.ptrace(ctypes.c_long(0x4206), pid, None, None) != 0)  # PTRACE_SEIZE
    return answers


def opened(answers):
    return {name for name, answer in answers.items() if answer == "open"}


def probe(path):
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        return errno.errorcode[error.errno]
    return "open"


def doors_during_set_up(belljar):
    """Looks at the children of a belljar that sets a sandbox up, over and over, until they are gone."""
    found, seen = set(), False
    while True:
        try:
            children = pathlib.Path(f"/proc/{belljar}/task/{belljar}/children").read_text().split()
            ended = pathlib.Path(f"/proc/{belljar}/stat").read_text().split()[2] == "Z"
        except OSError:
            return sorted(found)
        if ended or (seen and not children):
            return sorted(found)
        seen = seen or bool(children)
        found.update(name for pid in children for name in ("mem", "environ", "ns/mnt")
                     if probe(f"/proc/{pid}/{name}") == "open")


class Reaping(SandboxTest):

    def test_a_thousand_zombies_do_not_fill_the_number_of_processes(self):
        run = self.inside("""
            for _ in range(300):
                child = os.fork()
                if child == 0:
                    os.fork()
                    os._exit(0)
                os.waitpid(child, 0)
            say('done')
        """, policy={"limits": {"rlimits": {"nproc": 50}}})
        self.assertEqual(run.json(), "done", str(run))

    def test_it_ends_at_once_where_the_callers_filter_lets_nobody_exit(self):
        wrap = [self.tool("without_new_calls"), "ENOSYS+every_exit"]
        run = self.sandbox("sh", "-c", "kill -KILL $$", wrap=wrap, any_back_end=True)
        self.assertEqual((run.record["cause"], run.record["signal"]), ("signaled", "SIGKILL"), str(run))
        self.assertLess(run.seconds, 5)

    def test_init_lives_as_long_as_the_command_and_no_longer(self):
        running = self.start_sandbox("sleep", "60", status=True)
        init = running.wait_until_started()
        os.kill(descendants(init)[0][0], signal.SIGKILL)
        running.finish()
        self.assertFalse(os.path.exists(f"/proc/{init}"))


if __name__ == "__main__":
    main()
