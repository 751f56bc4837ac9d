"""The shipped profiles, container/seccomp.json and seccomp-narrow.json, in containers by runc with Docker's masks, the
hidden helper and five capabilities: what they let belljar do, what each of their entries is for, and what they keep
from whoever takes the container over."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from container import FIVE, Container, shipped_filter

from harness import AS_ROOT, BELLJAR_SOURCE, ROOT

TestCase = unittest.TestCase if AS_ROOT else object

SESSION_UID = 20001
PROFILES = {"seccomp.json": "modern", "seccomp-narrow.json": "legacy"}
BELLJARD = BELLJAR_SOURCE.parent.parent / "api" / "belljard"
TABLE = json.loads((ROOT / "launcher" / "seccomp" / "table.json").read_text())["sets"]["agent@1"]

# Each call made in a way that would change or show something of the container's, or of the host's.
TRY = """
import ctypes, errno, json, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*words):
    return "works" if libc.syscall(*words) >= 0 else errno.errorcode[ctypes.get_errno()]
def cloned(flags):
    pid = libc.syscall(56, flags | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    return "works" if pid > 0 else errno.errorcode[ctypes.get_errno()]
def attempt(function, *words):
    try:
        function(*words)
        return "works"
    except OSError as error:
        return errno.errorcode[error.errno]
NEWNS, NEWUSER, NEWUTS = 0x00020000, 0x10000000, 0x04000000
TREE_CLONE, RECURSIVE, FDCWD = 1, 0x8000, -100
def in_own_namespaces(what):
    "In a user and a mount namespace of its own, where it has every capability."
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        said = "unshare: " + str(ctypes.get_errno())
        if libc.unshare(NEWUSER | NEWNS) == 0:
            said = what()
        os.write(write, str(said).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    return os.read(read, 1000).decode()
"""

OUTSIDE = TRY + """
print(json.dumps({
    "mount namespace by unshare": call(272, NEWNS),
    "mount namespace by clone": cloned(NEWNS) if "modern" in sys.argv else "EPERM",
    "bind": call(165, b"/usr", b"/opt", 0, 4096, 0),
    "bind by open_tree": call(428, FDCWD, b"/usr", TREE_CLONE) if "modern" in sys.argv else "EPERM",
    "new file system": call(165, b"none", b"/opt", b"tmpfs", 0, 0),
    "new file system by fsopen": call(430, b"tmpfs", 0) if "modern" in sys.argv else "EPERM",
    "remount": call(165, 0, b"/proc/sys", 0, 32 | 4096, 0),
    "remount by mount_setattr": call(442, FDCWD, b"/proc/sys", 0, (ctypes.c_uint64 * 4)(0, 1, 0, 0), 32)
        if "modern" in sys.argv else "EPERM",
    "unmount": call(166, b"/proc/sys", 2),
    "root": call(155, b"/", b"/"),
    "host name": attempt(socket.sethostname, "x"),
}))
"""

INSIDE = TRY + """
def writable_by_mount():
    return call(165, 0, b"/proc/sys", 0, 32 | 4096, 0), attempt(os.open, "/proc/sys/kernel/core_pattern", os.O_WRONLY)
def writable_by_setattr():
    return (call(442, FDCWD, b"/proc/sys", 0, (ctypes.c_uint64 * 4)(0, 1, 0, 0), 32),
            attempt(os.open, "/proc/sys/kernel/core_pattern", os.O_WRONLY))
def unmask_by_umount():
    return call(166, b"/proc/interrupts", 2)
def unmask_by_bind():
    return call(165, b"/proc", b"/opt", 0, 4096, 0)
def unmask_by_open_tree():
    return call(428, FDCWD, b"/proc", TREE_CLONE)
def unmask_by_move():
    return call(429, FDCWD, b"/proc/interrupts", FDCWD, b"/opt", 0)
by_hand = [writable_by_mount, unmask_by_umount, unmask_by_bind]
newer = [writable_by_setattr, unmask_by_open_tree, unmask_by_move]
print(json.dumps({f.__name__: in_own_namespaces(f) for f in by_hand + newer}))
"""

OPEN_CORE_PATTERN = ("import os; os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY); print('opened')")

# As pasta enters a session's network: by the uid that owns the session's user namespace.
JOIN = TRY + """
ready, other = os.pipe(), os.pipe()
if (child := os.fork()) == 0:
    os.write(ready[1], b"y" if libc.unshare(NEWUSER | 0x40000000) == 0 else b"n")
    os.read(other[0], 1)
    os._exit(0)
os.read(ready[0], 1)
for kind in ("user", "net"):
    print(call(308, os.open(f"/proc/{child}/ns/{kind}", os.O_RDONLY), 0))
os.write(other[1], b"x")
"""

class ProfileTest(TestCase):
    maxDiff = None

    def container(self, profile, uid=0, without=(), **settings):
        made = Container(uid=uid, filter=shipped_filter(profile, without), **settings)
        self.addCleanup(made.remove)
        made.give_work_to(SESSION_UID if uid == 0 else uid)
        return made

    def selftest(self, container):
        place = "/srv/sessions" if container.uid == 0 else "/tmp/sessions"
        return container.execute("/belljar", "selftest", "--sessions-root", place)

    def agent_session(self, container):
        for program in (BELLJARD, BELLJARD.with_name("belljarctl")):
            shutil.copy(program, container.root / program.name)
        shutil.copy(ROOT / "tests" / "demo" / "session.py", container.root / "session.py")
        return container.execute("/usr/bin/python3", "/session.py", "/belljard", "/belljar")


class Shipped(ProfileTest):
    def test_the_files_are_what_the_generator_writes(self):
        done = subprocess.run([sys.executable, ROOT / "container" / "make_seccomp.py", "--check"], capture_output=True,
                              text=True)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)

    def test_the_self_test_is_ok_as_root_and_as_a_plain_user(self):
        for profile in PROFILES:
            for uid in (0, 1000):
                with self.subTest(profile=profile, uid=uid):
                    done = self.selftest(self.container(profile, uid))
                    self.assertEqual((done.returncode, done.stdout), (0, "sandbox OK\n"), done.stderr)

    def test_each_profile_has_its_back_end_and_lacks_nothing(self):
        for profile, back_end in PROFILES.items():
            with self.subTest(profile=profile):
                run = self.container(profile).belljar("--policy", "builtin:agent@1", "--set",
                                                      f"identity.uid={SESSION_UID}", "--", "/bin/true")
                self.assertIsNotNone(run.record, run.stderr)
                self.assertEqual((run.record["cause"], run.record["back_end"], run.record["degraded"]),
                                 ("exited", back_end, []), run.stderr)

    def test_an_agents_session_works_through_the_daemon(self):
        for profile in PROFILES:
            with self.subTest(profile=profile):
                done = self.agent_session(self.container(profile))
                self.assertEqual(done.returncode, 0, f"{done.stdout}\n{done.stderr}")
                self.assertIn('"sandbox":"ok"', done.stdout)
                self.assertIn("You said: hello", done.stdout)
                self.assertIn("Left of it: no process, no uid, no directory.", done.stdout)

    def test_sessions_lose_no_call_that_their_own_filter_allows(self):
        for profile in PROFILES:
            allowed = {name for rule in shipped_filter(profile)["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW"
                       for name in rule["names"]}
            missing = (set(TABLE["allow"]) | set(TABLE["arguments"])) - allowed
            self.assertEqual(missing, set(), profile)


class EachEntry(ProfileTest):
    """What breaks when one call is taken out of the narrow profile."""

    def test_without_any_call_of_the_launch_the_self_test_names_the_control(self):
        for call, control in (("unshare", "namespaces"), ("mount", "filesystem"), ("umount2", "filesystem"),
                              ("pivot_root", "filesystem")):
            with self.subTest(call=call):
                done = self.selftest(self.container("seccomp-narrow.json", without=[call]))
                self.assertEqual(done.returncode, 1, f"{done.stdout}\n{done.stderr}")
                self.assertTrue(done.stdout.startswith(f"{control}: "), done.stdout)

    def test_without_setns_no_network_is_entered(self):
        for without, expected in (((), "works"), (["setns"], "ENOSYS")):
            with self.subTest(without=without):
                done = self.container("seccomp-narrow.json", without=without).execute(
                    "/usr/bin/setpriv", f"--reuid={SESSION_UID}", "--clear-groups", "/usr/bin/python3", "-c", JOIN)
                self.assertEqual(done.stdout, f"{expected}\n{expected}\n", done.stderr)

    def test_without_a_newer_call_the_launch_is_the_legacy_one_or_is_refused(self):
        legacy = ("exited", "legacy")
        for call, expected in (("clone3", legacy), ("open_tree", legacy), ("fsopen", legacy), ("fsconfig", legacy),
                               ("fsmount", legacy), ("move_mount", legacy), ("mount_setattr", ("setup", "modern"))):
            with self.subTest(call=call):
                run = self.container("seccomp.json", without=[call]).belljar(
                    "--policy", "builtin:agent@1", "--set", f"identity.uid={SESSION_UID}", "--", "/bin/true")
                self.assertEqual((run.record["cause"], run.record["back_end"]), expected, run.stderr)

    def test_a_sandbox_may_have_a_name_and_a_debugger_where_its_policy_says_so(self):
        trace = "import ctypes; print(ctypes.CDLL(None, use_errno=True).ptrace(0, 0, 0, 0), ctypes.get_errno())"
        for profile, code in (("seccomp.json", 0), ("seccomp-narrow.json", 125)):
            with self.subTest(profile=profile):
                run = self.container(profile).belljar(
                    "--policy", "builtin:agent@1", "--set", f"identity.uid={SESSION_UID}", "--set",
                    "identity.hostname=box", "--", "/bin/uname", "-n")
                self.assertEqual((run.returncode, run.stdout), (code, "box\n" if code == 0 else ""), run.stderr)
                run = self.container(profile).belljar(
                    "--policy", "builtin:agent@1", "--set", f"identity.uid={SESSION_UID}", "--set",
                    "syscalls.rules.ptrace=allow", "--", "/usr/bin/python3", "-c", trace)
                self.assertEqual(run.stdout, "0 0\n" if code == 0 else "-1 1\n", run.stderr)

    def test_each_namespace_by_clone_is_refused_by_the_narrow_profile_alone(self):
        code = TRY + ("print({flag: cloned(flag | NEWUSER) for flag in "
                      "(NEWNS, NEWUTS, 0x2000000, 0x8000000, 0x20000000, 0x40000000)})")
        narrow = self.container("seccomp-narrow.json").execute("/usr/bin/python3", "-c", code)
        self.assertEqual(narrow.stdout.count("EPERM"), 6, f"{narrow.stdout}\n{narrow.stderr}")
        full = self.container("seccomp.json").execute("/usr/bin/python3", "-c", code)
        self.assertNotIn("ENOSYS", full.stdout)
        self.assertEqual(full.stdout.count("works"), 6, f"{full.stdout}\n{full.stderr}")


class WhatTheNewerCallsGrant(ProfileTest):
    """Nothing that unshare and mount do not: the kernel refuses to either what it refuses to the other."""

    def tried(self, code, profile, *words, **settings):
        done = self.container(profile, **settings).execute("/usr/bin/python3", "-c", code, *words)
        self.assertEqual(done.returncode, 0, f"{done.stdout}\n{done.stderr}")
        return json.loads(done.stdout)

    def test_in_the_containers_own_namespaces_each_is_refused(self):
        for profile, back_end in PROFILES.items():
            with self.subTest(profile=profile):
                self.assertEqual(set(self.tried(OUTSIDE, profile, back_end).values()), {"EPERM"})

    def test_the_same_calls_work_where_the_container_has_the_capability(self):
        """The control: it is the capability that is missing, not that the calls are made wrongly."""
        tried = self.tried(OUTSIDE, "seccomp.json", "modern", capabilities=[*FIVE, "CAP_SYS_ADMIN"])
        refused = {name for name, result in tried.items() if result != "works"}
        self.assertLessEqual(refused, {"root", "unmount"}, tried)

    def test_in_namespaces_of_its_own_no_mask_comes_off_by_either(self):
        tried = self.tried(INSIDE, "seccomp.json")
        for name in ("writable_by_mount", "writable_by_setattr"):
            self.assertEqual(tried[name], "('EPERM', 'EROFS')")
        for name in ("unmask_by_umount", "unmask_by_bind", "unmask_by_open_tree", "unmask_by_move"):
            self.assertEqual(tried[name], "EINVAL", name)

    def test_the_narrow_profile_refuses_the_newer_ones_by_name(self):
        tried = self.tried(INSIDE, "seccomp-narrow.json")
        self.assertEqual(tried["writable_by_setattr"], "('EPERM', 'EROFS')")
        self.assertEqual((tried["unmask_by_open_tree"], tried["unmask_by_move"]), ("EPERM", "EPERM"))


class HostsKnobs(ProfileTest):
    """core_pattern names the program that the host's root runs when a process crashes."""

    def opened(self, container):
        return container.execute("/usr/bin/python3", "-c", OPEN_CORE_PATTERN)

    def test_container_root_cannot_open_core_pattern_for_writing(self):
        for profile in PROFILES:
            with self.subTest(profile=profile):
                done = self.opened(self.container(profile))
                self.assertIn("Read-only file system", done.stderr)

    def test_with_the_existing_deployments_options_it_can(self):
        """The negative control: seccomp=unconfined and systempaths=unconfined."""
        made = Container(filter=None, masks=False, hidden_helper=False)
        self.addCleanup(made.remove)
        self.assertEqual(self.opened(made).stdout, "opened\n")


if __name__ == "__main__":
    unittest.main()
