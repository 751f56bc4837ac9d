"""Hosts for the tests of the private network, made of namespaces: nothing leaves this machine.

    the internet                    the host                                      the sandbox
    93.184.216.34  public      ---- eth0 192.168.50.2/24, default via .1    ----  by pasta
    198.51.100.7   public           eth1 10.77.0.5/24
    192.168.50.1   the gateway      127.0.0.53 its resolver: all names are 93.184.216.34
    169.254.169.254, 10.9.9.9, 192.168.9.9, 100.64.9.9, 203.0.113.9

Every address of both has a listener on PORT, which says whose it is, and one of UDP that says it back.
/dev/net/tun is a node of the host's own, mode 0666.
"""

import contextlib
import ctypes
import os
import pathlib
import socket
import subprocess
import sys
import textwrap
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import SandboxTest, environment

PORT = 8765
GATEWAY, FIRST, SECOND = "192.168.50.1", "192.168.50.2", "10.77.0.5"
PUBLIC, OTHER_PUBLIC = "93.184.216.34", "198.51.100.7"
METADATA = "169.254.169.254"
PRIVATE = ("10.9.9.9", "192.168.9.9", "100.64.9.9")
RESOLVER = "127.0.0.53"
INSIDE_RESOLVER = "192.0.0.3"
INTERNET = (GATEWAY, PUBLIC, OTHER_PUBLIC, METADATA, *PRIVATE, "203.0.113.9")
CLONE_NEWNET = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


class Namespace:
    """A network namespace (and a mount namespace) that a sleeping process holds."""

    def __init__(self, test, script):
        self.process = subprocess.Popen(
            ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-ec",
             script + "\necho ready; exec sleep 1000"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        test.addCleanup(self.end)
        if self.process.stdout.readline() != "ready\n":
            raise AssertionError(f"no host was made: {self.process.communicate(timeout=5)}")
        self.pid = self.process.pid

    def end(self):
        self.process.kill()
        self.process.communicate()

    def enter(self, directory="/"):
        """To execute the rest in it."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", f"--mount=/proc/{self.pid}/ns/mnt", f"--wd={directory}"]

    def run(self, *command, **more):
        return subprocess.run([*self.enter(), *map(str, command)], check=True, capture_output=True, text=True, **more)

    def within(self, function):
        """Calls `function` from a thread of its own that is in the network namespace."""
        answers = []

        def work():
            with open(f"/proc/{self.pid}/ns/net") as space:
                if _libc.setns(space.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            answers.append(function())

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return answers[0]


class PrivateNetworkTest(SandboxTest):
    """A test beside such a host. `self.host` and `self.internet` are its namespaces."""

    tun_mode = "666"
    found = PUBLIC  # What the resolver says of every name.
    resolvers = f"search example.org\nnameserver {RESOLVER}\n"
    way_out = True

    def setUp(self):
        super().setUp()
        self.closing = contextlib.ExitStack()
        self.addCleanup(self.closing.close)
        self.internet = Namespace(self, "\n".join(
            ["ip link set lo up", *(f"ip addr add {address}/32 dev lo" for address in INTERNET if address != GATEWAY)]))
        self.resolv = self.make_file("host-resolv.conf", self.resolvers)
        self.host = Namespace(self, f"""
            ip link set lo up
            ip link add eth0 type veth peer name peer0 netns {self.internet.pid}
            ip link add eth1 type veth peer name peer1
            ip addr add {FIRST}/24 dev eth0; ip addr add {SECOND}/24 dev eth1
            ip link set eth0 up; ip link set eth1 up; ip link set peer1 up
            mount -t tmpfs tmpfs /mnt
            mknod /mnt/tun c 10 200; chmod {self.tun_mode} /mnt/tun
            mount --bind /mnt/tun /dev/net/tun
            mount --bind {self.resolv} /etc/resolv.conf""")
        self.internet.run("sh", "-ec", f"ip addr add {GATEWAY}/24 dev peer0; ip link set peer0 up")
        if self.way_out:
            self.host.run("ip", "route", "add", "default", "via", GATEWAY)
        self.serve(self.internet, PORT, "internet", INTERNET)
        self.serve(self.host, PORT, "host", (FIRST, SECOND, "127.0.0.1"))
        self.serve_names(self.host)

    # --- who listens -----------------------------------------------------------------------------

    def listener(self, space, address, port, kind=socket.SOCK_STREAM):
        def make():
            made = socket.socket(socket.AF_INET, kind)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((address, port))
            if kind == socket.SOCK_STREAM:
                made.listen(64)
            return made
        made = space.within(make)
        self.closing.callback(made.close)
        self.closing.callback(lambda: _shut(made))
        return made

    def serve(self, space, port, name, addresses):
        """TCP says `name` to who connects to any address, UDP to who sends to one of these."""
        stream = self.listener(space, "0.0.0.0", port)

        def streams():
            while True:
                connection, _ = stream.accept()
                with connection, contextlib.suppress(OSError):
                    connection.sendall(name.encode())

        _in_background(streams)
        for address in addresses:  # One each, so that the answer comes from where the question went.
            _answer(self.listener(space, address, port, socket.SOCK_DGRAM), lambda _: name.encode())

    def serve_names(self, space):
        """A resolver that knows one address for all names, or one after another."""
        answers = self.answers()

        def answer(query):
            end = query.index(b"\0", 12) + 5
            found = b""
            if query[end - 4:end - 2] == b"\0\1":
                found = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton(next(answers))
            head = query[:2] + b"\x81\x80\0\1" + (b"\0\1" if found else b"\0\0") + b"\0\0\0\0"
            return head + query[12:end] + found

        _answer(self.listener(space, RESOLVER, 53, socket.SOCK_DGRAM), answer)

    def answers(self):
        while True:
            yield self.found

    # --- sandboxes on it -------------------------------------------------------------------------

    def base_policy(self):
        policy = super().base_policy()
        policy["network"] = {"mode": "private"}
        return policy

    def start(self, *arguments, before=(), env=None, **more):
        where = self.host.enter(self.work)
        return super().start(*arguments, before=[*where, *before], env=environment() if env is None else env, **more)

    def reach(self, *addresses, port=PORT, policy=None, bound=False, kind="tcp", **more):
        """{address: who answered, or the name of the errno} from inside. `bound`: to the interface."""
        code = with_reach(f"say({{a: reach(a, {port}, {kind!r}, {bound}) for a in {addresses!r}}})")
        run = self.inside(code, policy=policy, **more)
        self.check_exited(run)
        self.last = run
        return run.json()

    def from_host(self, *addresses, port=PORT):
        """The same from the host itself."""
        def look():
            answers = {}
            for address in addresses:
                with socket.create_connection((address, port), timeout=3) as connection:
                    answers[address] = connection.recv(64).decode()
            return answers
        return self.host.within(look)

    def stand_in(self, text):
        """An environment with a pasta of the test's own: a shell script."""
        path = self.make_file("stand-in-pasta", "#!/bin/sh\n" + text, mode=0o755)
        return environment(BELLJAR_PASTA=str(path))

    @staticmethod
    def pastas():
        """Of this test's processes."""
        from harness import descendants
        return [pid for pid, state, name in descendants() if name.startswith(("pasta", "passt")) and state != "Z"]


def with_reach(code):
    """Code for the inside that can call reach(address, port, kind, bound)."""
    return textwrap.dedent(REACH) + textwrap.dedent(code)


REACH = """
    def reach(address, port, kind="tcp", bound=False):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM) as s:
            s.settimeout(2)
            try:
                if bound:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
                s.connect((address, port))
                if kind == "udp":
                    s.send(b"x")
                return s.recv(64).decode()
            except TimeoutError:
                return "timeout"
            except OSError as error:
                return errno.errorcode[error.errno]
"""


def _shut(listener):
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)


def _answer(datagrams, answer):
    def work():
        while True:
            said, whence = datagrams.recvfrom(2048)
            if whence is None:  # It was shut down.
                return
            datagrams.sendto(answer(said), whence)
    _in_background(work)


def _in_background(work):
    def until_closed():
        with contextlib.suppress(OSError):
            work()
    threading.Thread(target=until_closed, daemon=True).start()
