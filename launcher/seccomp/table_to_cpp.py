#!/usr/bin/env python3
"""table_to_cpp.py TABLE.json OUTPUT.cpp: checks the table of system calls and writes it as C++.

Constants of the table go into the C++ as they are, so that the compiler puts in this architecture's
numbers and a misspelt one does not build.
"""

import json
import re
import sys

# (set of the table, enumerator of policy::SyscallBase)
SETS = [("agent@1", "kAgent1"), ("strict@1", "kStrict1")]
CONSTANT = r"(?:0x[0-9A-F]+|[0-9]+|[A-Z][A-Z0-9_]*)"

HEADER = """\
// Written by launcher/seccomp/table_to_cpp.py from table.json: do not edit.
#include <cerrno>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "launcher/seccomp/table.hpp"

namespace belljar::launcher {

namespace {

using enum policy::SyscallAction::Kind;

// Through 32 bits without a sign: the filter compares nothing else.
constexpr std::uint64_t word(auto constant) { return static_cast<std::uint32_t>(constant); }

constexpr SeccompAction allow{kAllow, 0};
constexpr SeccompAction refuse(int error) { return {kErrno, error}; }
"""

FOOTER = """\
constexpr SyscallSet kEverything{allow, {}};

}  // namespace

const SyscallSet& syscall_set(policy::SyscallBase base) {
  switch (base) {
    case policy::SyscallBase::kNone:
      return kEverything;
%s  }
  return kAgent1;
}

}  // namespace belljar::launcher
"""


class TableError(Exception):
    pass


def check_keys(place, value, required, optional=()):
    missing = set(required) - set(value)
    unknown = set(value) - set(required) - set(optional)
    if missing or unknown:
        raise TableError(f"{place}: missing {sorted(missing)}, unknown {sorted(unknown)}")


def action(text):
    if text == "allow":
        return text
    if not re.fullmatch(r"E[A-Z0-9]+", text):
        raise TableError(f"no action: {text!r}")
    return f"refuse({text})"


def constant(text):
    if not re.fullmatch(rf"{CONSTANT}(\|{CONSTANT})*", text):
        raise TableError(f"no constant: {text!r}")
    return f"word({text.replace('|', ' | ')})"


def unconditional_rows(name, entry):
    """(call, row) of the three plain lists of a set."""
    for call in entry.get("allow", []):
        yield call, {"otherwise": "allow", "clauses": [], "because": ""}
    for verdict in ("eperm", "enosys"):
        for group in entry.get(verdict, []):
            check_keys(f"{name}: {verdict}", group, ["because", "calls"])
            for call in group["calls"]:
                yield call, {"otherwise": verdict.upper(), "clauses": [], "because": group["because"]}


def argument_rows(name, entry):
    for call, rule in entry.get("arguments", {}).items():
        check_keys(f"{name}: {call}", rule, ["because", "clauses", "otherwise"])
        for clause in rule["clauses"]:
            check_keys(f"{name}: {call}", clause, ["action", "when"])
            for test in (test for row in clause["when"] for test in row):
                check_keys(f"{name}: {call}", test, ["argument", "equals"], ["mask"])
        if not rule["clauses"]:
            raise TableError(f"{name}: {call} has no clause: put it in a list")
        yield call, rule


def own_rows(name, entry):
    rows = {}
    for source in (unconditional_rows, argument_rows):
        for call, row in source(name, entry):
            if not re.fullmatch(r"[a-z_][a-z0-9_]*", call):
                raise TableError(f"{name}: {call!r} is no name of a call")
            if call in rows:
                raise TableError(f"{name}: {call} has two verdicts")
            rows[call] = row
    return rows


def resolve(table, name):
    """(default action, all rows) of a set, those of the set that it extends included."""
    entry = table["sets"][name]
    check_keys(name, entry, ["description"],
               ["extends", "default", "allow", "eperm", "enosys", "arguments"])
    rows = own_rows(name, entry)
    if "extends" not in entry:
        return entry["default"], rows
    default, inherited = resolve(table, entry["extends"])
    for call, row in rows.items():
        if inherited.get(call) == row:
            raise TableError(f"{name}: {call} is the same in {entry['extends']}")
    return entry.get("default", default), inherited | rows


def test_cpp(test):
    mask = f"std::uint64_t{{{constant(test['mask'])}}}" if "mask" in test else "std::nullopt"
    if test["argument"] not in range(6):
        raise TableError(f"no argument: {test['argument']}")
    return (f"{{.argument = {test['argument']}, .compare = policy::Compare::kEqual, "
            f".mask = {mask}, .value = {constant(test['equals'])}}}")


def clauses_cpp(prefix, clauses):
    """The arrays behind one call's clauses, innermost first."""
    lines, clause_items = [], []
    for i, clause in enumerate(clauses):
        alternatives = []
        for j, row in enumerate(clause["when"]):
            alternatives.append(f"{prefix}_{i}_{j}")
            lines.append(f"constexpr policy::ArgumentTest {alternatives[-1]}[] = {{")
            lines += [f"    {test_cpp(test)}," for test in row]
            lines.append("};")
        lines.append(f"constexpr TableAlternative {prefix}_{i}[] = {{{', '.join(alternatives)}}};")
        clause_items.append(f"{{{action(clause['action'])}, {prefix}_{i}}}")
    lines.append(f"constexpr TableClause {prefix}[] = {{{', '.join(clause_items)}}};")
    return lines


def set_cpp(enumerator, default, rows):
    lines, items = [], []
    for call in sorted(rows):
        row = rows[call]
        clauses = "{}"
        if row["clauses"]:
            clauses = f"{enumerator}_{call}"
            lines += clauses_cpp(clauses, row["clauses"])
        items.append(f"    {{{json.dumps(call)}, {action(row['otherwise'])}, {clauses},\n"
                     f"     {json.dumps(row['because'])}}},")
    lines += [f"constexpr TableRow {enumerator}Rows[] = {{", *items, "};"]
    lines += [f"constexpr SyscallSet {enumerator}{{{action(default)}, {enumerator}Rows}};"]
    return "\n".join(lines) + "\n\n"


def main(table_path, output_path):
    with open(table_path, encoding="utf-8") as file:
        table = json.load(file)
    check_keys("table", table, ["sets"], ["comment"])
    check_keys("sets", table["sets"], [name for name, _ in SETS])
    text, cases = HEADER + "\n", ""
    for name, enumerator in SETS:
        text += set_cpp(enumerator, *resolve(table, name))
        cases += f"    case policy::SyscallBase::{enumerator}:\n      return {enumerator};\n"
    with open(output_path, "w", encoding="utf-8") as file:
        file.write(text + FOOTER % cases)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (TableError, KeyError, ValueError) as error:
        sys.exit(f"table_to_cpp.py: {error!r}")
