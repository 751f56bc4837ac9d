"""git: cloning a local repository, from the workspace and from a volume, and committing."""

import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from world import WORKING, ProgramTest, give, under_each

CLONE_AND_COMMIT = """
git clone --quiet "$1" clone
cd clone
git config user.name Tester
git config user.email tester@example.org
echo more >>file.txt
git commit --quiet --all --message second
git log --format=%s
git fsck --strict 2>&1
git gc --quiet
"""


class Git(ProgramTest):
    def make_repository(self, where):
        repository = self.make_directory(where)
        (repository / "file.txt").write_text("content\n")
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_GLOBAL": "/dev/null"}
        for words in (["init", "--quiet"], ["add", "."],
                      ["-c", "user.name=T", "-c", "user.email=t@example.org", "commit", "--quiet", "-m", "first"]):
            subprocess.run(["git", *words], cwd=repository, check=True, env=environment)
        for path in [repository, *repository.rglob("*")]:
            give(path, self.uid)
        return repository

    @under_each(*WORKING)
    def test_a_repository_in_the_workspace_is_cloned_and_committed_to(self, preset):
        self.make_repository(self.project / "origin")
        said = self.works(preset, "sh", "-ec", CLONE_AND_COMMIT, "sh", "./origin")
        self.assertEqual(said, "second\nfirst\n")
        self.assertEqual((self.project / "clone" / "file.txt").read_text(), "content\nmore\n")
        self.check_reach(preset)

    @under_each(*WORKING)
    def test_a_repository_of_a_volume_is_cloned_and_cannot_be_pushed_to(self, preset):
        repository = self.make_repository(self.neighbour / f"repository-{preset}")
        volume = ["-v", f"{repository}:/srv/repository:ro"]
        said = self.works(preset, "sh", "-ec", CLONE_AND_COMMIT, "sh", "/srv/repository", options=volume)
        self.assertEqual(said, "second\nfirst\n")
        run = self.under(preset, "git", "-C", "clone", "push", "--quiet", "origin", "HEAD:refs/heads/other",
                         options=volume)
        self.check_exited(run, 1)
        self.assertIn("remote unpack failed", run.err)
        self.assertFalse((repository / ".git" / "refs" / "heads" / "other").exists())

    @under_each("strict@1")
    def test_strict_clones_nothing_into_the_project_and_nothing_over_a_network(self, preset):
        self.make_repository(self.project / "origin")
        self.assertEqual(self.works(preset, "git", "-C", "origin", "log", "--format=%s"), "first\n")
        self.fails(preset, "git", "clone", "--quiet", "./origin", "clone", code=128, says="Read-only file system")
        self.fails(preset, "git", "clone", "--quiet", "git://127.0.0.1/x", "/tmp/clone", code=128,
                   says="unable to connect")
        self.check_reach(preset)
