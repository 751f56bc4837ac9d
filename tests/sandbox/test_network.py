"""Network: none means none, shared means the host's, and no raw access in either."""

import os
import socket

from harness import SandboxTest, main

CONNECT = """
    def reach(family, address):
        with socket.socket(family) as s:
            s.settimeout(3)
            return attempt(s.connect, address)
"""


class Network(SandboxTest):

    def setUp(self):
        super().setUp()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(self.listener.close)
        self.port = self.listener.getsockname()[1]

    def connect(self, code, mode):
        return self.inside(CONNECT + f"    say({code})", policy={"network": {"mode": mode}}).json()

    def test_the_hosts_loopback_is_out_of_reach_with_none_and_reached_with_shared(self):
        code = f"reach(socket.AF_INET, ('127.0.0.1', {self.port}))"
        self.assertEqual(self.connect(code, "none"), "ECONNREFUSED")
        self.assertEqual(self.connect(code, "shared"), "open")

    def test_the_hosts_ipv6_loopback_is_out_of_reach(self):
        try:
            listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
        except OSError:  # A host without IPv6 has nothing to reach.
            return
        with listener:
            code = f"reach(socket.AF_INET6, ('::1', {listener.getsockname()[1]}))"
            self.assertIn(self.connect(code, "none"), ("ECONNREFUSED", "EADDRNOTAVAIL"))
            self.assertEqual(self.connect(code, "shared"), "open")

    def test_abstract_sockets_of_the_host_are_out_of_reach(self):
        with socket.socket(socket.AF_UNIX) as abstract:
            name = f"\0belljar-test-{os.getpid()}"
            abstract.bind(name)
            abstract.listen()
            code = f"reach(socket.AF_UNIX, {name!r})"
            self.assertEqual(self.connect(code, "none"), "ECONNREFUSED")
            self.assertEqual(self.connect(code, "shared"), "open")

    def test_there_is_no_way_out(self):
        code = "[reach(socket.AF_INET, (a, 80)) for a in ('192.0.2.1', '169.254.169.254', '10.0.0.1', '8.8.8.8')]"
        self.assertEqual(self.connect(code, "none"), ["ENETUNREACH"] * 4)

    def test_there_is_only_a_loopback_and_it_works(self):
        run = self.inside("""
            server = socket.create_server(('127.0.0.1', 0))
            client = socket.create_connection(server.getsockname())
            say([[name for _, name in socket.if_nameindex()], attempt(client.send, b'x')])
        """)
        # Devices of the kernel's tunnels are in every namespace, and down.
        names, sent = run.json()
        self.assertEqual((names[0], sent), ("lo", "open"))
        self.assertEqual([name for name in names if name.startswith(("eth", "en", "wl", "docker", "br"))], [])

    def test_raw_and_packet_sockets_are_refused(self):
        code = """
            def make(family, kind, protocol): return attempt(lambda: socket.socket(family, kind, protocol).close())
            say([make(socket.AF_INET, socket.SOCK_RAW, 1), make(socket.AF_INET6, socket.SOCK_RAW, 58),
                 make(socket.AF_PACKET, socket.SOCK_RAW, 0), make(socket.AF_INET, socket.SOCK_DGRAM, 0)])
        """
        for mode in ("none", "shared"):
            run = self.inside(code, policy={"network": {"mode": mode}})
            self.assertEqual(run.json(), ["EPERM", "EPERM", "EAFNOSUPPORT", "open"])
            run = self.inside(code, policy={"network": {"mode": mode}, "syscalls": {"base": "none"}})
            self.assertEqual(run.json(), ["EPERM", "EPERM", "EPERM", "open"])

    def test_with_the_capability_a_raw_socket_opens_in_an_own_network_only(self):
        code = "say(attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close()))"
        for mode, expected in (("none", "open"), ("shared", "EPERM")):
            run = self.inside(code, policy={"network": {"mode": mode}, "capabilities": ["NET_RAW"]})
            self.assertEqual(run.json(), expected, mode)

    def test_the_network_cannot_be_changed(self):
        run = self.inside("""
            import fcntl, struct
            SIOCSIFFLAGS, SIOCSIFADDR = 0x8914, 0x8916
            s = socket.socket()
            request = struct.pack('16sH14x', b'lo', 0)
            say([attempt(fcntl.ioctl, s, SIOCSIFFLAGS, request), attempt(socket.sethostname, 'x')])
        """)
        self.assertEqual(run.json(), ["EPERM", "EPERM"])

    def test_the_command_line_chooses_the_mode(self):
        code = f"say(reach(socket.AF_INET, ('127.0.0.1', {self.port})))"
        run = self.inside(CONNECT + "    " + code, options=["--network", "shared"])
        self.assertEqual(run.json(), "open")


if __name__ == "__main__":
    main()
