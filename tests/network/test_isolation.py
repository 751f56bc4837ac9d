"""What a private network reaches, and what it must not."""

import os
import pathlib
import socket
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import back_ends, callers, main, once
from network.hosts import (FIRST, GATEWAY, INSIDE_RESOLVER, METADATA, OTHER_PUBLIC, PORT, PRIVATE, PUBLIC, RESOLVER,
                           SECOND, PrivateNetworkTest, with_reach)

REFUSED, REFUSED_DATAGRAM = "ECONNREFUSED", "EPERM"  # As the kernel tells of a packet that was not let out.
NEVER = (FIRST, SECOND, GATEWAY, METADATA, *PRIVATE)
SHARED = {"network": {"mode": "shared"}}


class Isolation(PrivateNetworkTest):

    def test_the_internet_is_reached(self):
        self.assertEqual(self.reach(PUBLIC, OTHER_PUBLIC), {PUBLIC: "internet", OTHER_PUBLIC: "internet"})
        self.assertEqual(self.last.record["degraded"] if self.privileged else [], [])

    def test_no_address_of_the_hosts_nor_a_private_one_is_reached(self):
        """The negative control is the host's own network, where all of them answer."""
        self.assertEqual(self.reach(*NEVER), {address: REFUSED for address in NEVER})
        self.assertEqual(self.reach("127.0.0.1", RESOLVER), {"127.0.0.1": "ECONNREFUSED", RESOLVER: "ECONNREFUSED"})
        found = self.reach(*NEVER, "127.0.0.1", policy=SHARED)
        self.assertEqual(found, {**{address: "internet" for address in NEVER},
                                 **{address: "host" for address in (FIRST, SECOND, "127.0.0.1")}})

    @once
    def test_nor_is_it_by_udp(self):
        self.assertEqual(self.reach(*NEVER, kind="udp"), {address: REFUSED_DATAGRAM for address in NEVER})
        self.assertEqual(self.reach(PUBLIC, kind="udp"), {PUBLIC: "internet"})

    @back_ends("modern")
    def test_a_socket_that_is_bound_to_the_interface_is_refused_as_well(self):
        """The kernel takes such a destination to be on the link, whatever routes say."""
        self.assertEqual(self.reach(*NEVER, bound=True), {address: REFUSED for address in NEVER})
        self.assertEqual(self.reach(*NEVER, kind="udp", bound=True), {address: REFUSED_DATAGRAM for address in NEVER})
        self.assertEqual(self.reach(PUBLIC, bound=True), {PUBLIC: "internet"})

    @once
    def test_loopback_addresses_do_not_leave_through_the_interface(self):
        answers = self.reach("127.0.0.1", RESOLVER, bound=True)
        self.assertNotIn("host", answers.values())

    @once
    def test_the_host_cannot_connect_to_what_listens_inside(self):
        run = self.start_inside(f"""
            server = socket.create_server(("0.0.0.0", {PORT + 1}))
            server.settimeout(20)
            print("listening", flush=True)
            say(sys.stdin.readline())
        """, stdin=None)
        run.wait_for_output("listening")
        for address in ("127.0.0.1", FIRST, SECOND, "192.0.0.2"):
            def connect():
                with socket.socket() as s:
                    s.settimeout(1)
                    return s.connect_ex((address, PORT + 1))
            self.assertNotEqual(self.host.within(connect), 0, address)
        run.process.kill()
        run.process.wait()

    @once
    def test_two_sandboxes_serve_one_port_and_see_only_their_own(self):
        code = with_reach(f"""
            import threading
            server = socket.create_server(("0.0.0.0", {PORT}))
            def serve():
                while True:
                    with server.accept()[0] as c: c.sendall(name.encode())
            threading.Thread(target=serve, daemon=True).start()
            say("up"); sys.stdin.readline()
            say([reach("127.0.0.1", {PORT}), reach("192.0.0.2", {PORT}), reach({FIRST!r}, {PORT})])
        """)
        runs = [self.start_inside(f"name = {name!r}\n" + code, stdin=-1) for name in ("one", "two")]
        for run in runs:
            run.wait_for_output("up")
        for run, name in zip(runs, ("one", "two")):
            run.process.stdin.write(b"\n")
            run.process.stdin.flush()
            self.assertIn(f'["{name}", "{name}", "{REFUSED}"]', run.wait_for_output("]"))
            run.finish()

    @once
    def test_an_address_that_the_host_gets_later_is_not_reached_either(self):
        run = self.start_inside(with_reach(f"""
            say(reach("203.0.113.9", {PORT})); sys.stdin.readline()
            for _ in range(200):
                if reach("203.0.113.9", {PORT}) == {REFUSED!r}: break
                time.sleep(0.02)
            say(reach("203.0.113.9", {PORT}))
        """), stdin=-1)
        self.assertIn('"internet"', run.wait_for_output("\n"))
        self.host.run("ip", "addr", "add", "203.0.113.9/32", "dev", "eth1")
        run.process.stdin.write(b"\n")
        run.process.stdin.flush()
        self.assertIn(REFUSED, run.wait_for_output("\n"))
        self.check_exited(run.finish())

    @once
    def test_an_address_that_no_interface_has_is_the_hosts_too(self):
        self.host.run("ip", "route", "add", "local", "203.0.113.0/24", "dev", "lo")
        self.assertEqual(self.reach("203.0.113.9"), {"203.0.113.9": REFUSED})

    @once
    def test_ipv6_is_off_but_for_loopback(self):
        run = self.inside("""
            PORT = %d
            server = socket.create_server(("::1", 0), family=socket.AF_INET6)
            own = attempt(socket.create_connection, server.getsockname()[:2])
            def reach(address, bound):
                with socket.socket(socket.AF_INET6) as s:
                    s.settimeout(1)
                    if bound: s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
                    try: return attempt(s.connect, address)
                    except TimeoutError: return "timeout"
            say([own] + [reach(a, b) for a in (("2001:db8::1", 80), ("fe80::1%%eth0", 80), ("::ffff:10.77.0.5", PORT))
                         for b in (False, True)])
        """ % PORT)
        own, *others = run.json()
        self.assertEqual(own, "open")
        for answer in others:
            self.assertIn(answer, ("ENETUNREACH", "EHOSTUNREACH", "EACCES", "EADDRNOTAVAIL", "EINVAL", REFUSED))

    @once
    def test_the_command_cannot_change_its_network(self):
        run = self.inside("""
            import struct
            def ask(protocol, kind, payload):
                with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as s:
                    s.settimeout(2)
                    s.send(struct.pack("IHHII", 16 + len(payload), kind, 0x405, 1, 0) + payload)
                    return errno.errorcode[-struct.unpack("i", s.recv(4096)[16:20])[0]]
            route = struct.pack("BBBBBBBBI", 2, 0, 0, 0, 254, 3, 0, 1, 0)
            nft = struct.pack("BBH", 1, 0, socket.htons(10))
            def safe(*arguments):
                try: return ask(*arguments)
                except OSError as error: return errno.errorcode[error.errno]
            say([safe(0, 24, route), safe(12, 16, nft),
                 attempt(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1),
                 attempt(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 3)])
        """, policy={"syscalls": {"base": "none"}})
        self.assertEqual(run.json(), ["EPERM"] * 4)

    @once
    def test_what_was_refused_is_in_the_record(self):
        self.reach(SECOND, METADATA, PUBLIC)
        refused = {one["to"]: one["because"] for one in self.last.record["unreached"]}
        self.assertEqual(set(refused), {SECOND, "169.254.0.0/16"})
        self.assertIn("host", refused[SECOND])
        self.assertIn("metadata", refused["169.254.0.0/16"])

    @once
    def test_capabilities_that_could_undo_it_are_refused(self):
        for capability in ("NET_ADMIN", "NET_RAW"):
            run = self.sandbox("true", policy={"capabilities": [capability]})
            self.check_refused(run, "walk round a private network's rules", "capabilities", "remedy:")

    @once
    def test_names_are_resolved_by_the_hosts_resolver_on_loopback(self):
        run = self.inside("""
            say([open("/etc/resolv.conf").read(), socket.gethostbyname("anything.example"),
                 attempt(open, "/etc/resolv.conf", "a")])
        """, policy={"filesystem": {"mounts": {"/etc/nsswitch.conf": {"type": "file", "content": "hosts: dns\\n"}}}})
        text, found, write = run.json()
        self.assertEqual(text, f"nameserver {INSIDE_RESOLVER}\nsearch example.org\n")
        self.assertEqual(found, PUBLIC)
        self.assertIn(write, ("EROFS", "EACCES"))

    @callers("root")
    def test_names_are_resolved_with_the_hosts_own_etc(self):
        run = self.sandbox("/usr/bin/python3", "-c", "import socket; print(socket.gethostbyname('anything.example'))",
                           policy="builtin:dev@1", options=["--network", "private", *self.session_options()])
        self.assertEqual(run.out.strip(), PUBLIC, str(run))

    @once
    def test_other_ports_of_the_resolvers_address_are_closed(self):
        self.assertEqual(self.reach(INSIDE_RESOLVER), {INSIDE_RESOLVER: REFUSED})


if __name__ == "__main__":
    main()
