"""What every test of the real binary stands on: callers, back ends, sandboxes, and what must be
gone afterwards.

A test class derives from `SandboxTest`. Each of its methods becomes one test per caller and back end,
`test_the_payload_has_no_capabilities [five, legacy]`:

  root    uid 0 with all of its capabilities; the sandbox's uid is the session's, `self.uid`
  five    uid 0 with CHOWN, DAC_OVERRIDE, SETUID, SETGID and KILL only, and no_new_privs
  user    a plain user, whose own uid is `self.uid`
  modern  clone3 and the new mount API
  legacy  the same calls answered with ENOSYS by a filter (tests/tools/without_new_calls.c)

After each test nothing may be left: no process that descends from it, no mount, no file.

    class Umask(SandboxTest):
        def test_the_umask_is_the_policys(self):
            run = self.inside("say(oct(os.umask(0)))", policy={"identity": {"umask": "027"}})
            self.assertEqual(run.json(), "0o27")
"""

import atexit
import contextlib
import ctypes
import functools
import json
import os
import pathlib
import py_compile
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOLS = ROOT / "tests" / "tools"
BELLJAR_SOURCE = pathlib.Path(os.environ.get("BELLJAR", ROOT / "build" / "launcher" / "belljar")).resolve()
BUILD = pathlib.Path(os.environ.get("BELLJAR_BUILD", BELLJAR_SOURCE.parent.parent)).resolve()

# Calls of the kernel that the whole suite does without (tests/tools/without_new_calls.c): "openat2".
WITHOUT = os.environ.get("BELLJAR_WITHOUT", "")

AS_ROOT = os.geteuid() == 0
CALLERS = ("root", "five", "user") if AS_ROOT else ("user",)
# Each needs what the other can do without.
BACK_ENDS = {"clone3": ("legacy",), "mount_api": ("legacy",), "pidfd": ("modern",)}.get(WITHOUT, ("modern", "legacy"))
MUST_WORK = os.environ.get("BELLJAR_MUST_WORK") == "1"
# Begins the reason of a skip that is none of the host's faults: docs name what it leaves *untested*. BELLJAR_MUST_WORK
# lets it be, and the sum shows it.
NOT_INSTALLED = "not installed, untested: "


def _sanitized():
    """Whether the binary is built with sanitizers, whose memory init cannot give back."""
    try:
        build = BELLJAR_SOURCE.parent.parent
        options = json.loads((build / "meson-info" / "intro-buildoptions.json").read_text())
    except OSError:
        return False
    return any(option["name"] == "b_sanitize" and option["value"] != "none" for option in options)


SANITIZED = _sanitized()

# One uid per test process, so that suites that run at the same time do not meet.
SESSION_UID = 20000 + os.getpid() % 30000 if AS_ROOT else os.getuid()
SESSION_GID = SESSION_UID if AS_ROOT else os.getgid()

FIVE_CAPABILITIES = "-all,+chown,+dac_override,+setuid,+setgid,+kill"
PYTHON_INSIDE = "/usr/bin/python3"

# Where the kernel could have kept something of a sandbox that has ended.
SHARED_DIRECTORIES = ("/tmp", "/var/tmp", "/dev/shm", "/run")

_libc = ctypes.CDLL(None, use_errno=True)
PR_SET_CHILD_SUBREAPER = 36
# Orphans come to this process, so that a sandbox that outlives its belljar is found as a descendant.
_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


# --- the stage: one world-readable directory for the binary and the tools ---------------------------

def _make_stage():
    """Plain users must be able to execute what is in it, and a sandbox's own /tmp must not hide it."""
    if "BELLJAR_STAGE" in os.environ:
        return pathlib.Path(os.environ["BELLJAR_STAGE"])
    stage = make_stage()
    atexit.register(shutil.rmtree, stage, ignore_errors=True)
    return stage


def make_stage():
    stage = pathlib.Path(tempfile.mkdtemp(prefix="belljar-tests-", dir="/var/tmp"))
    stage.chmod(0o755)
    shutil.copy(BELLJAR_SOURCE, stage / "belljar")
    (stage / "tools").mkdir()
    (stage / "home").mkdir()
    for source in sorted(TOOLS.glob("*.c")):
        _stage_tool(source, stage / "tools" / source.stem)
    for source in sorted(TOOLS.glob("*.py")):
        shutil.copy(source, stage / "tools" / source.name)
        py_compile.compile(str(stage / "tools" / source.name))
    for path in [stage / "belljar", *stage.rglob("tools/**/*")]:
        path.chmod(0o755)
    return stage


def _stage_tool(source, target):
    built = BUILD / "tests" / "tools" / source.stem
    if built.exists() and built.stat().st_mtime >= source.stat().st_mtime:
        shutil.copy(built, target)
    else:
        subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-static", "-o", target, source], check=True)


STAGE = _make_stage()
BELLJAR = STAGE / "belljar"
TOOLS_STAGED = STAGE / "tools"


def build_file(name):
    """A file of the build directory, such as tests/tools/belljar_trap, or None."""
    path = BUILD / name
    return path if path.exists() else None


# --- which tests there are ---------------------------------------------------------------------------

def callers(*names):
    """Runs the test for these callers only."""
    return functools.partial(_set_attribute, "callers", names)


def back_ends(*names):
    """Runs the test with these back ends only."""
    return functools.partial(_set_attribute, "back_ends", names)


def once(function):
    """Runs the test once: neither caller nor back end matters to it."""
    function.callers, function.back_ends = CALLERS[:1], BACK_ENDS[:1]
    return function


def long(function):
    """Runs the test with --all only."""
    function.long = True
    return function


def as_root(function):
    """The test prepares the host as root: it does not exist when the suite is run by a plain user."""
    return leave_out(function, not AS_ROOT)


def not_sanitized(function):
    """The test does not exist for sanitizer builds."""
    return leave_out(function, SANITIZED)


def leave_out(function, condition):
    function.left_out = condition or getattr(function, "left_out", False)
    return function


def _set_attribute(name, value, function):
    setattr(function, name, value)
    return function


class SandboxTest(unittest.TestCase):
    """A test per caller and back end; see the top of this file."""

    combinations = {}
    longMessage = True
    maxDiff = None

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.combinations = dict(cls.combinations)
        for name, function in list(vars(cls).items()):
            if not name.startswith("test_"):
                continue
            delattr(cls, name)
            if getattr(function, "long", False) and os.environ.get("BELLJAR_ALL") != "1":
                continue
            if getattr(function, "left_out", False):
                continue
            for caller in getattr(function, "callers", CALLERS):
                for back_end in getattr(function, "back_ends", BACK_ENDS):
                    if caller not in CALLERS or back_end not in BACK_ENDS:
                        continue
                    full = f"{name} [{caller}, {back_end}]"
                    cls.combinations[full] = (caller, back_end)
                    setattr(cls, full, functools.wraps(function)(_call(function)))

    def setUp(self):
        self.caller, self.back_end = self.combinations[self._testMethodName]
        self.privileged = self.caller != "user"
        self.uid, self.gid = SESSION_UID, SESSION_GID
        self.mounts_before = host_mounts()
        self.files_before = shared_files()
        self.addCleanup(self.check_that_nothing_is_left)
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="t-", dir=STAGE))
        self.dir.chmod(0o755)
        self.addCleanup(remove_tree, self.dir)
        self.work = self.make_directory("work", owner=self.uid, mode=0o700)
        self.files_made = 0

    # --- files -----------------------------------------------------------------------------------

    def make_directory(self, name, owner=None, mode=0o755):
        """A directory below the test's own, or at an absolute path."""
        path = self.dir / name
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)
        give(path, owner)
        return path

    def make_file(self, name, content="", owner=None, mode=0o644):
        path = self.dir / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        give(path, owner)
        path.chmod(mode)
        return path

    def make_link(self, name, text, owner=None):
        path = self.dir / name
        path.symlink_to(text)
        give(path, owner)
        return path

    # --- policies --------------------------------------------------------------------------------

    def base_policy(self):
        """The least that a Python program needs; tests change one value of it."""
        mounts = {
            "/usr": {"type": "bind", "source": "/usr"},
            "/bin": {"type": "symlink", "source": "usr/bin"},
            "/lib": {"type": "symlink", "source": "usr/lib"},
            "/lib64": {"type": "symlink", "source": "usr/lib64"},
            "/tools": {"type": "bind", "source": str(TOOLS_STAGED)},
            "/belljar": {"type": "bind", "source": str(BELLJAR)},
            "/proc": {"type": "proc"},
            "/dev": {"type": "dev"},
            "/tmp": {"type": "tmpfs", "size": "16MiB", "mode": "1777"},
        }
        identity = {"uid": self.uid, "gid": self.gid} if self.privileged else {}
        return {
            "version": 1,
            "name": "test",
            "identity": identity,
            "filesystem": {"root": "empty", "mounts": mounts, "workspace": {"path": str(self.work)}},
            "network": {"mode": "none"},
            "syscalls": {"base": "agent@1"},
            "env": {"pass": ["PATH"]},
        }

    def policy(self, changes=None):
        """The path of a policy file: the base with `changes` merged in; None removes a key."""
        self.files_made += 1
        text = json.dumps(merge(self.base_policy(), changes or {}), indent=1)
        return str(self.make_file(f"policy-{self.files_made}.json", text))

    def session_options(self):
        """What makes a preset run as the session, in its workspace."""
        ids = ("uid", self.uid), ("gid", self.gid)
        given = [f"--set=identity.{name}={number}" for name, number in ids] if self.privileged else []
        return [*given, "--workspace", str(self.work)]

    # --- running ---------------------------------------------------------------------------------

    def prefix(self, groups=()):
        """What has to be executed in front of belljar to be this caller with this back end."""
        words = []
        if self.caller == "five":
            words += ["setpriv", "--no-new-privs", "--inh-caps=-all", f"--bounding-set={FIVE_CAPABILITIES}"]
        if self.caller == "user" and AS_ROOT:
            words += ["setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", "--inh-caps=-all"]
        if groups and AS_ROOT:
            words += ["--groups=" + ",".join(map(str, groups))] if words else \
                ["setpriv", "--groups=" + ",".join(map(str, groups))]
        elif self.caller == "user" and AS_ROOT:
            words += ["--clear-groups"]
        if self.back_end == "legacy":
            words += [str(TOOLS_STAGED / "without_new_calls"), "ENOSYS"]
        if WITHOUT:
            words += [str(TOOLS_STAGED / "without_new_calls"), f"ONLY+{WITHOUT}"]
        return words

    def belljar(self, *arguments, **options):
        """Runs belljar with these arguments, as they are, and waits for it. See `start` for options."""
        return self.start(*arguments, **options).finish()

    def sandbox(self, *command, policy=None, options=(), **more):
        """`belljar run` with a record; `policy` is a dict of changes to the base, or a path or name."""
        return self.start_sandbox(*command, policy=policy, options=options, **more).finish()

    def inside(self, code, **more):
        """Python code in a sandbox, with the helpers of tests/tools/inside.py at hand."""
        return self.sandbox(*python_command(code), **more)

    def start_sandbox(self, *command, policy=None, options=(), **more):
        if policy is None or isinstance(policy, dict):
            policy = self.policy(policy)
        return self.start("run", "--policy", policy, *options, "--", *command, record=True, **more)

    def start_inside(self, code, **more):
        return self.start_sandbox(*python_command(code), **more)

    def start(self, *arguments, binary=None, record=False, status=False, env=None, cwd=None, stdin=b"",
              fds=(), groups=(), before=(), wrap=(), timeout=30, any_back_end=False, **popen):
        """Starts belljar. `stdin` is bytes or a descriptor, `fds` are left open.

        `before` is executed with the suite's rights and `wrap` with the caller's, each to execute
        the rest.
        """
        pipes = {}
        arguments = list(map(str, arguments))
        for name, option, wanted in (("record", "--record=fd:{}", record),
                                     ("status", "--status-fd={}", status)):
            if wanted:
                pipes[name] = os.pipe()
                arguments.insert(1, option.format(pipes[name][1]))
        command = [*before, *self.prefix(groups), *wrap, binary or BELLJAR, *arguments]
        running = Running(self, timeout, any_back_end, stdin if isinstance(stdin, bytes) else None)
        running.process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE if isinstance(stdin, bytes) else stdin,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd or self.work,
            env=environment() if env is None else env,
            pass_fds=[*fds, *(write for _, write in pipes.values())], **popen)
        for name, (read, write) in pipes.items():
            os.close(write)
            running.pipes[name] = read
        self.addCleanup(running.stop)
        return running

    # --- what must be ----------------------------------------------------------------------------

    def check_exited(self, run, code=0):
        """The command ran, and exited with `code` by itself."""
        self.assertIsNotNone(run.record, f"no record; {run}")
        self.assertEqual((run.record["cause"], run.code), ("exited", code), str(run))

    def check_refused(self, run, *texts, code=125):
        """belljar did not start the command, and said so with each of `texts`."""
        self.assertEqual(run.code, code, str(run))
        for text in texts:
            self.assertIn(text, run.err, str(run))
        if run.record is not None:
            self.assertEqual(run.record["cause"], "setup", str(run))

    def check_that_nothing_is_left(self):
        left = wait_for_no_descendants(2.0)
        self.assertEqual(left, [], "processes are left")
        self.assertEqual(host_mounts(), self.mounts_before, "the host's mounts have changed")
        self.assertEqual(shared_files(), self.files_before, "files are left")


    def tool(self, name):
        """A program of tests/tools, by its path on the host; sandboxes of `base_policy` see it in /tools."""
        return TOOLS_STAGED / name

    def on_host(self, script):
        """A `before` that runs a shell script as root in a mount namespace that only this launch has."""
        return ["unshare", "--mount", "--propagation", "private",
                "sh", "-ec", script + '\nexec "$@"', "sh"]


def _call(function):
    return lambda self: function(self)


class Running:
    """A belljar that was started, and what it has said so far."""

    def __init__(self, test, timeout, any_back_end, stdin):
        self.test, self.timeout, self.any_back_end, self.stdin = test, timeout, any_back_end, stdin
        self.began = time.monotonic()
        self.process = None
        self.pipes = {}
        self.events = []
        self.rest = b""
        self.result = None

    def wait_until_started(self):
        """Waits for the `started` line of --status-fd; the number of the sandbox's init is its answer."""
        pid = self.next_event("started")["pid"]
        if pid <= 1:  # Signals to it must not reach anybody else.
            raise AssertionError(f"the sandbox's init is said to be process {pid}")
        return pid

    def next_event(self, kind):
        while b"\n" not in self.rest:
            more = os.read(self.pipes["status"], 65536)
            if not more:
                raise AssertionError(f"no {kind} event: {self.events} {self.finish()}")
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        self.events.append(json.loads(line))
        return self.events[-1] if self.events[-1]["type"] == kind else self.next_event(kind)

    def wait_for_output(self, text):
        """Reads the standard output until `text` has come."""
        seen = b""
        while text.encode() not in seen:
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                raise AssertionError(f"no {text!r} in {seen!r}: {self.finish()}")
            seen += more
        return seen.decode()

    def send(self, number):
        self.process.send_signal(number)

    def finish(self):
        """Waits for the end."""
        if self.result is not None:
            return self.result
        try:
            out, err = self.process.communicate(self.stdin, timeout=self.timeout)
        except subprocess.TimeoutExpired:
            for pid in [self.process.pid, *(pid for pid, _, _ in descendants(self.process.pid))]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            out, err = self.process.communicate()
            raise AssertionError(f"no end within {self.timeout} s; out: {out!r} err: {err!r}") from None
        seconds = time.monotonic() - self.began
        record, status = self._drain("record"), self._drain("status")
        self.events += [json.loads(line) for line in (self.rest + status).splitlines()]
        self.result = Run(out or b"", err or b"", self.process.returncode, record, self.events, seconds)
        self._check_back_end()
        return self.result

    def _drain(self, name):
        if name not in self.pipes:
            return b""
        with os.fdopen(self.pipes.pop(name), "rb") as pipe:
            return pipe.read()

    def _check_back_end(self):
        record = self.result.record
        if record is None or record["cause"] == "setup" or self.any_back_end:
            return
        if record["back_end"] != self.test.back_end:
            raise AssertionError(f"the back end is {record['back_end']}, not {self.test.back_end}")

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        for read in self.pipes.values():
            os.close(read)
        self.pipes = {}


class Run:
    """What a finished belljar left: output, exit code (negative: died of that signal), record, events."""

    def __init__(self, out, err, code, record, events, seconds):
        self.raw_out, self.raw_err = out, err
        self.out, self.err = out.decode(errors="replace"), err.decode(errors="replace")
        self.code, self.seconds, self.events = code, seconds, events
        self.raw_record = record
        self.record = json.loads(record) if record.strip() else None

    def json(self):
        """The one JSON value that `say` printed inside."""
        if not self.out.strip():
            raise AssertionError(f"nothing was said: {self}")
        return json.loads(self.out)

    def __str__(self):
        return (f"exit {self.code} after {self.seconds:.3f} s\n  out: {self.out!r}\n"
                f"  err: {self.err}\n  record: {self.record}")


def python_command(code):
    prelude = "import sys; sys.path.insert(0, '/tools'); from inside import *\n"
    return [PYTHON_INSIDE, "-S", "-E", "-c", prelude + textwrap.dedent(code)]


def environment(**more):
    """The environment that belljar gets unless a test says otherwise."""
    path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    return {"PATH": path, "HOME": str(STAGE / "home"), "LANG": "C.UTF-8", **more}


# --- small things ------------------------------------------------------------------------------------

def merge(base, changes):
    """`changes` over `base`, objects by key; None removes."""
    merged = dict(base)
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def give(path, owner):
    if owner is not None and AS_ROOT:
        os.chown(path, owner, owner, follow_symlinks=False)


def remove_tree(path):
    """Removes what a sandbox may have left with any mode."""
    os.chmod(path, 0o700)
    for directory, names, _ in os.walk(path):  # What a walk cannot read it does not come to.
        for name in names:
            if not os.path.islink(os.path.join(directory, name)):
                os.chmod(os.path.join(directory, name), 0o700)
    shutil.rmtree(path)


def host_mounts():
    return pathlib.Path("/proc/self/mountinfo").read_text().splitlines()


def shared_files():
    """What belongs to the session's uid in the directories that everybody can write, and all of /."""
    found = [f"/{name}" for name in os.listdir("/")]
    for directory in SHARED_DIRECTORIES:
        if not AS_ROOT or not os.path.isdir(directory):
            continue
        found += [path for path in pathlib.Path(directory).iterdir() if owner_of(path) == SESSION_UID]
    return sorted(map(str, found))


def owner_of(path):
    """None when it is gone: what others test at the same time comes and goes."""
    try:
        return path.lstat().st_uid
    except FileNotFoundError:
        return None


def processes():
    """pid -> (parent, state, name) of every process."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            text = pathlib.Path("/proc", entry, "stat").read_text()
        except OSError:
            continue
        name, rest = text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 2:].split()
        found[int(entry)] = (int(rest[1]), rest[0], name)
    return found


def descendants(of=None):
    """Processes below this one (or `of`), as [(pid, state, name)]."""
    table = processes()
    family, found = {of or os.getpid()}, []
    while True:
        more = [pid for pid, (parent, _, _) in table.items() if parent in family and pid not in family]
        if not more:
            return found
        family.update(more)
        found += [(pid, *table[pid][1:]) for pid in more]


def wait_for_no_descendants(seconds):
    """Reaps what was orphaned and waits until nothing is left below this process. What is left all
    the same is killed, and returned."""
    end = time.monotonic() + seconds
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
        except ChildProcessError:
            return []
        left = descendants()
        if not left or time.monotonic() > end:
            break
        time.sleep(0.002)
    for pid, _, _ in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


# Says "x" once the program's first thread has ended, which the kernel shows as a zombie, and runs on.
FIRST_THREAD_ENDS = """
import ctypes, os, threading, time
def run():
    while open("/proc/self/stat").read().rsplit(")")[-1].split()[0] != "Z": time.sleep(0.01)
    os.write(1, b"x")
    time.sleep(60)
threading.Thread(target=run).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def while_doing(work, function):
    """What the function returns, while `work` goes on in a thread until the event that it gets is set."""
    stop = threading.Event()
    worker = threading.Thread(target=work, args=(stop,))
    worker.start()
    try:
        return function()
    finally:
        stop.set()
        worker.join()


def wait_for(condition, seconds=2.0, what="the condition"):
    """Calls `condition` until it is true, and returns its value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come within {seconds} s")
        time.sleep(0.005)


def main():
    """For `python3 tests/sandbox/test_x.py`, which is `tests/run.py tests/sandbox/test_x.py`."""
    os.execv(sys.executable, [sys.executable, str(ROOT / "tests" / "run.py"), sys.argv[0], *sys.argv[1:]])
