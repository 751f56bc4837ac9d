"""N07 (pasta as a target)"""

import contextlib

from adversarial.case import main
from adversarial.private_network import PrivateNetworkCase
from harness import once, wait_for


class N07(PrivateNetworkCase):
    """The command finds the pasta that carries its network, signals or traces it, or leaves it behind."""

    policy_changes = {"syscalls": {"base": "none"}}
    control_opens = {"seen", "signalled", "its descriptors"}

    def program(self):
        # The neighbour's own number is none of a sandbox's: all numbers that there are get asked.
        return """
            found = []
            for entry in os.listdir("/proc"):
                if entry.isdigit():
                    try: name = open(f"/proc/{entry}/comm").read()
                    except OSError: continue
                    if name.startswith(("pasta", "passt")): found.append(int(entry))
            doors = {"seen": "open" if found else "not there", "signalled": "not there", "its descriptors": "not there"}
            for pid in found:
                if attempt(os.kill, pid, 0) == "open": doors["signalled"] = "open"
            guards = []
            for entry in os.listdir("/proc"):
                if entry.isdigit() and entry != str(os.getpid()):
                    try: words = open(f"/proc/{entry}/cmdline").read()
                    except OSError: continue
                    if "pasta" in words: guards.append(entry)
            if guards: doors["its descriptors"] = "open"
            say(doors)
        """

    def attack(self, changes, **more):
        doors = super().attack(changes, **more)
        doors["left behind"] = "open" if self.pastas() else "gone"
        return doors

    def attack_with_control_off(self):
        """As the same uid, outside of any sandbox, while a pasta runs."""
        run = self.start_inside("say('up'); sys.stdin.read()", stdin=-1)
        run.wait_for_output("up")
        doors = self.on_this_host(self.program(), uid=self.uid)
        run.process.stdin.close()
        run.process.stdin = None
        run.finish()
        return doors

    @once
    def test_a_flood_ends_no_other_s_network(self):
        """The command opens all that it can, and goes; the next has its network."""
        run = self.inside("""
            held = []
            with __import__("contextlib").suppress(OSError):
                for port in range(1, 3000):
                    s = socket.socket(); s.setblocking(False); held.append(s)
                    try: s.connect(("93.184.216.34", 8765))
                    except BlockingIOError: pass
            say(len(held))
        """)
        self.assertGreater(run.json(), 100, str(run))
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not self.pastas())
        self.assertEqual(self.pastas(), [])
        self.assertEqual(self.reach("93.184.216.34"), {"93.184.216.34": "internet"})


if __name__ == "__main__":
    main()
