"""What the cases of a private network stand on: a host made of namespaces (tests/network/hosts.py)."""

from adversarial.case import Case, merge
from network.hosts import REACH, PrivateNetworkTest

SHARED = {"network": {"mode": "shared"}}


class PrivateNetworkCase(Case, PrivateNetworkTest, abstract=True):
    """A case on a private network; without one, the same attack has the host's."""

    control = SHARED
    bubblewrap = False
    callers_of_control = ("root",)
    back_ends_of_control = ("modern",)

    @staticmethod
    def reaching(code):
        """Code that can say("open" or why not) of `door(address, port, kind, bound)`."""
        return REACH + """
    def door(*target):
        answer = reach(*target)
        return answer if answer.isupper() or answer == "timeout" else "open"
""" + code

    def attack_with_control_off(self):
        changes = merge(self.policy_changes, self.control)
        for name in ("allow", "only", "deny", "publish"):
            changes["network"].pop(name, None)
        return self.attack(changes)
