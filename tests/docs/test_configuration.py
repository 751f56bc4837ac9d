"""docs/configuration.md has the table that the program itself prints: BELLJAR_UPDATE_GOLDEN=1 writes it."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import BELLJAR_SOURCE

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "configuration.md"
BELLJARD = BELLJAR_SOURCE.parent.parent / "api" / "belljard"
FROM, TO = "<!-- belljard --settings-table -->\n", "<!-- end -->\n"


class Configuration(unittest.TestCase):
    maxDiff = None

    def test_the_page_has_every_setting_as_the_program_knows_it(self):
        table = subprocess.run([BELLJARD, "--settings-table"], check=True, capture_output=True, text=True).stdout
        self.assertIn("| `uid_base` | `--uid-base` | `BELLJAR_UID_BASE` | `AGENT_SIMULATOR_SESSION_UID_BASE` |", table)
        before, rest = PAGE.read_text().split(FROM)
        page, after = rest.split(TO)
        if os.environ.get("BELLJAR_UPDATE_GOLDEN") == "1":
            PAGE.write_text(before + FROM + table + TO + after)
        else:
            self.assertEqual(page, table)


class Troubleshooting(unittest.TestCase):
    def test_every_finding_that_the_page_is_keyed_by_is_one_of_doctors(self):
        page = (ROOT / "docs" / "troubleshooting.md").read_text().split("## What belljard logs")[0]
        named = set(re.findall(r"`([a-z]+(?:-[a-z]+)+|rootfs|chroot|launch)`", "".join(
            line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))))
        known = (ROOT / "launcher" / "findings.cpp").read_text() + (ROOT / "launcher" / "doctor.cpp").read_text()
        self.assertGreater(len(named), 15)
        self.assertEqual({name for name in named if f'"{name}"' not in known}, set())


class Links(unittest.TestCase):
    def test_every_page_that_a_page_names_is_there(self):
        for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
            for target in re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", page.read_text()):
                with self.subTest(page=page.name, target=target):
                    self.assertTrue((page.parent / target).exists(), f"{page.name} names {target}")


if __name__ == "__main__":
    unittest.main()
