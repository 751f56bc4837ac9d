"""R08 (Firecracker's advice on serial output and logs)"""

from adversarial.case import HostileLaunch, main
from harness import back_ends, callers

FLOOD = "line = b'x' * 65536\nfor _ in range(64): os.write(1, line); os.write(2, line)\n"


class R08(HostileLaunch):
    """The command writes without end, on both streams, without a newline."""

    control_opens = {"more than the limit"}

    def flood(self, limits):
        run = self.inside(FLOOD, policy={"limits": limits})
        passed = run.raw_out.count(b"x") + run.raw_err.count(b"x" * 1024) * 1024
        return {"more than the limit": "open" if passed > 100_000 else run.record["cause"]}

    def attempts(self):
        return self.flood({"output": "100000B"})

    def control_attempts(self):
        return self.flood({})

    @callers("root", "user")
    @back_ends("modern")
    def test_readers_that_do_not_read_hold_up_neither_the_clock_nor_the_end(self):
        """Not even that of belljar itself, which has something to say on the same stream."""
        running = self.start_inside(FLOOD, policy={"limits": {"output": "64MiB", "wall_time": "300ms"}})
        running.process.wait(25)
        self.assertEqual(running.finish().record["cause"], "wall_time")


if __name__ == "__main__":
    main()
