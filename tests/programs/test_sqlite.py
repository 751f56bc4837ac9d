"""SQLite: a database in the workspace, by its own program and by Python's module."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from world import PYTHON, WORKING, ProgramTest, under_each

FILL = "create table t (n integer primary key, s text); insert into t (s) values ('one'), ('two');"
BY_PYTHON = f"""
import sqlite3
with sqlite3.connect("people.db") as connection:
    connection.execute("pragma journal_mode=wal")
    connection.execute("insert into t (s) values ('three')")
print(connection.execute("select count(*), max(s) from t").fetchone())
"""


class Sqlite(ProgramTest):
    @under_each(*WORKING)
    def test_a_database_is_written_by_two_programs(self, preset):
        self.works(preset, "sqlite3", "people.db", FILL)
        self.assertEqual(self.works(preset, PYTHON, "-c", BY_PYTHON), "(3, 'two')\n")
        self.assertEqual(self.works(preset, "sqlite3", "people.db", "pragma integrity_check"), "ok\n")
        self.assertEqual((self.project / "people.db").stat().st_uid, self.uid)
        self.check_reach(preset)

    @under_each(*WORKING)
    def test_a_database_outside_the_workspace_is_not_written(self, preset):
        foreign = self.make_file(self.neighbour / "foreign.db", owner=self.uid)
        run = self.under(preset, "sqlite3", str(foreign), FILL)
        self.check_exited(run, 1)
        self.assertIn("unable to open database", run.err)
        self.assertEqual(foreign.read_bytes(), b"")

    @under_each("strict@1")
    def test_strict_reads_a_database_only_without_locks_and_writes_none(self, preset):
        self.fails(preset, "sqlite3", "people.db", FILL, code=1, says="unable to open database file")
        # Locks are a channel between sandboxes, so strict@1 has none.
        self.fails(preset, "sqlite3", "/tmp/people.db", FILL, code=3, says="access permission denied")
        in_memory = self.works(preset, "sqlite3", ":memory:", FILL + "select count(*) from t;")
        self.assertEqual(in_memory, "2\n")
        self.check_reach(preset)
