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
import man_settings

from harness import BELLJAR, BUILD, ROOT, SandboxTest, main, once

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


BELLJARCTL, BELLJARD = BUILD / "api" / "belljarctl", BUILD / "api" / "belljard"


def help_of(*command, program=BELLJAR):
    return subprocess.run([program, *command, "--help"], capture_output=True, text=True, check=True).stdout


def daemon_page():
    return man_settings.filled(*((PAGES / name).read_text() for name in ("belljar.1.scd", "belljard.8.scd")))


class Pages(SandboxTest):

    def check_options(self, page, *command, program=BELLJAR):
        options = re.findall(r"^  (-\S+)", help_of(*command, program=program), re.MULTILINE)
        explained = [name for line in options for name in line.split(",") if f"*{name}*" in page]
        self.assertEqual(explained, [name for line in options for name in line.split(",")], command)

    def check_program(self, page, program, *known):
        commands = re.findall(r"^  (\w+) ", help_of(program=program).partition("Subcommands:")[2].partition("\n\n")[0],
                              re.MULTILINE)
        self.assertLessEqual(set(known), set(commands))
        self.assertEqual([name for name in commands if f"*{program.name} {name}*" not in page], [])
        for command in ([], *([name] for name in commands)):
            self.check_options(page, *command, program=program)

    @once
    def test_each_option_and_command_of_the_help_is_explained(self):
        self.check_program((PAGES / "belljar.1.scd").read_text(), BELLJAR, "run", "explain")
        self.check_program((PAGES / "belljarctl.1.scd").read_text(), BELLJARCTL, "run", "exec", "top")

    @once
    def test_each_setting_of_the_daemon_is_explained_in_its_own_page_too(self):
        self.check_options(daemon_page(), program=BELLJARD)
        self.assertIn("*--rlimit-nofile*", daemon_page())
        self.assertNotIn("# SIGNALS", man_settings.settings_of((PAGES / "belljar.1.scd").read_text()))

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
            if page.name == "belljard.8.scd":
                filled = daemon_page()
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
