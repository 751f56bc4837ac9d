"""N05 (Docker Desktop, CVE-2025-9074)"""

from adversarial.case import main
from adversarial.private_network import PrivateNetworkCase
from network.hosts import FIRST, GATEWAY, PORT, SECOND


class N05(PrivateNetworkCase):
    """The command reaches an API of the host's that listens on all addresses, by any of them or by a name for one."""

    control_opens = {"127.0.0.1", FIRST, SECOND, "by a name"}
    found = SECOND  # What the resolver says of every name: it may be in league with the command.

    policy_changes = {"filesystem": {"mounts": {
        "/etc/nsswitch.conf": {"type": "file", "content": "hosts: dns\n"}}}}
    control = {"network": {"mode": "shared"},
               "filesystem": {"mounts": {"/etc/resolv.conf": {"type": "file", "content": "nameserver 127.0.0.53\n"}}}}

    def program(self):
        return self.reaching(f"""
    doors = {{address: door(address, {PORT}) for address in ("127.0.0.1", "127.0.0.53", "127.1.2.3", "0.0.0.0",
                                                            {FIRST!r}, {SECOND!r}, {GATEWAY!r}, "192.0.0.1", "192.0.0.3")}}
    named = socket.gethostbyname("api.internal.example")
    assert named == {SECOND!r}, named
    doors["by a name"] = door(named, {PORT})
    with socket.socket(socket.AF_INET6) as s:
        s.settimeout(2)
        doors["by a mapped address"] = attempt(s.connect, ("::ffff:{SECOND}", {PORT}))
    say(doors)
        """)


if __name__ == "__main__":
    main()
