"""`run --explain-denials`: what was refused, by which line, and that the change it names allows it."""

import errno
import os
import shlex
import signal
import socket
import stat

from harness import SandboxTest, as_root, back_ends, callers, main, not_sanitized, python_command


class Denials(SandboxTest):

    def base_policy(self):
        """With what Python looks for in every run."""
        policy = super().base_policy()
        policy["filesystem"]["mounts"]["/etc"] = {"type": "bind", "source": "/etc"}
        return policy

    def denials(self, code, policy, *settings, exit_code=0):
        """{(what, subject): denial} of Python code in a sandbox, and what it said."""
        options = ["--explain-denials", *(word for setting in settings for word in ("--set", setting))]
        run = self.inside(code, policy=policy, options=options)
        if exit_code is not None:
            self.check_exited(run, exit_code)
        self.assertIn("denials", run.record, str(run))
        return {(denial["what"], denial["subject"]): denial for denial in run.record["denials"]}, run

    def check_denied_until_changed(self, code, changes, what, subject, error, policy_line, change=None):
        """The denial is told with its line; after its change it is neither told nor there."""
        policy = self.policy(changes)
        found, run = self.denials(code, policy)
        self.assertEqual(run.json(), error, str(run))
        self.assertIn((what, subject), found, str(run))
        denial = found[what, subject]
        self.assertEqual((denial["error"], denial["policy"].endswith(policy_line)), (error, True), denial)
        self.assertIn(f"belljar: denied: {what} {subject} ({error})", run.err)
        self.assertIn(f"belljar:   policy: {denial['policy']}\n", run.err)
        self.assertIn(f"belljar:   allow it: --set '{denial['change']}'\n", run.err)
        if change is not None:
            self.assertEqual(denial["change"], change)
        found, run = self.denials(code, policy, denial["change"])
        self.assertNotEqual(run.json(), error, str(run))
        self.assertNotIn((what, subject), found)

    def data(self, **mount):
        """A policy that shows a directory of the host's, in which the session may do everything."""
        path = self.make_directory("data", owner=self.uid)
        self.make_file("data/file", "x", self.uid)
        return {"filesystem": {"mounts": {"/data": {"type": "bind", "source": str(path), **mount}}}}

    def test_a_file_that_nothing_shows(self):
        self.make_directory("elsewhere")
        path = self.make_file("elsewhere/file", "x")
        code = f"say(probe_open({str(path)!r}, os.O_RDONLY))"
        self.check_denied_until_changed(code, {}, "read", str(path), "ENOENT", "filesystem.root")

    def test_a_read_only_mount(self):
        code = "say(probe_open('/data/file', os.O_WRONLY))"
        self.check_denied_until_changed(code, self.data(), "write", "/data/file", "EROFS",
                                        'filesystem.mounts["/data"]', 'filesystem.mounts["/data"].readonly=false')

    def test_a_file_that_cannot_be_made_in_a_read_only_directory(self):
        for call in ("os.mkdir('/data/1')", "os.open('/data/2', os.O_CREAT | os.O_WRONLY)", "os.unlink('/data/file')",
                     "os.rename('/data/file', '/data/3')", "os.symlink('x', '/data/4')"):
            with self.subTest(call=call):
                code = f"""
                    import errno
                    try: {call}; say('done')
                    except OSError as error: say(errno.errorcode[error.errno])
                """
                self.check_denied_until_changed(code, self.data(), "write", "/data", "EROFS", 'filesystem.mounts["/data"]')

    def test_a_masked_file(self):
        changes = self.data()
        changes["filesystem"]["mask"] = {"/data/file": "a test"}
        self.check_denied_until_changed("say(probe_open('/data/file', os.O_RDONLY))", changes, "read", "/data/file", "EACCES",
                                        'filesystem.mask["/data/file"]', 'filesystem.mask["/data/file"]=null')

    def test_a_file_in_a_masked_directory(self):
        changes = self.data()
        self.make_directory("data/below", owner=self.uid)
        self.make_file("data/below/file", "x", self.uid)
        changes["filesystem"]["mask"] = {"/data/below": "a test"}
        code = "os.chdir('/data'); say(probe_open('below/file', os.O_RDONLY))"
        self.check_denied_until_changed(code, changes, "read", "/data/below/file", "ENOENT", 'filesystem.mask["/data/below"]')

    def test_a_program_on_a_mount_without_exec(self):
        changes = self.data(noexec=True)
        self.make_file("data/run", "#!/bin/sh\nexit 7\n", self.uid, 0o755)
        code = """
            import errno, subprocess
            try: say(subprocess.run(['/data/run']).returncode)
            except OSError as error: say(errno.errorcode[error.errno])
        """
        self.check_denied_until_changed(code, changes, "exec", "/data/run", "EACCES", 'filesystem.mounts["/data"]',
                                        'filesystem.mounts["/data"].noexec=false')

    def test_a_system_call(self):
        code = """
            import ctypes, errno
            libc = ctypes.CDLL(None, use_errno=True)
            libc.getpriority(0, 0)
            say(errno.errorcode.get(ctypes.get_errno(), 'done'))
        """
        self.check_denied_until_changed(code, {"syscalls": {"rules": {"getpriority": "EXDEV"}}}, "system call", "getpriority",
                                        "EXDEV", "syscalls.rules.getpriority", "syscalls.rules.getpriority=allow")

    def test_a_system_call_of_the_base_set(self):
        code = """
            import ctypes, errno
            libc = ctypes.CDLL(None, use_errno=True)
            libc.ptrace(16, os.getppid(), 0, 0)
            say(errno.errorcode[ctypes.get_errno()])
        """
        found, run = self.denials(code, self.policy())
        self.assertEqual(run.json(), "EPERM")
        self.assertTrue(found["system call", "ptrace"]["policy"].endswith("syscalls.base"))
        self.assertEqual(found["system call", "ptrace"]["change"], "syscalls.rules.ptrace=allow")
        found, run = self.denials(code, self.policy(), found["system call", "ptrace"]["change"])
        self.assertNotIn(("system call", "ptrace"), found)

    def check_lines_together(self, name, code):
        """No line alone would do, and those that the clause names do it together."""
        found, run = self.denials(code, self.policy())
        self.assertEqual(run.json(), "EPERM")
        denial = found["system call", name]
        self.assertNotIn("change", denial)
        self.assertIn("belljar:   no line of the policy alone would allow it", run.err)
        words = shlex.split(denial["because"].partition("; ")[2])
        settings = [word for option, word in zip(words, words[1:]) if option == "--set"]
        self.assertGreater(len(settings), 1, denial)
        rule = f"syscalls.rules.{name}=allow"
        self.assertIn(rule, settings)
        run = self.inside(code, policy=self.policy(), options=["--set", rule])
        self.assertNotEqual(run.out, '"done"\n', "the rule alone would have done")
        found, run = self.denials(code, self.policy(), *settings)
        self.assertEqual(run.json(), "done", str(run))
        self.assertNotIn(("system call", name), found)
        return settings

    CALL = """
        import ctypes, errno
        libc = ctypes.CDLL(None, use_errno=True)
        say('done' if %s == 0 else errno.errorcode[ctypes.get_errno()])
    """

    def test_a_call_that_takes_a_capability_too(self):
        settings = self.check_lines_together("mount", self.CALL % "libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)")
        self.assertIn('capabilities=["CAP_SYS_ADMIN"]', settings)
        settings = self.check_lines_together("unshare", self.CALL % "libc.unshare(0x04000000)")
        self.assertIn('capabilities=["CAP_SYS_ADMIN"]', settings)
        settings = self.check_lines_together("chroot", self.CALL % "libc.chroot(b'/tmp')")
        self.assertIn('capabilities=["CAP_SYS_CHROOT"]', settings)
        # Where it is kept, the rule is all that is missing.
        code = self.CALL % "libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)"
        self.check_denied_until_changed(code, {"capabilities": ["CAP_SYS_ADMIN"]}, "system call", "mount", "EPERM",
                                        "syscalls.base", "syscalls.rules.mount=allow")

    def test_a_user_namespace_is_its_own_line(self):
        settings = self.check_lines_together("unshare", self.CALL % "libc.unshare(0x10000000)")
        self.assertIn("namespaces.nested_user=true", settings)

    def test_a_call_that_takes_a_privilege_over_the_host(self):
        found, run = self.denials(self.CALL % "libc.swapoff(b'/none')", self.policy())
        denial = found["system call", "swapoff"]
        self.assertEqual((run.json(), denial.get("change")), ("EPERM", None))
        self.assertIn("CAP_SYS_ADMIN over the host, which no sandbox has", denial["because"])

    def test_a_mask_is_not_blamed_where_the_owner_refuses_too(self):
        changes = self.data()
        for name in ("mine", "closed"):
            self.make_directory(f"data/{name}", owner=self.uid)
            self.make_file(f"data/{name}/file", "x", 0 if name == "closed" and self.privileged else self.uid,
                           0o000 if name == "closed" else 0o600)
            self.make_file(f"data/{name}-file", "x", 0 if name == "closed" and self.privileged else self.uid,
                           0o000 if name == "closed" else 0o600)
        changes["filesystem"]["mask"] = {f"/data/{name}": "a test" for name in ("mine", "mine-file", "closed", "closed-file")}
        code = "for path in %r: probe_open(path, os.O_RDONLY)"
        paths = ["/data/mine/file", "/data/mine-file", "/data/closed/file", "/data/closed-file"]
        found, run = self.denials(code % paths, self.policy(changes))
        for path in paths:
            denial = found["read", path]
            allowed = "closed" not in path
            self.assertEqual("change" in denial, allowed, denial)
            self.assertEqual("owner and mode on the host would not allow it either" in denial["because"], not allowed, denial)

    def test_noexec_is_not_blamed_where_nobody_may_execute(self):
        changes = self.data(noexec=True)
        self.make_file("data/plain", "x", self.uid, 0o644)
        code = """
            import subprocess
            try: subprocess.run(['/data/plain'])
            except OSError: pass
        """
        found, run = self.denials(code, self.policy(changes))
        self.assertNotIn("change", found["exec", "/data/plain"])

    @as_root
    def test_a_device_that_the_mount_refuses(self):
        changes = self.data()
        os.mknod(self.dir / "data/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.chmod(self.dir / "data/null", 0o666)
        self.check_denied_until_changed("say(probe_open('/data/null', os.O_RDONLY))", changes, "read", "/data/null", "EACCES",
                                        'filesystem.mounts["/data"]', 'filesystem.mounts["/data"].nodev=false')

    def test_one_subject_has_one_name(self):
        self.make_directory("elsewhere")
        path = self.make_file("elsewhere/file", "x")
        paths = [str(path), str(path).replace("/elsewhere/", "//elsewhere/.//"), f"{self.dir}/elsewhere/x/../file"]
        found, run = self.denials(f"for path in {paths!r}: probe_open(path, os.O_RDONLY)", self.policy())
        self.assertEqual([subject for what, subject in found if "elsewhere" in subject], [str(path)], found)
        self.assertEqual(found["read", str(path)]["times"], 3)

    def test_a_system_call_that_kills(self):
        policy = self.policy({"syscalls": {"rules": {"getpriority": "kill"}}})
        code = "import ctypes; ctypes.CDLL(None).getpriority(0, 0); say('alive')"
        found, run = self.denials(code, policy, exit_code=None)
        self.assertEqual((run.record["cause"], run.record["signal"], run.out), ("syscall", "SIGSYS", ""))
        denial = found["system call", "getpriority"]
        self.assertEqual((denial["error"], denial["change"]), ("SIGSYS", "syscalls.rules.getpriority=allow"))
        self.assertTrue(denial["policy"].endswith("syscalls.rules.getpriority"))
        found, run = self.denials(code, policy, denial["change"])
        self.assertEqual((run.json(), found), ("alive", {}))

    CONNECT = """
        import errno, socket
        with socket.socket(socket.%s, socket.%s) as one:
            one.settimeout(5)
            say(errno.errorcode.get(one.connect_ex(%r), 'done'))
    """

    def test_a_connection_without_a_network(self):
        self.check_denied_until_changed(self.CONNECT % ("AF_INET", "SOCK_DGRAM", ("192.0.2.1", 9)), {}, "connect",
                                        "192.0.2.1:9", "ENETUNREACH", "network.mode", "network.mode=shared")

    def test_a_port_that_landlock_refuses(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = listener.getsockname()[1]
            code = self.CONNECT % ("AF_INET", "SOCK_STREAM", ("127.0.0.1", port))
            changes = {"network": {"mode": "shared"}, "landlock": {"connect_tcp": [1]}}
            self.check_denied_until_changed(code, changes, "connect", f"127.0.0.1:{port}", "EACCES", "landlock.connect_tcp",
                                            f"landlock.connect_tcp=[1,{port}]")

    def test_a_port_that_cannot_be_bound(self):
        code = """
            import errno, socket
            with socket.socket() as one:
                try: one.bind(('127.0.0.1', 4711)); say('done')
                except OSError as error: say(errno.errorcode[error.errno])
        """
        self.check_denied_until_changed(code, {"landlock": {"bind_tcp": [80]}}, "bind", "127.0.0.1:4711", "EACCES",
                                        "landlock.bind_tcp", "landlock.bind_tcp=[80,4711]")

    def test_owner_and_mode_are_told_apart_from_the_policy(self):
        changes = self.data(readonly=False)
        self.make_file("data/closed", "x", 0 if self.privileged else self.uid, 0o000)
        found, run = self.denials("say(probe_open('/data/closed', os.O_RDONLY))", changes)
        denial = found["read", "/data/closed"]
        self.assertEqual((run.json(), denial.get("policy"), denial.get("change")), ("EACCES", None, None))
        self.assertIn("mode 0000", denial["because"])
        self.assertIn("no line of the policy alone would allow it", run.err)

    def test_what_is_missing_everywhere_is_no_denial(self):
        code = """
            for path in ('/usr/nothing', '/nothing', '/tmp/nothing', '/data/nothing'):
                probe_open(path, os.O_RDONLY)
            os.makedirs('/tmp/own/below'); os.makedirs('/data/own', exist_ok=True); open('/data/own/file', 'w').close()
            os.unlink('/data/own/file'); os.rmdir('/data/own'); say(os.stat('/data/file').st_size)
        """
        found, run = self.denials(code, self.data(readonly=False))
        self.assertEqual((run.json(), {key: denial for key, denial in found.items() if not denial.get("expected")}), (1, {}))
        self.assertIn("belljar: denied: nothing that belljar can see\n", run.err)

    def test_an_open_policy_denies_nothing(self):
        changes = self.data(readonly=False)
        code = """
            import ctypes
            ctypes.CDLL(None).getpriority(0, 0)
            say([probe_open('/data/file', os.O_WRONLY), probe_open('/data/file', os.O_RDONLY)])
        """
        found, run = self.denials(code, {**changes, "syscalls": {"base": "none"}})
        self.assertEqual((run.json(), found, run.record["denials_notes"]), (["open", "open"], {}, []))

    def test_one_denial_is_counted_and_many_are_bounded(self):
        code = """
            for number in range(130):
                for _ in range(2): probe_open(f'/data/new-{number}/x', os.O_RDONLY)
        """
        changes = self.data()
        for number in range(130):
            self.make_directory(f"data/new-{number}")
            self.make_file(f"data/new-{number}/x", "x")
        changes["filesystem"]["mask"] = {f"/data/new-{number}": "a test" for number in range(130)}
        found, run = self.denials(code, changes)
        self.assertEqual({denial["times"] for denial in found.values()}, {2})
        self.assertEqual((len(found), run.record["denials_not_kept"]), (100, 30))
        self.assertIn("belljar: denied: 30 others, not listed\n", run.err)

    def test_what_is_remembered_of_long_paths_is_bounded(self):
        _, run = self.denials("""
            import os
            for i in range(3000):
                try: os.stat('/nowhere/' + '/'.join(['x' * 250] * 15) + str(i))
                except OSError: pass
        """, self.data())
        self.assertRegex(run.err, "calls after the first .* or 8 MiB of their paths, were not looked at")
        _, run = self.denials("""
            import os
            for i in range(3000):
                try: os.stat('/nowhere/' + str(i))
                except OSError: pass
        """, self.data())
        self.assertNotIn("not looked at", run.err)

    # --- that nothing is weaker --------------------------------------------------------------------

    LISTEN = """
        import ctypes, struct
        libc = ctypes.CDLL(None, use_errno=True)
        class Program(ctypes.Structure):
            _fields_ = [('len', ctypes.c_ushort), ('filter', ctypes.c_void_p)]
        code = ctypes.create_string_buffer(struct.pack('=HBBI', 6, 0, 0, 0x7fff0000))
        program = Program(1, ctypes.cast(code, ctypes.c_void_p))
        import platform
        number = 317 if platform.machine() == 'x86_64' else 277
        fd = libc.syscall(number, 1, 8, ctypes.byref(program))
        say(ctypes.get_errno() if fd < 0 else 0)
    """

    def test_nobody_inside_gets_a_listener_of_his_own(self):
        _, run = self.denials(self.LISTEN, self.policy({"syscalls": {"base": "none"}}))
        self.assertEqual(run.json(), errno.EBUSY)
        # The same program gets one where nobody listens: it is this control that refuses it.
        run = self.inside(self.LISTEN, policy={"syscalls": {"base": "none"}})
        self.assertEqual(run.json(), 0)

    def test_a_policy_that_refuses_seccomp_keeps_its_errno(self):
        _, run = self.denials(self.LISTEN, self.policy({"syscalls": {"rules": {"seccomp": "EXDEV"}}}))
        self.assertEqual(run.json(), errno.EXDEV)

    @not_sanitized
    def test_the_command_and_init_hold_no_listener(self):
        code = """
            names = []
            for fd in os.listdir('/proc/self/fd'):
                try: names.append(os.readlink(f'/proc/self/fd/{fd}'))
                except FileNotFoundError: pass
            print(names, flush=True); sys.stdin.read()
        """
        stdin, hold = os.pipe()
        running = self.start_inside(code, policy={}, options=["--explain-denials"], status=True, stdin=stdin)
        os.close(stdin)
        init = running.wait_until_started()
        said = running.wait_for_output("]")
        self.assertIn("pipe:", said)
        self.assertNotIn("seccomp", said)
        inits = [os.readlink(f"/proc/{init}/fd/{fd}") for fd in os.listdir(f"/proc/{init}/fd")]
        self.assertGreater(len(inits), 1)
        self.assertFalse([name for name in inits if "seccomp" in name])
        self.listener_of(running.process.pid)
        os.close(hold)
        self.check_exited(running.finish())

    def test_when_who_listens_dies_the_run_ends_and_refused_calls_stay_refused(self):
        code = """
            import ctypes, time
            libc = ctypes.CDLL(None, use_errno=True)
            print('ready', flush=True)
            for _ in range(200):
                ctypes.set_errno(0)
                if libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0: print('MOUNTED', flush=True)
                if ctypes.get_errno() not in (1, 38): print('WEAKER', ctypes.get_errno(), flush=True)
                time.sleep(0.05)
        """
        running = self.start_inside(code, policy={}, options=["--explain-denials"])
        running.wait_for_output("ready")
        os.kill(self.listener_of(running.process.pid), signal.SIGKILL)
        run = running.finish()
        self.assertEqual((run.record["cause"], run.code), ("setup", 125), str(run))
        self.assertIn("who listened has ended", run.err)
        self.assertNotIn("MOUNTED", run.out)
        self.assertNotIn("WEAKER", run.out)

    @staticmethod
    def listener_of(belljar):
        """The child of belljar that holds the listener."""
        for pid in open(f"/proc/{belljar}/task/{belljar}/children", encoding="utf-8").read().split():
            names = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
            if any("seccomp" in name for name in names):
                return int(pid)
        raise AssertionError("nobody listens")

    def test_a_policy_without_sendmsg_is_refused_with_the_change(self):
        policy = self.policy({"syscalls": {"rules": {"sendmsg": "EPERM"}}})
        run = self.sandbox("/bin/true", policy=policy, options=["--explain-denials"])
        self.check_refused(run, "needs sendmsg", "--set syscalls.rules.sendmsg=allow")
        self.check_exited(self.sandbox("/bin/true", policy=policy))

    @callers("user")
    @back_ends("modern")
    def test_without_the_option_nothing_is_told(self):
        run = self.sandbox(*python_command("probe_open('/tools/x', os.O_WRONLY | os.O_CREAT)"))
        self.assertNotIn("denials", run.record)
        self.assertEqual(run.err, "")


if __name__ == "__main__":
    main()
