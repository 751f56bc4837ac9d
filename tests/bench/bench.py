"""What a launch costs, beside bubblewrap, util-linux's unshare and the least that is possible.

    bench.py --build DIR [--belljar PATH] [--uid N] [--quick] [--rounds N] [--only PART,...]
             [--json FILE]

As root it measures root's launches; with --uid N (root only) those of a plain user. Only relations
between contenders that ran in the same rounds mean anything: absolute times belong to one machine
at one moment. The budgets of the design are listed with `met` or `missed`, and never decide the
exit status, because a busy machine proves nothing about the program.

All programs are measured as installed: stripped copies, as those of packages are.

Terms:
  own overhead   median of all launches minus median of all bare execs of the same payload
  quiet          the same from the lowest median that a single round had, for busy machines
  all gone       median time until the last process of the launch was gone as well; a launcher may
                 return before its sandbox has ended
  system calls   of all processes, after the launcher's own execve, up to and including the
                 payload's
  PSS            of monitor and init while the payload sleeps; of pages that processes share (a
                 program's text), each answers for its part, so more sandboxes make each smaller
  floor          in the list of budgets: what minimal_launcher needs, under the same conditions
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import contenders
import lab as laboratory
from budgets import budgets
from contenders import BARE, BELLJARS, BWRAP, DROP_IN, MINIMAL, UNSHARE
from lab import Unusable, measure
from report import note, number, print_budgets, print_table, title

EXTRA_MOUNTS = 1000
BELLJAR_BINDS = (500, 1000, 2000)
BWRAP_BINDS = (200, 500)
LIMITS = ({"memory": "1GiB"}, {"memory": "1GiB", "processes": 1000}, {"cpu_time": "1h"})
BWRAP_BINDS_ONCE = 2000  # Quadratic: seconds a launch, so one launch has to do.


def attempt(names, work):
    """Does `work(name)` for each contender; returns (results, refused) by name."""
    results, refused = {}, {}
    for name in names:
        try:
            results[name] = work(name)
        except Unusable as error:
            refused[name] = str(error)
    return results, refused


def print_refused(refused):
    for name, reason in refused.items():
        note(f"not measured: {name}: {reason}")


# --- The parts of the benchmark -------------------------------------------------------------------

def bench_launch(lab, field, settings):
    """The launch itself, everything else being equal."""
    subjects = [field.subject(name, [lab.payload]) for name in field.usable(*contenders.ALL)]
    timings, refused = measure(lab, subjects, settings.rounds, settings.launches)
    rows = launch_rows(timings)
    title("launch: read-only /, tmpfs, proc, dev, all namespaces, reaper (ms)")
    keys = ("median", "p95", "all_gone", "own_overhead", "to_bwrap", "to_minimal",
            "quiet_overhead", "quiet_to_bwrap")
    print_table(["", "median", "p95", "all gone", "own overhead", "/ bwrap", "/ minimal",
                 "quiet overhead", "/ bwrap"],
                [[name, *(number(row[key]) for key in keys)] for name, row in rows.items()])
    note("unshare makes no view of its own (namespaces and /proc only): not the same work")
    print_refused(refused)
    return {"contenders": rows, "refused": refused}


def launch_rows(timings):
    overhead = beyond_bare(timings, laboratory.Timing.median)
    quiet = beyond_bare(timings, laboratory.Timing.quiet)
    return {name: {
        "median": timing.median(),
        "p95": timing.p95(),
        "all_gone": timing.gone_median(),
        "own_overhead": overhead.get(name),
        "to_bwrap": quotient(overhead.get(name), overhead.get(BWRAP)),
        "to_minimal": quotient(overhead.get(name), overhead.get(MINIMAL)),
        "quiet_overhead": quiet.get(name),
        "quiet_to_bwrap": quotient(quiet.get(name), quiet.get(BWRAP)),
        "round_medians": timing.round_medians(),
    } for name, timing in timings.items()}


def beyond_bare(timings, statistic):
    """Own overhead by name, for each but the bare payload itself."""
    if BARE not in timings:
        return {}
    bare = statistic(timings[BARE])
    return {name: statistic(timing) - bare for name, timing in timings.items() if name != BARE}


def quotient(value, base):
    return value / base if value is not None and base else None


def bench_calls(lab, field, settings):
    """How many system calls a launch makes."""
    results, refused = attempt(
        field.usable(MINIMAL, *BELLJARS, DROP_IN, BWRAP, UNSHARE),
        lambda name: laboratory.count_calls(lab, field.subject(name, [lab.payload]),
                                            settings.traces))
    title("system calls of a launch (strace -f: all processes, up to the payload's execve)")
    print_table(["", "calls", "most frequent"],
                [[name, str(result["calls"]), most_frequent(result["by_name"])]
                 for name, result in results.items()])
    print_refused(refused)
    return {"contenders": results, "refused": refused}


def most_frequent(by_name):
    return ", ".join(f"{count} {name}" for name, count in list(by_name.items())[:6])


def bench_mounts(lab, field, settings):
    """What a host with many mounts costs: rounds in two namespaces, interleaved."""
    names = field.usable(MINIMAL, *BELLJARS, DROP_IN, BWRAP)
    try:
        with (laboratory.mount_world(lab, 0) as plain,
              laboratory.mount_world(lab, EXTRA_MOUNTS) as crowded):
            subjects = [field.subject(BARE, [lab.payload], plain)]
            for name in names:
                subjects.append(field.subject(name, [lab.payload], plain))
                subjects.append(crowded_twin(field.subject(name, [lab.payload], crowded)))
            timings, refused = measure(lab, subjects, settings.rounds, few(settings.launches))
    except Unusable as error:
        timings, refused = {}, {"mount namespace": str(error)}
    title(f"+{EXTRA_MOUNTS} mounts on the host (ms)")
    rows = mount_rows(timings, names)
    keys = ("base", "crowded", "ratio", "overhead_ratio", "quiet_ratio")
    print_table(["", "base", f"+{EXTRA_MOUNTS}", "ratio", "of own overheads", "quiet ratio"],
                [[name, *(number(row[key]) for key in keys)] for name, row in rows.items()])
    print_refused(refused)
    return {"contenders": rows, "refused": refused}


def few(count):
    """A third of `count`, for launches and rounds that take long."""
    return max(1, count // 3)


def crowded_name(name):
    return f"{name}, +{EXTRA_MOUNTS} mounts"


def crowded_twin(subject):
    return laboratory.Subject(crowded_name(subject.name), subject.command, subject.environment,
                              subject.world)


def mount_rows(timings, names):
    overhead = beyond_bare(timings, laboratory.Timing.median)
    rows = {}
    for name in names:
        base, crowded = timings.get(name), timings.get(crowded_name(name))
        if base and crowded:
            rows[name] = {
                "base": base.median(),
                "crowded": crowded.median(),
                "ratio": crowded.median() / base.median(),
                "overhead_ratio": quotient(overhead.get(crowded_name(name)), overhead.get(name)),
                "quiet_ratio": crowded.quiet() / base.quiet(),
            }
    return rows


def bench_binds(lab, field, settings):
    """Many binds in one policy: is the cost of one bind the same whatever their number?"""
    sources = make_sources(lab, max(*BELLJAR_BINDS, *BWRAP_BINDS, BWRAP_BINDS_ONCE))
    subjects = [field.belljar_with_binds(name, sources[:count])
                for name in field.usable(*BELLJARS) for count in (0, *BELLJAR_BINDS)]
    subjects += [field.bwrap_with_binds(name, sources[:count])
                 for name, counts in ((BWRAP, BWRAP_BINDS), (DROP_IN, BELLJAR_BINDS))
                 for _ in field.usable(name) for count in (0, *counts)]
    timings, refused = measure(lab, subjects, few(settings.rounds), few(settings.launches))
    if field.usable(BWRAP) and not settings.quick:
        once = [field.bwrap_with_binds(BWRAP, sources[:BWRAP_BINDS_ONCE])]
        for into, more in zip((timings, refused), measure(lab, once, rounds=1, launches=1)):
            into.update(more)
    title("many binds in one policy (ms; the root is empty but for them)")
    rows = bind_rows(timings)
    print_table(["", "binds", "median", "us a bind"],
                [[row["name"], str(row["binds"]), number(row["median"]), number(row["us_per_bind"])]
                 for row in rows])
    note("bwrap parses all of mountinfo for each bind: its cost is quadratic")
    print_refused(refused)
    return {"rows": rows, "refused": refused}


def make_sources(lab, count):
    place = lab.scratch / "binds"
    place.mkdir()
    sources = [place / str(index) for index in range(count)]
    for source in sources:
        source.mkdir()
    return sources


def bind_rows(timings):
    """Each row's cost of one bind is its median beyond the same launch without any."""
    rows = []
    for subject, timing in timings.items():
        name, _, binds = subject.removesuffix(" binds").partition(", ")
        base = timings.get(f"{name}, 0 binds")
        beyond = timing.median() - base.median() if base and int(binds) else None
        rows.append({"name": name, "binds": int(binds), "median": timing.median(),
                     "us_per_bind": quotient(beyond, int(binds) / 1000)})
    return sorted(rows, key=lambda row: (row["name"], row["binds"]))


def bench_limits(lab, field, settings):
    """What limits of all processes together cost: each hierarchy of cgroups is one more directory."""
    subjects = [field.subject(BARE, [lab.payload])]
    for name in field.usable(*BELLJARS):
        subjects.append(field.subject(name, [lab.payload]))
        subjects += [field.belljar_with_limits(name, limits) for limits in LIMITS]
    timings, refused = measure(lab, subjects, settings.rounds, settings.launches)
    overhead = beyond_bare(timings, laboratory.Timing.median)
    quiet = beyond_bare(timings, laboratory.Timing.quiet)
    rows = {}
    for name in overhead:
        base = name.partition(", ")[0]
        rows[name] = {"own_overhead": overhead[name],
                      "to_base": quotient(overhead[name], overhead.get(base)),
                      "quiet_overhead": quiet[name],
                      "quiet_to_base": quotient(quiet[name], quiet.get(base))}
    title("limits by cgroups (ms)")
    keys = ("own_overhead", "to_base", "quiet_overhead", "quiet_to_base")
    print_table(["", "own overhead", "/ without", "quiet overhead", "/ without"],
                [[name, *(number(row[key]) for key in keys)] for name, row in rows.items()])
    print_refused(refused)
    return {"contenders": rows, "refused": refused}


def bench_memory(lab, field, settings):
    """What an idle sandbox holds besides its payload."""
    del settings
    results, refused = attempt(
        field.usable(MINIMAL, *BELLJARS, DROP_IN, BWRAP),
        lambda name: laboratory.idle_memory(
            lab, field.subject(name, [contenders.tool("sleep"), "60"])))
    title("memory of an idle sandbox without its payload (KiB)")
    print_table(["", "PSS", "private dirty", "PSS of each process"],
                [[name, str(result["pss"]), str(result["private_dirty"]), pss_by_role(result)]
                 for name, result in results.items()])
    print_refused(refused)
    return {"contenders": results, "refused": refused}


def pss_by_role(result):
    return ", ".join(f"{process['role']} {process['pss']}" for process in result["processes"])


PARTS = {
    "launch": bench_launch,
    "calls": bench_calls,
    "mounts": bench_mounts,
    "binds": bench_binds,
    "limits": bench_limits,
    "memory": bench_memory,
}


# --- The whole ------------------------------------------------------------------------------------

def host_facts(args, field):
    return {
        "kernel": os.uname().release,
        "cpus": os.cpu_count(),
        "measured_as_uid": os.geteuid() if args.uid is None else args.uid,
        "host_mounts": len(pathlib.Path("/proc/self/mountinfo").read_text().splitlines()),
        "bwrap": version_of(contenders.tool("bwrap")),
        "unshare": version_of(contenders.tool("unshare")),
        "belljar": version_of(field.belljar),
        "load_before": [round(load, 2) for load in os.getloadavg()],
    }


def version_of(program):
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"none ({error})"
    return (answer.stdout or answer.stderr).strip().partition("\n")[0]


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="meson's build directory")
    parser.add_argument("--belljar", type=pathlib.Path,
                        help="the launcher (default: BUILD/launcher/belljar)")
    parser.add_argument("--uid", type=int, help="measure launches of this plain user (root only)")
    parser.add_argument("--quick", action="store_true", help="few launches, no slow contenders")
    parser.add_argument("--rounds", type=int, help="interleaved rounds (default: 30, quick: 6)")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--json", type=pathlib.Path, help="write all results here too")
    args = parser.parse_args()
    if args.uid is not None and os.geteuid() != 0:
        parser.error("--uid needs root; without it, your own launches are measured")
    args.only = args.only.split(",")
    if unknown := set(args.only) - set(PARTS):
        parser.error(f"--only: no such part: {', '.join(sorted(unknown))}")
    args.build = args.build.resolve()
    args.belljar = (args.belljar or args.build / "launcher" / "belljar").resolve()
    args.rounds = args.rounds or (6 if args.quick else 30)
    args.launches = 5 if args.quick else 10
    args.traces = 1 if args.quick else 5
    if args.rounds < 1:
        parser.error("--rounds: at least 1")
    if not (args.build / "tests" / "bench" / "timer").exists():
        parser.error(f"--build: {args.build} has no tests/bench/timer; run ninja there first")
    return args


def run_parts(args):
    # Not in /tmp, which the sandboxes hide; open to all, because plain users enter it.
    with tempfile.TemporaryDirectory(prefix="belljar-bench-", dir="/var/tmp") as scratch:
        os.chmod(scratch, 0o755)
        lab = laboratory.Lab(args.build, args.uid, pathlib.Path(scratch))
        drop_in = lab.install(args.build / "launcher" / "bwrap")
        field = contenders.Contenders(lab, lab.install(args.belljar), drop_in)
        results = {"host": host_facts(args, field), "refused": field.refused}
        title("host")
        for key, value in results["host"].items():
            note(f"{key.replace('_', ' ')}: {value}")
        field.try_all()
        print_refused(field.refused)
        for part in args.only:
            results[part] = PARTS[part](lab, field, args)
    results["host"]["load_after"] = [round(load, 2) for load in os.getloadavg()]
    return results


def main():
    # So that a benchmark that is told to stop still removes what it made.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    args = parse_arguments()
    results = run_parts(args)
    results["budgets"] = budgets(results)
    title("budgets")
    print_budgets(results["budgets"])
    before, after = (results["host"][key][0] for key in ("load_before", "load_after"))
    note(f"load average {before:.2f} before, {after:.2f} after, {os.cpu_count()} CPUs")
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
