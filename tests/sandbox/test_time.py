"""An own time namespace: its clocks are where the policy puts them, the host's stay."""

import time

from harness import SandboxTest, main

SAY = """
    say({'boottime': time.clock_gettime(time.CLOCK_BOOTTIME), 'monotonic': time.clock_gettime(time.CLOCK_MONOTONIC),
         'realtime': time.time(), 'uptime': float(open('/proc/uptime').read().split()[0]),
         'namespace': os.readlink('/proc/self/ns/time')})
"""
CLOCKS = {"boottime": time.CLOCK_BOOTTIME, "monotonic": time.CLOCK_MONOTONIC, "realtime": time.CLOCK_REALTIME,
          "uptime": time.CLOCK_BOOTTIME}


def new_time(**offsets):
    return {"namespaces": {"time": "new", "time_offsets": offsets}}


class Time(SandboxTest):

    def clocks(self, policy=None):
        """How far each clock inside is ahead of the host's, in seconds, and the namespace."""
        run = self.inside(SAY, policy=policy)
        self.check_exited(run)
        said = run.json()
        return {name: said[name] - time.clock_gettime(clock) for name, clock in CLOCKS.items()}, said["namespace"]

    def check_ahead(self, offsets, **expected):
        for name, offset in offsets.items():
            # The host's clock has gone on a little since.
            self.assertAlmostEqual(offset, expected.get(name, 0) - 2.5, delta=2.6, msg=name)

    def test_clocks_are_ahead_by_the_offsets(self):
        ahead, _ = self.clocks(new_time(boottime="1h", monotonic="30m"))
        self.check_ahead(ahead, boottime=3600, uptime=3600, monotonic=1800)

    def test_clocks_go_back_by_parts_of_a_second(self):
        ahead, _ = self.clocks(new_time(boottime="-30500ms", monotonic="-30s"))
        self.check_ahead(ahead, boottime=-30.5, uptime=-30.5, monotonic=-30)

    def test_without_a_word_the_clocks_are_the_hosts(self):
        ahead, shared = self.clocks()
        self.check_ahead(ahead)
        _, own = self.clocks(new_time())
        self.assertNotEqual(own, shared)

    def test_one_offset_leaves_the_other_clock_alone(self):
        ahead, _ = self.clocks(new_time(monotonic="1d"))
        self.check_ahead(ahead, monotonic=86400)

    def test_a_clock_cannot_go_below_zero(self):
        run = self.sandbox("true", policy=new_time(boottime="-365d"))
        self.check_refused(run, "ERANGE", "not been up for as long", "namespaces.time")

    def test_a_time_namespace_is_no_way_to_more(self):
        """Its offsets are the policy's for good."""
        code = "say(attempt(lambda: os.write(os.open('/proc/self/timens_offsets', os.O_WRONLY), b'boottime 5 0')))"
        for policy in (new_time(boottime="1h"), None):
            self.assertEqual(self.inside(code, policy=policy).json(), "EPERM")


if __name__ == "__main__":
    main()
