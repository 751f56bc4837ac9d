"""What the doctor finds of what a private network needs, each by a host that lacks it."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import environment, main, once
from network.hosts import PrivateNetworkTest

OF_THE_NETWORK = {"no-pasta", "old-pasta", "no-tun", "tun-closed", "no-nftables", "no-way-out"}


class Findings(PrivateNetworkTest):

    def findings(self, policy="builtin:install@1", **options):
        """{id: finding} of the network."""
        root = self.make_directory("sessions", mode=0o711)
        run = self.belljar("doctor", "--json", "--policy", policy, "--sessions-root", str(root), **options)
        found = {one["id"]: one for one in json.loads(run.out)["findings"] if one["id"] in OF_THE_NETWORK}
        if any(one["weight"] == "missing" for one in found.values()):
            self.assertEqual(run.code, 1, str(run))
        return found

    @once
    def test_a_host_that_has_all_of_it_lacks_nothing(self):
        self.assertEqual(self.findings(), {})

    @once
    def test_each_thing_that_is_missing_is_found_with_its_remedy(self):
        found = self.findings(env=environment(BELLJAR_PASTA="/nonexistent"))
        self.assertEqual(set(found), {"no-pasta"})
        self.assertIn("apt-get install passt", found["no-pasta"]["remedy"])
        found = self.findings(env=self.stand_in("echo '  --netns  --userns  --config-net'"))
        self.assertEqual(set(found), {"old-pasta"})
        self.assertIn("--dns-forward", str(found))
        self.host.run("chmod", "600", "/dev/net/tun")
        found = self.findings()
        self.assertEqual(set(found), {"tun-closed"})
        self.assertIn("chmod 666 /dev/net/tun", found["tun-closed"]["remedy"])
        self.host.run("chmod", "666", "/dev/net/tun")
        self.host.run("ip", "route", "del", "default")
        self.assertEqual(set(self.findings()), {"no-way-out"})
        self.host.run("ip", "route", "add", "default", "dev", "eth0")
        self.host.run("sh", "-ec", "umount /dev/net/tun; mount -t tmpfs tmpfs /dev/net")
        self.assertIn("no-tun", self.findings())

    @once
    def test_a_kernel_without_nftables_is_found_by_trying(self):
        found = self.findings(wrap=[self.tool("refuse"), "nftables=EPROTONOSUPPORT"])
        self.assertEqual(set(found), {"no-nftables"})
        self.assertIn("EPROTONOSUPPORT", found["no-nftables"]["evidence"])
        self.assertIn("modprobe nf_tables nft_reject_inet", found["no-nftables"]["remedy"])

    @once
    def test_the_script_opens_a_closed_tun(self):
        self.host.run("chmod", "600", "/dev/net/tun")
        root = self.make_directory("sessions", mode=0o711)
        words = ["doctor", "--policy", "builtin:install@1", "--sessions-root", str(root)]
        script = self.make_file("fix.sh", self.belljar(*words, "--fix-script").out)
        self.host.run("sh", str(script))
        self.assertEqual(self.findings(), {})

    @once
    def test_a_pasta_that_never_answers_holds_nobody_up(self):
        self.assertIn("old-pasta", self.findings(env=self.stand_in("exec sleep 100")))

    @once
    def test_a_policy_that_only_prefers_it_is_weaker_and_one_without_it_does_not_care(self):
        self.host.run("chmod", "600", "/dev/net/tun")
        self.assertEqual({one["weight"] for one in self.findings("builtin:shell@1").values()}, {"weaker"})
        self.assertEqual(self.findings("builtin:validator@1"), {})


if __name__ == "__main__":
    main()
