"""S08 (Copy Fail CVE-2026-31431, Dirty Frag, CVE-2020-14386, moby #44562)"""

from adversarial.case import NO_FILTER, Case, main


class S08(Case):
    """A socket of a family, kind or protocol is made that programs hardly need and kernel faults live in."""

    control = NO_FILTER
    control_opens = {"family 40"}  # vsock, which no network namespace holds.

    def program(self):
        return """
            UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
            KINDS = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET)
            def made(family, kind, protocol=0):
                return attempt(lambda: socket.socket(family, kind, protocol).close())
            def best(answers): return "open" if "open" in answers else sorted(set(answers))[0]
            doors = {f"family {family}": best([made(family, kind) for kind in KINDS])
                     for family in range(51) if family not in (UNIX, INET, INET6, NETLINK)}
            doors |= {f"pair of family {family}": best([attempt(lambda: socket.socketpair(family, kind)) for kind in KINDS])
                      for family in range(51) if family != UNIX}
            doors |= {f"netlink {protocol}": made(NETLINK, socket.SOCK_RAW, protocol) for protocol in range(1, 31)}
            doors |= {f"raw of family {family}": made(family, socket.SOCK_RAW, 1) for family in (INET, INET6)}
            say(doors)
        """

    def test_no_door_is_open(self):
        self.check_no_door_is_open()
        run = self.inside("say([attempt(socket.socket, *words) for words in ((1, 1), (2, 1), (10, 2), (16, 3, 0))])")
        self.assertEqual(run.json(), ["open"] * 4, "what programs need")


if __name__ == "__main__":
    main()
