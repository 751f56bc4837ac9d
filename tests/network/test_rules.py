"""network.allow, only and deny: by range and port, with a reason that reaches the record."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import back_ends, callers, main, once
from network.hosts import (FIRST, GATEWAY, METADATA, OTHER_PUBLIC, PORT, PRIVATE, PUBLIC, PrivateNetworkTest)

REFUSED = "ECONNREFUSED"


def network(**rules):
    return {"network": {"mode": "private", **rules}}


class Rules(PrivateNetworkTest):

    def test_a_private_range_is_reached_when_it_is_allowed_and_its_neighbours_are_not(self):
        policy = network(allow={"10.9.0.0/16": {"ports": [PORT], "because": "the database"}})
        self.assertEqual(self.reach(*PRIVATE, policy=policy),
                         {PRIVATE[0]: "internet", PRIVATE[1]: REFUSED, PRIVATE[2]: REFUSED})

    @once
    def test_an_allowed_range_is_reached_on_its_ports_alone(self):
        self.serve(self.internet, PORT + 1, "other port", PRIVATE[:1])
        policy = network(allow={"10.9.9.9": {"ports": [PORT + 1], "because": "the database"}})
        self.assertEqual(self.reach(PRIVATE[0], policy=policy), {PRIVATE[0]: REFUSED})
        self.assertEqual(self.reach(PRIVATE[0], port=PORT + 1, policy=policy), {PRIVATE[0]: "other port"})
        self.assertEqual(self.reach(PRIVATE[0], port=PORT + 1, kind="udp", policy=policy), {PRIVATE[0]: "other port"})

    def test_with_a_list_nothing_else_is_reached(self):
        policy = network(only={PUBLIC: {"because": "the registry"}})
        self.assertEqual(self.reach(PUBLIC, OTHER_PUBLIC, policy=policy), {PUBLIC: "internet", OTHER_PUBLIC: REFUSED})
        self.assertEqual(self.reach(OTHER_PUBLIC, bound=True, policy=policy), {OTHER_PUBLIC: REFUSED})
        self.assertEqual(self.reach(PUBLIC, policy=network(only={})), {PUBLIC: REFUSED})

    @once
    def test_names_are_resolved_with_any_list(self):
        run = self.inside("say(socket.gethostbyname('anything.example'))", policy={
            **network(only={}),
            "filesystem": {"mounts": {"/etc/nsswitch.conf": {"type": "file", "content": "hosts: dns\n"}}}})
        self.assertEqual(run.json(), PUBLIC)

    def test_what_is_denied_is_not_reached_whatever_allows_it(self):
        policy = network(allow={"10.0.0.0/8": {"because": "all of it"}}, deny={"10.9.0.0/16": {"because": "but that"}})
        self.assertEqual(self.reach(PRIVATE[0], policy=policy), {PRIVATE[0]: REFUSED})
        self.assertIn({"to": "10.9.0.0/16", "because": "but that"},
                      [{key: one[key] for key in ("to", "because")} for one in self.last.record["unreached"]])

    @once
    def test_no_policy_opens_the_host_its_gateway_or_the_metadata(self):
        policy = network(allow={"192.168.0.0/16": {"because": "x"}, "10.0.0.0/8": {"because": "x"}},
                         only={METADATA: {"because": "x"}, "0.0.0.0/0": {"because": "x"}})
        self.assertEqual(self.reach(FIRST, GATEWAY, METADATA, PUBLIC, PRIVATE[1], policy=policy),
                         {FIRST: REFUSED, GATEWAY: REFUSED, METADATA: REFUSED, PUBLIC: "internet",
                          PRIVATE[1]: "internet"})

    @once
    def test_rules_without_a_private_network_are_refused(self):
        for mode in ("none", "shared"):
            for rules in ({"deny": {PUBLIC: {"because": "x"}}}, {"only": {}},
                          {"allow": {"10.0.0.0/8": {"because": "x"}}}):
                run = self.sandbox("true", policy={"network": {"mode": mode, **rules}})
                self.check_refused(run, "hold in a private network only", "network." + next(iter(rules)))

    @once
    def test_rules_are_never_traded_for_the_hosts_network(self):
        run = self.sandbox("true", env=self.stand_in("exit 1"),
                           policy=network(enforce="prefer", deny={PUBLIC: {"because": "x"}}))
        self.check_refused(run, "pasta exited with status 1")

    @once
    def test_more_rules_than_the_kernel_takes_at_once_are_refused(self):
        deny = {f"11.{i}.0.0/16": {"ports": [80, 443, 22], "because": "x"} for i in range(100)}
        self.check_refused(self.sandbox("true", policy=network(deny=deny)), "more than 400", "network")


if __name__ == "__main__":
    main()
