"""CPython: a virtual environment, an extension in C, threads, processes, sockets, a database."""

import json
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from world import PROGRAMS, PYTHON, WORKING, ProgramTest, give, under_each

import harness

BUILD_EXTENSION = """
python3 -m venv --without-pip environment
. environment/bin/activate
headers=$(python -c 'import sysconfig; print(sysconfig.get_path("include"))')
target=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cc -shared -fPIC -O1 -I "$headers" -o "$target/answer.so" answer.c
python -c 'import answer, sys; print(answer.answer(), sys.prefix)'
"""

INSTALL_EXTENSION = """
python3 -m venv environment
environment/bin/pip install --quiet --disable-pip-version-check --no-index --no-build-isolation .
cd / && "$1/environment/bin/python" -c 'import answer; print(answer.answer())'
"""


class Python(ProgramTest):
    def copy(self, *names):
        for name in names:
            shutil.copy(PROGRAMS / "samples" / name, self.project)
            give(self.project / pathlib.Path(name).name, self.uid)

    def system_first(self):
        """The environment of a person whose python3 is the system's."""
        return {**self.persons_environment(), "PATH": "/usr/bin:/bin"}

    @under_each(*WORKING)
    def test_threads_processes_sockets_and_a_database_work(self, preset):
        self.copy("everything.py")
        said = json.loads(self.works(preset, PYTHON, "everything.py"))
        self.assertEqual(said, [140, [[0, 1, 4, 9], "spawned", [0, 1, 4, 9]], 42, 4950,
                                ["HELLO", "HELLO", "through a pipe", 0], "kept or not"])
        self.assertTrue((self.project / "numbers.db").exists())
        # dev@1 has a home of its own that is gone afterwards; agent@1's is the workspace.
        self.assertFalse((self.home / "of-the-home").exists())
        self.assertEqual((self.project / "of-the-home").exists(), preset == "agent@1")
        self.check_reach(preset)

    @under_each(*WORKING)
    def test_a_virtual_environment_holds_an_extension_that_the_compiler_built(self, preset):
        self.copy("extension/answer.c")
        said = self.works(preset, "sh", "-ec", BUILD_EXTENSION, env=self.system_first())
        self.assertEqual(said, f"42 {self.project}/environment\n")
        self.check_reach(preset)

    @harness.callers("user")
    @harness.back_ends("legacy")
    @under_each(*WORKING)
    def test_pip_builds_and_installs_an_extension_with_setuptools(self, preset):
        self.copy("extension/answer.c", "extension/setup.py")
        said = self.works(preset, "sh", "-ec", INSTALL_EXTENSION, "sh", str(self.project), env=self.system_first())
        self.assertEqual(said, "42\n")

    @under_each("strict@1")
    def test_strict_computes_but_neither_writes_the_project_nor_talks(self, preset):
        self.assertEqual(self.works(preset, PYTHON, "-c", "import decimal; print(decimal.Decimal(2).sqrt())"),
                         "1.414213562373095048801688724\n")
        self.fails(preset, PYTHON, "-c", "open('out.txt', 'w')", code=1,
                   says="OSError: [Errno 30] Read-only file system: 'out.txt'")
        self.fails(preset, PYTHON, "-c", "import socket; socket.socket()", code=1,
                   says="Address family not supported by protocol")
        self.copy("everything.py")
        run = self.fails(preset, PYTHON, "everything.py", code=1, says="unable to open database file")
        self.assertEqual(run.record["policy"], "strict@1")
        self.check_reach(preset)

    @harness.callers("user", "five")
    @under_each("strict@1")
    def test_strict_bounds_time_memory_and_processes(self, preset):
        run = self.under(preset, PYTHON, "-c", "import time; time.sleep(20)", options=["--timeout", "200ms"])
        self.assertEqual((run.code, run.record["cause"], run.record["limits"]), (124, "wall_time", ["wall_time"]))
        self.fails(preset, PYTHON, "-c", "bytearray(3 << 30)", code=1, says="MemoryError")
        fork = "import os, time\nfor _ in range(40):\n  if os.fork() == 0: time.sleep(20)"
        self.fails(preset, PYTHON, "-c", fork, code=1, says="BlockingIOError: [Errno 11]")


class ToolchainInTheHome(ProgramTest):
    """A python that is not the system's, first in PATH and below the home, as pyenv makes it."""

    def with_shim(self):
        shims = self.make_directory(self.home / ".pyenv" / "shims", owner=self.uid)
        self.make_file(shims / "python3", f'#!/bin/sh\necho "shim" >&2\nexec {PYTHON} "$@"\n', mode=0o755)
        self.make_file(self.home / ".pyenv" / "credentials", "secret\n", owner=self.uid)
        return {**self.persons_environment(), "PATH": f"{shims}:/usr/bin:/bin"}

    def test_dev_shows_it_read_only_and_without_its_secrets(self):
        pyenv, environment = self.home / ".pyenv", self.with_shim()
        run = self.under("dev@1", "python3", "-c", f"print(open('{pyenv}/credentials').read())", env=environment)
        self.check_exited(run, 1)
        self.assertIn("shim\n", run.err)
        self.assertIn("PermissionError", run.err)
        run = self.under("dev@1", "python3", "-c", f"import os; print(os.access('{pyenv}', os.W_OK))", env=environment)
        self.assertEqual(run.out, "False\n", str(run))

    def test_agent_does_not_show_it_and_takes_the_systems(self):
        run = self.under("agent@1", "python3", "-c", "print(1)", env=self.with_shim())
        self.check_exited(run)
        self.assertEqual((run.out, run.err), ("1\n", ""))

    @harness.callers("root", "five")
    def test_one_that_the_uid_cannot_reach_is_refused_by_name(self):
        environment = self.with_shim()
        self.home.chmod(0o700)
        harness.give(self.home, 0)
        shim = self.home / ".pyenv" / "shims" / "python3"
        run = self.under("dev@1", str(shim), "-c", "0", env=environment,
                         options=["--workspace", str(self.work)])
        self.check_refused(run, f"{shim} exists on the host, but uid {self.uid}, which the command runs as, cannot "
                           "reach it", "belljar:   asked for by ", "belljar:   remedy: ", code=127)
