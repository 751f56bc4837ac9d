"""S03 (flatpak CVE-2021-41133)"""

import functools
import json
import re
import subprocess

from adversarial.case import NO_FILTER, Case, main
from harness import ROOT

TABLE = ROOT / "launcher" / "seccomp" / "table.json"
NAMES = ROOT / "launcher" / "seccomp" / "names.cpp"


@functools.cache
def numbers():
    """name -> number of this machine's calls, by the kernel's own header and, newer than it, our table."""
    text = subprocess.run(["cc", "-E", "-dM", "-include", "asm/unistd.h", "-x", "c", "/dev/null"], check=True,
                          capture_output=True, text=True).stdout
    known = re.findall(r"#define __NR_(\w+) (\d+)$", text, re.MULTILINE)
    newer = re.findall(r'^    \{"(\w+)", (\d+)\},$', NAMES.read_text(), re.MULTILINE)
    return {name: int(number) for name, number in [*newer, *known]}


@functools.cache
def planned():
    """number -> errno of every number that agent@1 refuses whatever the arguments are."""
    agent = json.loads(TABLE.read_text())["sets"]["agent@1"]
    known = numbers()
    allowed = {known[name] for name in (*agent["allow"], *agent["arguments"]) if name in known}
    refused = {known[name]: "EPERM" for group in agent["eperm"] for name in group["calls"] if name in known}
    # uretprobe and uprobe: the kernel exempts its own trampolines from every filter.
    trampolines = {335, 336} if "arch_prctl" in known else set()
    return {number: refused.get(number, agent["default"]) for number in range(601)
            if number not in allowed | trampolines}


class S03(Case):
    """A system call that nobody thought of: each number from 0 to 600 that the table does not allow is made."""

    control = NO_FILTER

    def program(self):
        # -1 is no pointer, descriptor, flag or size that the kernel could do something with.
        return f"""
            planned = {planned()!r}
            names = {{number: name for name, number in {numbers()!r}.items()}}
            import ctypes
            call_of = libc().syscall
            def verdict(number):
                said = call_of(ctypes.c_long(number), *[ctypes.c_long(-1)] * 6)
                return "open" if said >= 0 else errno.errorcode.get(ctypes.get_errno(), "unknown")
            say({{names.get(number, str(number)): "open" if verdict(number) != wanted else wanted
                 for number, wanted in planned.items()}})
        """

    def check_with_the_control_off_the_attack_succeeds(self):
        """Without the filter the kernel itself answers, and otherwise than the table."""
        doors = self.attack_with_control_off()
        self.assertGreater(sum(answer == "open" for answer in doors.values()), 30, doors)

    def test_no_door_is_open(self):
        self.check_no_door_is_open()
        self.assertGreater(len(planned()), 200)


if __name__ == "__main__":
    main()
