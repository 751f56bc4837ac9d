"""N01 (a network that is said to be none)"""

import contextlib
import socket

from adversarial.case import Case, main


class N01(Case):
    """Without a network the command reaches a service of the host, a neighbour or the metadata, or makes a raw socket."""

    control = {"network": {"mode": "shared"}}
    control_opens = {"the host's loopback"}

    def prepare(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        self.port, self.port6 = listener.getsockname()[1], 9
        with contextlib.suppress(OSError):
            listener6 = socket.create_server(("::1", 0), family=socket.AF_INET6)
            self.addCleanup(listener6.close)
            self.port6 = listener6.getsockname()[1]

    def program(self):
        # Addresses beyond the host are only tried where the kernel refuses at once: nothing is sent to anyone.
        return f"""
            import fcntl, struct
            def reach(family, address, kind=socket.SOCK_STREAM):
                with socket.socket(family, kind) as s:
                    s.settimeout(3)
                    return attempt(s.connect, address)
            names = {{name for _, name in socket.if_nameindex()}}
            tunnels = {{name for name in names if name.rstrip("0") in ("tunl", "gre", "gretap", "erspan", "ip_vti", "ip6_vti",
                                                                     "sit", "ip6tnl", "ip6gre", "bond", "dummy", "ifb")}}
            alone = names - tunnels == {{"lo"}}
            doors = {{"the host's loopback": reach(socket.AF_INET, ("127.0.0.1", {self.port})),
                     "the host's loopback, IPv6": reach(socket.AF_INET6, ("::1", {self.port6})),
                     "interfaces": "lo alone" if alone else "open",
                     "raw socket": attempt(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1),
                     "packet socket": attempt(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 0),
                     "set an interface down": attempt(fcntl.ioctl, socket.socket(), 0x8914, struct.pack("16sH14x", b"lo", 0))}}
            if alone:
                for address in ("192.0.2.1", "10.0.0.1", "169.254.169.254", "172.17.0.1", "8.8.8.8"):
                    doors[address] = reach(socket.AF_INET, (address, 80))
                    doors[f"DNS at {{address}}"] = reach(socket.AF_INET, (address, 53), socket.SOCK_DGRAM)
            say(doors)
        """


if __name__ == "__main__":
    main()
