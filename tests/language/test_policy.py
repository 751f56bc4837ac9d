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
                if all(digests):
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


# Where fields are tested that no test of a launch names by their key: a file, and words in it.
TESTED = {
    "$schema": ("tests/unit/policy/sections_test.cpp", "$schema"),
    "version": ("tests/unit/policy/layers_test.cpp", "every text needs its version"),
    "extends": ("tests/unit/policy/extends_test.cpp", "a file extends files beside it"),
    "vars": ("tests/unit/policy/variables_test.cpp", "each type takes what it says"),
    "final": ("tests/unit/policy/order_test.cpp", "what is final can be tightened"),
    "name": ("tests/unit/policy/layers_test.cpp", "does not keep its name"),
    "description": ("tests/unit/policy/layers_test.cpp", "policy->description.empty()"),
    "filesystem.mounts.*.hidepid": ("tests/sandbox/test_proc_and_dev.py", "hidepid=hidepid"),
    "filesystem.toolchains": ("tests/unit/launcher/plan_test.cpp", "dev@1 shows toolchains"),
}


class Coverage(SandboxTest):
    """Every field of the table is tried by a test of what a launch makes of it: enforced, or refused."""

    @harness.once
    def test_each_field_is_named_by_a_test(self):
        sources = {path: path.read_text(errors="replace") for folder in ("sandbox", "unit/launcher", "golden")
                   for path in (ROOT / "tests" / folder).rglob("*") if path.suffix in (".py", ".cpp", ".hpp", ".json")}
        for path, (file, words) in TESTED.items():
            self.assertIn(words, (ROOT / file).read_text(), path)
        missing = []
        for path, _ in paths_of(json.loads(SCHEMA.read_text())):
            name = [step for step in path if step != "*"]
            if name[0] in TESTED or ".".join(path) in TESTED:
                continue
            key, section = name[-1], name[0]
            quoted = re.compile(rf"[\"'.]{re.escape(key)}\b")
            if not any(quoted.search(text) and section in text for text in sources.values()):
                missing.append(".".join(path))
        self.assertEqual(missing, [])
