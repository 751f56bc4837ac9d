"""N04 (pasta as it comes: the host's loopback through the gateway's address, and ports forwarded inwards)"""

import json
import socket

from adversarial.case import main
from adversarial.private_network import PrivateNetworkCase
from network.hosts import FIRST, GATEWAY, METADATA, PORT, PRIVATE, SECOND


class N04(PrivateNetworkCase):
    """By pasta the command reaches the host's loopback or another of its addresses, or is reached from outside."""

    control_opens = {"loopback", FIRST, SECOND, f"UDP to {SECOND}", "from outside"}

    def program(self):
        return self.reaching(f"""
    server = socket.create_server(("0.0.0.0", {PORT + 1}))
    print("listening", flush=True)
    sys.stdin.readline()
    doors = {{"loopback": door("127.0.0.1", {PORT}), "pasta's gateway": door("192.0.0.1", {PORT})}}
    for address in {(GATEWAY, FIRST, SECOND, METADATA, *PRIVATE)!r}:
        doors[address] = door(address, {PORT})
        doors[f"UDP to {{address}}"] = door(address, {PORT}, "udp")
        doors[f"{{address}} past the routes"] = door(address, {PORT}, "tcp", True)
    say(doors)
        """)

    def from_outside(self):
        def connect(address):
            with socket.socket() as s:
                s.settimeout(2)
                return s.connect_ex((address, PORT + 1)) == 0
        met = self.host.within(lambda: [connect(address) for address in ("127.0.0.1", FIRST, SECOND, "192.0.0.2")])
        return "open" if any(met) else "refused"

    def attack(self, changes, **more):
        run = self.start_inside(self.program(), policy=changes, stdin=-1, **more)
        run.wait_for_output("listening")
        outside = self.from_outside()
        run.process.stdin.write(b"\n")
        run.process.stdin.flush()
        done = run.finish()
        self.check_exited(done)
        return {"from outside": outside, **json.loads(done.out.splitlines()[-1])}


if __name__ == "__main__":
    main()
