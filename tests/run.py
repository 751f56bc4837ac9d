#!/usr/bin/env python3
"""Runs the tests of the real binary and the unit tests, and closes with `N passed, N failed`.

    python3 tests/run.py [--all] [PATTERN...]

A pattern is part of `tests/sandbox/test_x.py::test_name [caller, back end]`. BELLJAR is the binary,
BELLJAR_MUST_WORK=1 turns every skip into a failure, --all adds the long tests.
"""

import argparse
import concurrent.futures
import contextlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest

TESTS = pathlib.Path(__file__).resolve().parent
ROOT = TESTS.parent
sys.path.insert(0, str(TESTS))
MODULES_AT_ONCE = 2
MODULE_DEADLINE = 1800


# --- one module, in a process of its own -------------------------------------------------------------

class Collector(unittest.TestResult):
    """Counts, and keeps the text of what failed."""

    def __init__(self, module):
        super().__init__()
        self.module, self.passed, self.failed, self.skipped_tests = module, [], {}, []

    def addSuccess(self, test):
        self.passed.append(self._name(test))

    def addFailure(self, test, err):
        self._add(test, self._exc_info_to_string(err, test))

    addError = addFailure

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._add(test, subtest._subDescription() + "\n" + self._exc_info_to_string(err, test))

    def addSkip(self, test, reason):
        import harness
        if harness.MUST_WORK and not reason.startswith(harness.NOT_INSTALLED):
            self._add(test, f"skipped, which BELLJAR_MUST_WORK forbids: {reason}")
        else:
            self.skipped_tests.append([self._name(test), reason])

    def _add(self, test, text):
        """A test that fails in more than one way is one failed test."""
        name = self._name(test)
        self.failed[name] = self.failed[name] + "\n" + text if name in self.failed else text

    def _name(self, test):
        return f"{self.module}::{getattr(test, '_testMethodName', test)}"


def tests_of(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from tests_of(item)
        else:
            yield item


def run_module(path, patterns, answer):
    """Runs the tests of one module and writes what came of them to `answer`."""
    name = str(pathlib.Path(path).resolve().relative_to(ROOT))
    result = Collector(name)
    times = []
    try:
        spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        for test in tests_of(unittest.defaultTestLoader.loadTestsFromModule(module)):
            full = f"{name}::{test._testMethodName}"
            if patterns and not any(pattern in full for pattern in patterns):
                continue
            began = time.monotonic()
            test.run(result)
            times.append((round(time.monotonic() - began, 2), test._testMethodName))
    except BaseException:  # A module that cannot be loaded is one failure, whatever it raised.
        result.failed[name] = traceback.format_exc()
    pathlib.Path(answer).write_text(json.dumps(
        {"passed": result.passed, "failed": list(result.failed.items()), "skipped": result.skipped_tests,
         "slowest": sorted(times, reverse=True)[:5]}))


# --- all of them --------------------------------------------------------------------------------------

class Outcome:
    def __init__(self, name, passed=(), failed=(), skipped=(), seconds=0.0, slowest=()):
        self.name, self.passed, self.failed, self.skipped = name, list(passed), list(failed), list(skipped)
        self.seconds, self.slowest = seconds, slowest

    def line(self):
        skipped = f", {len(self.skipped)} skipped" if self.skipped else ""
        return f"{self.name:<48} {len(self.passed):>4} passed, {len(self.failed)} failed{skipped}  ({self.seconds:.1f} s)"


def module_command():
    """As root each module gets a mount namespace of its own, so that modules do not see each other's mounts."""
    if os.geteuid() != 0:
        return []
    command = ["unshare", "--mount", "--propagation", "private"]
    return command if subprocess.run([*command, "true"], stderr=subprocess.DEVNULL).returncode == 0 else []


def run_in_process(path, patterns, prefix):
    name = str(path.relative_to(ROOT))
    began = time.monotonic()
    with tempfile.NamedTemporaryFile(prefix="belljar-answer-") as answer:
        command = [*prefix, sys.executable, __file__, "--module", str(path), "--answer", answer.name, *patterns]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  errors="replace", timeout=MODULE_DEADLINE)
            said, code = done.stdout + done.stderr, done.returncode
        except subprocess.TimeoutExpired:
            said, code = f"no end within {MODULE_DEADLINE} s", "none"
        text = answer.read()
    seconds = time.monotonic() - began
    if not text:
        return Outcome(name, failed=[[name, f"its process ended with {code}:\n{said}"]], seconds=seconds)
    outcome = Outcome(name, seconds=seconds, **json.loads(text))
    if said.strip() and outcome.failed:
        outcome.failed.append([f"{name} (not a test: what it printed)", said])
    return outcome


def run_unit(path):
    """A doctest executable, counted by its test cases."""
    began = time.monotonic()
    done = subprocess.run([path, "--no-intro", "--no-colors"], capture_output=True, text=True, errors="replace")
    counts = re.search(r"test cases:\s*(\d+) \|\s*(\d+) passed \|\s*(\d+) failed", done.stdout)
    name = f"unit: {path.stem}"
    seconds = time.monotonic() - began
    if not counts or (done.returncode != 0 and counts[3] == "0"):
        return Outcome(name, failed=[[name, f"ended with {done.returncode}:\n{done.stdout}{done.stderr}"]],
                       seconds=seconds)
    failed = [[name, done.stdout], *[[name, "see above"]] * (int(counts[3]) - 1)] if counts[3] != "0" else []
    return Outcome(name, [name] * int(counts[2]), failed, seconds=seconds)


def modules(patterns):
    """All test modules that a pattern can mean, the biggest first."""
    found = [path for path in sorted(TESTS.rglob("test_*.py"))]
    if patterns:
        names = [pattern.split("::")[0] for pattern in patterns if pattern.endswith(".py") or "::" in pattern]
        only = [path for path in found if any(name in str(path.relative_to(ROOT)) for name in names)]
        if len(names) == len(patterns):
            found = only
    return sorted(found, key=lambda path: -path.stat().st_size)


def unit_tests(build, patterns):
    if patterns:
        return []
    return [path for path in sorted(build.glob("tests/unit/*/*_test")) if os.access(path, os.X_OK)]


def tell(outcome):
    """One line, and below it what failed, in full: a run that is interrupted has said what it knew."""
    print(outcome.line())
    for name, text in outcome.failed:
        print(f"\n--- FAILED {name}\n{text.rstrip()}\n")
    sys.stdout.flush()


def write_results(outcomes, path):
    """A line of JSON for each test, for who makes something of them."""
    with open(path, "w") as file:
        for outcome in outcomes:
            tests = [*((name, "passed") for name in outcome.passed), *((name, "failed") for name, _ in outcome.failed)]
            file.writelines(json.dumps({"test": name, "outcome": what}) + "\n" for name, what in tests)


def close(outcomes, verbose):
    for outcome in outcomes if verbose else ():
        for seconds, name in outcome.slowest:
            print(f"{seconds:7.2f} s  {outcome.name}::{name}")
    skipped = [item for outcome in outcomes for item in outcome.skipped]
    for name, reason in skipped:
        print(f"skipped {name}: {reason}")
    failed = [name for outcome in outcomes for name, _ in outcome.failed]
    for name in failed:
        print(f"FAILED {name}")
    passed = sum(len(outcome.passed) for outcome in outcomes)
    print(f"\n{passed} passed, {len(failed)} failed" + (f", {len(skipped)} skipped" if skipped else ""))
    # Nothing at all is a failure too: a pattern with a typing mistake proves nothing.
    return 1 if failed or not passed else 0


def normalise(pattern):
    path = pathlib.Path(pattern)
    return str(path.resolve().relative_to(ROOT)) if path.is_file() and ROOT in path.resolve().parents else pattern


def stop_everything(*_):
    """Interrupted: nothing that this process started may go on, and no file of it may stay."""
    import harness
    for pid, _, _ in harness.descendants():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(harness.STAGE, ignore_errors=True)
    os._exit(1)


def run_all(options):
    import harness
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop_everything)
    patterns = [normalise(pattern) for pattern in options.patterns]
    stage = harness.STAGE
    os.environ["BELLJAR_STAGE"] = str(stage)
    if not harness.AS_ROOT:
        print(f"run by uid {os.getuid()}: the callers root and five need root and are left out")
    prefix = module_command()
    outcomes = []
    with concurrent.futures.ThreadPoolExecutor(MODULES_AT_ONCE) as pool:
        waiting = [pool.submit(run_in_process, path, patterns, prefix) for path in modules(patterns)]
        waiting += [pool.submit(run_unit, path) for path in unit_tests(harness.BUILD, patterns)]
        for done in concurrent.futures.as_completed(waiting):
            outcome = done.result()
            if outcome.passed or outcome.failed or outcome.skipped:
                outcomes.append(outcome)
                tell(outcome)
    if options.results:
        write_results(outcomes, options.results)
    return close(outcomes, options.slowest)


def expect_signals():
    """A shell that starts this in the background has it ignore some, and each program under test with it."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def main():
    expect_signals()
    parser = argparse.ArgumentParser(description="Runs Belljar's tests.")
    parser.add_argument("--all", action="store_true", help="the long tests too")
    parser.add_argument("--slowest", action="store_true", help="also show the slowest tests of each module")
    parser.add_argument("--results", metavar="FILE", help="also write each test's outcome there, a JSON object a line")
    parser.add_argument("--module", help=argparse.SUPPRESS)
    parser.add_argument("--answer", help=argparse.SUPPRESS)
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    options = parser.parse_args()
    if options.all:
        os.environ["BELLJAR_ALL"] = "1"
    if options.module:
        run_module(options.module, options.patterns, options.answer)
        return 0
    return run_all(options)


if __name__ == "__main__":
    sys.exit(main())
