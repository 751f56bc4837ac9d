"""L14 (sudo CVE-2019-14287, crun CVE-2026-30892, nsjail #266)"""

from adversarial.case import HostileLaunch, main

IDS = ("-1", "4294967295", "4294967296", "4294987296", '"0x0"', '" 20000"', "1e3", "20000.5", "NaN", "1e300",
       "18446744073709551615", "99999999999999999999999", "true", "[0]")
LIMITS = {"limits.wall_time": ("-1s", "0s", "NaN", "1e300s", "18446744073709551615s", "5"),
          "limits.output": ("-1B", "1e300B", "18446744073709551616B", "17179869184GiB", "NaN", "5"),
          "limits.rlimits.nofile": ("-1", "1e300", "18446744073709551616", "NaN", '"0x10"'),
          "limits.rlimits.as": ("-1B", "18446744073709551615GiB", "1.5", '"NaN"')}


class L14(HostileLaunch):
    """A number that is none, wraps around or is out of range becomes an id or a limit."""

    control_opens = {"a number"}

    def set(self, path, text):
        run = self.belljar("run", "--policy", self.policy(), f"--set={path}={text}", "--", "true")
        return "refused" if (run.code, path.split(".")[-1] in run.err) == (125, True) else "open"

    def attempts(self):
        numbers = [*((f"identity.{name}", text) for name in ("uid", "gid") for text in IDS),
                   *((path, text) for path, texts in LIMITS.items() for text in texts)]
        return {f"{path}={text}": self.set(path, text) for path, text in numbers}

    def control_attempts(self):
        return {"a number": self.set("identity.gid", self.gid)}


if __name__ == "__main__":
    main()
