"""N02 (containerd CVE-2020-15257, X11's abstract socket)"""

import os
import socket

from adversarial.case import Case, main

SHARED = {"network": {"mode": "shared"}}


class N02(Case):
    """The command connects to an abstract unix socket of the host's, with no network and with the host's."""

    control = SHARED
    control_opens = {"connect", "send"}

    def prepare(self):
        self.name = f"\0belljar-test-{os.getpid()}-{id(self)}"
        for kind, suffix in ((socket.SOCK_STREAM, "s"), (socket.SOCK_DGRAM, "d")):
            listener = socket.socket(socket.AF_UNIX, kind)
            self.addCleanup(listener.close)
            listener.bind(self.name + suffix)
            if kind == socket.SOCK_STREAM:
                listener.listen()

    def variants(self):
        return [{}, {**SHARED, "landlock": {"scopes": ["abstract_unix_socket"]}}]

    def program(self):
        return f"""
            stream, datagram = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            say({{"connect": attempt(stream.connect, {self.name + "s"!r}),
                 "send": attempt(datagram.sendto, b"x", {self.name + "d"!r})}})
        """

    def bubblewrap_options(self):
        """As those run it who need the network."""
        return ["--share-net"]


if __name__ == "__main__":
    main()
