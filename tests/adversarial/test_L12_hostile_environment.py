"""L12 (PwnKit CVE-2021-4034, Looney Tunables CVE-2023-4911, nsjail #275, firejail CVE-2020-17368)"""

import subprocess

from adversarial.case import BELLJAR, HostileLaunch, environment, main
from harness import SANITIZED, leave_out

# A library that leaves a mark wherever it is loaded.
MARK = '#include <fcntl.h>\n__attribute__((constructor)) static void mark(void) { open(MARKED, O_CREAT | O_WRONLY, 0666); }\n'
# belljar with no argument at all, not even its own name.
NO_ARGUMENTS = """
import ctypes, sys
ctypes.CDLL(None).execve(sys.argv[1].encode(), (ctypes.c_char_p * 1)(None), (ctypes.c_char_p * 1)(None))
"""


class L12(HostileLaunch):
    """belljar is started with an environment or arguments that make other programs load code or run a helper."""

    control_opens = {"LD_PRELOAD", "PATH"}

    def prepare(self):
        self.marked = self.make_directory("marked", mode=0o777)
        helpers = self.make_directory("helpers")
        for name in ("pasta", "newuidmap", "newgidmap", "sh", "mount", "bwrap"):
            self.make_file(f"helpers/{name}", f"#!/usr/bin/python3\nopen('{self.marked}/helper', 'w')\n", mode=0o755)
        source = self.make_file("mark.c", MARK)
        self.library = self.dir / "mark.so"
        subprocess.run(["cc", "-shared", "-fPIC", f'-DMARKED="{self.marked}/library"', "-o", self.library, source],
                       check=True)
        self.hostile = {
            "LD_PRELOAD": {"LD_PRELOAD": str(self.library), "LD_LIBRARY_PATH": str(self.dir)},
            "GLIBC_TUNABLES": {"GLIBC_TUNABLES": "glibc.malloc.mxfast=glibc.malloc.mxfast=A" * 20},
            "GCONV_PATH": {"GCONV_PATH": str(helpers), "CHARSET": "BELL", "LANG": "xx_YY.BELL"},
            "PATH": {"PATH": f"{helpers}:/usr/bin:/bin"},
            "newlines and percents": {"A\nB": "c\nd", "%s%n": "%s%n", "HOME": "$(touch x)\n"},
            "a megabyte": {f"V{number}": "x" * 100_000 for number in range(10)},
        }

    def marks(self):
        found = sorted(path.name for path in self.marked.iterdir())
        for name in found:
            (self.marked / name).unlink()
        return found

    def attempts(self):
        expected = self.sandbox("/tools/state", policy={"env": {"pass": None}})
        self.check_exited(expected)
        doors = {}
        for name, more in self.hostile.items():
            # Not for the programs in front of belljar, which make the caller and the back end.
            wrap = ["env", *(f"{key}={value}" for key, value in more.items())]
            run = self.sandbox("/tools/state", policy={"env": {"pass": None}}, wrap=wrap)
            same = run.out == expected.out and run.code == 0
            doors[name] = "open" if self.marks() else "the same launch" if same else "open"
        done = subprocess.run(["/usr/bin/python3", "-c", NO_ARGUMENTS, str(BELLJAR)], capture_output=True, timeout=10)
        doors["no arguments"] = "refused" if done.returncode in (2, 125) else "open"
        return doors

    def control_attempts(self):
        """A dynamic program loads the library, and who asks a shell for a helper gets the false one."""
        subprocess.run(["/bin/true"], env=environment(**self.hostile["LD_PRELOAD"]), check=True)
        loaded = self.marks()
        subprocess.run(["/bin/sh", "-c", "pasta"], env=environment(**self.hostile["PATH"]), check=True)
        return {"LD_PRELOAD": "open" if loaded else "nothing", "PATH": "open" if self.marks() else "nothing"}

    def test_no_door_is_open(self):
        self.check_no_door_is_open()

    # A build with sanitizers is dynamic: the loader takes the library before belljar says a word.
    leave_out(test_no_door_is_open, SANITIZED)


if __name__ == "__main__":
    main()
