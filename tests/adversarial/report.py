#!/usr/bin/env python3
"""Runs the cases, and Debian's bubblewrap against the same programs, and writes docs/security-tests.md.

    BELLJAR=build/launcher/belljar python3 tests/adversarial/report.py
    python3 tests/adversarial/report.py --elsewhere

As root, so that all three callers are there; the second runs nothing, and writes only what is tested elsewhere.
test_document.py holds the document against the files.
"""

import collections
import datetime
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

ROOT = HERE.parent.parent
DOCUMENT = ROOT / "docs" / "security-tests.md"
COMBINATIONS = [(caller, back_end) for caller in ("root", "five", "user") for back_end in ("modern", "legacy")]
WAYS = ("P", "U", "R")
ELSEWHERE_TITLE = "## What is tested elsewhere"

DAEMON, FILES = "tests/daemon/", "tests/service/test_files.py::"
# Cases of the layers above the launcher: the attack, and the tests that make it ("test_x.py::test_y", or the words of a
# TEST_CASE behind the "::").
ELSEWHERE = {
    "C08": ("A uid is handed on with what its last session has left: processes, files, queues, segments, locks.",
            [DAEMON + "test_v1_sessions.py::test_who_gets_a_uid_finds_nothing_of_whom_it_was",
             "tests/unit/supervisor/parts_test.cpp::a slot that nobody said is clear is quarantined until a retry gives it back"]),
    "K03": ("A process of a session's uid cannot be killed, or not yet.",
            [DAEMON + "test_simulator_sessions.py::test_survivors_keep_port_and_uid_reserved_until_they_are_gone"]),
    "K08": ("The daemon, its service, a monitor or an init is killed with sessions running.",
            [DAEMON + "test_chaos.py::test_kill_9_of_the_daemon_leaves_nothing",
             DAEMON + "test_chaos.py::test_kill_9_of_the_launch_service_leaves_nothing",
             "tests/service/test_start.py::test_what_an_earlier_service_has_left_is_removed_at_start"]),
    "K12": ("A tree that resists its removal: modes of 0, depth beyond PATH_MAX, links swapped for directories meanwhile.",
            [FILES + "test_a_tree_that_resists_is_removed", FILES + "test_swaps_while_it_deletes_lead_nowhere"]),
    "W01": ("A file that is asked for is a link to the host's, another session's or /proc.",
            [FILES + "test_links_are_never_followed",
             DAEMON + "test_v1_files.py::test_links_devices_and_what_is_not_the_session_s_are_not_touched",
             DAEMON + "test_simulator_files.py::test_symlinked_file_and_dir_outside_are_not_returned_and_target_text_never_leaks"]),
    "W02": ("A directory and a link change places while a file is read and written.",
            [FILES + "test_swaps_while_it_works_gain_nothing"]),
    "W03": ("What is to be written is a link, a dangling one, or a hard link to a file of root's.",
            [FILES + "test_links_are_never_followed", FILES + "test_files_of_others_are_not_touched"]),
    "W04": ("A file has a second name elsewhere.",
            [FILES + "test_what_is_no_plain_file_is_not_touched", FILES + "test_files_of_others_are_not_touched"]),
    "W05": ("A FIFO, a socket, a device or a directory stands where a file is asked for.",
            [FILES + "test_what_is_no_plain_file_is_not_touched",
             DAEMON + "test_simulator_files.py::test_fifo_socket_and_device_are_skipped_without_blocking"]),
    "W07": ("A file shrinks, grows or goes while it is served, or is a terabyte of holes.",
            [DAEMON + "test_v1_files.py::test_a_file_that_shrinks_ends_its_answer_short_and_one_that_grows_makes_it_no_longer",
             DAEMON + "test_v1_files.py::test_a_file_of_holes_larger_than_all_memory_costs_none"]),
    "W08": ("A path that leads out: \"..\", absolute, coded once or twice, empty parts, NUL, too long.",
            [FILES + "test_no_path_leads_out",
             DAEMON + "test_v1_files.py::test_no_path_leads_out_of_the_workspace_and_none_is_guessed"]),
    "W09": ("Names that would steer a terminal, a page or a head; 10,000 of them, and deep ones.",
            [DAEMON + "test_v1_files.py::test_names_are_bytes_of_any_kind", FILES + "test_names_are_bytes",
             FILES + "test_more_than_ten_thousand_entries_are_said_to_be_more",
             DAEMON + "test_ctl_drops.py::test_what_comes_from_inside_cannot_steer_the_terminal_that_shows_it"]),
    "W10": ("An archive that writes elsewhere, holds links or devices, or is a bomb.",
            ["tests/service/test_archive.py::test_no_entry_leads_out",
             "tests/service/test_archive.py::test_links_devices_and_setuid_do_not_come_in",
             DAEMON + "test_v1_archive.py::test_archives_that_are_bombs_are_refused_by_what_they_say_of_themselves"]),
    "A01": ("No token, a wrong, empty, doubled or huge one, on each route and the upgrade.",
            [DAEMON + "test_simulator_api.py::test_none_wrong_and_empty_token_give_401_on_every_route",
             DAEMON + "test_http.py::test_without_a_token_no_body_is_read",
             DAEMON + "test_http.py::test_heads_and_bodies_beyond_their_bounds_are_refused_early",
             "tests/unit/api/v1_router_test.cpp::only livez is answered to who shows no token"]),
    "A02": ("A start without a token, with one that others can read, or with a socket open to all.",
            [DAEMON + "test_simulator_api.py::test_token_unset_gives_503_with_and_without_header",
             DAEMON + "test_start.py::test_a_token_file_that_everybody_can_read_is_refused",
             DAEMON + "test_start.py::test_a_unix_socket_is_open_to_its_own_group_or_to_nobody_else",
             DAEMON + "test_v1_sessions.py::test_without_a_token_tcp_gets_nothing_and_the_socket_needs_none"]),
    "A03": ("A page in a browser speaks to the daemon, by its own name for it.",
            [DAEMON + "test_simulator_api.py::test_a_browser_is_refused_whatever_its_origin",
             DAEMON + "test_v1_sessions.py::test_a_name_that_is_not_the_hosts_is_refused_over_tcp"]),
    "A04": ("One session's name, port or connection is used for another's. (Tokens are not bound to sessions: who has one "
            "may do all, which SECURITY.md says.)",
            [DAEMON + "test_v1_proxy.py::test_another_session_s_server_is_not_reached_by_this_one_s_path",
             DAEMON + "test_simulator_relay.py::test_another_sessions_agent_on_the_port_is_not_dialled",
             "tests/unit/supervisor/session_test.cpp::ids that are made up carry the node and never repeat"]),
    "A05": ("A request that two readers read differently.",
            [DAEMON + "test_http.py::test_what_servers_read_differently_is_refused_and_nothing_behind_it_is_served",
             "tests/unit/api/request_reader_test.cpp::what proxies and servers read differently is refused"]),
    "A06": ("Clients that send or read a byte now and then, or nothing.",
            [DAEMON + "test_http.py::test_slow_and_silent_clients_are_cut_off_and_others_are_served",
             DAEMON + "test_load.py::test_200_readers_that_stall_hold_up_nobody_and_cost_bounded_memory"]),
    "A07": ("Heads, paths and bodies beyond any bound, their length told or not.",
            [DAEMON + "test_http.py::test_heads_and_bodies_beyond_their_bounds_are_refused_early"]),
    "A08": ("JSON that is deep, wide, doubled or no JSON.",
            [DAEMON + "test_http.py::test_bodies_that_are_bombs_are_answered_in_bounded_time",
             DAEMON + "test_v1_sessions.py::test_bodies_that_are_no_json_are_malformed",
             "tests/unit/api/v1_body_test.cpp::a body that is no JSON says why, and its bounds are kept"]),
    "A09": ("Frames that are broken, and floods of pings and fragments.",
            [DAEMON + "test_simulator_relay.py::test_broken_frames_close_the_connection_with_the_code_that_says_why",
             DAEMON + "test_simulator_relay.py::test_floods_of_pings_and_of_fragments_cost_bounded_memory_and_hold_up_nobody"]),
    "A11": ("A thousand starts at once; ends during starts, uploads and runs.",
            [DAEMON + "test_v1_sessions.py::test_of_a_thousand_starts_at_once_as_many_run_as_there_is_room_for_and_each_has_an_answer",
             DAEMON + "test_v1_files.py::test_a_session_that_is_deleted_during_an_upload_is_gone_in_time",
             "tests/unit/supervisor/session_test.cpp::DELETE while a session is starting ends it, and its create says so"]),
    "A12": ("More sessions than uids, no descriptor for another client, no space.",
            [DAEMON + "test_http.py::test_without_descriptors_it_serves_those_who_are_there_and_later_the_others",
             DAEMON + "test_v1_sessions.py::test_a_full_host_says_when_to_come_back",
             DAEMON + "test_v1_files.py::test_a_full_disk_is_507_and_leaves_the_old_file"]),
    "A13": ("Times, sizes, arguments and variables that are none, or more than is allowed.",
            [DAEMON + "test_v1_sessions.py::test_everything_that_is_wrong_is_said_at_once_with_its_pointer",
             DAEMON + "test_v1_sessions.py::test_a_limit_beyond_the_policys_is_422_and_names_it",
             DAEMON + "test_v1_processes.py::test_what_a_process_body_has_wrong_is_said_at_once"]),
}
# Attacks on what is not there; test_document.py sees that it stays so.
MOOT = {
    "K04": "Numbers of processes are signalled only while they cannot pass on: those of own children that have not been "
           "waited for. All others are held by a pidfd first.",
    "K06": "Nobody signals everything of a uid: there is no kill(-1). What a sweep ends it holds by a pidfd, and has looked "
           "at through it.",
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


def elsewhere():
    lines = ["| case | attack | tests |", "|---|---|---|"]
    for name, (attack, tests) in ELSEWHERE.items():
        named = "<br>".join(f"`{path.removeprefix('tests/')}`: {of}" for path, of in (test.split("::") for test in tests))
        lines.append(f"| {name} | {attack} | {named} |")
    return [ELSEWHERE_TITLE, "These are of the layers above the launcher, and run with every suite.", "\n".join(lines),
            "Two attacks have nothing to be made on:", "\n".join(f"- {name}: {why}" for name, why in MOOT.items())]


def write_elsewhere():
    text = DOCUMENT.read_text()
    before, title, after = text.partition(ELSEWHERE_TITLE)
    failed = after.partition("\n## ")[2]
    parts = [before, *elsewhere(), *(["## " + failed] if failed else [])]
    DOCUMENT.write_text("\n\n".join(part.strip() for part in parts) + "\n")
    return 0


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
             f"Run on {datetime.date.today()}, at commit {version_of('git', 'rev-parse', '--short', 'HEAD')}, on Linux "
             f"{os.uname().release}, {os.uname().machine}, with "
             f"{version_of(os.environ['BELLJAR'], '--version')} and {bubblewrap}: {len(classes)} cases, {sum(map(len, table.values()))} combinations,"
             f" {len(failed)} failed tests.",
             "## The cases", table_of(table, classes, compared),
             "`·`: the case does not depend on this, and is not run there.",
             "## What bubblewrap left open", doors_of(compared),
             "## What notices when a control is left out",
             "With a colon: only the step of it that begins so, where another would hide what it does.",
             layers_of(layers),
             *elsewhere()]
    if failed:
        parts += ["## What failed", "\n".join(f"- `{name}`" for name in failed)]
    DOCUMENT.write_text("\n\n".join(part.strip() for part in parts) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(write_elsewhere() if sys.argv[1:] == ["--elsewhere"] else write())
