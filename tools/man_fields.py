#!/usr/bin/env python3
"""Fills the FIELDS of belljar-policy(5) from the program's own schema, so that the page cannot drift.

    man_fields.py BELLJAR PAGE.scd

Prints PAGE with @FIELDS@ replaced. `BELLJAR policy schema` has to print a JSON Schema (draft 2020-12);
of it are used: properties, patternProperties, additionalProperties, items, $ref to #/$defs/NAME, oneOf
and anyOf, type, enum, const, default, description. A belljar without that command gets a page without
the list: a sentence says how a misspelt field is answered.
"""

import json
import pathlib
import subprocess
import sys

WITHOUT_SCHEMA = ("This page lists sections only. A misspelt field is answered with its place and the nearest "
                  "name that exists.")


class Fields:
    """Walks a schema and collects (path, kind, description) of every field, in its order."""

    def __init__(self, schema):
        self.definitions, self.found = schema.get("$defs", {}), []
        self.walk(schema, "", ())

    def resolve(self, schema):
        name = schema.get("$ref", "") if isinstance(schema, dict) else ""
        prefix = "#/$defs/"
        if not name.startswith(prefix):
            return schema if isinstance(schema, dict) else {}
        return {**self.definitions[name.removeprefix(prefix)],
                **{key: value for key, value in schema.items() if key != "$ref"}}

    def walk(self, schema, path, above):
        """`above` are the definitions on the way, so that one that holds itself ends."""
        if isinstance(schema, dict) and schema.get("$ref") in above:
            return
        if isinstance(schema, dict) and "$ref" in schema:
            above = (*above, schema["$ref"])
        schema = self.resolve(schema)
        for name, field in schema.get("properties", {}).items():
            self.add(field, f"{path}.{name}" if path else name, above)
        for field in [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]:
            if isinstance(field, dict):
                self.walk(field, f"{path}[NAME]", above)
        for choice in [*schema.get("oneOf", []), *schema.get("anyOf", [])]:
            self.walk(choice, path, above)
        if isinstance(schema.get("items"), dict):
            self.walk(schema["items"], f"{path}[]", above)

    def add(self, field, path, above):
        resolved = self.resolve(field)
        entry = (path, self.kind(resolved), resolved.get("description", ""))
        if entry not in self.found:
            self.found.append(entry)
        self.walk(field, path, above)

    def kind(self, schema):
        """The type in words: "string", "one of a, b", "integer or string"."""
        choices = [self.kind(self.resolve(choice)) for choice in [*schema.get("oneOf", []), *schema.get("anyOf", [])]]
        if "const" in schema:
            choices.append(json.dumps(schema["const"]))
        elif "enum" in schema:
            choices.append(" | ".join(map(str, schema["enum"])))
        elif "type" in schema:
            choices += [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        words = " or ".join(dict.fromkeys(choice for choice in choices if choice and choice != "null"))
        default = f"; default {json.dumps(schema['default'])}" if "default" in schema else ""
        return words + default


def escape(text):
    """Text as scdoc takes it literally."""
    return "".join("\\" + letter if letter in "\\*_`[]#<>" else letter for letter in " ".join(text.split()))


def list_of(schema):
    entries = []
    for path, kind, description in Fields(schema).found:
        head = f"*{escape(path)}*" + (f" ({escape(kind)})" if kind else "")
        entries.append(f"{head}\n\t{escape(description) or escape('See its members.')}")
    return "\n\n".join(entries)


def schema_of(belljar):
    done = subprocess.run([belljar, "policy", "schema"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return json.loads(done.stdout) if done.returncode == 0 else None


def main():
    schema = schema_of(sys.argv[1])
    page = pathlib.Path(sys.argv[2]).read_text()
    print(page.replace("@FIELDS@", WITHOUT_SCHEMA if schema is None else list_of(schema)), end="")


if __name__ == "__main__":
    main()
