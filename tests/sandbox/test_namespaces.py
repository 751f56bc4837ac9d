"""Namespaces: the sandbox has its own of each kind, and the payload can make none."""

import ctypes
import os

from harness import SandboxTest, main

KINDS = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")
READ_NAMESPACES = f"say({{kind: os.readlink('/proc/self/ns/' + kind) for kind in {KINDS}}})"
UNSHARE = "say(in_child(lambda: call('unshare', {})))"
CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWPID = 0x10000000, 0x20000, 0x40000000, 0x20000000
NO_FILTER = {"syscalls": {"base": "none"}}
IPC_CREAT, IPC_RMID = 0o1000, 0


def own_namespaces():
    return {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in KINDS}


class OwnNamespaces(SandboxTest):

    def test_every_namespace_is_new(self):
        run = self.inside(READ_NAMESPACES)
        self.check_exited(run)
        host = own_namespaces()
        self.assertEqual([kind for kind in KINDS if run.json()[kind] == host[kind]], [])

    def test_ipc_uts_and_cgroup_are_the_callers_when_shared(self):
        shared = dict.fromkeys(("ipc", "uts", "cgroup"), "shared")
        run = self.inside(READ_NAMESPACES, policy={"namespaces": shared})
        self.check_exited(run)
        host = own_namespaces()
        self.assertEqual([kind for kind in KINDS if run.json()[kind] == host[kind]], ["ipc", "uts", "cgroup"])

    def test_the_network_namespace_is_the_callers_when_shared(self):
        run = self.inside(READ_NAMESPACES, policy={"network": {"mode": "shared"}})
        self.check_exited(run)
        host = own_namespaces()
        self.assertEqual([kind for kind in KINDS if run.json()[kind] == host[kind]], ["net"])

    def test_user_mount_and_pid_cannot_be_shared(self):
        for kind in ("user", "mount", "pid"):
            run = self.sandbox("true", policy={"namespaces": {kind: "shared"}})
            self.check_refused(run, f"a sandbox without an own {kind} namespace does not hold", f"namespaces.{kind}")

    def test_only_the_sandboxs_own_processes_exist(self):
        run = self.inside("""
            say([os.getpid(), os.getppid(), sorted(int(p) for p in os.listdir('/proc') if p.isdigit())])
        """)
        self.check_exited(run)
        self.assertEqual(run.json(), [2, 1, [1, 2]])

    def test_two_sandboxes_of_one_uid_do_not_see_each_other(self):
        first = self.start_sandbox("sleep", "30", status=True)
        first.wait_until_started()
        run = self.inside("say(sorted(int(p) for p in os.listdir('/proc') if p.isdigit()))")
        self.assertEqual(run.json(), [1, 2])


class Ipc(SandboxTest):
    KEY = 0x42454C4C
    LOOK = f"import ctypes; say(call('shmget', {KEY}, ctypes.c_size_t(0), 0))"

    def setUp(self):
        super().setUp()
        libc = ctypes.CDLL(None, use_errno=True)
        self.segment = libc.shmget(self.KEY + os.getpid(), ctypes.c_size_t(4096), IPC_CREAT | 0o666)
        self.addCleanup(libc.shmctl, self.segment, IPC_RMID, None)
        self.look = self.LOOK.replace(str(self.KEY), str(self.KEY + os.getpid()))

    def test_the_hosts_shared_memory_is_not_there(self):
        self.assertGreaterEqual(self.segment, 0)
        self.assertEqual(self.inside(self.look).json(), "ENOENT")

    def test_the_hosts_shared_memory_is_there_when_ipc_is_shared(self):
        self.assertEqual(self.inside(self.look, policy={"namespaces": {"ipc": "shared"}}).json(), "open")


class NestedNamespaces(SandboxTest):

    def test_the_filter_refuses_every_new_namespace(self):
        others = (0x08000000, 0x04000000, 0x02000000, 0x80)  # IPC, UTS, CGROUP, TIME
        for flag in (CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWPID, *others):
            run = self.inside(UNSHARE.format(flag))
            self.assertEqual(run.json(), "EPERM", hex(flag))

    def test_allowing_them_under_a_filter_that_refuses_them_is_refused(self):
        run = self.sandbox("true", policy={"namespaces": {"nested_user": True}})
        self.check_refused(run, "the system call filter refuses", "namespaces.nested_user", "syscalls.rules")

    def test_the_kernels_limit_refuses_user_namespaces_without_a_filter_too(self):
        run = self.inside(UNSHARE.format(CLONE_NEWUSER), policy=NO_FILTER)
        self.assertEqual(run.json(), "ENOSPC", str(run))

    def test_without_filter_and_with_nested_user_it_works(self):
        policy = {**NO_FILTER, "namespaces": {"nested_user": True}}
        run = self.inside(UNSHARE.format(CLONE_NEWUSER), policy=policy)
        self.assertEqual(run.json(), "open", str(run))

    def test_a_rule_that_allows_unshare_does_not_lift_the_kernels_limit(self):
        rules = {"syscalls": {"base": "agent@1", "rules": {"unshare": "allow"}}}
        self.assertEqual(self.inside(UNSHARE.format(CLONE_NEWUSER), policy=rules).json(), "ENOSPC")
        both = {**rules, "namespaces": {"nested_user": True}}
        self.assertEqual(self.inside(UNSHARE.format(CLONE_NEWUSER), policy=both).json(), "open")

    def test_other_namespaces_need_a_capability_that_nobody_has(self):
        for flag in (CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWPID):
            self.assertEqual(self.inside(UNSHARE.format(flag), policy=NO_FILTER).json(), "EPERM")

    def test_clone_with_a_namespace_flag_is_refused_and_clone_without_works(self):
        code = """
            SYS_clone = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
            def clone(flags):
                import ctypes
                none = [ctypes.c_long(0)] * 4
                pid = libc().syscall(ctypes.c_long(SYS_clone), ctypes.c_long(flags | 17), *none)
                if pid == 0: os._exit(0)
                if pid > 0: os.waitpid(pid, 0)
                return pid > 0
            say([clone(flags) for flags in (0, 0x10000000, 0x20000, 0x40000000)])
        """
        run = self.inside(code)
        self.assertEqual(run.json(), [True, False, False, False], str(run))

    def test_inits_namespaces_cannot_be_joined(self):
        code = "say([probe_open('/proc/1/ns/' + kind) for kind in ('user', 'mnt', 'net', 'pid')])"
        for policy in ({}, NO_FILTER):
            self.assertEqual(self.inside(code, policy=policy).json(), ["EACCES"] * 4)


if __name__ == "__main__":
    main()
