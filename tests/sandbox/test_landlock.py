"""Landlock: one domain for the whole sandbox, behind mounts and namespaces."""

import array
import os
import signal
import socket
import subprocess

from harness import SandboxTest, as_root, main

SCOPES = {"scopes": ["abstract_unix_socket", "signal"]}
FILES = {"filesystem": True}
ALL = {**FILES, **SCOPES, "bind_tcp": [], "connect_tcp": []}


def landlock(**members):
    return {"landlock": members}


def loopback(**members):
    return {"landlock": members, "network": {"mode": "none"}}


class Scopes(SandboxTest):

    def listener(self):
        """A socket of the host's with an abstract name, which no file's mode guards."""
        name = f"belljar-test-{os.urandom(8).hex()}"
        server = socket.socket(socket.AF_UNIX)
        server.bind("\0" + name)
        server.listen()
        self.addCleanup(server.close)
        return name

    def reach(self, **members):
        code = f"say(attempt(socket.socket(socket.AF_UNIX).connect, '\\0{self.listener()}'))"
        run = self.inside(code, policy={"network": {"mode": "shared"}, **landlock(**members)})
        self.check_exited(run)
        return run.json()

    def test_abstract_sockets_of_the_host_are_out_of_reach_with_the_hosts_network(self):
        self.assertEqual(self.reach(**SCOPES), "EPERM")
        self.assertEqual(self.reach(scopes=["abstract_unix_socket"]), "EPERM")
        self.assertEqual(self.reach(scopes=["signal"]), "open")
        self.assertEqual(self.reach(), "open")

    def test_no_preset_with_the_hosts_network_reaches_them(self):
        """shell@1 falls back to the host's network where it cannot have its own."""
        code = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0{self.listener()}')"
        for preset in ("agent@1", "shell@1"):
            for more, expected in (([], "Operation not permitted"), (["--set=landlock.scopes=[]"], "")):
                run = self.sandbox("/usr/bin/python3", "-c", code, policy=f"builtin:{preset}",
                                   options=[*self.session_options(), *more])
                self.assertEqual((run.code != 0, expected in run.err), (bool(expected), True), f"{preset} {run}")

    def test_the_probe_finds_the_door_only_without_the_scope(self):
        name = self.listener()
        for members, expected in ((SCOPES, "holds EPERM"), ({}, "differs one of belljar's was connected to")):
            run = self.sandbox("/belljar", "probe", f"abstract-socket={name}",
                               policy={"network": {"mode": "shared"}, **landlock(**members)})
            self.assertEqual(run.out, f"abstract-socket trying\nabstract-socket {expected}\n", str(run))

    def test_the_self_test_counts_domains_from_outside(self):
        """16 are the most that the kernel takes: inside there is room for one less, or it is not in one."""
        for members, expected in ((SCOPES, "holds"), ({}, "differs")):
            run = self.sandbox("/belljar", "probe", "landlock-domain=16", policy=landlock(**members))
            self.assertEqual(run.out.split()[3], expected, str(run))

    def test_abstract_sockets_of_the_sandbox_work(self):
        code = """
            server = socket.socket(socket.AF_UNIX)
            server.bind('\\0inside')
            server.listen()
            say(in_child(lambda: attempt(socket.socket(socket.AF_UNIX).connect, '\\0inside')))
        """
        self.assertEqual(self.inside(code, policy=landlock(**ALL)).json(), "open")

    def test_commands_of_one_sandbox_signal_each_other(self):
        code = """
            import subprocess
            one, two = subprocess.Popen(['sleep', '30']), subprocess.Popen(['sleep', '30'])
            # The shell is the sibling that sends.
            said = [subprocess.call(['sh', '-c', f'kill -TERM {one.pid}']), one.wait()]
            said += [attempt(os.kill, os.getpid(), 0), attempt(os.kill, two.pid, signal.SIGKILL), two.wait()]
            say(said)
        """
        self.assertEqual(self.inside(code, policy=landlock(**ALL)).json(), [0, -15, "open", "open", -9])

    @as_root
    def test_no_signal_leaves_the_sandbox(self):
        """A process of the session's uid is put into its pid namespace: it has a number there, and no domain."""
        code = """
            pid = int(sys.stdin.readline())
            say({'kill': attempt(os.kill, pid, 0), 'pidfd': attempt(signal.pidfd_send_signal, os.pidfd_open(pid), 0),
                 'URG': attempt(os.kill, pid, signal.SIGURG), 'its own': attempt(os.kill, os.getpid(), 0)})
        """
        for scopes, expected in ((["signal"], "EPERM"), (["abstract_unix_socket"], "open")):
            ours, theirs = os.pipe()
            with open(ours, "rb") as ours, open(theirs, "wb", buffering=0) as theirs:
                running = self.start_inside(code, policy=landlock(scopes=scopes), stdin=ours.fileno(), status=True)
                init = running.wait_until_started()
                outsider = subprocess.Popen(
                    ["nsenter", "-t", str(init), "-p", "setpriv", f"--reuid={self.uid}", f"--regid={self.gid}",
                     "--clear-groups", "sh", "-c", "echo $$; exec sleep 60"], stdout=subprocess.PIPE)
                self.addCleanup(outsider.wait)
                self.addCleanup(outsider.kill)
                with outsider.stdout:
                    theirs.write(outsider.stdout.readline())
                run = running.finish()
            self.check_exited(run)
            self.assertEqual(run.json(), {**dict.fromkeys(("kill", "pidfd", "URG"), expected), "its own": "open"}, scopes)

    def test_signals_and_the_end_still_pass_through_init(self):
        running = self.start_inside("""
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
            say('ready')
            signal.sigwait([signal.SIGUSR1])
            say('heard')
            time.sleep(30)
        """, policy=landlock(**ALL))
        running.wait_for_output("ready")
        running.process.send_signal(signal.SIGUSR1)
        running.wait_for_output("heard")
        running.process.send_signal(signal.SIGTERM)
        run = running.finish()
        self.assertEqual(run.record["signal"], "SIGTERM", str(run))


class Files(SandboxTest):

    def receive(self, action, **members):
        """What a command can do with a directory of its own uid's that came over its standard input."""
        outside = self.make_directory("outside", owner=self.uid, mode=0o700)
        self.make_file("outside/secret", "secret", owner=self.uid)
        code = f"""
            _, words, _, _ = socket.socket(fileno=0).recvmsg(1, 4096)
            import array
            where = array.array('i', words[0][2])[0]
            say({action})
        """
        ours, theirs = socket.socketpair()
        with ours, theirs:
            descriptor = os.open(outside, os.O_RDONLY | os.O_DIRECTORY)
            words = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
            ours.sendmsg([b"x"], words)
            os.close(descriptor)
            run = self.inside(code, policy=landlock(**members), stdin=theirs.fileno())
        self.check_exited(run)
        return run.json()

    def test_a_directory_from_outside_opens_nothing_though_the_owner_may(self):
        actions = ("attempt(lambda: os.open('new', os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=where))",
                   "attempt(lambda: os.open('secret', os.O_RDONLY, dir_fd=where))",
                   "attempt(lambda: os.unlink('secret', dir_fd=where))",
                   "attempt(lambda: os.open('.', os.O_RDONLY, dir_fd=where))")
        for action in actions:
            self.assertEqual(self.receive(action, **FILES), "EACCES", action)
            self.assertEqual(self.receive(action), "open", action)

    def test_what_the_mounts_allow_still_works(self):
        code = """
            import fcntl, pty, shutil, subprocess, termios
            os.makedirs('/tmp/a/b'); os.mkdir('c')
            open('/tmp/a/f', 'w').close()
            said = {
                'rename': attempt(os.rename, '/tmp/a/f', '/tmp/a/b/g'),
                'link': attempt(os.link, '/tmp/a/b/g', '/tmp/h'),
                'truncate': attempt(os.truncate, '/tmp/h', 10),
                'symlink': attempt(os.symlink, 'x', 'c/link'),
                'fifo': attempt(os.mkfifo, 'c/fifo'),
                'socket': attempt(socket.socket(socket.AF_UNIX).bind, 'c/socket'),
                'remove': attempt(shutil.rmtree, 'c'),
                'shm': create('/dev/shm/x'),
                'null': attempt(lambda: open('/dev/null', 'w').write('x')),
                'proc': attempt(lambda: open('/proc/self/oom_score_adj', 'w').write('1000')),
                'list': attempt(os.listdir, '/'),
                'thread': subprocess.call(['sh', '-c', 'cat /proc/self/status | grep -q Threads']),
            }
            master, slave = pty.openpty()
            said['pty'] = attempt(termios.tcgetattr, slave)
            shutil.copy('/usr/bin/true', '/tmp/true')
            said['exec'] = subprocess.call(['/tmp/true'])
            say(said)
        """
        run = self.inside(code, policy=landlock(**ALL))
        self.check_exited(run)
        self.assertEqual({name: said for name, said in run.json().items() if said not in ("open", 0)}, {}, str(run))

    def test_an_output_that_no_mount_shows_can_be_opened_again_as_it_is(self):
        path = self.make_file("output", owner=self.uid)
        code = "say([probe_open('/dev/fd/0', flags) for flags in (os.O_RDONLY, os.O_WRONLY)])"
        for members, expected in ((FILES, ["open", "EACCES"]), ({}, ["open", "open"])):
            with open(path, "rb") as file:
                run = self.inside(code, policy=landlock(**members), stdin=file.fileno())
            self.assertEqual(run.json(), expected, str(run))

    def test_read_only_and_noexec_mounts_have_no_more_than_that(self):
        """Seen on a FIFO, which a read-only mount lets a command write to."""
        shown = self.make_directory("shown", owner=self.uid)
        os.mkfifo(shown / "fifo")
        os.chown(shown / "fifo", self.uid, self.gid)
        mounts = {"filesystem": {"mounts": {"/shown": {"type": "bind", "source": str(shown)}}}}
        code = "say(probe_open('/shown/fifo', os.O_RDWR))"
        self.assertEqual(self.inside(code, policy=mounts).json(), "open")
        self.assertEqual(self.inside(code, policy={**mounts, **landlock(**FILES)}).json(), "EACCES")

    def test_no_node_is_made(self):
        """The one that a plain user may make: a character device 0, 0."""
        code = "say(attempt(os.mknod, '/tmp/white', 0o20600, 0))"
        no_filter = {"syscalls": {"base": "none"}}
        self.assertEqual(self.inside(code, policy=no_filter).json(), "open")
        self.assertEqual(self.inside(code, policy={**no_filter, **landlock(**FILES)}).json(), "EACCES")

    def test_presets_run_under_rules_for_files(self):
        for preset in ("agent@1", "dev@1", "strict@1"):
            run = self.sandbox("sh", "-c", "echo $(ls / | wc -l) > /tmp/x && cat /tmp/x",
                               policy=f"builtin:{preset}",
                               options=[*self.session_options(), "--set=landlock.filesystem=true"])
            self.check_exited(run)
            self.assertGreater(int(run.out), 3)


class Ports(SandboxTest):

    def test_only_the_ports_that_are_named_are_bound_and_connected_to(self):
        code = """
            def bind(port):
                with socket.socket() as s:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    return attempt(s.bind, ('127.0.0.1', port))
            def connect(port):
                with socket.socket() as s:
                    return attempt(s.connect, ('127.0.0.1', port))
            say([bind(0), bind(8080), bind(8081), connect(8080), connect(443)])
        """
        wide = ["open", "open", "open", "ECONNREFUSED", "ECONNREFUSED"]
        self.assertEqual(self.inside(code, policy=loopback()).json(), wide)
        some = self.inside(code, policy=loopback(bind_tcp=[8080], connect_tcp=[443]))
        self.assertEqual(some.json(), ["EACCES", "open", "EACCES", "EACCES", "ECONNREFUSED"], str(some))
        none = self.inside(code, policy=loopback(bind_tcp=[0], connect_tcp=[]))
        self.assertEqual(none.json(), ["open", "EACCES", "EACCES", "EACCES", "EACCES"], str(none))

    def test_tcp_by_another_name_does_not_go_by_the_rules(self):
        """Landlock sees neither Fast Open (ENOTSUP is EOPNOTSUPP) nor MPTCP: the filter refuses them."""
        code = """
            server = socket.socket()
            server.bind(('127.0.0.1', 8080))
            server.listen()
            fast_open = lambda: socket.socket().sendto(b'x', 0x20000000, ('127.0.0.1', 8080))
            message = lambda: socket.socket().sendmsg([b'x'], [], 0x20000000, ('127.0.0.1', 8080))
            mptcp = lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
            pair = socket.socketpair()
            say([attempt(fast_open), attempt(message), attempt(mptcp), pair[0].send(b'x'), pair[0].sendmsg([b'x'])])
        """
        for base in ("agent@1", "none"):
            filtered = {"syscalls": {"base": base}}
            wide = self.inside(code, policy={**filtered, **loopback()}).json()
            self.assertEqual(wide[:2], ["open", "open"])
            run = self.inside(code, policy={**filtered, **loopback(bind_tcp=[8080], connect_tcp=[])})
            self.assertEqual(run.json(), ["ENOTSUP", "ENOTSUP", "EPROTONOSUPPORT", 1, 1], str(run))


class OlderKernels(SandboxTest):

    def run_on(self, version, enforce, network="shared", **members):
        policy = {"network": {"mode": network}, **landlock(enforce=enforce, **members)}
        return self.sandbox("true", policy=policy, wrap=[self.tool("landlock_abi"), str(version)])

    def degraded(self, version, **more):
        run = self.run_on(version, "prefer", **more)
        self.check_exited(run)
        return [item["what"] for item in run.record.get("degraded", []) if item["control"] == "landlock"]

    def test_without_landlock_a_policy_that_requires_it_is_refused(self):
        run = self.run_on("ENOSYS", "require", **FILES)
        self.check_refused(run, "no Landlock", "CONFIG_SECURITY_LANDLOCK", "landlock")
        run = self.run_on("EOPNOTSUPP", "require", **SCOPES)
        self.check_refused(run, "active security modules", "lsm=", "landlock")

    def test_the_first_version_is_refused_with_the_right_that_it_lacks(self):
        self.check_refused(self.run_on(1, "require", **FILES), "ABI 1", "refer", "Linux 5.19")
        self.check_refused(self.run_on(2, "require", **FILES), "ABI 2", "truncate", "Linux 6.2")
        self.check_refused(self.run_on(3, "require", connect_tcp=[443]), "connect_tcp", "Linux 6.7")
        self.check_refused(self.run_on(5, "require", **SCOPES), "abstract_unix_socket", "Linux 6.12")
        self.check_exited(self.run_on(6, "require", **ALL))

    def test_with_prefer_the_record_lists_what_the_first_version_lacks(self):
        self.assertEqual([text.split()[1] for text in self.degraded(1, **ALL)],
                         ["refer", "truncate", "ioctl_dev", "bind_tcp", "connect_tcp", "abstract_unix_socket"])
        self.assertEqual(self.degraded(7, **ALL), [])
        self.assertEqual(len(self.degraded("ENOSYS", **FILES)), 1)

    def test_what_the_namespaces_hold_anyway_is_not_missed(self):
        self.assertEqual(len(self.degraded("ENOSYS", **SCOPES)), 1)
        self.assertEqual(self.degraded("ENOSYS", network="none", **SCOPES), [])
        self.assertEqual(self.degraded(5, network="none", **SCOPES), [])

    def test_rules_for_files_hold_on_the_first_version(self):
        code = "say([attempt(os.mknod, '/tmp/white', 0o20600, 0), create('/tmp/x'), create('y')])"
        policy = {"syscalls": {"base": "none"}, **landlock(enforce="prefer", **FILES)}
        run = self.inside(code, policy=policy, wrap=[self.tool("landlock_abi"), "1"])
        self.assertEqual(run.json(), ["EACCES", "open", "open"], str(run))


if __name__ == "__main__":
    main()
