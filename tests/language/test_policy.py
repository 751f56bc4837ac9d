"""The policy language as people meet it: `belljar policy`, the schema, and the examples of the docs."""

import copy
import json
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import harness
import jsonschema
from harness import ROOT, SandboxTest

SCHEMA = ROOT / "policy" / "policy-1.schema.json"
EXAMPLES = sorted((ROOT / "docs" / "examples").iterdir())
PRESETS = ("agent@1", "bwrap@1", "dev@1", "install@1", "shell@1", "strict@1", "validator@1")

# What the parser refuses and a schema of one file cannot: each with the words of the parser's message.
BEYOND_THE_SCHEMA = {
    "what a layer below may add": r"is required",
    "names that the kernel gives": r"unknown (action|constant|capability)",
    "variables and their use": r"there is no variable|is not used|has no value|begins a variable|is not expanded",
    "values of variables, by type": r" vars\.\S+ .*(expected|none of its values|got|below the|above the|at least one)",
    "paths in `final` and files in `extends`": r"^\S+ (final|extends)",
    "limits below which nothing runs": r"never means unlimited|at least \d+ is needed|whole seconds",
    "what paths hold beside their beginning": r"mounts\S*source: .*path",
    "two members that need each other": r"means nothing without|would rename the host|only a bind can be mounted",
    "comparisons in a condition": r"exactly one of ==|goes with|never holds",
}

# One value of each kind, put in the place of any other.
WRONG = (None, True, 7, 0, -1, 1.5, "", "nonsense value", "${work}", [], [7], {}, {"unknown_key": 1})


def branches(schema):
    """The schema and its alternatives."""
    return [schema, *schema.get("anyOf", [])]


def paths_of(schema, prefix=()):
    """(path, example, kinds) of every field of a schema of a section."""
    for key, field in schema.get("properties", {}).items():
        yield prefix + (key,), field.get("examples", [None])[0]
        for branch in branches(field):
            yield from paths_of(branch, prefix + (key,))
            below = branch.get("additionalProperties")
            if isinstance(below, dict):
                for inner in branches(below):
                    yield from paths_of(inner, prefix + (key, "*"))


# What stands for `*`, and what a member of a mount needs beside it.
KEYS = {"mounts": "/m", "rules": "ptrace", "vars": "work", "allow": "10.0.0.0/8", "only": "203.0.113.0/24",
        "deny": "203.0.113.0/24"}
BESIDE = {
    "source": {"type": "bind"}, "content": {"type": "file"}, "mode": {"type": "dir"}, "subset": {"type": "proc"},
    "hidepid": {"type": "proc"}, "enforce": {"type": "proc"}, "optional": {"type": "bind", "source": "/usr"},
    "size": {"type": "tmpfs"}, "inodes": {"type": "tmpfs"}, "readonly": {"type": "tmpfs"},
    "lower": {"type": "overlay"}, "upper": {"type": "overlay", "lower": ["/a"], "work": "/w"},
    "work": {"type": "overlay", "lower": ["/a"], "upper": "/u"}, "noatime": {"type": "tmpfs"},
    "nosuid": {"type": "tmpfs"}, "nodev": {"type": "tmpfs"}, "noexec": {"type": "tmpfs"},
}


def document(path, value):
    """A policy that holds `value` at `path`, and what must be beside it."""
    out = {"version": 1, "extends": ["builtin:strict@1"]}
    node, above = out, ""
    for step in path[:-1]:
        step = KEYS[above] if step == "*" else step
        node = node.setdefault(step, {})
        above = step
    if "mounts" in path and len(path) > 3:
        node.update(copy.deepcopy(BESIDE.get(path[-1], {})))
    if path[0] == "vars" and len(path) > 2:
        node.update({"type": "enum", "values": ["a"], "default": "a"} if path[-1] == "values" else
                    {"type": "int", "default": 5})
        out["limits"] = {"rlimits": {"nofile": "${work}"}}
    if "time_offsets" in path:
        out["namespaces"]["time"] = "new"
    if path[0] == "network" and len(path) > 3:
        out["network"]["mode"] = "private"
    if "rules" in path and len(path) > 3:
        node.update({"action": "allow"})
    node[path[-1]] = value
    return out


class PolicyTest(SandboxTest):
    def setUp(self):
        super().setUp()
        self.schema = json.loads(SCHEMA.read_text())

    def policy(self, *words):
        return self.belljar("policy", *words)

    @harness.once
    def test_the_committed_schema_is_what_the_table_says(self):
        run = self.policy("schema")
        self.assertEqual((run.code, run.err), (0, ""))
        self.assertEqual(run.out, SCHEMA.read_text(), "belljar policy schema > policy/policy-1.schema.json")
        jsonschema.Draft202012Validator.check_schema(self.schema)

    @harness.once
    def test_the_schema_and_the_parser_agree(self):
        """On each field with its example, and with one value of each kind in its place."""
        validator = jsonschema.Draft202012Validator(self.schema)
        documents = {}
        for path, example in paths_of(self.schema):
            if path[-1] == "*" or path == ("$schema",):
                continue
            for value in (example, *WRONG):
                documents[f"d{len(documents)}.json"] = document(path, value)
        names = list(documents)
        for name in names:
            (self.work / name).write_text(json.dumps(documents[name]))
        refused = {}
        for first in range(0, len(names), 200):
            run = self.belljar("policy", "check", *names[first:first + 200])
            for line in run.err.splitlines():
                refused.setdefault(line.split(":")[0], []).append(re.sub(r"^(\S+?:\d+:\d+): ", r"\1 ", line))
        valid, excused, wrong = 0, set(), []
        for name, content in documents.items():
            schema_says, messages = validator.is_valid(content), refused.get(name, [])
            valid += schema_says and not messages
            if schema_says != bool(messages):
                continue
            reason = next((reason for reason, words in BEYOND_THE_SCHEMA.items()
                           if messages and all(re.search(words, line) for line in messages)), None)
            if reason is None:
                wrong.append((json.dumps(content), schema_says, messages))
            excused.add(reason)
        self.assertEqual(wrong, [], f"{len(wrong)} of {len(documents)}")
        self.assertGreater(len(documents), 500)
        self.assertGreater(valid, 100)

    @harness.once
    def test_what_show_prints_is_the_same_policy(self):
        self.work.chmod(0o755)  # Another uid's command starts in it.
        for source in [f"builtin:{name}" for name in PRESETS] + [str(path) for path in EXAMPLES]:
            with self.subTest(source=source):
                shown = self.policy("show", source)
                self.assertEqual(shown.code, 0, str(shown))
                (self.work / "shown.json").write_text(shown.out)
                self.assertEqual(self.policy("check", "shown.json").code, 0)
                self.assertEqual(self.policy("show", "--json", "shown.json").out,
                                 self.policy("show", "--json", source).out)
                self.assertEqual(self.policy("diff", source, "shown.json").code, 0)
                digests = [re.search("sha256:[0-9a-f]{64}", self.belljar("explain", "--policy", policy).out)
                           for policy in (source, "shown.json")]
                self.assertTrue(all(digests), "explain prints it")
                self.assertEqual(digests[0][0], digests[1][0])

    @harness.once
    def test_show_names_the_line_of_every_value(self):
        shown = self.policy("show", "--origin", str(ROOT / "docs" / "examples" / "3-team.jsonc"))
        lines = dict(line.split(": ", 1)[::-1] for line in shown.out.splitlines())
        places = {text.split(" = ")[0]: place for text, place in lines.items()}
        self.assertRegex(places["limits.wall_time"], r"3-team.jsonc:11:\d+$")
        self.assertRegex(places["network.mode"], r"2-site.json:6:\d+$")
        self.assertRegex(places["limits.rlimits.cpu"], r"^builtin:agent@1:\d+:\d+$")
        self.assertTrue(all(re.search(r":\d+:\d+$", place) for path, place in places.items() if path != "version"))

    @harness.once
    def test_init_writes_a_policy_that_checks_and_leaves_files_alone(self):
        self.assertEqual(self.policy("init", "mine.jsonc").code, 0)
        self.assertEqual(self.policy("check", "mine.jsonc").code, 0)
        written = (self.work / "mine.jsonc").read_text()
        again = self.policy("init", "mine.jsonc")
        self.assertEqual(again.code, 1)
        self.assertIn("it is left as it is", again.err)
        self.assertEqual((self.work / "mine.jsonc").read_text(), written)
        self.assertEqual(self.policy("init", "mine.json").code, 2)

    @harness.once
    def test_the_exit_status_says_yes_no_or_cannot_tell(self):
        (self.work / "bad.json").write_text("{}")
        for words, code in ((("check", "builtin:dev@1"), 0), (("check", "bad.json"), 1), (("check",), 2),
                            (("check", "--ceiling", "bad.json", "builtin:dev@1"), 2),
                            (("check", "--ceiling", "builtin:shell@1", "builtin:validator@1"), 0),
                            (("check", "--ceiling", "builtin:strict@1", "builtin:dev@1"), 1),
                            (("diff", "builtin:dev@1", "builtin:dev@1"), 0),
                            (("diff", "builtin:dev@1", "builtin:agent@1"), 1),
                            (("diff", "builtin:dev@1", "bad.json"), 2), (("diff", "bad.json"), 2),
                            (("show", "bad.json"), 2), (("chek",), 2), ((), 2)):
            with self.subTest(words=words):
                self.assertEqual(self.policy(*words).code, code)

    @harness.once
    def test_each_example_of_the_docs_is_a_policy(self):
        self.assertEqual(len(EXAMPLES), 5)
        for path in EXAMPLES:
            with self.subTest(example=path.name):
                run = self.policy("check", str(path))
                self.assertEqual((run.code, run.err), (0, ""))
                self.assertIn(path.name, (ROOT / "docs" / "policy.md").read_text())

    @harness.callers("user")
    @harness.back_ends("modern")
    def test_an_example_runs_with_its_variables(self):
        harness.give(self.work, self.uid)
        out = self.make_directory("out", owner=self.uid)
        run = self.belljar("run", "--policy", str(ROOT / "docs" / "examples" / "4-data-job.jsonc"),
                           "--set", "identity.enforce=prefer", "--var", f"out={out}", "--var", "mode=fast", "--",
                           "/bin/sh", "-c", "echo $JOB_MODE $COST >/out/result; echo x >/data/x || echo read-only")
        self.assertEqual((run.code, run.out), (0, "read-only\n"), str(run))
        self.assertEqual((out / "result").read_text(), "fast in ${CURRENCY}\n")


# Two policies that differ in one field, where "without it" and "its example" are none, or are alike: changes to the
# base, W being a directory of the session's.
TWO_OF = {
    "identity.uid": ({"identity": {"uid": 65534}}, {"identity": {"uid": 65533}}),
    "identity.gid": ({"identity": {"gid": 65534}}, {"identity": {"gid": 65533}}),
    "namespaces.nested_user": tuple(
        {"namespaces": {"nested_user": nested}, "syscalls": {"rules": dict.fromkeys(("clone", "clone3", "unshare"), "allow")}}
        for nested in (False, True)),
    "filesystem.root": ({"extends": [], "filesystem": {"root": "empty", "mounts": {"/usr": {"type": "bind", "source": "/usr"}}}},
                        {"extends": [], "filesystem": {"root": "host"}}),
    "filesystem.hide": ({"extends": [], "filesystem": {"root": "host"}},
                        {"extends": [], "filesystem": {"root": "host", "hide": {"/srv": "x"}}}),
    "filesystem.mounts.*.source": tuple({"filesystem": {"mounts": {"/m": {"type": "bind", "source": source}}}}
                                        for source in ("/usr/bin", "/usr/lib")),
    "filesystem.mounts.*.content": tuple({"filesystem": {"mounts": {"/m": {"type": "file", "content": content}}}}
                                         for content in ("one", "four")),
    "filesystem.mounts.*.lower": tuple({"filesystem": {"mounts": {"/m": {"type": "overlay", "lower": lower}}}}
                                       for lower in (["W/a"], ["W/a", "W/b"])),
    "filesystem.mounts.*.upper": tuple(
        {"filesystem": {"mounts": {"/m": {"type": "overlay", "lower": ["W/a"], "upper": upper, "work": "W/work"}}}}
        for upper in ("W/b", "W/c")),
    "filesystem.mounts.*.work": tuple(
        {"filesystem": {"mounts": {"/m": {"type": "overlay", "lower": ["W/a"], "upper": "W/b", "work": work}}}}
        for work in ("W/work", "W/work2")),
    "filesystem.mounts.*.nodev": tuple({"filesystem": {"mounts": {"/m": {"type": "bind", "source": "/usr", "nodev": nodev}}}}
                                       for nodev in (False, True)),
    "filesystem.workspace.path": ({"filesystem": {"workspace": {"path": "W/a"}}}, {"filesystem": {"workspace": {"path": "W/b"}}}),
    **{f"network.{list}.*.ports": tuple(
        {"network": {"mode": "private", list: {to: {"because": "x", **ports}}}, "syscalls": {"base": "agent@1"}}
        for ports in ({}, {"ports": [443]}))
       for list, to in (("allow", "10.1.0.0/16"), ("only", "203.0.113.0/24"), ("deny", "203.0.113.0/24"))},
    "syscalls.rules.*.action": tuple({"syscalls": {"rules": {"read": action}}} for action in ("EPERM", "kill")),
    "syscalls.rules.*.when": tuple({"syscalls": {"rules": {"read": {
        "action": "allow", "when": [{"arg0": {"==": number}}], "otherwise": "EPERM"}}}} for number in (5, 1 << 40)),
    "syscalls.rules.*.otherwise": tuple({"syscalls": {"rules": {"read": {
        "action": "EPERM", "when": [{"arg0": {"==": 5}}], "otherwise": otherwise}}}} for otherwise in ("allow", "EPERM")),
    "landlock.scopes": ({"landlock": {"scopes": ["signal"]}}, {"landlock": {"scopes": []}}),
    "limits.swap": ({"limits": {"memory": "1GiB"}}, {"limits": {"memory": "1GiB", "swap": "1GiB"}}),
    "env.pass": ({"env": {"pass": []}}, {"env": {"pass": ["EXTRA"]}}),
    "env.deny": ({"env": {"pass": ["E*"]}}, {"env": {"pass": ["E*"], "deny": ["EXTRA"]}}),
    "env.set": ({"env": {"set": {"ONE": "1"}}}, {"env": {"set": {"TWO": "1"}}}),
    "limits.wall_time": ({"limits": {"wall_time": "30s"}}, {"limits": {"wall_time": "31s"}}),
}
# Fields that change no plan of this host's, and where it is shown that they are heeded: a file, and words in it.
LANGUAGE, CGROUPS = "tests/unit/policy/", "tests/sandbox/test_cgroups.py"
NOT_IN_THE_PLAN = {
    # They are of the text, and gone when its layers are one policy.
    "$schema": (LANGUAGE + "sections_test.cpp", "$schema"),
    "version": (LANGUAGE + "layers_test.cpp", "every text needs its version"),
    "extends": (LANGUAGE + "extends_test.cpp", "a file extends files beside it"),
    "vars": (LANGUAGE + "variables_test.cpp", "each type takes what it says"),
    "final": (LANGUAGE + "order_test.cpp", "what is final can be tightened"),
    # For people and records.
    "name": (LANGUAGE + "layers_test.cpp", "does not keep its name"),
    "description": (LANGUAGE + "layers_test.cpp", "policy->description.empty()"),
    **dict.fromkeys((f"network.{list}.*.because" for list in ("allow", "only", "deny")),
                    ("tests/network/test_denials.py", 'self.assertIn(because, denied[address]["because"])')),
    # Of what the host cannot do.
    "identity.enforce": ("tests/sandbox/test_identity.py", "test_a_plain_users_groups_stay_when_preferred_and_the_record_says_so"),
    "filesystem.workspace.enforce": ("tests/sandbox/test_mapped_workspace.py",
                                     "test_a_file_system_that_cannot_is_named_and_with_prefer_bound_as_it_is"),
    "network.enforce": ("tests/network/test_pasta.py", "PREFER"),
    "landlock.enforce": ("tests/sandbox/test_landlock.py", "test_with_prefer_the_record_lists_what_the_first_version_lacks"),
    "limits.enforce": (CGROUPS, "test_a_policy_that_prefers_goes_on_and_says_so"),
    # One value is accepted, and any other refused.
    **dict.fromkeys(("namespaces.user", "namespaces.mount", "namespaces.pid"),
                    ("tests/sandbox/test_namespaces.py", "namespace does not hold")),
    # They need what this host, or the caller of explain, does not have: ranges of ids, an owner, descriptors, a home.
    "identity.ids": ("tests/sandbox/test_id_ranges.py", "test_so_many_ids_exist_inside_and_the_own_one_is_the_sessions"),
    "filesystem.workspace.idmap": ("tests/sandbox/test_mapped_workspace.py",
                                   "test_the_owners_files_are_the_commands_and_the_commands_the_owners"),
    "filesystem.toolchains": ("tests/unit/launcher/plan_test.cpp", "dev@1 shows toolchains"),
    "io.keep": ("tests/sandbox/test_descriptors.py", "test_a_kept_descriptor_is_there_and_works_and_no_other"),
    # A filter is shown by its number of instructions.
    "syscalls.rules.*.otherwise": ("tests/sandbox/test_seccomp.py", '"otherwise"'),
    # `belljar test` runs them.
    "tests": ("tests/selftest/test_policy_tests.py", '"tests"'),
}


def values_of(path, example):
    """Values to give to a field, one after another: its example, and the words and truths that its schema names."""
    node = json.loads(SCHEMA.read_text())
    for step in path:
        found = [branch.get("additionalProperties") if step == "*" else branch.get("properties", {}).get(step)
                 for branch in branches(node)]
        node = next(branch for branch in found if isinstance(branch, dict))
    kinds = branches(node)
    words = [word for kind in kinds for word in kind.get("enum", [])]
    return [example, *words, *([True, False] if any(kind.get("type") == "boolean" for kind in kinds) else [])]


def sections(fields):
    """The paths of which others are a part: what they hold is toggled."""
    return {path[:length] for path in fields for length in range(1, len(path))}


class Coverage(SandboxTest):
    """Every field of the table makes a difference to what a launch does."""

    def setUp(self):
        super().setUp()
        harness.give(self.work, self.uid)
        self.work.chmod(0o755)
        for name in ("a", "b", "c", "work", "work2"):
            self.make_directory(f"work/{name}", owner=self.uid)

    def plan(self, content):
        """What `explain` prints, without numbers and places; nothing for what is refused, but for want of a cgroup."""
        ids = {"identity": {"uid": self.uid, "gid": self.gid}} if self.privileged else {}
        text = json.dumps(harness.merge(ids, content)).replace('"W/', f'"{self.work}/')
        file = self.make_file("policy.json", text)
        run = self.belljar("explain", "--policy", file, "--", "/bin/true", env=harness.environment(EXTRA="x"))
        if run.code != 0:
            return "no cgroup" if "cgroup" in run.err and "limits" in content else None
        asked = self.belljar("explain", "--policy", file, "--can=connect:10.1.2.3:80", "--can=connect:203.0.113.1:80")
        lines = [re.sub(r", \S+:\d+:\d+.*", "", line) for line in run.out.splitlines()[1:] if not line.startswith(" " * 13)]
        return [re.sub(r"^ *\d+  ", "", line) for line in lines], re.findall(r": (yes|no):", asked.out)

    def documents(self, path, example):
        name = ".".join(path)
        if name in TWO_OF:
            return [harness.merge({"version": 1, "extends": ["builtin:strict@1"]}, changes) for changes in TWO_OF[name]]
        without = document(path, example)
        node = without
        for step, above in zip(path[:-1], ("", *path)):
            node = node[KEYS[above] if step == "*" else step]
        del node[path[-1]]
        return [without, *(document(path, value) for value in values_of(path, example))]

    @harness.as_root
    @harness.once
    def test_each_field_changes_the_plan(self):
        fields = dict(paths_of(json.loads(SCHEMA.read_text())))
        inner = sections(fields)
        silent = []
        for path, example in fields.items():
            if path in inner or path[-1] == "*" or ".".join(path) in NOT_IN_THE_PLAN or path[0] in NOT_IN_THE_PLAN:
                continue
            plans = [self.plan(content) for content in self.documents(path, example)]
            different = [plan for number, plan in enumerate(plans) if plan is not None and plan not in plans[:number]]
            if len(different) < 2:
                silent.append(".".join(path))
        self.assertEqual(silent, [])

    @harness.once
    def test_what_changes_no_plan_is_shown_elsewhere(self):
        fields = {".".join(path) for path, _ in paths_of(json.loads(SCHEMA.read_text()))}
        for path, (file, words) in NOT_IN_THE_PLAN.items():
            self.assertIn(path, fields)
            self.assertIn(words, (ROOT / file).read_text(), path)
