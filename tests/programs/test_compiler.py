"""make and gcc: a project of several files, in C and C++, built and run."""

import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from world import PROGRAMS, WORKING, ProgramTest, give, under_each


class Compiler(ProgramTest):
    def copy_sources(self):
        for source in (PROGRAMS / "samples" / "compiled").iterdir():
            shutil.copy(source, self.project)
            give(self.project / source.name, self.uid)

    @under_each(*WORKING)
    def test_a_project_of_several_files_is_built_and_runs(self, preset):
        self.copy_sources()
        self.works(preset, "make", "--silent", "--jobs=2", "program")
        self.assertEqual(self.works(preset, "./program"), "hello, world\n42\n")
        self.check_reach(preset)

    @under_each("strict@1")
    def test_strict_writes_no_program_into_the_project(self, preset):
        self.copy_sources()
        run = self.fails(preset, "gcc", "-o", "program", "main.c", "twice.c", "-lm", code=1)
        self.assertIn("Read-only file system", run.err)
        self.assertFalse((self.project / "program").exists())

    @under_each("strict@1")
    def test_strict_writes_a_program_into_tmp_and_does_not_run_it(self, preset):
        self.copy_sources()
        self.works(preset, "gcc", "-c", "-o", "/tmp/twice.o", "twice.c")
        build = "gcc -o /tmp/program -x c - <<<'int main(void){return 0;}' && /tmp/program"
        self.fails(preset, "bash", "-c", build, code=126, says="/tmp/program: Permission denied")
        self.check_reach(preset)

    def test_a_program_on_a_noexec_mount_is_refused_as_such(self):
        tools = self.make_directory("tools")
        shutil.copy("/bin/true", tools / "true")
        mount = f'{{"type": "bind", "source": "{tools}", "noexec": true}}'
        run = self.under("strict@1", "/tools/true", options=["--set", f"filesystem.mounts[/tools]={mount}"])
        self.check_refused(run, "belljar: /tools/true lies on a mount where nothing may be executed (noexec)",
                           'belljar:   remedy: set "noexec": false on that mount', code=126)
        self.assertEqual((run.record["cause"], run.record["exit_code"]), ("setup", 126))
        self.assertIn("exec /tools/true", run.record["setup"]["step"])
