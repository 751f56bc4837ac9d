#!/usr/bin/env python3
"""Runs the cases, and Debian's bubblewrap against the same programs, and writes docs/security-tests.md.

    BELLJAR=build/launcher/belljar python3 tests/adversarial/report.py

As root, so that all three callers are there. test_document.py holds the document against the files.
"""

import collections
import importlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from adversarial import test_break_a_layer as break_a_layer

DOCUMENT = HERE.parent.parent / "docs" / "security-tests.md"
COMBINATIONS = [(caller, back_end) for caller in ("root", "five", "user") for back_end in ("modern", "legacy")]
WAYS = ("P", "U", "R")

# Cases of other layers, which no launcher can hold by itself.
ELSEWHERE = {
    "the launch service and the supervisor": ["C08", "K03", "K04", "K06", "K08", "K12", "A11", "A12"],
    "the files of a session": ["W01", "W02", "W03", "W04", "W05", "W07", "W08", "W09", "W10"],
    "HTTP and WebSocket": ["A01", "A02", "A03", "A04", "A05", "A06", "A07", "A08", "A09", "A13"],
}

HEAD = """# Security tests

Written by `tests/adversarial/report.py` from the run that is named below: nothing here was not run.

A case is one attack, done harmlessly from inside (or on the launch itself), in `tests/adversarial/`, one file each. It
**held** when the attack found no open door, *and* the same attack did find one with the control off, so that a test
that cannot fail does not count. (Where neither caller nor back end matters, that second one is run once.)

Callers: root with all capabilities; root with five (CHOWN, DAC_OVERRIDE, SETUID, SETGID, KILL) and no_new_privs; a
plain user. Back ends: modern (clone3 and the new mount API), legacy.

Which controls carry this is proved the other way round by `tests/adversarial/test_break_a_layer.py`: a belljar with
one of them left out, whichever it is, is found out by a case.

The right-hand columns are the same programs under {bubblewrap}, run in the three ways in which one finds it run,
with `--ro-bind / / --tmpfs /tmp --proc /proc --dev /dev --bind WORK WORK` and everything unshared: **P** by root, which
drops its uid inside; **U** by a plain user; **R** by root as it is. bubblewrap leaves the policy to who calls it, and
much of what it leaves open can be closed by more options and a filter of one's own; what is compared is what one gets.
A number is that of the doors found open; `-` means that the program did not start there, or makes no sense there.
"""


def run_cases():
    """{case: {(caller, back end): {"passed" or "failed"}}}, the names of failed tests, and {test: outcomes} of
    the layers that are left out."""
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as results:
        subprocess.run([sys.executable, HERE.parent / "run.py", "--results", results.name, "adversarial/test_"],
                       stdout=sys.stderr, check=False)
        lines = [json.loads(line) for line in results]
    table, failed = collections.defaultdict(lambda: collections.defaultdict(set)), []
    layers = collections.defaultdict(set)
    for line in lines:
        left_out = re.match(r".*/test_break_a_layer\.py::(test_without_\w+) \[", line["test"])
        if left_out:
            layers[left_out[1]].add(line["outcome"])
        found = re.match(r".*/test_([A-Z]\d\d)_\w+\.py::test_\w+ \[(\w+), (\w+)\]$", line["test"])
        if found:
            table[found[1]][found[2], found[3]].add(line["outcome"])
            failed += [line["test"]] if line["outcome"] != "passed" else []
    return table, failed, layers


def case_files():
    return {path.stem[5:8]: path for path in sorted(HERE.glob("test_[A-Z][0-9][0-9]_*.py"))}


def case_class(name, path):
    return getattr(importlib.import_module(f"adversarial.{path.stem}"), name, None)


def give_to_root(test):
    """What a session owns elsewhere: without another's uid mapped, root has no power over that."""
    for path in [path for path in test.dir.rglob("*") if path.lstat().st_uid == test.uid]:
        os.chown(path, 0, 0, follow_symlinks=False)


def attacked(case, way):
    """What the case finds open under bubblewrap; None where there is nothing to compare."""
    if not case.bubblewrap:
        return None
    test = case(next(name for name in case.combinations if "[root, modern]" in name))
    test.setUp()
    try:
        if way == "R":
            give_to_root(test)
        doors = test.under_bubblewrap(way)
    except Exception as error:  # A door that cannot be looked at is not a result.
        print(f"{case.__name__} {way}: {type(error).__name__}: {error}", file=sys.stderr)
        doors = None
    finally:
        test.doCleanups()
    return None if doors is None else sorted(name for name, answer in doors.items() if answer == "open")


def cell(outcomes):
    return "·" if not outcomes else "held" if outcomes == {"passed"} else "**NOT HELD**"


def one_line(text):
    return " ".join(text.split()).replace("|", "\\|")


def table_of(table, classes, compared):
    lines = ["| case | attack | " + " | ".join(f"{caller} {end}" for caller, end in COMBINATIONS) + " | "
             + " | ".join(WAYS) + " |", "|---" * (2 + len(COMBINATIONS) + len(WAYS)) + "|"]
    for name, case in classes.items():
        cells = [cell(table[name][combination]) for combination in COMBINATIONS]
        for way in WAYS:
            found = compared[name][way]
            cells.append("-" if found is None else f"**{len(found)}**" if found else "0")
        lines.append(f"| {name} | {one_line(case.__doc__)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def doors_of(compared):
    lines = []
    for name, ways in compared.items():
        together = collections.defaultdict(list)
        for way, found in ways.items():
            if found:
                text = ", ".join(found[:8]) + (f" and {len(found) - 8} more" if len(found) > 8 else "")
                together[text].append(way)
        lines += [f"- **{name}** {' '.join(found_in)}: {text}" for text, found_in in together.items()]
    return "\n".join(lines)


def layers_of(outcomes):
    lines = ["| left out | open doors found by |", "|---|---|"]
    for layer, (case, _) in break_a_layer.LAYERS.items():
        noticed = outcomes[break_a_layer.test_name(layer)] == {"passed"}
        lines.append(f"| {layer} | {case if noticed else '**NOBODY**'} |")
    return "\n".join(lines)


def version_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[0]


def write():
    from harness import AS_ROOT
    if not AS_ROOT:
        sys.exit("report.py: run it as root, so that all callers are there")
    files = case_files()
    classes = {name: case_class(name, path) for name, path in files.items()}
    classes = {name: case for name, case in classes.items() if case is not None}
    table, failed, layers = run_cases()
    compared = {name: {way: attacked(case, way) for way in WAYS} for name, case in classes.items()}
    bubblewrap = "Debian's " + version_of("bwrap", "--version")
    parts = [HEAD.format(bubblewrap=bubblewrap),
             f"Run on Linux {os.uname().release}, {os.uname().machine}, with "
             f"{version_of(os.environ['BELLJAR'], '--version')} and {bubblewrap}: {len(classes)} cases, {sum(map(len, table.values()))} combinations,"
             f" {len(failed)} failed tests.",
             "## The cases", table_of(table, classes, compared),
             "`·`: the case does not depend on this, and is not run there.",
             "## What bubblewrap left open", doors_of(compared),
             "## What notices when a control is left out",
             "With a colon: only the step of it that begins so, where another would hide what it does.",
             layers_of(layers),
             "## What is tested elsewhere, or not yet",
             "These are of layers above the launcher; they get their tests with those.",
             "\n".join(f"- {layer}: {', '.join(names)}" for layer, names in ELSEWHERE.items())]
    if failed:
        parts += ["## What failed", "\n".join(f"- `{name}`" for name in failed)]
    DOCUMENT.write_text("\n\n".join(part.strip() for part in parts) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(write())
