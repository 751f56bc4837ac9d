"""The system call filter: on every thread and child, with exactly the verdicts of its set."""

import json
import os
import pathlib

from harness import SandboxTest, main

X86 = os.uname().machine == "x86_64"
# name: (number on x86-64, on arm64, arguments, verdict of agent@1, what the kernel says without a filter)
CALLS = {
    "mount": (165, 40, (0, 0, 0, 0, 0), "EPERM", "EFAULT EPERM"),
    "umount2": (166, 39, (0, 0), "EPERM", "EPERM EFAULT"),
    "pivot_root": (155, 41, (0, 0), "EPERM", "EPERM EFAULT"),
    "chroot": (161, 51, (0,), "EPERM", "EFAULT EPERM"),
    "open_tree": (428, 428, (-1, 0, 0), "EPERM", "EFAULT EINVAL EBADF ENOENT"),
    "fsopen": (430, 430, (0, 0), "EPERM", "EPERM"),
    "mount_setattr": (442, 442, (-1, 0, 0, 0, 0), "EPERM", "EINVAL"),
    "unshare": (272, 97, (0x10000000,), "EPERM", "ENOSPC"),
    "setns": (308, 268, (-1, 0), "EPERM", "EBADF"),
    "ptrace": (101, 117, (0x4206, 1, 0, 0), "EPERM", "EPERM"),
    "process_vm_readv": (310, 270, (1, 0, 0, 0, 0, 0), "EPERM", "open EPERM"),
    "pidfd_getfd": (438, 438, (-1, 0, 0), "EPERM", "EBADF"),
    "bpf": (321, 280, (0, 0, 0), "EPERM", "EPERM EINVAL"),
    "perf_event_open": (298, 241, (0, 0, -1, -1, 0), "EPERM", "EFAULT EACCES ENOENT ENOSYS"),
    "kexec_load": (246, 104, (0, 0, 0, 0), "EPERM", "EPERM ENOSYS"),
    "init_module": (175, 105, (0, 0, 0), "EPERM", "EPERM ENOSYS"),
    "sethostname": (170, 161, (0, 0), "EPERM", "EPERM"),
    "clock_settime": (227, 112, (0, 0), "EPERM", "EFAULT EPERM"),
    "open_by_handle_at": (304, 265, (-1, 0, 0), "EPERM", "EPERM EBADF EFAULT"),
    "clone3": (435, 435, (0, 0), "ENOSYS", "EINVAL"),
    "io_uring_setup": (425, 425, (1, 0), "ENOSYS", "EFAULT EPERM"),
    "keyctl": (250, 219, (0, -3, 0), "ENOSYS", "open ENOKEY"),
    "add_key": (248, 217, (0, 0, 0, 0, -3), "ENOSYS", "EFAULT"),
    "userfaultfd": (323, 282, (1,), "ENOSYS", "open"),
    "memfd_secret": (447, 447, (0,), "ENOSYS", "open ENOSYS"),
    "vmsplice": (278, 75, (-1, 0, 0, 0), "ENOSYS", "EBADF"),
    "name_to_handle_at": (303, 264, (-1, 0, 0, 0, 0), "ENOSYS", "EFAULT EBADF"),
    "unknown 600": (600, 600, (), "ENOSYS", "ENOSYS"),
}
SOCKETS = {"AF_UNIX": (1, "open"), "AF_INET": (2, "open"), "AF_INET6": (10, "open"), "AF_NETLINK": (16, "open"),
           "AF_PACKET": (17, "EAFNOSUPPORT"), "AF_ALG": (38, "EAFNOSUPPORT"), "AF_VSOCK": (40, "EAFNOSUPPORT"),
           "AF_RXRPC": (33, "EAFNOSUPPORT"), "AF_XDP": (44, "EAFNOSUPPORT"), "AF_BLUETOOTH": (31, "EAFNOSUPPORT")}
NO_FILTER = {"syscalls": {"base": "none"}}


def try_calls():
    wanted = [(name, number if X86 else arm, arguments) for name, (number, arm, arguments, _, _) in CALLS.items()]
    return f"say({{name: syscall(number, *arguments) for name, number, arguments in {wanted}}})"


def filters_of(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    found = {key: value.strip() for key, value in (line.split(":", 1) for line in text.splitlines())}
    return int(found["Seccomp_filters"])


class Verdicts(SandboxTest):

    def test_each_forbidden_call_has_the_verdict_of_the_table(self):
        run = self.inside(try_calls())
        self.check_exited(run)
        self.assertEqual(run.json(), {name: call[3] for name, call in CALLS.items()})

    def test_without_the_filter_the_same_calls_reach_the_kernel(self):
        said = self.inside(try_calls(), policy=NO_FILTER).json()
        # The filter that makes the legacy back end is inherited.
        hidden = {"open_tree", "fsopen", "mount_setattr", "clone3"} if self.back_end == "legacy" else set()
        for name, (_, _, _, _, expected) in CALLS.items():
            if name not in hidden:
                self.assertIn(said[name], expected.split(), name)

    def test_socket_families_are_those_of_the_set(self):
        families = {name: number for name, (number, _) in SOCKETS.items()}
        code = f"say({{name: syscall({41 if X86 else 198}, number, 3 if name == 'AF_NETLINK' else 1, 0)" \
               f" for name, number in {families}.items()}})"
        self.assertEqual(self.inside(code).json(), {name: verdict for name, (_, verdict) in SOCKETS.items()})
        strict = {name: "open" if name == "AF_UNIX" else "EAFNOSUPPORT" for name in SOCKETS}
        self.assertEqual(self.inside(code, policy={"syscalls": {"base": "strict@1"}}).json(), strict)

    def test_vsock_is_refused_by_a_policy_without_a_word_about_system_calls(self):
        """No network namespace holds it, so nothing else would."""
        code = "say(attempt(socket.socket, socket.AF_VSOCK, socket.SOCK_STREAM))"
        self.assertEqual(self.inside(code, policy={"syscalls": None}).json(), "EAFNOSUPPORT")
        self.assertEqual(self.inside(code, policy=NO_FILTER).json(), "open")

    def test_netlink_is_for_routes_only(self):
        code = f"say([syscall({41 if X86 else 198}, 16, 3, protocol) for protocol in (0, 4, 9, 10, 12, 16)])"
        self.assertEqual(self.inside(code).json(), ["open"] + ["EAFNOSUPPORT"] * 5)

    def test_characters_cannot_be_pushed_into_a_terminal(self):
        code = """
            import fcntl
            master, slave = os.openpty()
            requests = (0x5412, 0x541C, 0x541D, 0x5423)  # TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD
            say([attempt(fcntl.ioctl, slave, request, b'x' + bytes(15)) for request in requests]
                + [syscall(16 if os.uname().machine == 'x86_64' else 29, slave, 0x5412 + (1 << 32), 0)])
        """
        self.assertEqual(self.inside(code).json(), ["EPERM"] * 5)

    def test_modes_with_set_user_id_cannot_be_given(self):
        code = """
            open('/tmp/f', 'w').close()
            say([attempt(os.chmod, '/tmp/f', mode) for mode in (0o755, 0o4755, 0o2755, 0o6755, 0o1755)])
        """
        self.assertEqual(self.inside(code).json(), ["open", "EPERM", "EPERM", "EPERM", "open"])
        self.assertEqual(self.inside(code, policy=NO_FILTER).json(), ["open"] * 5)

    def test_personalities_are_limited(self):
        number = 135 if X86 else 92
        code = f"say([syscall({number}, value) for value in (0xffffffff, 0, 0x20000, 0x40000, 0x400000)])"
        refused = self.inside(code).json()
        self.assertEqual(refused[:3], ["open"] * 3)
        self.assertNotIn("open", refused[3:])
        self.assertEqual(self.inside(code, policy=NO_FILTER).json(), ["open"] * 5)

    def test_x32_calls_do_not_exist(self):
        if not X86:
            return
        code = "say([syscall(0x40000000 + number) for number in (39, 165, 272, 0)])"
        self.assertEqual(self.inside(code).json(), ["ENOSYS"] * 4)

    def test_threads_work_though_clone3_does_not(self):
        run = self.inside("""
            import threading
            done = []
            threads = [threading.Thread(target=done.append, args=(n,)) for n in range(8)]
            [t.start() for t in threads]; [t.join() for t in threads]
            say(sorted(done))
        """)
        self.assertEqual(run.json(), list(range(8)))

    def test_rules_of_the_policy_replace_the_sets_verdicts(self):
        code = "say([attempt(os.getpriority, 0, 0), attempt(os.setpriority, 0, 0, 0), attempt(socket.socket, 17, 3)])"
        rules = {"getpriority": "EXDEV", "setpriority": {"action": "ENOTTY"}, "socket": "allow"}
        run = self.inside(code, policy={"syscalls": {"base": "agent@1", "rules": rules}})
        self.assertEqual(run.json(), ["EXDEV", "ENOTTY", "EPERM"], str(run))

    def test_rules_can_look_at_arguments(self):
        rule = {"action": "EXDEV", "when": [{"arg0": {"==": 1}}, {"arg1": {">": 100}}], "otherwise": "allow"}
        code = "say([attempt(os.getpriority, *words) for words in ((0, 0), (1, 0), (0, 2))])"
        run = self.inside(code, policy={"syscalls": {"base": "agent@1", "rules": {"getpriority": rule}}})
        self.assertEqual(run.json(), ["open", "EXDEV", "open"])

    def test_the_default_can_be_changed(self):
        run = self.inside("say([syscall(600), syscall(425 , 1, 0)])",
                          policy={"syscalls": {"base": "agent@1", "default": "EPERM"}})
        self.assertEqual(run.json()[0], "EPERM")


class Leaving(SandboxTest):

    def test_a_command_that_cannot_start_where_the_filter_refuses_to_exit_ends_at_once(self):
        rules = {"exit_group": "EPERM", "exit": "EPERM"}
        run = self.sandbox("/no/such/program", policy={"syscalls": {"base": "agent@1", "rules": rules}})
        self.check_refused(run, "/no/such/program", code=127)
        self.assertLess(run.record["usage"]["user_us"] + run.record["usage"]["system_us"], 1_000_000)

    def test_the_refusal_is_felt_by_the_command(self):
        """The control: such a rule is in force."""
        rules = {"exit_group": "EPERM"}
        run = self.inside("say(syscall(%d, 0))" % (231 if X86 else 94),
                          policy={"syscalls": {"base": "agent@1", "rules": rules}})
        self.assertEqual(run.json(), "EPERM", str(run))


class Logging(SandboxTest):

    def test_log_mode_refuses_nothing_and_says_so(self):
        code = "say([syscall(600), attempt(socket.socket, 38, 5), syscall(165 if os.uname().machine == 'x86_64' else 40)])"
        refused = self.inside(code)
        self.assertEqual((refused.json()[1], refused.record["degraded"]), ("EAFNOSUPPORT", []))
        run = self.inside(code, policy={"syscalls": {"mode": "log"}})
        self.assertEqual(run.json()[0], "ENOSYS")
        self.assertNotEqual(run.json()[2], refused.json()[2], str(run))
        self.assertEqual([item["control"] for item in run.record["degraded"]], ["seccomp"])
        self.assertIn("confines nothing", run.err)

    def test_a_call_can_be_allowed_and_logged(self):
        number = 425  # io_uring_setup
        code = f"say(syscall({number}, 1, 0))"
        self.assertEqual(self.inside(code).json(), "ENOSYS")
        run = self.inside(code, policy={"syscalls": {"rules": {"io_uring_setup": "log"}}})
        self.assertNotEqual(run.json(), "ENOSYS", str(run))
        self.assertEqual(run.record["degraded"], [])

    def test_a_mask_can_ask_whether_any_of_its_bits_is_set(self):
        rule = {"action": "EXDEV", "when": [{"arg1": {"mask": 6, "!=": 0}}], "otherwise": "allow"}
        code = f"say([syscall({140 if X86 else 141}, 0, who) for who in (0, 2, 4, 6)])"
        run = self.inside(code, policy={"syscalls": {"rules": {"getpriority": rule}}})
        self.assertEqual(run.json(), ["open", "EXDEV", "EXDEV", "EXDEV"])

    def test_rules_for_other_architectures_are_told(self):
        absent = "socketcall" if X86 else "open"
        run = self.sandbox("true", policy={"syscalls": {"rules": {absent: "allow"}}})
        self.check_exited(run)
        self.assertIn(f"only other architectures have do nothing here: {absent}", run.err)


class Everywhere(SandboxTest):

    def base_filters(self):
        """Those that belljar itself was started with."""
        return filters_of("self") + (1 if self.back_end == "legacy" else 0)

    def test_payload_threads_and_children_have_one_filter_more_and_init_none(self):
        running = self.start_inside("""
            import subprocess, threading
            threads = [threading.Thread(target=time.sleep, args=(30,), daemon=True) for _ in range(3)]
            [thread.start() for thread in threads]
            child = subprocess.Popen(['sleep', '30'])
            grandchild = subprocess.Popen(['sh', '-c', 'sleep 30 & wait'])
            modes = []
            for task in os.listdir('/proc/self/task'):
                with open(f'/proc/self/task/{task}/status') as file:
                    modes.append([line.split()[1] for line in file if line.startswith('Seccomp')])
            time.sleep(0.05)
            for pid in [p for p in os.listdir('/proc') if p.isdigit() and p != '1']:
                modes.append([status(pid)['Seccomp'], status(pid)['Seccomp_filters']])
            print(json.dumps(modes), flush=True)
            time.sleep(30)
        """, status=True)
        init = running.wait_until_started()
        said = running.wait_for_output("]]")
        expected = ["2", str(self.base_filters() + 1)]
        modes = json.loads(said)
        self.assertGreaterEqual(len(modes), 4 + 3)
        self.assertEqual([mode for mode in modes if mode != expected], [])
        self.assertEqual(filters_of(init), self.base_filters())

    def test_a_policy_without_a_filter_has_none(self):
        run = self.inside("say(status()['Seccomp_filters'])", policy=NO_FILTER)
        self.assertEqual(run.json(), str(self.base_filters()))

    def test_the_filter_is_the_same_in_every_network_mode(self):
        for mode in ("none", "shared"):
            run = self.inside("say([status()['Seccomp'], syscall(600), syscall(425, 1, 0)])",
                              policy={"network": {"mode": mode}})
            self.assertEqual(run.json(), ["2", "ENOSYS", "ENOSYS"])


if __name__ == "__main__":
    main()
