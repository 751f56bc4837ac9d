"""The kept inputs of the fuzz targets go through once more, in every run and without libFuzzer."""

import os
import pathlib
import subprocess
import unittest

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("BELLJAR_BUILD", HERE.parents[1] / "build"))
TARGETS = sorted(path.stem for path in HERE.glob("*.cpp") if path.stem != "replay")


class Corpus(unittest.TestCase):
    """A test for each target: an input that once broke it is kept, and must not again."""

    def replay(self, target):
        done = subprocess.run([BUILD / "tests" / "fuzz" / f"fuzz_{target}", HERE / "corpus" / target],
                              capture_output=True, text=True, errors="replace", timeout=900)
        self.assertEqual(done.returncode, 0, done.stdout[-500:] + done.stderr[-5000:])
        self.assertRegex(done.stdout, r"\n[1-9]\d* passed, 0 failed\n$")

    def test_an_empty_corpus_is_no_success(self):
        done = subprocess.run([BUILD / "tests" / "fuzz" / f"fuzz_{TARGETS[0]}"], capture_output=True)
        self.assertNotEqual(done.returncode, 0)


for _target in TARGETS:
    setattr(Corpus, f"test_the_kept_inputs_of_{_target}_hold", lambda self, target=_target: self.replay(target))
