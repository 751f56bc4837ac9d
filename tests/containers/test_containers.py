"""Belljar inside a container as Docker makes it, where the newer calls are refused and /proc is masked."""

import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from container import Container, dockers_profile, engine_filter

from harness import AS_ROOT, NOT_INSTALLED, ROOT

# Containers are made by root; for anybody else there is nothing to test here.
TestCase = unittest.TestCase if AS_ROOT else object

SESSION_UID = 20001
KERNEL = tuple(int(number) for number in platform.release().split("-")[0].split(".")[:2])
# From Linux 7.2 on a procfs with processes only may be mounted beside a masked one.
PROCESSES_ARE_ALLOWED = KERNEL >= (7, 2)

COUNT_PROCESSES = "set -- /proc/[0-9]*; echo $#; "
LOOK = ("id -u; " + COUNT_PROCESSES + "ls -A /hide; cat /proc/sys/kernel/ostype; "
        "echo x 2>/dev/null >/proc/sys/kernel/core_pattern || echo write-protected; echo written >file; exit 3")

TRY_WHAT_DOCKER_REFUSES = """
import ctypes, errno, json, os, platform, socket
libc = ctypes.CDLL(None, use_errno=True)

def call(*words):
    return "open" if libc.syscall(*words) >= 0 else errno.errorcode[ctypes.get_errno()]

def attempt(function, *words):
    try:
        function(*words)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "open"

clone = {"x86_64": 56, "aarch64": 220}[platform.machine()]
new_user_namespace = 0x10000000
print(json.dumps({
    "clone3": call(435, 0, 0),
    "clone with a new namespace": call(clone, new_user_namespace, 0, 0, 0, 0),
    "fsopen": call(430, b"tmpfs", 0),
    "open_tree": call(428, -100, b"/", 1),
    "sethostname": attempt(socket.sethostname, "x"),
    "chroot": attempt(os.chroot, "/"),
    "core_pattern": attempt(os.open, "/proc/sys/kernel/core_pattern", os.O_WRONLY),
    "kcore": "open" if os.path.exists("/proc/kcore") and open("/proc/kcore", "rb").read(1) else "empty",
}))
"""


class ContainerTest(TestCase):
    maxDiff = None

    def container(self, uid=0, **settings):
        made = Container(uid=uid, **settings)
        self.addCleanup(made.remove)
        made.give_work_to(SESSION_UID if uid == 0 else uid)
        self.work = made.root / "work"
        return made

    def run_in(self, container, preset, *command):
        identity = ["--set", f"identity.uid={SESSION_UID}"] if container.uid == 0 else []
        return container.belljar("--policy", f"builtin:{preset}", *identity, "--", *command)

    def check_ran(self, run, code=0, back_end="legacy"):
        said = f"{run.stdout}\n{run.stderr}\n{run.record}"
        self.assertIsNotNone(run.record, said)
        self.assertEqual((run.record["cause"], run.returncode), ("exited", code), said)
        self.assertEqual(run.record["back_end"], back_end)

    def check_refused(self, run, *texts):
        self.assertEqual(run.returncode, 125, f"{run.stdout}\n{run.stderr}")
        self.assertEqual((run.record["cause"], run.record["exit_code"]), ("setup", 125))
        for text in texts:
            self.assertIn(text, run.stderr)


class Docker(ContainerTest):
    """With the narrow addition to its filter: unshare, mount, umount2, pivot_root, setns."""

    def check_fresh_proc(self, uid, preset, expected_processes):
        container = self.container(uid)
        run = self.run_in(container, preset, "/bin/sh", "-c", LOOK)
        self.check_ran(run, 3)
        degraded = [item["what"] for item in run.record["degraded"]]
        if not PROCESSES_ARE_ALLOWED:  # From 7.2 on the helper, which has processes only, allows no more.
            self.assertEqual(degraded, [])
        seen_uid, processes, *rest = run.stdout.splitlines()
        self.assertEqual(int(seen_uid), SESSION_UID if uid == 0 else uid)
        # The shell, and init where others' can be seen; not those of the container.
        self.assertEqual(int(processes), expected_processes)
        # Nothing below /hide, where the helper is; then what the whole of /proc has.
        self.assertEqual(rest, ["write-protected"] if degraded else ["Linux", "write-protected"])
        self.assertEqual((self.work / "file").stat().st_uid, SESSION_UID if uid == 0 else uid)

    def test_root_runs_dev_with_a_fresh_proc_by_the_hidden_helper(self):
        self.check_fresh_proc(0, "dev@1", 2)

    def test_root_runs_agent_with_a_fresh_proc_by_the_hidden_helper(self):
        self.check_fresh_proc(0, "agent@1", 2)

    def test_a_plain_user_runs_dev_with_a_fresh_proc_by_the_hidden_helper(self):
        self.check_fresh_proc(1000, "dev@1", 2)

    def test_strict_runs_by_the_hidden_helper(self):
        for uid in (0, 1000):
            with self.subTest(uid=uid):
                run = self.run_in(self.container(uid), "strict@1", "/bin/sh", "-c", COUNT_PROCESSES + "exit 3")
                self.check_ran(run, 3)
                self.assertEqual((run.stdout, run.record["degraded"]), ("1\n", []))

    def test_without_the_helper_dev_and_agent_run_without_proc_and_say_so(self):
        for uid in (0, 1000):
            for preset in ("dev@1", "agent@1"):
                with self.subTest(uid=uid, preset=preset):
                    run = self.run_in(self.container(uid, hidden_helper=False), preset, "/bin/sh", "-c",
                                      "ls /proc | grep -c .; echo written >file; exit 3")
                    self.check_ran(run, 3)
                    (degraded,) = run.record["degraded"]
                    self.assertEqual(degraded["control"], "proc_and_dev")
                    if PROCESSES_ARE_ALLOWED:
                        self.assertIn("/proc is with processes only", degraded["what"])
                    else:
                        self.assertIn("/proc is absent", degraded["what"])
                        self.assertEqual(run.stdout, "0\n")
                    self.assertTrue((self.work / "file").exists())

    def test_without_the_helper_strict_refuses_and_names_the_remedy(self):
        for uid in (0, 1000):
            with self.subTest(uid=uid):
                run = self.run_in(self.container(uid, hidden_helper=False), "strict@1", "true")
                if PROCESSES_ARE_ALLOWED:  # They are all that strict@1 asks for.
                    self.check_ran(run)
                else:
                    self.check_refused(run, "mount a fresh /proc", 'filesystem.mounts["/proc"]',
                                       "in a container mount the hidden helper of docs/hosts.md")

    def test_under_dockers_own_filter_it_refuses_and_names_the_calls_to_allow(self):
        for uid in (0, 1000):
            with self.subTest(uid=uid):
                run = self.run_in(self.container(uid, narrow_filter=False), "dev@1", "true")
                self.check_refused(run, "create namespaces: user", "belljar:   remedy: ",
                                   "allow unshare, mount, umount2 and pivot_root in its seccomp profile")

    def test_a_real_program_works(self):
        code = ("import subprocess, sqlite3, threading, multiprocessing.pool; "
                "print(multiprocessing.pool.ThreadPool(2).map(abs, [-1, 2])); "
                "sqlite3.connect('x.db').execute('create table t (n)'); "
                "print(subprocess.run(['/bin/echo', 'child'], capture_output=True, text=True).stdout.strip())")
        for preset in ("dev@1", "agent@1"):
            with self.subTest(preset=preset):
                run = self.run_in(self.container(), preset, "/usr/bin/python3", "-c", code)
                self.check_ran(run)
                self.assertEqual(run.stdout, "[1, 2]\nchild\n", run.stderr)

    def test_the_container_is_as_hostile_as_it_claims(self):
        """The control of all of these: what Docker refuses is refused to the container's own root."""
        run = self.container().execute("/usr/bin/python3", "-c", TRY_WHAT_DOCKER_REFUSES)
        self.assertEqual(json.loads(run.stdout), {
            "clone3": "ENOSYS", "clone with a new namespace": "EPERM", "fsopen": "EPERM", "open_tree": "EPERM",
            "sethostname": "EPERM", "chroot": "EPERM", "core_pattern": "EROFS", "kcore": "empty"}, run.stderr)

    def test_no_container_is_left(self):
        container = self.container()
        container.execute("true")
        self.assertEqual(os.listdir(container.bundle / "state"), [])


class Selftest(ContainerTest):
    """`belljar selftest` and `doctor` where an admin would run them after a deploy."""

    def selftest(self, container, *options):
        return container.execute("/belljar", "selftest", "--sessions-root", "/srv/sessions", *options)

    def check_ok(self, done):
        self.assertEqual((done.returncode, done.stdout), (0, "sandbox OK\n"), done.stderr)

    def check_names(self, container, options, control, finding, remedy):
        done = self.selftest(container, *options)
        self.assertEqual(done.returncode, 1, f"{done.stdout}\n{done.stderr}")
        (line,) = done.stdout.splitlines()
        self.assertTrue(line.startswith(f"{control}: "), line)
        self.assertIn(remedy, line.partition("; remedy: ")[2])
        done = container.execute("/belljar", "doctor", "--json", "--sessions-root", "/srv/sessions", *options)
        self.assertEqual(done.returncode, 1, f"{done.stdout}\n{done.stderr}")
        missing = [item for item in json.loads(done.stdout)["findings"] if item["weight"] == "missing"]
        self.assertEqual([(item["id"], item["control"]) for item in missing], [(finding, control)])

    def test_dockers_own_filter_is_named_and_the_addition_mends_it(self):
        additions = '"unshare","mount","umount2","pivot_root"'
        for uid in (0, 1000):
            with self.subTest(uid=uid):
                refused, mended = self.container(uid, narrow_filter=False), self.container(uid)
                place = "/srv/sessions" if uid == 0 else "/tmp/sessions"
                done = refused.execute("/belljar", "selftest", "--sessions-root", place)
                self.assertEqual(done.returncode, 1, f"{done.stdout}\n{done.stderr}")
                self.assertTrue(done.stdout.startswith("namespaces: "), done.stdout)
                self.assertIn(additions, done.stdout)
                self.check_ok(mended.execute("/belljar", "selftest", "--sessions-root", place))

    def test_the_printed_script_makes_a_profile_of_dockers_that_is_enough(self):
        profile = dockers_profile()
        made = self.container(filter=engine_filter(profile))
        place = ["--sessions-root", "/srv/sessions"]
        self.assertEqual(made.execute("/belljar", "selftest", *place).returncode, 1)
        done = made.execute("/belljar", "doctor", "--fix-script", *place)
        self.assertIn("\n# container-seccomp: ", done.stdout, done.stderr)
        (made.bundle / "default.json").write_text(json.dumps(profile))
        (made.bundle / "fix.sh").write_text(done.stdout)
        subprocess.run(["sh", "fix.sh"], cwd=made.bundle, check=True, env={**os.environ, "PROFILE": "default.json"})
        mended = json.loads((made.bundle / "seccomp.json").read_text())
        self.assertEqual(mended["syscalls"][:-1], profile["syscalls"])
        self.assertEqual(sorted(mended["syscalls"][-1]["names"]), ["mount", "pivot_root", "umount2", "unshare"])
        self.check_ok(self.selftest(self.container(filter=engine_filter(mended))))

    def test_the_doctor_tells_dockers_filter(self):
        self.check_names(self.container(narrow_filter=False), [], "namespaces", "container-seccomp", "security_opt")

    @unittest.skipIf(PROCESSES_ARE_ALLOWED, "strict@1 asks for processes only, which this kernel allows")
    def test_masks_over_proc_are_named_and_the_helper_mends_them(self):
        strict = ["--policy", "builtin:strict@1"]
        self.check_names(self.container(hidden_helper=False), strict, "proc_and_dev", "proc-masked", "hidden helper")
        self.check_ok(self.selftest(self.container(), *strict))

    def test_the_simulators_deployment_holds_as_its_session_would(self):
        done = self.container().execute("env", "AGENT_SIMULATOR_MAX_SESSIONS=5", "AGENT_SIMULATOR_API_TOKEN=t",
                                        "/belljar", "--selftest", "--json")
        answer = json.loads(done.stdout)
        self.assertEqual((answer["sandbox"], answer["uid"], answer["workspace_root"], answer["back_end"]),
                         ("OK", 20005, "/tmp/sessions", "legacy"), done.stderr)

    def test_nothing_is_left_in_the_container(self):
        container = self.container()
        self.check_ok(self.selftest(container))
        self.assertEqual(os.listdir(container.root / "srv"), [])


@unittest.skipUnless(shutil.which("podman"), NOT_INSTALLED + "podman")
class Podman(ContainerTest):
    """Its own filter lets the newer calls through, so that there the modern back end is the one."""

    def run_under_podman(self, preset, *options):
        container = self.container(hidden_helper=False)
        if not os.path.exists("/dev/shm/libpod_lock"):  # Podman leaves it behind.
            self.addCleanup(os.unlink, "/dev/shm/libpod_lock")
        return container.belljar_under_podman(options, "--policy", f"builtin:{preset}", "--set",
                                              f"identity.uid={SESSION_UID}", "--", "/bin/sh", "-c",
                                              COUNT_PROCESSES + "exit 3")

    def test_with_unmasked_paths_proc_is_whole(self):
        for preset in ("dev@1", "strict@1"):
            with self.subTest(preset=preset):
                run = self.run_under_podman(preset, "--security-opt", "unmask=ALL")
                self.check_ran(run, 3, "modern")
                self.assertEqual(run.record["degraded"], [])

    def test_with_its_own_settings_dev_runs_without_proc_and_says_so(self):
        run = self.run_under_podman("dev@1")
        self.check_ran(run, 3, "modern")
        (degraded,) = run.record["degraded"]
        self.assertIn("/proc is with processes only" if PROCESSES_ARE_ALLOWED else "/proc is absent", degraded["what"])
