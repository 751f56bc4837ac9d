"""N06 (judge0, CVE-2024-29021; proxies that look at names)"""

from adversarial.case import main
from adversarial.private_network import PrivateNetworkCase
from network.hosts import METADATA, OTHER_PUBLIC, PORT, PRIVATE, PUBLIC, SECOND


class N06(PrivateNetworkCase):
    """With a list of what may be reached the command reaches something else, by another way to write it or to find it."""

    policy_changes = {
        "network": {"mode": "private", "only": {PUBLIC: {"ports": [PORT], "because": "the registry"}}},
        "filesystem": {"mounts": {"/etc/nsswitch.conf": {"type": "file", "content": "hosts: dns\n"}}}}
    control = {"network": {"mode": "shared"},
               "filesystem": {"mounts": {"/etc/resolv.conf": {"type": "file", "content": "nameserver 127.0.0.53\n"}}}}
    control_opens = {OTHER_PUBLIC, "a decimal number", "octal numbers", "mapped into IPv6", "another port",
                     "what the name has become"}

    def prepare(self):
        self.serve(self.internet, PORT + 1, "other port", (PUBLIC,))

    def answers(self):
        # Of the command's own domain: allowed when it is looked at, and another when it is used.
        yield PUBLIC
        while True:
            yield PRIVATE[0]

    def program(self):
        number = int.from_bytes(bytes(map(int, OTHER_PUBLIC.split("."))), "big")
        octal = ".".join(f"{int(part):#o}".replace("0o", "0") for part in OTHER_PUBLIC.split("."))
        return self.reaching(f"""
    def written(text):
        return door(socket.inet_ntoa(socket.inet_aton(text)), {PORT})
    assert door({PUBLIC!r}, {PORT}) == "open"
    doors = {{address: door(address, {PORT}) for address in {(OTHER_PUBLIC, METADATA, SECOND, *PRIVATE)!r}}}
    doors["a decimal number"] = written("{number}")
    doors["octal numbers"] = written("{octal}")
    doors["another port"] = door({PUBLIC!r}, {PORT + 1})
    doors["UDP"] = door({OTHER_PUBLIC!r}, {PORT}, "udp")
    doors["past the routes"] = door({OTHER_PUBLIC!r}, {PORT}, "tcp", True)
    with socket.socket(socket.AF_INET6) as s:
        s.settimeout(2)
        doors["mapped into IPv6"] = attempt(s.connect, ("::ffff:{OTHER_PUBLIC}", {PORT}))
    names = [socket.gethostbyname("rebinding.example") for _ in range(2)]
    assert names == [{PUBLIC!r}, {PRIVATE[0]!r}], names
    doors["what the name has become"] = door(names[1], {PORT})
    say(doors)
        """)


if __name__ == "__main__":
    main()
