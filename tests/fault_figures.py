#!/usr/bin/env python3
"""Runs the fault injection and writes what it has seen into docs/fault-injection.md.

    ./dev faults [--short]

With --short each call gets one of its errors, as in every commit; otherwise all of them."""

import collections
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

import faults

TESTS = pathlib.Path(__file__).resolve().parent
PAGE = TESTS.parent / "docs" / "fault-injection.md"
KINDS = {
    "test_a_call_that_fails_never_leaves_half_a_sandbox": "one error of each call",
    "test_nor_does_any_call_with_any_of_its_errors": "every error of each call",
    "test_killed_at_any_call_belljar_leaves_nothing": "SIGKILL to belljar",
    "test_killed_as_any_caller_it_leaves_nothing": "SIGKILL to belljar",
    "test_nor_when_it_is_a_process_of_the_sandbox_that_is_killed": "SIGKILL to the calling process",
    "test_nor_as_any_caller_when_it_is_a_process_of_the_sandbox": "SIGKILL to the calling process",
    "test_a_call_that_takes_long_changes_nothing": "20 ms late",
    "test_a_late_call_changes_nothing_for_any_caller": "20 ms late",
    "test_terminated_at_any_call_it_ends_and_leaves_nothing": "SIGTERM to belljar",
    "test_terminated_as_any_caller_it_ends_and_leaves_nothing": "SIGTERM to belljar",
}
HEAD = """# Fault injection: what was seen

Written by `./dev faults{option}` on {date}, Linux {kernel}, {machine}; {summary}.

Each system call of a launch, in all of its processes, until the command is executed, and what belljar and the
sandbox's init call after that. `tests/faults.py` says which errors a call gets. A launch is *refused* with the
step named, or *goes on* by another way; then the command finds its ids, capabilities, filters, limits, mounts
and descriptors as without the fault, or it counts as *weaker*. *Without words*: it ended before belljar could
say why, as when the write of the message itself fails. A *hang* is a launch of which for a second nothing runs
or wants to.

| fault | caller, back end | {columns} |
|---|---|{rule}|
"""


def rows(directory):
    found = []
    for path in sorted(pathlib.Path(directory).iterdir()):
        name, where = re.fullmatch(r"(\w+) \[(.*)\]", path.name).groups()
        found.append((KINDS[name], where, json.loads(path.read_text())))
    return sorted(found, key=lambda row: (list(KINDS.values()).index(row[0]), row[1]))


def page(found, option, summary):
    columns = faults.Figures.NAMES
    text = HEAD.format(option=option, date=datetime.date.today(), kernel=platform.release(), machine=platform.machine(),
                       summary=summary, columns=" | ".join(columns), rule="|".join(["--:"] * len(columns)))
    total, wordless = collections.Counter(), collections.Counter()
    for kind, where, data in found:
        text += f"| {kind} | {where} | " + " | ".join(str(data["figures"][name]) for name in columns) + " |\n"
        total.update(data["figures"])
        wordless.update(data["wordless"])
    text += "| all | | " + " | ".join(str(total[name]) for name in columns) + " |\n"
    if wordless:
        text += "\nWithout words (process 0 is belljar; times over all rows):\n\n"
        text += "".join(f"- {call}: {times}\n" for call, times in sorted(wordless.items()))
    return text


def main():
    short = "--short" in sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run([sys.executable, TESTS / "run.py", *([] if short else ["--all"]), "test_faults.py"],
                              env={**os.environ, "BELLJAR_FAULT_FIGURES": directory}, capture_output=True, text=True)
        print(done.stdout + done.stderr)
        summary = (done.stdout.strip().splitlines() or ["nothing"])[-1]
        PAGE.write_text(page(rows(directory), " --short" if short else "", summary))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
