"""docs/problems.md explains every code that the daemon can answer with, and no other."""

import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import main

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATTERNS = (r'Problem(?: \w+)?\(\s*\d+,\s*"(\w+)"', r'turn_away\(\s*\w+,\s*[\w.]+,\s*"(\w+)"', r'\.code = "(\w+)"')


def codes_of_the_source():
    codes = set(re.findall(r'return "(\w+)"', (ROOT / "supervisor/failure.cpp").read_text()))
    for path in (ROOT / "api").rglob("*.cpp"):
        for pattern in PATTERNS:
            codes.update(re.findall(pattern, path.read_text()))
    return codes


class Problems(unittest.TestCase):
    def test_every_code_is_explained_once(self):
        listed = re.findall(r"^\| `(\w+)` \| \d", (ROOT / "docs/problems.md").read_text(), re.M)
        self.assertEqual(listed, sorted(set(listed)), "in order, and each once")
        source = codes_of_the_source()
        self.assertGreater(len(source), 25, "control: they are found at all")
        self.assertEqual(source - set(listed), set(), "explained nowhere")
        self.assertEqual(set(listed) - source, set(), "explained, and never said")


if __name__ == "__main__":
    main()
