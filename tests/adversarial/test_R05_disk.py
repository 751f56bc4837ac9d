"""R05 (codejail's limitations: no rlimit sums files up)"""

from adversarial.case import HostileLaunch, main

MIB = 1 << 20
FILL = f"""
    for number in range(8):
        with open(f"file-{{number}}", "wb") as file: file.write(bytes({MIB}))
    print("open", flush=True)
    time.sleep(20)
"""


class R05(HostileLaunch):
    """The workspace is filled by many files, each below the size of one; or by a single one."""

    control_opens = {"many files", "one file"}
    callers_of_attack = callers_of_control = ("root", "user")
    back_ends_of_control = ("modern",)

    def try_it(self, limits):
        run = self.start_inside(FILL, policy={"limits": {**limits, "wall_time": "3s"}}).finish()
        many = "open" if run.record["cause"] == "wall_time" else run.record["cause"]
        for path in self.work.iterdir():
            path.unlink()
        run = self.sandbox("dd", "if=/dev/zero", "of=big", "bs=1M", "count=8", policy={"limits": limits})
        one = "open" if run.record["cause"] == "exited" and run.code == 0 else run.record["cause"]
        (self.work / "big").unlink()
        return {"many files": many, "one file": one}

    def attempts(self):
        return self.try_it({"disk": "4MiB"})

    def control_attempts(self):
        return self.try_it({})


if __name__ == "__main__":
    main()
