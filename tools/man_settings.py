#!/usr/bin/env python3
"""Puts the daemon's settings, as belljar(1) explains them, into belljard(8): they are written once.

    man_settings.py belljar.1.scd belljard.8.scd
"""
import pathlib
import sys

HEADING = "# SETTINGS OF THE DAEMON\n"
PLACE = "@SETTINGS@\n"


def settings_of(page: str) -> str:
    """The text of that section."""
    if HEADING not in page:
        sys.exit(f"man_settings.py: there is no section {HEADING.strip()!r}")
    return page.partition(HEADING)[2].partition("\n# ")[0].strip() + "\n"


def filled(source: str, page: str) -> str:
    if PLACE not in page:
        sys.exit(f"man_settings.py: there is no line {PLACE.strip()!r}")
    return page.replace(PLACE, settings_of(source))


if __name__ == "__main__":
    sys.stdout.write(filled(*(pathlib.Path(name).read_text() for name in sys.argv[1:3])))
