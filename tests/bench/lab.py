"""Runs the contenders and measures them: time, system calls and memory.

Nothing here knows what is compared with what; that is in contenders.py and bench.py.
"""

import collections
import contextlib
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import NamedTuple

HERE = pathlib.Path(__file__).resolve().parent

# Launchers read HOME, TERM and the like; the same short environment for all keeps that out.
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "LANG": "C"}

TIMEOUT_S = 120


class Unusable(Exception):
    """A contender cannot do the work on this host; the text says why."""


@dataclass(frozen=True)
class Subject:
    """One thing to measure: a launcher with its arguments and its payload, in one environment."""

    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    world: tuple[str, ...] = ()  # A command prefix that enters a mount namespace (see mount_world).


class Run(NamedTuple):
    """Milliseconds from the spawn until the command ended, and until its last process was gone."""

    ended: float
    gone: float


class Timing:
    """All runs of one subject, by round. Rounds of the subjects are interleaved."""

    def __init__(self):
        self.rounds: list[list[Run]] = []

    def runs(self):
        return [run for runs in self.rounds for run in runs]

    def median(self):
        return statistics.median(run.ended for run in self.runs())

    def p95(self):
        ended = sorted(run.ended for run in self.runs())
        return ended[min(len(ended) - 1, int(0.95 * len(ended)))]

    def gone_median(self):
        return statistics.median(run.gone for run in self.runs())

    def round_medians(self):
        return [statistics.median(run.ended for run in runs) for runs in self.rounds]

    def quiet(self):
        """The median of the quietest round: what is left when others use the machine less."""
        return min(self.round_medians())


class Lab:
    """Where and as whom the contenders run."""

    def __init__(self, build, uid, scratch):
        self.programs = scratch / "programs"
        self.programs.mkdir()
        for name in ("minimal_launcher", "payload", "timer"):
            self.install(build / "tests" / "bench" / name)
        self.payload = str(self.programs / "payload")
        self.timer = str(self.programs / "timer")
        self.scratch = scratch
        self.uid = os.geteuid() if uid is None else uid
        self.as_user = ()
        if uid is not None:
            ids = (f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
            self.as_user = ("/usr/bin/setpriv", *ids, "--")

    def install(self, program):
        """A copy as a package would install it, stripped; returns its path.

        A file as the linker wrote it starts up to 0.5 ms more slowly: the page cache holds it in
        smaller pieces, each of which is a page fault.
        """
        installed = self.programs / program.name
        subprocess.run(["strip", "-o", installed, program], check=True)
        installed.chmod(0o755)
        return installed

    def privileged(self):
        return self.uid == 0

    def run(self, subject, *tool):
        """Runs `tool` with the subject's command appended and returns its stdout.

        setpriv and nsenter come before the tool, so that their cost is not measured.
        """
        argv = [*subject.world, *self.as_user, *tool, *subject.command]
        process = subprocess.Popen(
            argv, cwd="/", env=ENVIRONMENT | subject.environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            output, errors = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise Unusable(f"no end after {TIMEOUT_S} s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode != 0:
            raise Unusable("; ".join(errors.strip().splitlines()[-3:]) or
                           f"exit status {process.returncode}")
        return output

    def time(self, subject, count):
        """`count` runs, one after the other, by the timer."""
        lines = self.run(subject, self.timer, str(count)).splitlines()
        return [Run(*(int(ns) / 1e6 for ns in line.split())) for line in lines]


def measure(lab, subjects, rounds, launches):
    """Times the subjects in turn, round by round; returns (timings, refused) by name.

    The order is rotated each round, so that what one subject leaves to the kernel (namespaces are
    torn down later, by a worker) does not always fall on the same neighbour.
    """
    timings, refused = {}, {}
    for number in range(rounds if subjects else 0):
        start = number % len(subjects)
        for subject in subjects[start:] + subjects[:start]:
            if subject.name in refused:
                continue
            progress(f"round {number + 1} of {rounds}: {subject.name}")
            try:
                runs = lab.time(subject, launches)
            except Unusable as error:
                refused[subject.name] = str(error)
            else:
                timings.setdefault(subject.name, Timing()).rounds.append(runs)
    for name in refused:
        timings.pop(name, None)
    progress("")
    return timings, refused


def progress(text):
    """One line on a terminal that overwrites itself; nothing in a log."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


# --- System calls ---------------------------------------------------------------------------------

EXEC_CALLS = ("execve", "execveat")


def calls_of_launch(trace):
    """The names of the calls that a launch makes, from the text of `strace -f -o`.

    Every call of every process counts once, where it was entered: after the launcher's own execve
    (the first line), up to and including the payload's (the last exec of all, since the payload
    itself executes nothing). So the launcher's libc start-up counts and the payload's does not, and
    neither do the monitor's calls after the payload has begun.
    """
    entries = [line.split(None, 1)[1] for line in trace.splitlines() if "<... " not in line]
    names = [entry.partition("(")[0] for entry in entries]
    execs = [index for index, name in enumerate(names) if name in EXEC_CALLS]
    return names[execs[0] + 1:execs[-1] + 1]


def count_calls(lab, subject, traces):
    """Median number of system calls over several traces (processes race), and one trace's names."""
    counts = []
    for _ in range(traces):
        log = lab.scratch / "trace"
        log.touch()
        os.chown(log, lab.uid, -1)
        lab.run(subject, "/usr/bin/strace", "-f", "-qq", "-e", "signal=none", "-o", str(log))
        names = calls_of_launch(log.read_text(errors="replace"))
        counts.append(len(names))
        log.unlink()
    by_name = dict(collections.Counter(names).most_common())
    return {"calls": statistics.median_low(counts), "of": sorted(counts), "by_name": by_name}


# --- Memory ---------------------------------------------------------------------------------------

def process_tree(root):
    """The pids below `root`, found through each process's parent (parents before children)."""
    children = collections.defaultdict(list)
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            after_name = (entry / "stat").read_text().rpartition(")")[2]
            children[int(after_name.split()[1])].append(int(entry.name))
    tree, queue = [], [root]
    while queue:
        found = children[queue.pop()]
        tree += found
        queue += found
    return tree


def name_of(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def is_pid_one(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    ids = re.search(r"^NSpid:\s+(.*)$", status, re.MULTILINE)[1].split()
    return len(ids) > 1 and ids[-1] == "1"


def memory_of(pid):
    """KiB that the process answers for (of shared pages, its share) and that it alone wrote."""
    rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return {key: int(re.search(rf"^{line}:\s+(\d+) kB$", rollup, re.MULTILINE)[1])
            for key, line in (("pss", "Pss"), ("private_dirty", "Private_Dirty"))}


def idle_memory(lab, subject):
    """Memory of the launcher and of all its processes but the payload, which must be `sleep`."""
    process = subprocess.Popen(
        [*lab.as_user, *subject.command], cwd="/", env=ENVIRONMENT | subject.environment,
        start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL)
    try:
        wait_for_payload(process, "sleep")
        found = [("monitor", memory_of(process.pid))]
        for pid in process_tree(process.pid):
            if name_of(pid) != "sleep":
                found.append(("init" if is_pid_one(pid) else "other", memory_of(pid)))
    except PermissionError as error:
        raise Unusable(f"{error.filename} is not readable; run as root, with --uid") from None
    finally:
        end_tree(process)
    return {key: sum(memory[key] for _, memory in found) for key in ("pss", "private_dirty")} | {
        "processes": [{"role": role, **memory} for role, memory in found]}


def wait_for_payload(process, name):
    """Waits until the payload runs, and a moment longer, so that its launcher has come to rest."""
    deadline = time.monotonic() + 20
    while not any(name_of(pid) == name for pid in process_tree(process.pid)):
        if process.poll() is not None or time.monotonic() > deadline:
            raise Unusable("the payload did not start")
        time.sleep(0.02)
    time.sleep(0.5)


def end_tree(process):
    """Kills what we started, from the leaves up: SIGTERM to bwrap would orphan its sandbox."""
    for pid in [*reversed(process_tree(process.pid)), process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


# --- Mount namespaces -----------------------------------------------------------------------------

@contextlib.contextmanager
def mount_world(lab, extra_mounts):
    """A private copy of the host's mounts with `extra_mounts` more, as a prefix that enters it.

    A helper holds the namespace open while rounds inside and outside of it are interleaved. The
    mounts end with the helper, and the helper ends with us, whose pipe it reads.
    """
    place = lab.scratch / f"mounts-{extra_mounts}"
    place.mkdir()
    unprivileged = () if os.geteuid() == 0 else ("--user", "--map-current-user", "--keep-caps")
    holder = subprocess.Popen(
        ["/usr/bin/unshare", *unprivileged, "--mount", "--propagation", "private", sys.executable,
         str(HERE / "hold_mounts.py"), str(place), str(extra_mounts)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        if holder.stdout.readline() != "ready\n":
            raise Unusable(holder.stderr.read().strip())
        namespaces = [f"--mount=/proc/{holder.pid}/ns/mnt"]
        if unprivileged:
            namespaces += ["--preserve-credentials", f"--user=/proc/{holder.pid}/ns/user"]
        yield ("/usr/bin/nsenter", *namespaces, "--")
    finally:
        holder.communicate()
