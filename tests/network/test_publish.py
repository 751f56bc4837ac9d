"""network.publish: a port inside at a loopback port or a socket outside, and nothing else."""

import os
import pathlib
import signal
import socket
import stat
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "service"))
from harness import SandboxTest, back_ends, callers, descendants, main, once, wait_for
from network.hosts import PrivateNetworkTest
from test_session_socket import Session

SERVE = """
    import threading
    def serve(port, answer, address="127.0.0.1"):
        server = socket.create_server((address, port))
        def work():
            while True:
                connection, whence = server.accept()
                threading.Thread(target=answer, args=(connection,), daemon=True).start()
        threading.Thread(target=work, daemon=True).start()
    def echo(connection):
        with connection:
            while piece := connection.recv(65536): connection.sendall(piece)
    def name(text):
        def answer(connection):
            with connection: connection.sendall(text.encode())
        return answer
"""


def free_port(address="127.0.0.1"):
    with socket.socket() as s:
        s.bind((address, 0))
        return s.getsockname()[1]


def ask(where, said=b""):
    """All that comes from there until its end."""
    family = socket.AF_UNIX if isinstance(where, str) else socket.AF_INET
    with socket.socket(family) as s:
        s.settimeout(20)
        s.connect(where)
        s.sendall(said)
        s.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := s.recv(65536):
            answer += piece
        return answer


def published(ports, mode="none", **more):
    return {"network": {"mode": mode, "publish": ports, **more}}


class Publish(SandboxTest):

    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.outside = f"127.0.0.1:{self.port}"

    def serving(self, code, ports=None, **more):
        """A sandbox that serves by `code` until its input ends."""
        import textwrap
        run = self.start_inside(textwrap.dedent(SERVE) + textwrap.dedent(code) + "\nsay('up'); sys.stdin.read()\n",
                                policy=published(ports or {self.outside: 8000}), stdin=-1, **more)
        run.wait_for_output("up")
        return run

    def end(self, run):
        run.process.stdin.close()
        run.process.stdin = None
        self.check_exited(run.finish())

    def test_what_is_sent_outside_arrives_inside_and_the_answer_comes_back(self):
        run = self.serving("serve(8000, echo)")
        self.assertEqual(ask(("127.0.0.1", self.port), b"hello"), b"hello")
        large = os.urandom(3 << 20)
        self.assertEqual(self.exchange(large), large)
        self.end(run)

    def exchange(self, data):
        """Sends and reads at once: more than all buffers between hold."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as s:
            def send():
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
            sender = threading.Thread(target=send)
            sender.start()
            answer = b""
            while piece := s.recv(65536):
                answer += piece
            sender.join()
            return answer

    def test_a_socket_in_the_file_tree_leads_inside_and_is_gone_afterwards(self):
        path = str(self.make_directory("outside", owner=None if self.privileged else self.uid) / "app.sock")
        run = self.serving("serve(8000, name('inside'))", {path: 8000})
        self.assertTrue(stat.S_ISSOCK(os.stat(path).st_mode))
        self.assertEqual(os.stat(path).st_uid, 0 if self.privileged else self.uid)
        self.assertEqual(ask(path), b"inside")
        self.end(run)
        self.assertFalse(os.path.lexists(path))

    @callers("root")
    @back_ends("modern")
    def test_no_link_of_somebody_elses_leads_a_socket_elsewhere(self):
        theirs = self.make_directory("theirs", owner=1600000777)
        victim = self.make_directory("victim", owner=0, mode=0o700)
        for owner, followed in ((1600000777, False), (0, True)):
            link = theirs / f"run-{owner}"
            link.symlink_to(victim)
            os.lchown(link, owner, owner)
            if not followed:
                run = self.sandbox("true", policy=published({str(link / "app.sock"): 8000}))
                self.check_refused(run, "ELOOP", "belongs to uid 1600000777")
                self.assertEqual(list(victim.iterdir()), [])
                continue
            run = self.serving("serve(8000, name('inside'))", {str(link / "app.sock"): 8000})
            self.assertEqual(ask(str(link / "app.sock")), b"inside")
            link.unlink()
            link.mkdir()
            self.end(run)
            self.assertEqual(list(victim.iterdir()), [], "it is removed where it was made, whatever the path leads to")

    @back_ends("modern")
    def test_several_places_lead_to_their_ports_alone(self):
        other = free_port("127.0.0.2")
        run = self.serving("serve(8000, name('one')); serve(9000, name('two')); serve(7000, name('hidden'))",
                           {self.outside: 8000, f"127.0.0.2:{other}": 9000})
        self.assertEqual(ask(("127.0.0.1", self.port)), b"one")
        self.assertEqual(ask(("127.0.0.2", other)), b"two")
        for address in (("127.0.0.2", self.port), ("127.0.0.1", 7000), ("127.0.0.1", other)):
            with self.assertRaises(ConnectionRefusedError, msg=address):
                ask(address)
        self.end(run)

    @callers("root")
    @back_ends("modern")
    def test_without_a_descriptor_for_another_connection_it_rests_until_one_ends(self):
        run = self.serving("serve(8000, echo)", wrap=["prlimit", "--nofile=64:64"])
        held = [socket.create_connection(("127.0.0.1", self.port), timeout=20) for _ in range(60)]
        descriptors = self.publisher_path(run).parent / "fd"
        wait_for(lambda: len(list(descriptors.iterdir())) >= 62)
        wait_for(lambda: all("State:\tS" in self.publisher(run) and not time.sleep(0.005) for _ in range(40)))
        for connection in held[:40]:
            connection.close()
        held[-1].sendall(b"x")
        self.assertEqual(held[-1].recv(1), b"x", "who has waited is served in his turn")
        for connection in held:
            connection.close()
        self.assertEqual(ask(("127.0.0.1", self.port), b"again"), b"again")
        self.end(run)

    @callers("root")
    @back_ends("modern")
    def test_a_low_soft_limit_of_descriptors_is_not_that_of_connections(self):
        run = self.serving("serve(8000, echo)", wrap=["prlimit", "--nofile=64:"])
        held = [socket.create_connection(("127.0.0.1", self.port), timeout=20) for _ in range(60)]
        for connection in held:
            connection.sendall(b"x")
        self.assertEqual([connection.recv(1) for connection in held], [b"x"] * 60)
        for connection in held:
            connection.close()
        self.end(run)

    @once
    def test_a_sandbox_that_publishes_reaches_no_more_than_before(self):
        """The host's listener is there, and the sandbox's publishing process is on the host's side of it."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            run = self.inside(f"""
                say([attempt(socket.create_connection, ("127.0.0.1", {listener.getsockname()[1]})),
                     attempt(socket.create_connection, ("127.0.0.1", {self.port})),
                     sorted(os.listdir('/sys/class/net')) if os.path.isdir('/sys/class/net') else ['lo'],
                     [p for p in os.listdir('/proc') if p.isdigit()]])
            """, policy=published({self.outside: 8000}))
            refused, own, links, processes = run.json()
        self.assertEqual((refused, own, links), ("ECONNREFUSED", "ECONNREFUSED", ["lo"]))
        self.assertLessEqual(len(processes), 2)

    @back_ends("modern")
    def test_without_a_server_inside_a_connection_is_ended(self):
        run = self.serving("")
        try:
            self.assertEqual(ask(("127.0.0.1", self.port)), b"")
        except ConnectionResetError:
            pass
        self.end(run)

    @once
    def test_many_connections_at_once_are_all_served(self):
        run = self.serving("serve(8000, echo)")
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(ask(("127.0.0.1", self.port), b"x" * 1000)))
                   for _ in range(200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(answers, [b"x" * 1000] * 200)
        self.end(run)

    @callers("root", "five")
    @back_ends("modern")
    def test_the_process_that_publishes_is_the_sessions_and_holds_no_capability(self):
        run = self.serving("serve(8000, echo)")
        status = self.publisher(run)
        self.assertIn(f"Uid:\t{self.uid}\t{self.uid}\t{self.uid}", status)
        for line in ("CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1"):
            self.assertIn(line, status)
        self.end(run)

    def publisher(self, run):
        """The status of the child of belljar's that is not the sandbox's init."""
        return self.publisher_path(run).read_text()

    def publisher_path(self, run):
        for pid, state, _ in descendants(run.process.pid):
            path = pathlib.Path(f"/proc/{pid}/status")
            text = path.read_text()
            if state != "Z" and f"PPid:\t{run.process.pid}\n" in text and len(text.split("NSpid:")[1].split("\n")[0].split()) == 1:
                return path
        raise AssertionError(f"nobody publishes: {descendants(run.process.pid)}")

    @back_ends("modern")
    def test_when_it_is_killed_the_sandbox_ends_and_the_record_says_why(self):
        run = self.serving("serve(8000, echo)")
        os.kill(int(self.publisher_path(run).parent.name), signal.SIGKILL)
        run.process.wait()  # Before its input ends, which is another end.
        done = run.finish()
        self.assertEqual(done.record["cause"], "network_lost", str(done))
        self.assertIn("publishes ports has ended", done.record["network_error"])

    def test_a_belljar_that_is_killed_leaves_nobody_who_listens(self):
        run = self.serving("serve(8000, echo)")
        os.kill(run.process.pid, signal.SIGKILL)
        run.process.wait()

        def refused():
            try:
                ask(("127.0.0.1", self.port))
            except ConnectionRefusedError:
                return True
            except ConnectionResetError:
                return False
        wait_for(refused, seconds=20)

    @back_ends("modern")
    def test_a_place_that_is_taken_is_a_refusal_with_its_line(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            taken = f"127.0.0.1:{listener.getsockname()[1]}"
            run = self.sandbox("echo", "ran", policy=published({taken: 8000}))
            self.check_refused(run, "EADDRINUSE", f"listen at {taken}", f'network.publish["{taken}"]',
                               "remedy: somebody listens there already")
            self.assertEqual(run.out, "")
        path = self.make_file("taken", owner=self.uid)
        run = self.sandbox("true", policy=published({str(path): 8000}))
        self.check_refused(run, "EADDRINUSE", f'network.publish["{path}"]', "remove it")
        self.assertTrue(path.exists())

    @callers("user")
    @once
    def test_a_place_that_the_caller_has_no_right_to_is_refused(self):
        directory = self.make_directory("roots", owner=0, mode=0o755)
        run = self.sandbox("true", policy=published({f"{directory}/app.sock": 8000}))
        self.check_refused(run, "EACCES", f"{directory}/app.sock")

    @once
    def test_a_network_that_is_not_the_sandboxs_own_publishes_nothing(self):
        for network in ({"mode": "shared"}, {"mode": "/proc/self/ns/net"}):
            run = self.sandbox("true", policy={"network": {**network, "publish": {self.outside: 8000}}})
            self.check_refused(run, "a network of the sandbox's own only", "network.publish", "remedy:")

    @once
    def test_only_loopback_and_sockets_can_be_listened_at(self):
        for outside in ("0.0.0.0:80", "10.0.0.1:80", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.0/8:80",
                        "localhost:80", "[::1]:80", "a.sock", "/a//b", "/a/", "/" + "x" * 107, "127.0.0.1:080"):
            run = self.belljar("policy", "check", self.policy(published({outside: 80})))
            self.assertNotEqual(run.code, 0, f"{outside}: {run}")
            self.assertIn("network.publish", str(run), outside)

    @once
    def test_explain_says_where_it_leads(self):
        run = self.belljar("explain", "--policy", self.policy(published({self.outside: 8000})), "--", "true")
        self.assertIn(f"lead what comes to {self.outside} to port 8000 inside", run.out)

    @callers("root", "user")
    @back_ends("modern")
    def test_a_session_publishes_for_as_long_as_it_lives(self):
        session = Session(self, self.policy(published({self.outside: 8000})), ())
        session.event("started")
        serve = ("import socket, sys; s = socket.create_server(('127.0.0.1', 8000)); c, _ = s.accept(); "
                 "c.sendall(b'from the session'); c.close()")
        answer = []

        def look():
            def met():
                try:
                    return ask(("127.0.0.1", self.port))
                except ConnectionResetError:
                    return b""
            answer.append(wait_for(met, seconds=60))
        looker = threading.Thread(target=look)
        looker.start()
        record, _ = session.run("/usr/bin/python3", "-c", serve)
        looker.join()
        self.assertEqual((record["cause"], answer), ("exited", [b"from the session"]))
        self.assertEqual(session.end().code, 0)
        with self.assertRaises(ConnectionRefusedError):
            ask(("127.0.0.1", self.port))

    @once
    def test_a_self_test_does_not_ask_for_a_place_that_a_session_may_have(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            policy = self.policy(published({f"127.0.0.1:{listener.getsockname()[1]}": 8000}))
            root = self.make_directory("sessions", mode=0o711)
            run = self.belljar("--selftest", "--policy", policy, "--sessions-root", root, "--uid", str(self.uid))
            self.assertEqual(run.out, "sandbox OK\n", str(run))


class PublishPrivately(PrivateNetworkTest):

    @back_ends("modern")
    def test_a_private_network_publishes_too_and_is_not_traded_for_the_hosts(self):
        port = 9123
        run = self.start_inside("""
            server = socket.create_server(("127.0.0.1", 8000)); say('up')
            server.accept()[0].sendall(b"inside"); sys.stdin.read()
        """, policy=published({f"127.0.0.1:{port}": 8000}, mode="private"), stdin=-1)
        run.wait_for_output("up")
        self.assertEqual(self.from_host("127.0.0.1", port=port), {"127.0.0.1": "inside"})
        run.process.stdin.close()
        run.process.stdin = None
        self.check_exited(run.finish())
        run = self.sandbox("true", env=self.stand_in("exit 1"),
                           policy=published({f"127.0.0.1:{port}": 8000}, mode="private", enforce="prefer"))
        self.check_refused(run, "pasta exited with status 1")


if __name__ == "__main__":
    main()
