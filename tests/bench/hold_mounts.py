"""Adds mounts to the mount namespace that it was started in and holds them until stdin ends.

    hold_mounts.py DIRECTORY COUNT

mount_world() in lab.py starts it in a namespace of its own, so the host never sees them.
"""

import ctypes
import os
import sys

MS_BIND = 0x1000

libc = ctypes.CDLL(None, use_errno=True)


def mount(source, target, kind, flags):
    if libc.mount(source.encode(), target.encode(), kind.encode(), flags, None) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), target)


def main():
    directory, count = sys.argv[1], int(sys.argv[2])
    if count > 0:
        mount("bench", directory, "tmpfs", 0)
    for number in range(count - 1):
        target = f"{directory}/{number}"
        os.mkdir(target)
        mount(directory, target, "none", MS_BIND)
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
