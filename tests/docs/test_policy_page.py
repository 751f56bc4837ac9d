"""What docs/policy.md and belljar-policy(5) show of the language is the language, and is all of it."""

import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import ROOT, SandboxTest, main, once

PAGE = (ROOT / "docs" / "policy.md").read_text()
MAN = (ROOT / "docs" / "man" / "belljar-policy.5.scd").read_text()
SCHEMA = json.loads((ROOT / "policy" / "policy-1.schema.json").read_text())

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# `"key": {...}` in a sentence; the section that it is a member of, where that is not the policy itself.
IN_A_SENTENCE = re.compile(r"`(\"(\w+)\": \{[^`]*\})`")
MEMBER_OF = {"workspace": "filesystem", "publish": "network"}
BESIDE = {"publish": '"mode": "none", '}


def fields(schema, path=()):
    """Every field of a schema, with what is said of it."""
    for branch in (schema, *schema.get("anyOf", [])):
        for key, field in branch.get("properties", {}).items():
            yield path + (key,), field
            yield from fields(field, path + (key,))
        below = branch.get("additionalProperties")
        if isinstance(below, dict):
            yield from fields(below, path + ("*",))


def examples():
    """{where: a policy}."""
    found = {}
    for number, (kind, text) in enumerate(FENCE.findall(PAGE)):
        if kind == "jsonc":
            found[f"policy.md, block {number + 1}"] = f'{{ "version": 1,\n{text}}}\n'
    for text, key in IN_A_SENTENCE.findall(PAGE):
        if key in MEMBER_OF:
            text = f'"{MEMBER_OF[key]}": {{ {BESIDE.get(key, "")}{text} }}'
        found[f"policy.md: {text[:40]}"] = f'{{ "version": 1, {text} }}\n'
    for number, (_, text) in enumerate(FENCE.findall(MAN)):
        found[f"belljar-policy(5), block {number + 1}"] = text
    return found


class Examples(SandboxTest):

    def check(self, text):
        return self.belljar("policy", "check", self.make_file("example.jsonc", text))

    @once
    def test_each_example_is_a_policy(self):
        found = examples()
        self.assertGreaterEqual(len(found), 8, sorted(found))
        for where, text in found.items():
            with self.subTest(where=where):
                run = self.check(text)
                self.assertEqual((run.code, run.err), (0, ""), text)

    @once
    def test_a_mistake_in_one_would_be_seen(self):
        for where, text in examples().items():
            with self.subTest(where=where):
                wrong = text.rstrip().removesuffix("}").rstrip() + ', "limit": {} }\n'
                run = self.check(wrong)
                self.assertEqual(run.code, 1, wrong)
                self.assertIn("limit: unknown key", run.err)

    @once
    def test_no_example_goes_unchecked(self):
        unmarked = [text for kind, text in FENCE.findall(PAGE) if kind != "jsonc" and text.lstrip()[:1] in ('"', "{")]
        self.assertEqual(unmarked, [])


class Fields(SandboxTest):

    @once
    def test_where_less_may_do_is_written_down_and_nowhere_else(self):
        preferring = {path[-2] if path[-2] != "*" else "proc" for path, _ in fields(SCHEMA) if path[-1] == "enforce"}
        section = PAGE.partition("## Where less may do")[2].partition("\n## ")[0]
        rows = re.findall(r"^\| (?:a mount of type )?`(\w+)` \|", section, re.MULTILINE)
        self.assertEqual(set(rows), preferring)
        self.assertEqual(len(rows), len(set(rows)))

    @once
    def test_each_field_has_a_description_and_an_example_for_editors(self):
        listed = dict(fields(SCHEMA))
        self.assertIn(("limits", "rlimits", "nofile"), listed)
        silent = [".".join(path) for path, field in listed.items() if "description" not in field or
                  ("examples" not in field and "const" not in field)]
        self.assertEqual(silent, [])


if __name__ == "__main__":
    main()
