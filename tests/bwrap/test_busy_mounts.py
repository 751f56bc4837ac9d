"""Launches beside somebody who mounts and unmounts all the time, on a host with a thousand mounts more."""

import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import AS_ROOT, SandboxTest, callers, environment, main
from test_bwrap import BWRAP

LAUNCHES = 500
MOUNTS = 1000

# In a mount namespace of its own: what is mounted here is nobody else's. The other process is stopped by the end of
# its pipe, and says how often it has mounted.
WORLD = """
import json, os, subprocess, sys
place, mounts, launches, command = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
libc = __import__("ctypes").CDLL(None, use_errno=True)

def call(function, *arguments):
    if function(*arguments) != 0:
        raise OSError(__import__("ctypes").get_errno(), str(arguments))

def mount(at):
    call(libc.mount, b"none", at.encode(), b"tmpfs", 0, None)

def bind(at):
    call(libc.mount, at.encode(), at.encode(), None, 4096, None)

# Shared with the copies of this namespace, as a host's mounts are: what is mounted meanwhile comes after them.
call(libc.mount, None, b"/", None, 0x4000 | 1 << 20, None)
for number in range(mounts):
    os.mkdir(f"{place}/{number}")
    bind(f"{place}/{number}")
os.mkdir(f"{place}/busy")
lifeline, told = os.pipe(), os.pipe()
if os.fork() == 0:
    os.close(lifeline[1])
    os.set_blocking(lifeline[0], False)
    times = 0
    while True:
        try:
            if os.read(lifeline[0], 1) == b"":
                break
        except BlockingIOError:
            pass
        mount(f"{place}/busy")
        os.mkdir(f"{place}/busy/below")
        mount(f"{place}/busy/below")
        call(libc.umount2, f"{place}/busy/below".encode(), 2)
        call(libc.umount2, f"{place}/busy".encode(), 2)
        times += 1
    os.write(told[1], str(times).encode())
    os._exit(0)
failed = []
for _ in range(launches):
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 42:
        failed.append([done.returncode, done.stderr])
os.close(lifeline[1])
print(json.dumps({"failed": failed, "mounted": int(os.read(told[0], 32))}))
"""


class BusyMounts(SandboxTest):
    @callers("root", "user")
    def test_no_launch_fails_while_mounts_come_and_go(self):
        place = self.make_directory("mounts")
        command = [*map(str, self.prefix()), str(BWRAP), "--ro-bind", "/", "/", "--tmpfs", "/tmp", "--proc", "/proc",
                   "--dev", "/dev", "--unshare-all", "sh", "-c", "exit 42"]
        own = ["unshare", "--mount", "--propagation", "private", *([] if AS_ROOT else ["--user", "--map-root-user"])]
        back = {"BELLJAR_BACK_END": "legacy"} if self.back_end == "legacy" else {}
        done = subprocess.run([*own, "/usr/bin/python3", "-c", WORLD, place, str(MOUNTS), str(LAUNCHES),
                               json.dumps(command)], env=environment(**back), capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=900)
        self.assertEqual(done.returncode, 0, done.stderr)
        seen = json.loads(done.stdout)
        self.assertEqual(seen["failed"], [])
        self.assertGreater(seen["mounted"], LAUNCHES // 10, "next to nothing was mounted meanwhile")


if __name__ == "__main__":
    main()
