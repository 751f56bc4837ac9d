"""`belljar --selftest --network`: says `private network` where it is one, and otherwise what broke it."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import callers, environment, main, once
from network.hosts import FIRST, PrivateNetworkTest

PRIVATE = "private network\n"
# What a slow machine may make of it: it is asked again then, and only then.
OF_TIME = ("no interface within", "unanswered")

# What stands in for pasta, and begins in the sandbox's namespaces, with all rights over them.
INSIDE = r'''
import ctypes, fcntl, os, signal, socket, struct, sys, time
words = sys.argv[1:]
spaces = [os.open(words[words.index(name) + 1], os.O_RDONLY) for name in ("--userns", "--netns")]
def enter():
    libc = ctypes.CDLL(None, use_errno=True)
    for space in spaces:
        assert libc.setns(space, 0) == 0, os.strerror(ctypes.get_errno())
'''

# Runs the real pasta, after the rules of the sandbox have been taken away by whoever owns its namespaces.
TRAITOR = INSIDE + r'''
def message(kind, flags, family=1):
    body = struct.pack("BBH", family, 0, socket.htons(10 if kind in (16, 17) else 0))
    return struct.pack("IHHII", 16 + len(body), kind, flags, 1, 0) + body

def ask(*messages):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as s:
        s.settimeout(2)
        s.send(b"".join(messages))
        return s.recv(65536)

if os.fork() == 0:
    enter()
    nft = 10 << 8  # NFNL_SUBSYS_NFTABLES
    while len(ask(message(nft | 7, 0x301))) < 500:  # NFT_MSG_GETRULE, a dump
        time.sleep(0.002)
    time.sleep(0.1)
    answer = ask(message(16, 1), message(nft | 2, 5, family=0), message(17, 1))  # NFT_MSG_DELTABLE: all
    assert struct.unpack("i", answer[16:20])[0] == 0, answer
    os._exit(0)
os.wait()
signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, which pasta takes for an error.
os.execv("/usr/bin/pasta", ["pasta", *words])
'''

# Makes interface and route as pasta does, and carries nothing.
NOBODY = INSIDE + r'''
enter()
tun = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tun, 0x400454ca, struct.pack("16sH22x", b"eth0", 0x1001))  # TUNSETIFF: IFF_TUN, IFF_NO_PI
s = socket.socket()
def address(text):
    return struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(text))
for call, text in ((0x8916, "192.0.0.2"), (0x891c, "255.255.255.248")):  # SIOCSIFADDR, SIOCSIFNETMASK
    fcntl.ioctl(s, call, struct.pack("16s16s8x", b"eth0", address(text)))
fcntl.ioctl(s, 0x8914, struct.pack("16sH22x", b"eth0", 0x41))  # SIOCSIFFLAGS: up and running
way = struct.pack("L16s16s16sHhLPhPLLH", 0, address("0.0.0.0"), address("192.0.0.1"), address("0.0.0.0"),
                  3, 0, 0, 0, 0, 0, 0, 0, 0)
fcntl.ioctl(s, 0x890b, way)  # SIOCADDRT
time.sleep(100)
'''


class Verdict(PrivateNetworkTest):

    def options(self):
        root = self.make_directory("sessions", owner=None if self.privileged else self.uid, mode=0o711)
        options = ["--session-network", "private", "--sessions-root", str(root)]
        return options + (["--uid", str(self.uid)] if self.privileged else [])

    def self_test(self, *more, **options):
        options_here = self.options()
        for _ in range(5):
            run = self.belljar("--selftest", "--network", *options_here, *more, **options)
            if not any(text in run.out for text in OF_TIME):
                break
        return run

    def python(self, code):
        path = self.make_file("stand_in.py", code, mode=0o644)
        return self.stand_in(f'exec /usr/bin/python3 {path} "$@"')

    def check_shared(self, run, *texts):
        self.assertEqual(run.code, 1, str(run))
        self.assertEqual(len(run.out.splitlines()), 1, str(run))
        self.assertTrue(run.out.startswith("SHARED network: "), str(run))
        for text in texts:
            self.assertIn(text, run.out)

    @callers("root", "user")
    def test_a_private_network_is_called_so_and_nothing_else_is_said(self):
        run = self.self_test()
        self.assertEqual((run.out, run.code), (PRIVATE, 0), str(run))

    @once
    def test_nothing_is_left_of_it(self):
        self.self_test()
        self.assertEqual(self.pastas(), [])
        self.assertEqual(list((self.dir / "sessions").iterdir()), [])

    @once
    def test_programs_get_the_same_as_json(self):
        self.assertEqual(json.loads(self.self_test("--json").out), {"network": "private", "faults": []})
        self.host.run("chmod", "600", "/dev/net/tun")
        said = json.loads(self.self_test("--json").out)
        self.assertEqual(said["network"], "SHARED")
        self.assertEqual([fault["remedy"].split()[:3] for fault in said["faults"]], [["chmod", "666", "/dev/net/tun"]])

    @once
    def test_the_policys_own_rules_do_not_shut_its_door(self):
        policy = self.policy({"network": {"mode": "private", "only": {}}})
        self.assertEqual(self.self_test("--policy", policy).out, PRIVATE)

    @once
    def test_without_the_host_s_resolver_that_is_the_reason(self):
        self.resolv.write_text("nameserver 127.0.0.99\n")
        self.check_shared(self.belljar("--selftest", "--network", *self.options()),
                          "no resolver answers (192.0.0.3 ", "remedy: make the host's /etc/resolv.conf name a resolver")

    @once
    def test_no_tun_no_pasta_and_no_way_out_are_named(self):
        self.check_shared(self.self_test(env=environment(BELLJAR_PASTA="/nonexistent/pasta")),
                          "/nonexistent/pasta", "apt-get install passt")
        self.host.run("chmod", "600", "/dev/net/tun")
        self.check_shared(self.self_test(), "cannot open /dev/net/tun", "chmod 666 /dev/net/tun")
        self.host.run("ip", "route", "del", "default")
        self.check_shared(self.self_test(), "no way out (IPv4)", "default route")

    @once
    def test_a_pasta_that_hangs_is_a_reason_in_time(self):
        stand_in = self.stand_in("echo hanging >&2; exec sleep 100")
        run = self.belljar("--selftest", "--network", *self.options(), env=stand_in)
        self.check_shared(run, "pasta has made no interface within 2000 ms", "hanging")

    @once
    def test_an_interface_with_nobody_behind_it_is_no_way_out(self):
        run = self.belljar("--selftest", "--network", *self.options(), env=self.python(NOBODY))
        self.check_shared(run, f"outbound does not work: a listener on the host's outward address ({FIRST}:",
                          "no resolver answers")

    @once
    def test_a_pasta_that_lets_the_hosts_loopback_through_is_held_by_the_rules(self):
        run = self.self_test(env=self.stand_in(r"""
            for word; do shift; [ "$word" = --no-map-gw ] || set -- "$@" "$word"; done
            exec /usr/bin/pasta "$@" """))
        self.assertEqual((run.out, run.code), (PRIVATE, 0), str(run))

    @once
    def test_the_hosts_addresses_are_named_when_they_answer(self):
        """The rules are gone, and pasta carries all: whoever owns the namespaces did it, as no command can."""
        run = self.self_test(env=self.python(TRAITOR))
        self.check_shared(run, f"a listener of the host's answers inside at {FIRST}:",
                          "a listener of the host's answers inside at 10.77.0.5:")

    @once
    def test_a_policy_that_shares_the_hosts_network_is_told_with_its_line(self):
        policy = self.policy({"network": {"mode": "shared"}})
        self.check_shared(self.self_test("--policy", policy), "sessions have the host's network", "network.mode",
                          "--session-network")

    @once
    def test_a_policy_without_a_network_has_nothing_to_be_tested(self):
        run = self.self_test("--policy", self.policy({"network": {"mode": "none"}}))
        self.assertEqual((run.out, run.code), ("", 2), str(run))
        self.assertIn("neither private nor shared", run.err)

    @once
    def test_a_network_that_is_only_preferred_is_not_traded_for_the_hosts(self):
        self.host.run("chmod", "600", "/dev/net/tun")
        policy = self.policy({"network": {"mode": "private", "enforce": "prefer"}})
        self.check_shared(self.self_test("--policy", policy), "chmod 666 /dev/net/tun")

    @once
    def test_sessions_without_a_sandbox_share(self):
        run = self.belljar("--selftest", "--network", "--sandbox", "off")
        self.check_shared(run, "UNSANDBOXED")


if __name__ == "__main__":
    main()
