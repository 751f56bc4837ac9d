"""The man pages: no option, command or section is missing, and the list of fields comes from a schema."""

import json
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tools"))
import man_fields

from harness import BELLJAR, ROOT, SandboxTest, main, once

PAGES = ROOT / "docs" / "man"
SCHEMA = {
    "type": "object",
    "properties": {
        "version": {"const": 1, "description": "The language's version."},
        "filesystem": {"$ref": "#/$defs/filesystem"},
        "env": {"type": "object", "properties": {"pass": {"type": "array", "items": {"type": "string"}}}},
    },
    "$defs": {
        "filesystem": {"type": "object", "description": "What is *seen*.", "properties": {
            "root": {"enum": ["empty", "host"], "default": "empty"},
            "mounts": {"type": "object", "additionalProperties": {"$ref": "#/$defs/mount"}}}},
        "mount": {"oneOf": [{"type": "null"}, {"properties": {"type": {"const": "bind"}, "source": {"type": "string"}}}],
                  "properties": {"above": {"$ref": "#/$defs/mount"}}},
    },
}


def help_of(*command):
    return subprocess.run([BELLJAR, *command, "--help"], capture_output=True, text=True, check=True).stdout


class Pages(SandboxTest):

    @once
    def test_each_option_and_command_of_the_help_is_explained(self):
        page = (PAGES / "belljar.1.scd").read_text()
        commands = re.findall(r"^  (\w+) ", help_of().partition("Subcommands:")[2], re.MULTILINE)
        self.assertLessEqual({"run", "explain"}, set(commands))
        self.assertEqual([name for name in commands if f"*belljar {name}*" not in page], [])
        for command in ([], *([name] for name in commands)):
            options = re.findall(r"^  (-\S+)", help_of(*command), re.MULTILINE)
            explained = [name for line in options for name in line.split(",") if f"*{name}*" in page]
            self.assertEqual(explained, [name for line in options for name in line.split(",")], command)

    @once
    def test_each_section_of_a_policy_is_explained(self):
        page = (PAGES / "belljar-policy.5.scd").read_text()
        sections = set(re.findall(r"\*(\w+)\*", page.partition("# SECTIONS")[2].partition("# FIELDS")[0]))
        for preset in ("dev@1", "agent@1", "strict@1"):
            used = set(json.loads((ROOT / "policy" / "presets" / f"{preset}.json").read_text()))
            self.assertEqual(used - sections, set(), preset)
            self.assertIn(f"*builtin:{preset}*", page)

    @once
    def test_scdoc_accepts_them(self):
        for page in sorted(PAGES.glob("*.scd")):
            filled = page.read_text().replace("@FIELDS@", man_fields.list_of(SCHEMA))
            done = subprocess.run(["scdoc"], input=filled, text=True, capture_output=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), page.name)


class Fields(SandboxTest):

    @once
    def test_each_field_of_a_schema_is_listed_once_with_type_and_description(self):
        found = man_fields.Fields(SCHEMA).found
        self.assertEqual([(path, kind) for path, kind, _ in found], [
            ("version", "1"), ("filesystem", "object"), ("filesystem.root", 'empty | host; default "empty"'),
            ("filesystem.mounts", "object"), ("filesystem.mounts[NAME].above", ""),
            ("filesystem.mounts[NAME].type", '"bind"'), ("filesystem.mounts[NAME].source", "string"),
            ("env", "object"), ("env.pass", "array")])
        self.assertIn("What is \\*seen\\*.", man_fields.list_of(SCHEMA))

    @once
    def test_a_belljar_with_a_schema_fills_the_page_and_one_without_says_so(self):
        schema = self.make_file("schema.json", json.dumps(SCHEMA))
        new = self.make_file("new", f'#!/bin/sh\n[ "$*" = "policy schema" ] && exec cat {schema}\nexit 1\n', mode=0o755)
        old = self.make_file("old", "#!/bin/sh\necho 'there is no command policy' >&2; exit 2\n", mode=0o755)
        listed = [self.fill(belljar) for belljar in (new, old)]
        self.assertIn("*filesystem.root*", listed[0])
        self.assertIn(man_fields.WITHOUT_SCHEMA, listed[1])
        for page in listed:
            self.assertNotIn("@FIELDS@", page)

    def fill(self, belljar):
        tool = os.path.abspath(man_fields.__file__)
        return subprocess.run([sys.executable, tool, belljar, PAGES / "belljar-policy.5.scd"], text=True,
                              capture_output=True, check=True).stdout


if __name__ == "__main__":
    main()
