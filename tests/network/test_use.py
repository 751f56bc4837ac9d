"""The private network where people meet it: presets, explain, the self-test."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import callers, main, once
from network.hosts import FIRST, GATEWAY, METADATA, PORT, PRIVATE, PUBLIC, SECOND, PrivateNetworkTest, with_reach

REFUSED = "ECONNREFUSED"


class Presets(PrivateNetworkTest):

    def of_preset(self, name, *addresses):
        code = with_reach(f"say({{a: reach(a, {PORT}) for a in {addresses!r}}})")
        prelude = f"import sys; sys.path.insert(0, {str(self.work)!r}); from inside import *\n"
        (self.work / "inside.py").write_bytes((pathlib.Path(__file__).parent.parent / "tools" / "inside.py").read_bytes())
        (self.work / "inside.py").chmod(0o644)
        return self.sandbox("/usr/bin/python3", "-c", prelude + code, policy=f"builtin:{name}",
                            options=self.session_options())

    @callers("root", "user")
    def test_install_has_a_private_network_or_none(self):
        run = self.of_preset("install@1", PUBLIC, SECOND)
        self.assertEqual(run.json(), {PUBLIC: "internet", SECOND: REFUSED}, str(run))
        self.host.run("chmod", "600", "/dev/net/tun")
        self.check_refused(self.of_preset("install@1", PUBLIC), "chmod 666 /dev/net/tun")

    @callers("root", "user")
    def test_shell_has_a_private_network_or_the_hosts_and_says_so(self):
        run = self.of_preset("shell@1", PUBLIC, SECOND)
        self.assertEqual(run.json(), {PUBLIC: "internet", SECOND: REFUSED}, str(run))
        self.assertNotIn("network", [item["control"] for item in run.record["degraded"]])
        self.host.run("chmod", "600", "/dev/net/tun")
        run = self.of_preset("shell@1", PUBLIC, SECOND)
        self.assertEqual(run.json(), {PUBLIC: "internet", SECOND: "host"}, str(run))
        self.assertIn("network", [item["control"] for item in run.record["degraded"]])

    @callers("root", "user")
    def test_the_self_test_tries_the_private_network_of_a_policy(self):
        root = self.make_directory("sessions", owner=None if self.privileged else self.uid, mode=0o711)
        options = ["--policy", "builtin:install@1", "-v", "--sessions-root", str(root)]
        if self.privileged:
            options += ["--uid", str(self.uid)]
        run = self.belljar("--selftest", *options)
        self.assertEqual((run.out, run.code), ("sandbox OK\n", 0), str(run))
        self.assertRegex(run.err, r"reach-metadata +E[A-Z]+ ")
        self.host.run("chmod", "600", "/dev/net/tun")
        run = self.belljar("--selftest", *options)
        self.assertEqual(run.code, 1, str(run))
        self.assertIn("chmod 666 /dev/net/tun", run.out)


class Explain(PrivateNetworkTest):

    @once
    def test_can_answers_by_the_rules(self):
        policy = self.policy({"network": {"allow": {"10.9.0.0/16": {"ports": [80], "because": "x"}}}})
        for address, port, code, text in ((PUBLIC, 80, 0, "private network"), (SECOND, 80, 1, "addresses of the host"),
                                          (GATEWAY, 80, 1, "the host's gateway"), (METADATA, 80, 1, "metadata"),
                                          (PRIVATE[0], 80, 0, ""), (PRIVATE[0], 81, 1, "private ranges"),
                                          ("[2001:db8::1]", 80, 1, "IPv4 only")):
            run = self.belljar("explain", "--policy", policy, "--can", f"connect:{address}:{port}")
            self.assertEqual(run.code, code, f"{address}: {run}")
            self.assertIn(text, run.out)

    @once
    def test_the_plan_says_what_is_reached(self):
        policy = self.policy({"network": {"deny": {PUBLIC: {"because": "x"}}}})
        run = self.belljar("explain", "--policy", policy, "--", "true")
        self.assertIn("attach a network by pasta: nothing comes in, and out it reaches public addresses but 1 ranges",
                      run.out)
        self.assertIn("cover /etc/resolv.conf", run.out)


if __name__ == "__main__":
    main()
