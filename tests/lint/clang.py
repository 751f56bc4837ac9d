#!/usr/bin/env python3
"""What clang 14 says of every file that is compiled: its warnings, as errors, and the checks of .clang-tidy.

    python3 tests/lint/clang.py [FILE...]

A file that has passed is not looked at again until it changes, or a header that it includes, or the
checks, or its compiler flags: in a checkout that was looked at before, only what has changed takes time.
Closes with `N passed, N failed`.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
PASSED = BUILD / "clang-tidy-passed"
AT_ONCE = os.cpu_count() or 1


def compilations():
    """file -> its entry of the compilation database; made sources are nobody's to mend."""
    entries = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        path = (pathlib.Path(entry["directory"]) / entry["file"]).resolve()
        if not path.is_relative_to(BUILD):
            entries.setdefault(path, entry)
    return entries


def headers():
    """object -> the files of this project that it was made of, as ninja has recorded them."""
    listing = subprocess.run(["ninja", "-C", BUILD, "-t", "deps"], capture_output=True, text=True, check=True)
    made_of, current = {}, None
    for line in listing.stdout.splitlines():
        if line and not line.startswith(" "):
            current = made_of.setdefault(line.split(": ")[0], [])
        elif line.strip():
            path = (BUILD / line.strip()).resolve()
            if path.is_relative_to(ROOT):
                current.append(path)
    return made_of


def fingerprint(path, entry, made_of):
    text = hashlib.sha256((ROOT / ".clang-tidy").read_bytes())
    text.update(entry["command"].encode())
    for part in sorted({path, *made_of.get(entry["output"], [])}):
        text.update(str(part).encode() + b"\0")
        text.update(part.read_bytes() if part.exists() else b"")
    return text.hexdigest()


def tidy(path):
    """What there is to mend, or nothing."""
    found = subprocess.run(["clang-tidy", "-p", BUILD, "--quiet", path], capture_output=True, text=True)
    return "" if found.returncode == 0 else found.stdout + found.stderr


def main():
    made_of = headers()
    wanted = [pathlib.Path(name).resolve() for name in sys.argv[1:]]
    waiting = {path: fingerprint(path, entry, made_of) for path, entry in compilations().items()
               if not wanted or path in wanted}
    PASSED.mkdir(exist_ok=True)
    known = {path for path, print_ in waiting.items() if (PASSED / print_).exists()}
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        running = {pool.submit(tidy, path): path for path in waiting if path not in known}
        for done in concurrent.futures.as_completed(running):
            path = running[done]
            if problems := done.result():
                failed += 1
                print(f"FAILED {path.relative_to(ROOT)}\n{problems}", flush=True)
            else:
                (PASSED / waiting[path]).touch()
    print(f"{len(waiting) - failed} passed, {failed} failed")
    # Nothing at all is a failure too: a name with a typing mistake proves nothing.
    return 1 if failed or not waiting else 0


if __name__ == "__main__":
    sys.exit(main())
