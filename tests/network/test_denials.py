"""--explain-denials and a private network: which rule refused an address, and what would open it."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import back_ends, callers, main, once
from network.hosts import METADATA, OTHER_PUBLIC, PORT, PRIVATE, PUBLIC, SECOND, PrivateNetworkTest, with_reach


class Denials(PrivateNetworkTest):

    def explain(self, *addresses, policy=None, change=None):
        """The answers from inside, and {address: denial} of those that were refused."""
        options = ["--explain-denials", *(["--set", change] if change else [])]
        code = with_reach(f"say([reach(a, {PORT}) for a in {addresses!r}])")
        run = self.inside(code, policy=policy, options=options)
        self.check_exited(run)
        denied = {one["subject"].rpartition(":")[0]: one for one in run.record["denials"]
                  if one["what"] == "connect"}
        return run.json(), denied

    @callers("root", "user")
    @back_ends("modern")
    def test_an_address_that_a_line_would_open_is_named_with_that_line(self):
        only = {"network": {"mode": "private", "only": {PUBLIC: {"ports": [1], "because": "x"}}}}
        deny = {"network": {"mode": "private", "deny": {"93.184.216.0/24": {"because": "the payroll"}}}}
        for address, policy, line, because in (
                (PRIVATE[0], None, "network.mode", "private ranges"),
                (OTHER_PUBLIC, only, "network.only", "what network.only does not name"),
                (PUBLIC, only, "network.only", "what network.only does not name"),
                (PUBLIC, deny, 'network.deny["93.184.216.0/24"]', "the payroll")):
            answers, denied = self.explain(address, policy=policy)
            self.assertEqual(answers, ["ECONNREFUSED"], address)
            self.assertIn(line, denied[address]["policy"])
            self.assertIn(because, denied[address]["because"])
            answers, denied = self.explain(address, policy=policy, change=denied[address]["change"])
            self.assertEqual((answers, denied), (["internet"], {}), address)

    @once
    def test_what_no_policy_opens_is_told_without_a_line_to_change(self):
        answers, denied = self.explain(SECOND, METADATA, PUBLIC, "127.0.0.1")
        self.assertEqual(answers, ["ECONNREFUSED", "ECONNREFUSED", "internet", "ECONNREFUSED"])
        self.assertEqual(set(denied), {SECOND, METADATA})
        self.assertEqual([denied[address].get("change", "") for address in (SECOND, METADATA)], ["", ""])
        self.assertIn("addresses of the host", denied[SECOND]["because"])


if __name__ == "__main__":
    main()
