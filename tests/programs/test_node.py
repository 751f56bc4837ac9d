"""node and npm: a package that is packed, installed and run without a network."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from world import PROGRAMS, STAGE, WORKING, ProgramTest, give, under_each

import functools

import harness


@functools.cache
def packed():
    """The package as npm would get it from a registry."""
    home = STAGE / f"npm-{os.getpid()}"
    home.mkdir()
    subprocess.run(["npm", "pack", "--silent", "--pack-destination", home, PROGRAMS / "samples" / "package"],
                   check=True, env={"PATH": os.environ["PATH"], "HOME": str(home)}, stdout=subprocess.DEVNULL)
    home.chmod(0o755)
    (home / "twice-1.0.0.tgz").chmod(0o644)
    return home / "twice-1.0.0.tgz"


class Node(ProgramTest):
    def copy_application(self):
        for source in (PROGRAMS / "samples" / "application").iterdir():
            shutil.copy(source, self.project)
            give(self.project / source.name, self.uid)
        shutil.copy(packed(), self.project)

    @harness.callers("user", "root")
    @under_each(*WORKING)
    def test_npm_installs_a_package_and_node_runs_it(self, preset):
        self.copy_application()
        self.works(preset, "npm", "install", "--offline", "--no-audit", "--no-fund", "./twice-1.0.0.tgz")
        self.assertEqual(self.works(preset, "node", "main.js"), "42\nfrom a child\nfrom a worker\nserved\n")
        self.assertEqual(self.works(preset, "npm", "run", "--silent", "cli"), "8\n")
        installed = json.loads((self.project / "node_modules" / "twice" / "package.json").read_text())
        self.assertEqual(installed["version"], "1.0.0")
        self.assertEqual((self.project / "written.txt").read_text(), "by node\n")
        self.assertEqual((self.project / "written.txt").stat().st_uid, self.uid)
        self.check_reach(preset)

    @under_each("strict@1")
    def test_strict_runs_node_but_installs_and_serves_nothing(self, preset):
        self.copy_application()
        self.assertEqual(self.works(preset, "node", "-p", "6 * 7"), "42\n")
        self.fails(preset, "node", "-e", "require('http').createServer().listen(0)", code=1,
                   says="EAFNOSUPPORT")
        self.fails(preset, "node", "-e", "require('fs').writeFileSync('x', '')", code=1, says="EROFS")
        self.check_reach(preset)

    @harness.callers("user")
    @under_each("strict@1")
    def test_strict_lets_npm_install_nothing(self, preset):
        self.copy_application()
        run = self.under(preset, "npm", "install", "--offline", "./twice-1.0.0.tgz")
        self.assertEqual(run.record["cause"], "exited")
        self.assertNotEqual(run.code, 0, str(run))
        self.assertFalse((self.project / "node_modules").exists())
