"""R07 (isolate, judge0's wall_time of 0)"""

from adversarial.case import HostileLaunch, main

SPIN = """
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    if os.fork() == 0:
        os.setsid()
        while True: pass
    print("spinning", flush=True)
    time.sleep(1.2)
    print("still here", flush=True)
"""

BURN = """
    while time.process_time() < 1: pass
    print("still here", flush=True)
"""


class R07(HostileLaunch):
    """The command outlives its time by ignoring signals, sleeping or spinning, or raises its priority."""

    control_opens = {"wall time", "processor time"}
    callers_of_control = ("root", "user")
    back_ends_of_control = ("modern",)

    def spin(self, limits, code=SPIN):
        run = self.inside(code, policy={"limits": limits})
        return "open" if "still here" in run.out else run.record["cause"]

    def attempts(self):
        doors = {"wall time": self.spin({"wall_time": "300ms"}),
                 "processor time": self.spin({"cpu_time": "100ms", "enforce": "prefer"}, BURN)}
        run = self.inside("""
            say({"real time": attempt(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1)),
                 "round robin": attempt(os.sched_setscheduler, 0, os.SCHED_RR, os.sched_param(1)),
                 "nice -20": attempt(os.setpriority, os.PRIO_PROCESS, 0, -20)})
        """, policy={"limits": {"rlimits": {"rtprio": 0, "nice": 0}}})
        for text in ("0s", "-1s", "0", "NaN"):
            run_with = self.sandbox("true", options=[f"--timeout={text}"])
            doors[f"--timeout={text}"] = "refused" if run_with.code == 125 else "open"
        return {**doors, **run.json()}

    def control_attempts(self):
        return {"wall time": self.spin({}), "processor time": self.spin({}, BURN)}


if __name__ == "__main__":
    main()
